"""What is shown of a capture whose ranks still run, or were killed."""

import os
import pickle
import subprocess
from pathlib import Path

import live_job
import pytest

from busbw.cli.main import guarded
from busbw.pattern import capture

NOT_FINISHED = "note: the capture is not finished: ranks 0-2 still run; all calls until "


def ranks(folder: Path, pid: int | None = None, *, with_calls: bool = True) -> None:
    """Three ranks with two calls each, by default of this process."""
    for rank in range(3):
        changes = {} if pid is None else {"pid": pid, "started": 1}
        live_job.write(folder, rank, live_job.steps(10), **changes)
        calls = [live_job.call(number, ended=True) | {"output_sizes": [[4]]} for number in (1, 2)]
        groups = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
        dump = {"version": "2.5", "pg_config": groups, "pg_status": {}, "entries": calls}
        if with_calls:
            (folder / f"rank_{rank}.fr").write_bytes(pickle.dumps(dump))


def shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert guarded(["show", str(folder)]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_a_capture_whose_ranks_still_run_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks(tmp_path)
    out = shown(tmp_path, capsys)
    assert "all_reduce 16 B" in out and NOT_FINISHED in out
    (tmp_path / "pattern.jsonl").touch()
    assert "not finished" not in shown(tmp_path, capsys)


def test_a_capture_of_a_server_says_what_times_would_tell_and_nothing_of_ddp(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks(tmp_path)
    out = shown(tmp_path, capsys)
    assert "note: who was late is not known of this record: its calls have no times" in out
    assert "DistributedDataParallel" not in out
    (tmp_path / "rank_0.ddp").write_text(
        '{"version": 1, "rank": 0, "world": 3, "host": "h", "steps_us": [5.0], "waits_us": [1.0],'
        ' "bucket_mb": 25.0, "hook": "", "shapes": [[[3]]]}'
    )
    assert "who was late" not in shown(tmp_path, capsys), "DDP timed its steps"


def test_a_capture_whose_ranks_were_killed_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    ranks(tmp_path, pid=gone.pid)
    text = "the capture was not ended: ranks 0-2 did not come to the end of the program; all calls"
    assert text in shown(tmp_path, capsys)
    for rank in range(3):
        live_job.write(tmp_path, rank, ended=True)
    assert "not ended" not in shown(tmp_path, capsys)


def test_the_report_of_a_capture_that_runs_has_its_pattern(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks(tmp_path)
    assert guarded(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().err == ""
    page = (tmp_path / "report.html").read_text()
    assert "all_reduce" in page and NOT_FINISHED.removeprefix("note: ") in page


def test_the_report_of_a_capture_names_files_of_ranks_only_if_they_are_newer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks(tmp_path)
    capture.keep(capture.pattern(tmp_path), tmp_path)
    for until_s, note in ((1e9, ""), (2e9, "note: not read of ")):
        for path in tmp_path.glob("rank_*.fr"):
            os.utime(path, (until_s, until_s))
        os.utime(tmp_path / "pattern.jsonl", (1.5e9, 1.5e9))
        assert guarded(["report", str(tmp_path)]) == 0
        assert capsys.readouterr().err.startswith(note) if note else not capsys.readouterr().err


@pytest.mark.parametrize("command", ["show", "report"])
def test_ranks_without_calls_are_an_error_that_names_watch_job(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks(tmp_path, with_calls=False)
    assert guarded([command, str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "its ranks have written no calls so far" in error
    assert f"hint: busbw watch job {tmp_path}" in error
