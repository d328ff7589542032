"""Runs the real command lines in separate processes, each under a time limit."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from busbw.cli.main import main

sys.path.append(str(Path(__file__).parents[1] / "ranks"))  # jobs of ranks with PyTorch
sys.path.append(str(Path(__file__).parents[1] / "hosts"))  # trees of machines, expositions
SOURCE = str(Path(__file__).parents[2] / "src")
LIMIT_S = 60
WIDE = "1000"  # columns, so that sentences are not broken


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


Busbw = Callable[..., Done]


def _environment(program: str, extra: dict[str, str]) -> dict[str, str]:
    compat = {} if program == "busbw" else {"BUSBW_ENGINE": "sim"}
    return {**os.environ, "PYTHONPATH": SOURCE, "COLUMNS": WIDE, **compat, **extra}


@pytest.fixture(scope="package", autouse=True)
def no_gpus() -> Iterator[None]:
    """Hide GPUs: defaults measure the same on every machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        yield


@pytest.fixture
def other_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images without ssh may keep Open MPI 4 from starting ranks on other hosts."""
    monkeypatch.delenv("OMPI_MCA_plm", raising=False)


@pytest.fixture
def run(tmp_path: Path) -> Busbw:
    """run("busbw", "run", ...) or run("all_reduce_perf", ...), in an empty directory; keyword
    arguments set variables.
    """

    def start(
        program: str,
        *words: str,
        before: tuple[str, ...] = (),
        limit_s: float = LIMIT_S,
        python: str = "",
        **variables: str,
    ) -> Done:
        link = tmp_path / "bin" / program
        link.parent.mkdir(exist_ok=True)
        link.write_text(
            f"#!{python or sys.executable}\nfrom busbw.cli.main import entry\nentry()\n"
        )
        link.chmod(0o755)
        done = subprocess.run(
            [*before, str(link), *words],
            cwd=tmp_path,
            env=_environment(program, variables),
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return start


@pytest.fixture
def here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Busbw:
    """here("busbw", "run", ...) is `run` without a new interpreter, for what one process does."""
    monkeypatch.chdir(tmp_path)

    def call(program: str, *words: str, **variables: str) -> Done:
        with monkeypatch.context() as patch:
            for name, value in _environment(program, variables).items():
                patch.setenv(name, value)
            code = main([program, *words])
        printed = capfd.readouterr()
        return Done(code, printed.out, printed.err)

    return call
