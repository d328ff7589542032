"""`busbw train` as ranks of torchrun run it, twice in each process: each returns its exit code
and what it printed.
"""

import contextlib
import io
import os
from pathlib import Path

from busbw.cli.main import guarded


def _run_and_capture(*words: str) -> tuple[int, str]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = guarded(["train", *words])
    return code, printed.getvalue()


def methods_in_turn() -> tuple[int, str]:
    steps = ("--batch-size", "2", "--warmup", "2", "--iters", "2", "--steps", "1", "--rounds", "2")
    return _run_and_capture(
        "mlp-small",
        *steps,
        "--compare",
        "none,topk",
        "--json",
        str(Path(os.environ["RESULTS"], "r.json")),
    )


def a_language_model() -> tuple[int, str]:
    steps = ("--batch-size", "1", "--warmup", "1", "--iters", "1", "--steps", "1", "--rounds", "1")
    return _run_and_capture(
        "gpt-small",
        "--sequence",
        "8",
        *steps,
        "--compute-dtype",
        "fp16",
        "--accel",
        "topk",
        "--format",
        "json",
    )
