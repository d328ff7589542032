"""Finished runs are kept in the history, once, and a history that cannot be written costs nothing
else.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from busbw.cli import run_page  # imported before record.save is replaced, which it imports
from busbw.cli.main import guarded
from busbw.core.errors import NoMeasurement
from busbw.history.place import history_file
from busbw.history.store import opened
from busbw.launch import mpirun

pytestmark = pytest.mark.usefixtures("ranks_are_forks")
SIM = ("run", "all_reduce", "--engine", "sim", "-np", "2", "-b", "1K", "-e", "4K")
MPI = ("run", "all_reduce", "-np", "2", "-e", "64", "--iters", "3")
LIMIT_S = 100


def busbw() -> tuple[str, ...]:
    return (sys.executable, "-m", "busbw")


def kept(data_home: Path) -> list[str]:
    """The runs of the test's history, newest first; each as its collective or its name."""
    file = data_home / "busbw" / "history.sqlite"
    if not file.exists():
        return []
    with opened(file, create=False) as history:
        return [run.what or run.collective for run in history.runs()]


def test_a_finished_run_is_kept_and_shown_as_it_was_printed(
    data_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded([*SIM, "--json", str(tmp_path / "r.json")]) == 0
    printed, err = capsys.readouterr()
    assert err == ""
    assert guarded(["show", "-1"]) == 0
    assert capsys.readouterr().out == printed
    assert guarded(["history", "add", str(tmp_path / "r.json")]) == 0
    assert capsys.readouterr().out.endswith("run 1, which was there already\n")
    assert guarded([*SIM, "--no-history"]) == 0
    assert guarded([*SIM, "--sim", "corrupt_rank=1"]) == 1
    assert kept(data_home) == ["all_reduce", "all_reduce"]


@pytest.mark.parametrize("value", ["false", "elsewhere/runs.sqlite"])
def test_the_variable_switches_it_off_or_names_another_file(
    data_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BUSBW_HISTORY", value)
    assert guarded(SIM) == 0
    assert kept(data_home) == []
    assert (tmp_path / "elsewhere" / "runs.sqlite").exists() == (value != "false")


def test_of_the_ranks_of_an_outer_launcher_one_keeps_the_run(
    data_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outer = mpirun.command(mpirun.find(), [], 2)
    words = [*outer, *busbw(), "run", "all_reduce", "-e", "64", "--iters", "3"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert kept(data_home) == ["all_reduce"]
    assert guarded(MPI) == 0 and "history" not in capsys.readouterr().err
    assert kept(data_home) == ["all_reduce"] * 2


def test_a_run_with_an_injected_fault_is_not_kept(data_home: Path) -> None:
    assert guarded([*MPI, "--inject", "late:rank=1,us=200"]) == 0
    assert kept(data_home) == []


def test_runs_that_end_at_once_are_all_kept(data_home: Path) -> None:
    runs = [
        subprocess.Popen(
            [*busbw(), *SIM, "--sim", f"seed={number}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    assert [run.communicate(timeout=LIMIT_S)[1] for run in runs] == [""] * 3
    assert len(kept(data_home)) == 3


def test_a_history_that_cannot_be_written_is_a_note(
    data_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = tmp_path / "no.sqlite"
    other.write_text("no database" * 500)
    for file in (str(other), "/dev/full/h.sqlite", "/proc/h.sqlite"):
        monkeypatch.setenv("BUSBW_HISTORY", file)
        assert guarded([*SIM, "--json", str(tmp_path / "r.json"), "--force"]) == 0
        out, err = capsys.readouterr()
        assert out.startswith("AllReduce, 2 x simulated GPU") and "history" not in out
        assert err.startswith(f"note: the run is not in the history: {file}: ")
        assert err.endswith(" (--no-history leaves it out)\n") and err.count("\n") == 1
        assert json.loads((tmp_path / "r.json").read_bytes())["complete"]
    assert other.read_text() == "no database" * 500


def test_a_run_whose_file_cannot_be_written_is_kept_and_has_its_page(
    data_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def save(_data: bytes, file: Path, **_: object) -> None:
        raise NoMeasurement(f"{file}: No space left on device", "make room")

    monkeypatch.setattr("busbw.measure.record.save", save)
    page = tmp_path / "page.html"
    assert guarded([*SIM, "--json", str(tmp_path / "r.json"), "--html", str(page)]) == 3
    assert "r.json: No space left on device" in capsys.readouterr().err
    assert kept(data_home) == ["all_reduce"]
    assert page.exists()
    monkeypatch.setattr(run_page, "save", lambda _data, file, *_, **__: save(b"", file))
    other = [*SIM, "--sim", "seed=2"]  # the same run in the same second would be stored once
    assert guarded([*other, "--json", str(tmp_path / "r.json"), "--html", f"{page}2"]) == 3
    error = capsys.readouterr().err
    assert error.index("error: ") < error.index("hint: make room")
    assert "note: " in error and "page.html2: No space left on device" in error
    assert kept(data_home) == ["all_reduce"] * 2


def test_secrets_are_not_kept(
    data_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NCCL_API_TOKEN", "hunter2hunter2")
    monkeypatch.setattr("sys.argv", ["busbw", "run", "--token", "hunter2hunter2"])
    assert guarded(SIM) == 0
    content = history_file({"XDG_DATA_HOME": str(data_home)}).read_bytes()
    assert b"NCCL_API_TOKEN" in content and b"hunter2" not in content


def test_a_run_writes_the_page_of_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert guarded([*SIM, "--json", "r.json", "--html", "r1.html"]) == 0
    assert guarded(["report", "r.json", "--output", "r2.html"]) == 0
    assert Path("r1.html").read_bytes() == Path("r2.html").read_bytes()
    assert guarded([*SIM, "--html", "r1.html"]) == 2, "it exists"
    assert guarded([*SIM, "--html", "r1.html", "--force"]) == 0
    assert guarded([*SIM, "--html", "missing/r1.html"]) == 2
    assert guarded([*SIM, "--html", "-"]) == 2
