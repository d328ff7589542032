"""The result file: written after every row, complete at any moment, and refused before the run
if it cannot be written.
"""

import math
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from busbw.core.errors import Exit, NoMeasurement, UsageError
from busbw.core.result import Cell, Result, ResultRow
from busbw.core.sweep import SweepSpec
from busbw.measure import record as record_module
from busbw.measure.events import Ended, Note, RowDone, Started
from busbw.measure.record import RunRecord, check_writable, encoded, save

SPEC = SweepSpec(collective="all_reduce")
SOURCE = Path(__file__).parents[3] / "src"
QUICK_S = record_module.QUICK_S


@pytest.fixture(autouse=True)
def every_row_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a busy machine, which would leave out rows after a slow write."""
    monkeypatch.setattr(record_module, "QUICK_S", math.inf)


def row(number: int, samples: int = 0) -> RowDone:
    return RowDone(
        ResultRow(
            8 << number,
            2,
            "float",
            "sum",
            -1,
            Cell(1e-5, 1e9, 1e9, 0, samples_s=[1e-5] * samples),
            None,
            20,
        )
    )


def started() -> Started:
    return Started(Result(SPEC, argv=["busbw"]))


def read(file: Path) -> Result:
    return msgspec.json.decode(file.read_bytes(), type=Result)


def test_every_row_is_written_to_the_file_immediately(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    record = RunRecord(file)
    record.take(Note("hello"))
    assert record.result is None, "a note is not part of the result"
    assert not file.exists(), "nothing is written before the run starts"
    record.take(started())
    assert (read(file).rows, read(file).complete) == ([], False)
    for number in range(3):
        record.take(row(number))
        assert [row.size_bytes for row in read(file).rows] == [8 << i for i in range(number + 1)]
        assert not read(file).complete
    record.take(Ended("2026-01-01 00:00:00", {}))
    assert read(file) == record.result
    assert (read(file).complete, read(file).end) == (True, "2026-01-01 00:00:00")


def test_a_row_that_is_visited_again_is_replaced(tmp_path: Path) -> None:
    record = RunRecord(tmp_path / "result.json")
    record.take(started())
    for repeat in range(2):
        for final in (False, True):
            for number in range(2):
                event = row(2 * repeat + number)
                event.row.repeat = repeat
                record.take(RowDone(event.row, 0, number, final=final))
    assert record.result is not None
    assert [row.size_bytes for row in record.result.rows] == [8, 16, 32, 64]


def test_a_program_suspended_while_it_writes_continues_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a row's times are: before and after it is written. A row that was left out follows
    within a second, also if none comes after it.
    """
    monkeypatch.setattr(record_module, "QUICK_S", QUICK_S)
    times = iter([0.0, 0.0, 1.0, 100.0, 100.9, 100.9, 101.1, 101.1])
    monkeypatch.setattr("busbw.measure.record.time", SimpleNamespace(monotonic=lambda: next(times)))
    record = RunRecord(tmp_path / "result.json")
    record.take(started())
    saved = []
    for take in (lambda: record.take(row(0)), lambda: record.take(row(1)), *[record.catch_up] * 2):
        take()
        saved.append(record.saved)
    assert saved == [1, 1, 1, 2]


@pytest.mark.parametrize(("mask", "shared_mode"), [(0o022, 0o644), (0o000, 0o666), (0o077, 0o600)])
def test_only_its_owner_reads_the_file_and_it_is_the_only_one_left(
    tmp_path: Path, mask: int, shared_mode: int
) -> None:
    file, report = tmp_path / "result.json", tmp_path / "report.html"
    file.touch(0o666)
    record = RunRecord(file)
    record.take(started())
    before = os.umask(mask)
    try:
        record.take(row(0))
        save(b"<html>", report, shared=True)
    finally:
        os.umask(before)
    assert {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in tmp_path.iterdir()} == {
        "result.json": 0o600,
        "report.html": shared_mode,
    }


def test_a_reason_of_the_end_is_kept_without_secrets(tmp_path: Path) -> None:
    record = RunRecord(tmp_path / "result.json")
    record.take(started())
    record.run_aborted("mpirun -x HF_TOKEN=abcdef ended with 1")
    assert read(tmp_path / "result.json").errors == ["mpirun -x HF_TOKEN=*** ended with 1"]


