"""What `busbw watch job --pid` says of processes that were not started under `busbw capture`."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from busbw.cli.main import guarded
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict
from busbw.host.process_sockets import SocketQueues, queues
from busbw.job.live.process_judge import judge_processes
from busbw.job.live.processes import JobProcesses, ProcessLook, ProcessUse
from busbw.job.live.types import JobLook, LiveRank
from busbw.job.ras_report import parse

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str, **variables: str) -> subprocess.Popen[bytes]:
        clean = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        started.append(
            subprocess.Popen(words or ("sleep", "60"), env=clean | variables, process_group=0)
        )
        return started[-1]

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ranks(start: Start, names: tuple[str, str] = ("RANK", "WORLD_SIZE")) -> list[int]:
    return [start(**{names[0]: str(rank), names[1]: "3"}).pid for rank in (2, 0, 1)]


def pids(watched: JobProcesses) -> dict[int, int]:
    return {rank: one.pid for rank, one in watched.look(0.0).job.ranks.items()}


@pytest.mark.parametrize(
    "names", [("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")]
)
def test_ranks_are_numbered_by_their_launcher(names: tuple[str, str], start: Start) -> None:
    third, first, second = ranks(start, names)
    watched = JobProcesses([third, first, second])
    assert pids(watched) == {0: first, 1: second, 2: third}
    assert watched.look(0.0).job.unread == []
    assert JobProcesses([first]).look(0.0).job.unread == ["2 of 3 ranks are not seen here"]


def test_the_ranks_of_a_launcher_are_found_behind_its_shells(start: Start) -> None:
    rank = "RANK=$rank WORLD_SIZE=2 sh -c 'sleep 60; true' &"
    launcher = start("sh", "-c", f"for rank in 0 1; do {rank} done; wait")
    found: dict[int, int] = {}
    for _ in range(1000):
        watched = JobProcesses([launcher.pid])
        found = pids(watched)
        if set(found) == {0, 1} and launcher.pid not in found.values():
            break
        time.sleep(0.005)
    assert set(found) == {0, 1}
    assert launcher.pid not in found.values()


def test_without_variables_ranks_have_the_order_that_was_given(start: Start) -> None:
    given = [
        start(
            "env", "-u", "RANK", "-u", "SLURM_PROCID", "-u", "OMPI_COMM_WORLD_RANK", "sleep", "60"
        )
        for _ in range(2)
    ]
    watched = JobProcesses([one.pid for one in given])
    assert pids(watched) == {0: given[0].pid, 1: given[1].pid}
    assert (
        watched.look(0.0).job.unread[1].endswith("no variable states its rank: it is called rank 1")
    )


def test_a_stopped_and_a_dead_process_are_named(start: Start) -> None:
    third, _, second = of_ranks = ranks(start)
    watched = JobProcesses(of_ranks)
    found = judge_processes(watched.look(0.0))
    assert (found.verdict, found.kind) == (Verdict.UNKNOWN, "unjudged")
    assert "whether the job makes progress, and who is late, cannot be seen" in found.message
    os.kill(second, signal.SIGSTOP)
    os.waitid(os.P_PID, second, os.WSTOPPED | os.WNOWAIT)
    found = judge_processes(watched.look(1.0))
    assert (found.verdict, found.kind, found.suspects) == (Verdict.FAIL, "stopped", [1])
    assert found.next == f"kill -CONT {second}"
    assert any(line.startswith("rank 1: process stopped") for line in found.evidence)
    os.kill(second, signal.SIGCONT)
    os.kill(third, signal.SIGKILL)
    os.waitid(os.P_PID, third, os.WEXITED | os.WNOWAIT)
    while True:
        look = watched.look(2.0)
        if look.job.ranks[2].end_s is not None:
            break
        os.sched_yield()
    found = judge_processes(look)
    assert (found.verdict, found.kind, found.suspects) == (Verdict.FAIL, "dead", [2])


def test_bytes_that_a_process_does_not_read_are_seen() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0] as receiver,
    ):
        client.sendall(b"x" * 1000)
        receiver.recv(1, socket.MSG_PEEK)
        assert queues(os.getpid()) == SocketQueues(unread=1000, unsent=0)


def look(uses: dict[int, ProcessUse]) -> ProcessLook:
    live = {rank: LiveRank(rank=rank, host="h", pid=10 + rank, state="S") for rank in uses}
    return ProcessLook(JobLook(live, len(uses)), uses)


def test_a_rank_that_ended_while_others_run_may_have_failed() -> None:
    seen = look(dict.fromkeys(range(3), ProcessUse()))
    for ago_s, kind in ((0.0, "unjudged"), (5.0, "ended")):
        seen.job.ranks[1] = LiveRank(
            rank=1, host="h", pid=11, state="", ended=True, end_s=time.monotonic() - ago_s
        )
        found = judge_processes(seen)
        assert found.kind == kind
    assert (found.verdict, found.suspects) == (Verdict.WARN, [1])


RUNS, SLEEPS = ProcessUse(cpu=0.98), ProcessUse(cpu=0.0)


@pytest.mark.parametrize(
    ("uses", "suspects", "says"),
    [
        ([RUNS, SLEEPS, SLEEPS], [0], "rank 0 alone runs for 10 s: ranks 1-2 may wait for it"),
        ([RUNS, RUNS, SLEEPS], [2], "rank 2 alone sleeps for 10 s: ranks 0-1 may wait for it"),
        (
            [SLEEPS, ProcessUse(cpu=0.0, queues=SocketQueues(4096, 0), unread_s=12.0), SLEEPS],
            [1],
            "rank 1 has not read 4096 bytes that others sent for 12 s: they may wait for it",
        ),
        ([RUNS, SLEEPS], [], "no process is stopped"),
        ([RUNS, RUNS, RUNS], [], "no process is stopped"),
        ([RUNS, SLEEPS, ProcessUse()], [], "no process is stopped"),
        ([RUNS, SLEEPS, ProcessUse(cpu=0.2)], [], "no process is stopped"),
    ],
)
def test_the_one_rank_that_does_something_else_may_be_waited_for(
    uses: list[ProcessUse], suspects: list[int], says: str
) -> None:
    found = judge_processes(look(dict(enumerate(uses))))
    assert list(found.suspects) == suspects
    assert found.message.startswith(says)
    assert found.verdict is (Verdict.WARN if suspects else Verdict.UNKNOWN)


def ras(*counts: int) -> str:
    listed = ",".join(
        f'{{"rank":{rank},"host":"h","pid":{10 + rank},"cuda_dev":0,"nvml_dev":0,'
        f'"collective_counts":{{"AllReduce":{count}}},"status":{{}}}}'
        for rank, count in enumerate(counts)
    )
    return (
        '{"nccl_version":"2.28.9","communicators":[{"hash":"0x1","size":3,"missing_ranks":[],'
        f'"ranks":[{listed}]}}]}}'
    )


def test_ras_names_a_rank_and_alone_never_makes_a_job_pass() -> None:
    seen = look(dict.fromkeys(range(3), RUNS))
    seen.ras = [parse(ras(7, 6, 7)), parse(ras(7, 6, 7))]
    found = judge_processes(seen)
    assert (found.verdict, found.kind, found.suspects) == (Verdict.FAIL, "ras", [1])
    seen.ras = [parse(ras(7, 7, 7)), parse(ras(9, 9, 9))]
    assert judge_processes(seen).verdict is Verdict.UNKNOWN


def test_arguments_that_name_no_job_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="no such process"):
        JobProcesses([2**22 + 1])
    for arguments in ([], ["DIR", "--pid", "1"], ["--pid", "1,x"]):
        assert guarded(["watch", "job", *arguments]) == 2
    assert "--pid 1,x: not numbers of processes" in capsys.readouterr().err


def test_the_command_ends_with_3_where_it_cannot_tell(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["watch", "job", "--once", "--interval", "100ms", "--pid", str(start(RANK="0").pid)]
    assert guarded(words) == 3
    assert " UNKNOWN no process is stopped or gone; " in capsys.readouterr().out
