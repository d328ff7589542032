"""When ranks ended and how: what `busbw capture` notes, and who reads it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import live_job
import pytest

from busbw.core.finding import Verdict
from busbw.host import process
from busbw.job.live.judge import judge
from busbw.job.live.reader import JobFolder
from busbw.job.live.types import LiveVerdict
from busbw.pattern import rank_ends
from busbw.pattern.end_watch import EndWatch

Processes = list[subprocess.Popen[bytes]]
Start = Callable[[], Processes]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts the processes of three ranks."""
    started: Processes = []

    def three() -> Processes:
        new = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
        started.extend(new)
        return new

    yield three
    for child in started:
        child.kill()
        child.wait()


def ranks(folder: Path, processes: Processes, **changes: object) -> None:
    for rank, child in enumerate(processes):
        live_job.write(folder, rank, pid=child.pid, **changes)


def ended(folder: Path) -> int:
    return len(rank_ends.all_ends(folder))


def end(folder: Path, child: subprocess.Popen[bytes], number: int) -> None:
    """End one process, and wait until that is noted; the next one ends later."""
    before = ended(folder)
    child.send_signal(number)
    while ended(folder) == before:
        time.sleep(0.01)
    child.wait()
    time.sleep(rank_ends.FIRST_S)


def watching(folder: Path, launch: str = "this") -> EndWatch:
    """One that has seen the ranks."""
    watch = EndWatch(folder, launch)
    watch.__enter__()
    while not all(rank.descriptor for rank in watch._ranks.values()) or not watch._ranks:
        time.sleep(0.01)
    return watch


def later(folder: Path) -> LiveVerdict:
    """What is said by a watch that is started after the end."""
    return judge(JobFolder(folder).look())


def test_the_rank_that_went_first_is_named_though_nobody_watched(
    tmp_path: Path, start: Start
) -> None:
    processes = start()
    ranks(tmp_path, processes)
    watch = watching(tmp_path)
    end(tmp_path, processes[1], signal.SIGKILL)
    end(tmp_path, processes[0], signal.SIGTERM)
    end(tmp_path, processes[2], signal.SIGTERM)
    watch.__exit__()
    found = later(tmp_path)
    # this process is the capture, and runs: the launcher may start them again
    assert (found.verdict, found.kind, found.suspects) == (Verdict.FAIL, "ended", [1])
    assert not found.is_over
    for file in tmp_path.glob(rank_ends.FILES):
        file.write_text(file.read_text().replace(f'"pid":{os.getpid()},', '"pid":0,'))
    found = later(tmp_path)
    assert (found.kind, found.is_over, found.suspects) == ("over", True, [1])
    assert "rank 1 on " in found.message and " and was killed by SIGKILL" in found.message
    assert found.evidence == ["ranks 0,2 were killed by SIGTERM", "rank 1 was killed by SIGKILL"]
    [note] = rank_ends.notes(tmp_path)
    assert note.startswith("rank 1 on ") and note.endswith(", and was killed by SIGKILL")
    # a watch whose capture is not there names none
    for file in tmp_path.glob(rank_ends.FILES):
        file.unlink()
    assert (later(tmp_path).verdict, rank_ends.notes(tmp_path)) == (Verdict.UNKNOWN, [])


def test_no_rank_is_the_first_where_another_one_left_nothing(tmp_path: Path, start: Start) -> None:
    """Rank 2 was killed before it wrote anything."""
    processes = start()
    ranks(tmp_path, processes[:2], world=3)
    watch = watching(tmp_path)
    end(tmp_path, processes[0], signal.SIGKILL)
    end(tmp_path, processes[1], signal.SIGTERM)
    watch.__exit__()
    assert not later(tmp_path).suspects
    (note,) = rank_ends.notes(tmp_path)
    assert note.startswith("rank 2 left no record: which rank went first is unknown")


def test_ends_that_were_seen_together_name_none(tmp_path: Path, start: Start) -> None:
    processes = start()
    ranks(tmp_path, processes)
    watch = watching(tmp_path)
    for child in processes:
        child.kill()
        child.wait()
    watch.__exit__()
    for of in rank_ends.all_ends(tmp_path).values():
        assert of.signal in (0, signal.SIGKILL)  # 0 if it was collected before
    assert ended(tmp_path) == 3