def test_readers_never_see_a_partial_file(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    record = RunRecord(file)
    record.take(started())
    row_counts: list[int] = []
    finished = threading.Event()

    def reader() -> None:
        while not finished.is_set():
            row_counts.append(len(read(file).rows))

    thread = threading.Thread(target=reader)
    thread.start()
    try:
        for number in range(30):
            record.take(row(number, samples=2000))
            reads, limit = len(row_counts), time.monotonic() + 10
            while len(row_counts) < reads + 1 and thread.is_alive() and time.monotonic() < limit:
                time.sleep(0.001)
    finally:
        finished.set()
        thread.join()
    assert row_counts == sorted(row_counts)
    assert len(set(row_counts)) > 3, "the reader saw several states"


def test_a_run_that_is_interrupted_while_it_writes_knows_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By SIGINT, right before or after the new file has replaced the old one."""
    replace = Path.replace
    for replaces in (False, True):
        record = RunRecord(tmp_path / f"{replaces}.json")
        record.take(started())
        record.take(row(0))

        def interrupted(draft: Path, target: Path, replaces: bool = replaces) -> None:
            if replaces:
                replace(draft, target)
            raise KeyboardInterrupt

        monkeypatch.setattr(Path, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            record.take(row(1))
        monkeypatch.setattr(Path, "replace", replace)
        record.run_aborted("interrupted")
        assert record.problem is None
        assert record.saved == 2


def test_a_file_that_another_run_replaces_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    file = tmp_path / "results" / "result.json"
    one, other = RunRecord(file), RunRecord(file)
    for record, rows in ((one, 1), (other, 2), (one, 3)):
        if record.result is None:
            record.take(started())
        for number in range(rows):
            record.take(row(number))
    assert "another run writes to this file" in one.problem.message
    assert other.problem is None and len(read(file).rows) == 2
    assert len(read(tmp_path / "result.json").rows) == 4


def test_an_interrupted_writer_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "result.json"
    record = RunRecord(file)
    record.take(started())
    record.take(row(0))

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "replace", fail)
    record.take(row(1))
    assert record.problem is not None
    assert "Input/output error" in record.problem.message
    assert "a path with room" in record.problem.hint
    assert record.saved == 1
    assert len(read(file).rows) == 1
    assert len(record.result.rows) == 2
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing/result.json", "No such file or directory"),
        (".", "is a directory"),
        ("file/x", "Not a directory"),
        ("pipe", "is a device or a pipe"),
        ("link", "is a device or a pipe"),
    ],
)
def test_an_unwritable_path_is_refused_before_the_run(
    tmp_path: Path, name: str, reason: str
) -> None:
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    with pytest.raises(UsageError) as caught:
        RunRecord(tmp_path / name)
    assert caught.value.message == f"--json {tmp_path / name}: {reason}"
    assert caught.value.hint


@pytest.mark.parametrize("name", ["link", "folder/report.html"])
def test_a_link_of_another_user_in_a_folder_for_all_is_not_followed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "link").symlink_to("own/report.html")
    (tmp_path / "folder").symlink_to("own")
    real = Path.lstat

    def of_a_stranger(path: Path) -> os.stat_result:
        status = list(real(path))
        status[4] = 12345
        return os.stat_result(status)

    monkeypatch.setattr(Path, "lstat", of_a_stranger)
    tmp_path.chmod(0o1777)
    with pytest.raises(UsageError, match="a symbolic link of another user, number 12345"):
        check_writable(tmp_path / name, what="--output")
    with pytest.raises(NoMeasurement, match="a symbolic link of another user"):
        save(b"x", tmp_path / name)
    tmp_path.chmod(0o777)  # as in the kernel, the folder's own users answer for it
    save(b"x", tmp_path / name)
    assert (tmp_path / "own" / "report.html").read_bytes() == b"x"


def test_a_symlink_is_kept_and_its_target_is_written(tmp_path: Path) -> None:
    link = tmp_path / "latest.json"
    link.symlink_to("runs/5.json")
    (tmp_path / "runs").mkdir()
    RunRecord(link).take(started())
    assert link.is_symlink()
    assert read(tmp_path / "runs" / "5.json").argv == ["busbw"]
    assert [entry.name for entry in (tmp_path / "runs").iterdir()] == ["5.json"]


@pytest.mark.parametrize("working_directory", ["there", "gone too", "without room"])
def test_rows_are_saved_elsewhere_once_the_directory_has_vanished(
    working_directory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gone", "work", "home"):
        (tmp_path / name).mkdir()
    file = tmp_path / "gone" / "result.json"
    (tmp_path / "home" / "result.json").write_text("an older one")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    record = RunRecord(Path("../gone/result.json") if working_directory == "there" else file)
    (tmp_path / "gone").rmdir()
    if working_directory == "gone too":
        (tmp_path / "work").rmdir()
    elif working_directory == "without room":
        monkeypatch.chdir("/proc")
    record.take(started())
    assert record.problem is not None
    assert "No such file or directory" in record.problem.message
    record.take(row(0))
    record.take(row(1))
    saved = tmp_path / (
        "work/result.json" if working_directory == "there" else "home/result-1.json"
    )
    assert record.elsewhere == saved
    assert record.problem.message.endswith(
        f"No such file or directory; the rows are in {saved} instead"
    )
    assert len(read(saved).rows) == record.saved == 2
    assert (tmp_path / "home" / "result.json").read_text() == "an older one"
    if working_directory == "gone too":
        return
    (tmp_path / "gone").mkdir()
    record.take(row(2))
    assert record.problem is None
    assert len(read(file).rows) == 3
    assert not saved.exists(), "the file has all rows again"


def test_a_run_without_a_file_stays_in_memory_until_it_is_kept_in_the_home_if_need_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    record = RunRecord()
    record.take(started())
    record.take(row(0))
    assert list(tmp_path.iterdir()) == []
    monkeypatch.chdir("/proc")  # cannot be written
    record.keep(Path("busbw-result-1.json"))
    assert record.file == tmp_path / "busbw-result-1.json"
    assert len(read(record.file).rows) == 1


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 32 KiB."""
    mount_point = tmp_path / "small"
    mount_point.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32k", "busbw-test", str(mount_point)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root and the mount capability")
    yield mount_point
    subprocess.run(["umount", str(mount_point)], check=True)


