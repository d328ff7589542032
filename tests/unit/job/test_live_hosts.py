"""What `busbw watch job --hosts` merges from the readers of several hosts, and what it says of ranks
that join, restart, or are not known.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from live_job import call, steps, write

from busbw.core.errors import NoMeasurement
from busbw.core.finding import Verdict
from busbw.host import process
from busbw.job.live import hosts as remote_hosts
from busbw.job.live import text as view
from busbw.job.live.files import OVERLAP, HostFiles, HostNews
from busbw.job.live.hosts import JobHosts
from busbw.job.live.judge import judge
from busbw.job.live.process_states import OVER
from busbw.job.live.reader import JobFolder
from busbw.job.live.types import JobLook, LiveRank, interval

HOUR_NS = 3600 * 10**9
Start = Callable[[], subprocess.Popen[bytes]]


class Readers:
    """The readers of h1 and h2 in this process; `lost` is the one that does not answer."""

    def __init__(self, first: Path, second: Path, ahead_ns: int = 0) -> None:
        self.lost, self.wanted = "", dict[str, Collection[int]]()
        self._files = {
            "h1": HostFiles(first, "h1"),
            "h2": HostFiles(second, "h2", lambda: time.time_ns() + ahead_ns),
        }

    def read(self, wanted: Mapping[str, Collection[int]]) -> dict[str, HostNews]:
        self.wanted = dict(wanted)
        answering = {name: files for name, files in self._files.items() if name != self.lost}
        return {name: files.look(wanted.get(name, ())) for name, files in answering.items()}

    def silent(self) -> dict[str, tuple[float, str]]:
        return {self.lost: (5.0, "no answer")} if self.lost else {}


@pytest.fixture
def start() -> Iterator[Start]:
    """start() gives a process that sleeps until the test ends."""
    with ExitStack() as stack:

        def one() -> subprocess.Popen[bytes]:
            sleeping = stack.enter_context(subprocess.Popen(["sleep", "60"]))
            stack.callback(sleeping.kill)
            return sleeping

        yield one


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A folder of h1 and one of h2."""
    for name in ("h1", "h2"):
        (tmp_path / name).mkdir()
    return tmp_path / "h1", tmp_path / "h2"


def write_all(folders: tuple[Path, Path], **of_rank_2: Any) -> None:
    """Ranks 0 and 1 on h1, and rank 2 on h2."""
    for rank in range(3):
        changes = {"host": "h1"} if rank < 2 else {"host": "h2"} | of_rank_2
        write(folders[rank == 2], rank, steps(seed=rank), **changes)


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def test_a_rank_that_is_stopped_on_any_host_is_named_whatever_their_clocks_say(
    folders: tuple[Path, Path], start: Start
) -> None:
    other = start()
    for ahead_ns in (-HOUR_NS, HOUR_NS):
        written_ns = time.time_ns() + ahead_ns
        write_all(folders, pid=other.pid, written_ns=written_ns, launch="of h2")
        look = JobFolder(folders[0], Readers(*folders, ahead_ns)).look()
        assert (judge(look).verdict, look.unread) == (Verdict.PASS, [])
    stop(other)
    found = judge(JobFolder(folders[0], Readers(*folders, HOUR_NS)).look())
    assert (found.kind, found.suspects) == ("stopped", [2])
    assert found.message.startswith("rank 2 on h2 is stopped: process ")


@pytest.mark.parametrize("state", ["stopped", "gone", "not in the call"])
def test_ranks_of_a_host_that_does_not_answer_are_not_judged(
    state: str, folders: tuple[Path, Path], start: Start
) -> None:
    other, readers = start(), Readers(*folders)
    write_all(folders, pid=other.pid)
    watched = JobFolder(folders[0], readers)
    watched.look(0.0)
    if state == "stopped":
        stop(other)
    elif state == "gone":
        end(other)
    readers.lost = "h2"
    waits = state == "not in the call"
    waiting = {"entries": [call(9, ended=True), call(10)]} if waits else {}
    for second in range(13 if waits else 1):
        for rank in range(2):
            write(folders[0], rank, steps(seed=rank) | waiting, host="h1")
        look = watched.look(float(second))
    found = judge(look)
    assert (found.verdict, found.kind, found.suspects) == (Verdict.UNKNOWN, "unseen", ())
    assert found.message == "rank 2 of 3 is not known since 5 s: h2: no answer"
    assert found.next == "busbw check --hosts h2"
    assert any(seen.startswith("ranks 0-1: in ") for seen in found.evidence)
    readers.lost = ""
    kinds = {"stopped": "stopped", "gone": "dead"}
    assert judge(watched.look(float(second))).kind == kinds.get(state, "missing")


