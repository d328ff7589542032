"""Folders of ranks, as torchrun makes them for logs: RUN/attempt_0/RANK/stderr.log."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from busbw.core.errors import UsageError

OUTPUT = ("stdout.log", "stderr.log", "error.json")  # of a rank, which may hold no call
DEEPEST = 4  # of LOGS/RUN/attempt_0/RANK/stderr.log in LOGS
_RANK = re.compile(r"(?:rank[._-]?)?\d+")
_ATTEMPT = re.compile(r"attempt_(\d+)")


def files(folder: Path) -> list[Path]:
    """The files with content in the folders of ranks below this one, of the last attempt; none if
    there are no such folders. UsageError if they are of several runs.
    """
    runs: dict[Path, dict[int, list[Path]]] = {}
    for file in _of_ranks(folder):
        run, number = file.parent.parent, 0
        if attempt := _ATTEMPT.fullmatch(run.name):
            run, number = run.parent, int(attempt[1])
        runs.setdefault(run, {}).setdefault(number, []).append(file)
    if len(runs) > 1:
        newest = max(runs, key=lambda run: run.stat().st_mtime)
        raise UsageError(
            f"{folder}: it has the files of {len(runs)} runs",
            f"busbw show {shlex.quote(str(newest))}",
        )
    return [file for attempts in runs.values() for file in attempts[max(attempts)]]


def _of_ranks(folder: Path) -> Iterator[Path]:
    for depth in range(DEEPEST - 1):
        for file in folder.glob("*/" * depth + "[0-9r]*/[!.]*"):
            if _RANK.fullmatch(file.parent.name) and file.is_file() and file.stat().st_size:
                yield file