def test_a_full_disk_is_reported_and_keeps_the_last_file(
    full_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/proc")
    monkeypatch.setenv("HOME", "/proc")
    monkeypatch.setattr("tempfile.tempdir", "/proc")
    record = RunRecord(full_disk / "result.json")
    record.take(started())
    while record.problem is None and len(record.result.rows) < 100:
        record.take(row(len(record.result.rows), samples=100))
    assert record.problem is not None
    assert f"{full_disk / 'result.json'}: No space left on device" in record.problem.message
    saved = read(full_disk / "result.json")
    assert len(saved.rows) == record.saved == len(record.result.rows) - 1
    assert [entry.name for entry in full_disk.iterdir()] == ["result.json"]
    record.result.rows.clear()
    record.take(row(0))
    assert record.problem is None, "a later successful write ends the problem"
    (full_disk / "result.json").unlink()
    (full_disk / "filler").write_bytes(b"x" * (32 << 10))
    with pytest.raises(NoMeasurement, match="No space left on device"):
        save(encoded(saved), full_disk / "result.json")


def test_a_run_on_a_full_disk_keeps_its_rows_on_stdout(full_disk: Path, tmp_path: Path) -> None:
    words = (
        "run all_reduce --engine sim -n 2 -b 8 -e 64M --check 0 -I 1 --iters 50 --sim noise=0.1"
        " --timing classic --format nccl-tests"
    )
    line = [sys.executable, "-m", "busbw", *words.split(), "--json", str(full_disk / "result.json")]
    result = subprocess.run(
        line,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        check=False,
    )
    rows = [
        text.split() for text in result.stdout.splitlines() if text and not text.startswith("#")
    ]
    assert result.returncode == Exit.UNKNOWN, result.stderr
    assert "No space left on device" in result.stderr
    saved = read(full_disk / "result.json")
    assert not saved.complete
    assert [int(entry[0]) for entry in rows][: len(saved.rows)] == [
        row.size_bytes for row in saved.rows
    ]
    assert len(rows) == 24 > len(saved.rows) > 0, (
        "the sweep continues, and rows that do not fit into the file are printed"
    )
    assert "# Avg bus bandwidth" in result.stdout