def test_what_is_known_is_judged_beside_a_host_that_never_answered(
    folders: tuple[Path, Path], start: Start
) -> None:
    readers, other = Readers(*folders), start()
    readers.lost = "h2"
    found = judge(JobFolder(folders[0], readers).look())
    assert (found.kind, found.message) == ("unseen", "no rank is known: h2: no answer")
    write_all(folders)
    watched = JobFolder(folders[0], readers)
    found = judge(watched.look())
    assert found.message == "rank 2 of 3 is not known: h2: no answer"
    write(folders[0], 1, host="h1", pid=other.pid)
    watched = JobFolder(folders[0], readers := Readers(*folders))
    readers.lost = "h2"
    watched.look()
    end(other)
    found = judge(watched.look())
    assert found.message.endswith("; rank 0 still runs")
    assert found.evidence[-1] == "rank 2 of 3 is not known: h2: no answer"
    for rank in range(2):
        write(folders[0], rank, host="h1", ended=True)
    assert judge(watched.look()).kind == "unseen", "h2 may still run"


def test_a_shared_folder_is_read_where_the_ranks_run(tmp_path: Path, start: Start) -> None:
    other, readers = start(), Readers(tmp_path, tmp_path)
    write_all((tmp_path, tmp_path), pid=other.pid)
    watched = JobFolder(tmp_path, readers)
    look = watched.look()
    assert [look.ranks[rank].state is None for rank in range(3)] == [False] * 3
    watched.look()
    assert not any(readers.wanted.values()), "no file is read twice"
    readers.lost = "h2"  # its rank's file is read by h1, which does not know the process
    watched.look()
    write_all((tmp_path, tmp_path), pid=other.pid)
    look = watched.look()
    assert readers.wanted["h1"] == [2]
    assert (look.ranks[2].state, look.ranks[2].unknown_s) == (None, 0.0)
    assert judge(look).verdict is Verdict.PASS
    readers.lost = ""
    end(other)
    assert judge(watched.look()).suspects == [2]


def test_two_jobs_in_one_folder_are_told_apart_from_a_restart(
    folders: tuple[Path, Path], start: Start
) -> None:
    first, second = start(), start()
    shared, watched = folders[0], JobFolder(folders[0])
    for of_rank_0 in (first, second):
        write(shared, 0, steps(), pid=of_rank_0.pid)
        found = judge(watched.look())
    assert (found.verdict, found.kind) == (Verdict.UNKNOWN, "two-jobs")
    both = sorted(f"process {one.pid} on " for one in (first, second))
    assert all(text in found.message for text in both), found.message
    end(first)
    assert judge(watched.look()).kind == "incomplete"
    # Of two folders on two hosts, and of two sizes.
    for folder, host in zip(folders, ("h1", "h2"), strict=True):
        write(folder, 0, steps(), host=host, pid=second.pid)
    found = judge(JobFolder(shared, Readers(*folders)).look())
    assert "rank 0 is process" in found.message and " on h1 and process " in found.message
    write(shared, 0, steps(), world=2)
    write(shared, 1, steps())
    found = judge(JobFolder(shared).look())
    assert found.message.endswith(": rank 0 of a job of 2; rank 1 of a job of 3")


def test_ranks_that_restart_and_join_are_said_and_those_before_left_out(
    tmp_path: Path, start: Start
) -> None:
    watched, before = JobFolder(tmp_path), [start() for _ in range(2)]
    for rank, one in enumerate(before):
        write(tmp_path, rank, steps(), pid=one.pid)
    watched.look()
    for one in before:
        end(one)
    write(tmp_path, 1, written_ns=time.time_ns() - 60 * 10**9, pid=before[1].pid, started=1)
    again = start()
    write(tmp_path, 0, pid=again.pid)
    look = watched.look()
    assert any(
        f"rank 0 started again: rank 0 is process {again.pid} " in one for one in look.unread
    )
    assert "rank 1: of an earlier start, gone before others began: left out" in look.unread
    found = judge(look)
    assert (found.kind, found.suspects) == ("incomplete", ())
    assert found.message.startswith("ranks 1-2 of 3 have written nothing")
    joined = start()
    write(tmp_path, 2, pid=joined.pid)
    assert "rank 2 joined" in watched.look().unread
    for rank, one in ((0, again), (2, joined)):  # a smaller job
        write(tmp_path, rank, steps(), world=2, pid=one.pid)
    assert watched.look().world == 2