def test_ranks_that_were_told_to_end_are_not_accused(tmp_path: Path, start: Start) -> None:
    processes = start()
    ranks(tmp_path, processes)
    watch = watching(tmp_path)
    watch.note_order(signal.SIGINT)
    for child in processes:
        end(tmp_path, child, signal.SIGTERM)
    watch.__exit__()
    found = later(tmp_path)
    assert (found.verdict, rank_ends.notes(tmp_path)) == (Verdict.UNKNOWN, [])
    assert found.evidence[0] == "busbw capture was told to end it by SIGINT"


def test_the_last_start_of_a_job_counts(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks are started again in the same files, as by torchrun --max-restarts."""
    monkeypatch.setattr("busbw.pattern.end_watch.LEAST_S", 0.01)
    first, second = start(), start()
    ranks(tmp_path, first)
    watch = watching(tmp_path)
    for child, number in zip(first, (signal.SIGKILL, signal.SIGTERM, signal.SIGTERM), strict=True):
        end(tmp_path, child, number)
    ranks(tmp_path, second)
    while not all(rank.descriptor for rank in watch._ranks.values()):
        time.sleep(0.01)
    end(tmp_path, second[2], signal.SIGSEGV)
    for child in second[:2]:
        end(tmp_path, child, signal.SIGTERM)
    watch.__exit__()
    assert later(tmp_path).suspects == [2]
    assert [note.partition(" on ")[0] for note in rank_ends.notes(tmp_path)] == ["rank 2"]


def test_a_rank_of_another_host_or_that_is_gone_is_not_watched(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    live_job.write(tmp_path, 0, pid=gone.pid, started=1)
    live_job.write(tmp_path, 1, host="elsewhere")
    (tmp_path / ".rank_2.now").write_text('{"version": 1, "ra')
    live_job.write(tmp_path, 3, started=process.start_time(os.getpid()) - 1)
    with EndWatch(tmp_path, "this") as watch:
        while len(watch._ranks) < 3:
            time.sleep(0.01)
    assert not any(rank.descriptor for rank in watch._ranks.values())
    assert not list(tmp_path.glob(rank_ends.FILES))


def test_capture_notes_the_ends_of_its_ranks(tmp_path: Path) -> None:
    """Its command is a rank that says so, and is killed once it is watched."""
    folder = tmp_path / "run"
    program = (
        "import sys, os, time, signal; from pathlib import Path; import live_job\n"
        f"folder = Path({str(folder)!r})\n"
        "live_job.write(folder, 0)\n"
        "fds = f'/proc/{os.getppid()}/fd'\n"
        "while not any('pidfd' in os.readlink(f'{fds}/{fd}') for fd in os.listdir(fds)"
        " if os.path.lexists(f'{fds}/{fd}')): time.sleep(0.01)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = ["-m", "busbw", "capture", "--output", str(folder), "--", sys.executable, "-c", program]
    done = subprocess.run(
        [sys.executable, *words], env=environ, capture_output=True, timeout=100, check=False
    )
    assert done.returncode == 128 + signal.SIGKILL, done.stderr
    assert ended(folder) == 1


@pytest.mark.parametrize(
    ("of", "text"),
    [
        ((signal.SIGABRT, 0, False), "aborted itself (SIGABRT)"),
        ((40, 0, False), "was killed by signal 40"),
        ((0, 1, True), "exited with code 1"),
        ((0, 0, True), ""),
    ],
)
def test_how_a_process_ended_in_words(of: tuple[int, int, bool], text: str) -> None:
    number, code, has_ended = of
    assert rank_ends.how(number, code, ended=has_ended) == text


@pytest.mark.parametrize("content", ["", "[]", '{"version": 2, "host": "h"}'])
def test_a_file_that_cannot_be_read_says_nothing(content: str, tmp_path: Path) -> None:
    file = tmp_path / rank_ends.file_name("x")
    file.write_text(content)
    assert rank_ends.all_ends(tmp_path) == {}
    assert later(tmp_path).kind == "waiting"