def test_a_job_is_not_over_while_its_launcher_may_start_the_ranks_again(tmp_path: Path) -> None:
    launched = "sleep 60 & echo $!; read end"
    with subprocess.Popen(
        ["sh", "-c", launched], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stdin and launcher.stdout
        pid = int(launcher.stdout.readline())
        write(tmp_path, 0, world=1, pid=pid)
        watched = JobFolder(tmp_path)
        watched.look()
        process.kill(pid)
        while process.state(pid) not in process.ENDED:
            os.sched_yield()
        found = judge(watched.look())
        assert (found.kind, found.is_over) == ("ended", False)
        said = "all ranks have ended, and their launcher still runs: rank 0 on "
        assert found.message.startswith(said)
        launcher.stdin.close()
        launcher.wait()
        assert judge(watched.look()).kind == OVER


def test_only_what_is_new_is_sent(tmp_path: Path) -> None:
    files, entries = HostFiles(tmp_path), {"entries": [call(9)]}
    for rank in range(2):
        write(tmp_path, rank, steps(600) | entries, host="other" if rank else os.uname().nodename)
    first = files.look(())
    assert [len(rank.steps_us) for rank in first.ranks] == [600]
    assert (first.others, list(first.states)) == ([1], [0])
    assert files.look(()).ranks == [], "no file has changed"
    new = {"first_step": 20, "waits_us": [1.0] * 599 + [None]}
    for rank in range(2):
        write(tmp_path, rank, steps(600) | entries | new)
    sent = files.look(()).ranks
    assert [(rank.steps, rank.first_step, rank.rank) for rank in sent] == [(620, 600 - OVERLAP, 0)]
    assert len(sent[0].steps_us) == len(sent[0].waits_us) == 20 + OVERLAP
    assert sent[0].waits_us[-2:] == [1.0, None]
    assert (sent[0].pg_config, sent[0].entries) == (None, None)
    write(tmp_path, 0, steps(30))  # another model
    assert len(files.look(()).ranks[0].steps_us) == 30


def test_many_ranks_are_one_screen() -> None:
    look = JobLook(world=1024)
    for rank in range(1024):
        doing = f"call {rank} of group 0"
        look.ranks[rank] = LiveRank(
            rank=rank, host=f"gpu{rank // 16:02}", pid=7, state="S", call=doing
        )
    look.ranks[77].state = "T"
    for silent in ({}, {f"gpu{host:02}": "no answer" for host in range(32, 64)}):
        look.silent = silent
        for rank in range(512, 1024):
            look.ranks[rank].unknown_s = 4.0 if silent else 0.0
        found = judge(look)
        text = view.text(interval(look, found), 80, evidence=True)
        assert found.suspects == [77]
        assert len(text.splitlines()) <= 40
    assert "ranks 512-1023 of 1024 are not known since 4 s: gpu[32-63]: no answer" in " ".join(
        text.split()
    )


def test_a_reader_that_hangs_delays_no_look_and_all_end_with_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 0, world=1)
    with JobHosts(["localhost"], tmp_path) as hosts:
        hosts.start(60.0)
        watched = JobFolder(tmp_path, hosts)
        assert watched.look().ranks[0].state is not None
        pid = next(
            pid for pid in process.children(os.getpid()) if "live.node" in process.command(pid)
        )
        os.kill(pid, signal.SIGSTOP)
        monkeypatch.setattr(remote_hosts, "WAIT_S", 0.01)
        monkeypatch.setattr(remote_hosts, "SILENT_S", 0.0)
        look = watched.look()
        assert look.silent == {"localhost": "no answer"} and look.ranks[0].unknown_s > 0
        monkeypatch.undo()
        os.kill(pid, signal.SIGCONT)
        assert not watched.look().silent
        process.kill(pid)
        while not (silent := watched.look().silent):
            os.sched_yield()
        assert silent == {"localhost": "exit code -9"}
    assert process.state(pid) in process.ENDED
    with JobHosts(["no host"], tmp_path) as hosts, pytest.raises(NoMeasurement, match="no host"):
        hosts.start(60.0)
