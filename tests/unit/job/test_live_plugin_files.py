"""What `busbw watch job` says of ranks of which only the profiler plugin's files are there."""

import os
import platform
import random
import signal
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import live_job
import pytest
from plugin_file_writer import ALL_REDUCE, BROADCAST, RECORD, RECV, SEND, PluginFileWriter

from busbw.core.finding import Verdict
from busbw.job.live.judge import judge
from busbw.job.live.reader import JobFolder
from busbw.job.live.types import JobLook, LiveVerdict
from busbw.measure.profiler_file import COLL_CALL, HEADER_BYTES

Ranks = list[PluginFileWriter]


def job(folder: Path, ranks: int = 3, identity: int = 7, **facts: Any) -> Ranks:
    made = [PluginFileWriter(folder, rank, ranks, **facts) for rank in range(ranks)]
    for rank in made:
        rank.comm(identity)
        rank.drain()
    return made


def make_steps(ranks: Ranks, late: int | None = None, steps: int = 100, us: float = 100.0) -> None:
    for rank in ranks:
        late_us = 0.0 if late is None else us
        rank.steps(steps, late_us=-late_us if rank.rank == late else late_us)
        rank.drain()


def call(ranks: Sequence[PluginFileWriter], us: float | None = 50.0, **values: int) -> None:
    for rank in ranks:
        rank.call(us, **values)
        rank.drain()


def verdict(watched: JobFolder, clock: float = 0.0) -> LiveVerdict:
    return judge(watched.look(clock))


def after_12_s(watched: JobFolder) -> LiveVerdict:
    """The verdict after nothing came for so long."""
    watched.look(1000.0)
    return verdict(watched, 1012.0)


def test_a_late_rank_is_named_and_none_of_a_job_without(tmp_path: Path) -> None:
    ranks, watched = job(tmp_path), JobFolder(tmp_path)
    make_steps(ranks)
    look = watched.look(0.0)
    found = judge(look)
    assert (found.verdict, found.kind) == (Verdict.PASS, "")
    assert found.message.startswith("no rank was late: of 3 ranks over ")
    assert look.times is not None and look.times.now_us == pytest.approx(995, abs=15)
    make_steps(ranks, late=1)
    found = verdict(watched, 1000.0)
    assert (found.verdict, found.kind, found.suspects) == (Verdict.WARN, "late", [1])
    assert found.message.startswith("late: rank 1 on ")
    make_steps(ranks, steps=300)
    assert verdict(watched, 2000.0).verdict is Verdict.PASS


def test_ranks_that_are_read_from_different_calls_on_are_aligned_by_number(tmp_path: Path) -> None:
    """One has records of another communicator, so that its last records begin later."""
    ranks, watched = job(tmp_path), JobFolder(tmp_path)
    ranks[2].comm(identity=9, number=1)
    for _ in range(1500):
        ranks[2].call(5.0, comm=1)
        ranks[2].drain()
    make_steps(ranks, steps=300)
    assert verdict(watched).verdict is Verdict.PASS
    make_steps(ranks, steps=300, late=0)
    assert verdict(watched, 1000.0).suspects == [0]


def test_ranks_of_pytorch_are_told_by_their_own_files(tmp_path: Path) -> None:
    """Who is late is told by calls, where DDP has timed no step."""
    for rank in range(3):
        live_job.write(tmp_path, rank, live_job.steps(100) | {"waits_us": [None] * 100})
    ranks = job(tmp_path)
    make_steps(ranks, late=2)
    look = JobFolder(tmp_path).look(0.0)
    found = judge(look)
    assert (found.kind, found.suspects, look.ranks[0].last) == ("late", [2], "")
    assert look.times is not None and look.times.now_us > 40_000


@pytest.mark.parametrize("counted", [True, False])
def test_steps_of_equal_calls_are_those_of_the_optimizer(counted: bool, tmp_path: Path) -> None:
    """Eight layers, each with an all_reduce that is like the others, and no DDP. The times between
    calls do not show a step.
    """
    steps, late_us, gaps_us = 100, 400.0, random.Random(1)
    gaps = [gaps_us.uniform(100, 900) for _ in range(8 * steps)]
    for rank in job(tmp_path):
        starts_ns = []
        for at, gap_us in enumerate(gaps):
            noise_us, is_late = float((at * 7 + rank.rank * 5) % 11), rank.rank == 1
            if not at % 8:
                starts_ns.append(rank.clock_ns)
            wait_us = 0.0 if at % 8 else late_us
            rank.clock_ns += int(1000 * (gap_us + noise_us + (wait_us if is_late else 0.0)))
            rank.call(60.0 - noise_us + (0.0 if is_late else wait_us))
        rank.drain()
        steps_us = [(after - before) / 1000 for before, after in pairwise(starts_ns)]
        own = {"steps_us": steps_us, "waits_us": [None] * len(steps_us)}
        end = {"step_end_ns": starts_ns[-1] if counted else 0}
        live_job.write(tmp_path, rank.rank, own | end)
    look = JobFolder(tmp_path).look(0.0)
    assert look.times is not None and look.times.late is not None
    (one,) = look.times.late.late
    assert one.rank == 1
    if counted:
        assert fmean(look.times.late.steps_us) == pytest.approx(look.times.now_us, rel=0.1)
        assert one.us == pytest.approx(late_us, rel=0.05) and one.at_times is None
    else:
        assert one.at_times is not None and one.at_times.every == 8


def test_without_times_only_steps_are_known(tmp_path: Path) -> None:
    ranks, watched = job(tmp_path, mode="cheap"), JobFolder(tmp_path)
    for rank in ranks:
        for _ in range(100):
            rank.clock_ns += 1_000_000
            rank.call(None)
            rank.clock_ns += 500_000
            rank.call(None, function=BROADCAST)
        rank.drain()
    look = watched.look(0.0)
    assert look.times is not None and look.times.now_us == 1500.0
    found = judge(look)
    assert (found.verdict, found.kind) == (Verdict.UNKNOWN, "unjudged")
    assert found.message.endswith("calls have no times: busbw capture --timed records them")
    assert "whether ranks are in a call is unknown" in after_12_s(watched).message


def test_a_rank_that_has_not_made_a_call_is_named_once_others_waited_for_long(
    tmp_path: Path,
) -> None:
    ranks, watched = job(tmp_path), JobFolder(tmp_path)
    make_steps(ranks)
    call((ranks[0], ranks[2]), us=None)
    watched.look(0.0)
    assert verdict(watched, 9.0).kind != "missing"
    call(ranks[2:], us=None)  # it goes on
    watched.look(11.0)
    assert verdict(watched, 12.0).kind != "missing"
    found = after_12_s(watched)
    assert (found.verdict, found.kind, found.suspects) == (Verdict.FAIL, "missing", [1])
    assert found.message.startswith("rank 1 has not called all_reduce number 201 of comm 0x7, in")
    assert found.next.startswith("py-spy dump --pid ")
    assert "calls made: 200 of comm 0x7" in "".join(found.evidence)


def test_the_cause_of_a_chain_is_the_rank_that_waits_for_none(tmp_path: Path) -> None:
    """Rank 1 lacks a call of all ranks, because it waits for rank 2 in another communicator."""
    ranks, watched = job(tmp_path), JobFolder(tmp_path)
    for rank in ranks[1:]:
        rank.comm(identity=9, number=1)
        rank.drain()
    call(ranks[:1], us=None)
    call(ranks[1:2], us=None, comm=1)
    found = after_12_s(watched)
    assert (found.kind, found.suspects) == ("missing", [2])


@pytest.mark.parametrize(
    ("usual", "other", "text"),
    [
        ({}, {"elements": 9}, "rank 1 all_reduce of 9 float; ranks 0, 2 all_reduce of 8 float"),
        ({}, {"dtype": 6}, "rank 1 all_reduce of 8 half"),
        ({}, {"function": 1}, "rank 1 reduce of 8 float from 0"),
        ({"function": BROADCAST}, {"peer": 2}, "rank 1 broadcast of 8 float from 2"),
    ],
)
def test_calls_that_differ_are_named(
    usual: dict[str, int], other: dict[str, int], text: str, tmp_path: Path
) -> None:
    ranks, watched = job(tmp_path), JobFolder(tmp_path)
    call(ranks)
    call((ranks[0], ranks[2]), us=None, **usual)
    call(ranks[1:2], us=None, **usual | other)
    watched.look(0.0)
    found = verdict(watched, 3.0)
    assert (found.verdict, found.kind, found.suspects) == (Verdict.FAIL, "mismatch", [1])
    assert f"as number 2 of comm 0x7: {text}" in found.message


def test_all_ranks_in_a_call_are_told_by_its_time_that_does_not_come(tmp_path: Path) -> None:
    ranks, watched = job(tmp_path), JobFolder(tmp_path)
    call(ranks)
    assert ", and no rank is in a call" not in after_12_s(watched).message
    call(ranks, us=None)
    found = after_12_s(watched)
    assert (found.verdict, found.kind) == (Verdict.FAIL, "stalled")
    assert found.message.startswith("all ranks have called all_reduce number 2 of comm 0x7, in whi")
    for rank in ranks:  # launches were not timed: an end that is lacking says nothing
        rank.write(7 * 8, struct.pack("<Q", 1))
    assert after_12_s(watched).verdict is Verdict.UNKNOWN


def test_a_receive_without_its_send_names_the_sender(tmp_path: Path) -> None:
    ranks, watched = job(tmp_path), JobFolder(tmp_path)
    for _ in range(2):
        ranks[2].pass_on(RECV, 1)
    ranks[1].pass_on(SEND, 2)
    for rank in ranks:
        rank.drain()
    found = after_12_s(watched)
    assert (found.kind, found.suspects) == ("missing", [1])
    assert found.message.startswith("rank 1 has not called send to rank 2 number 2 of comm 0x7")


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has the file of rank 1 open."""
    path = tmp_path / "fd"
    path.touch()
    with (
        path.open("rb") as file,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[file.fileno()]) as process,
    ):
        path.rename(tmp_path / f"{platform.node()}-{process.pid}-1.capture")
        yield process
        process.kill()


def of_process(folder: Path, pid: int) -> Ranks:
    ranks = [PluginFileWriter(folder, rank, 3, pid=pid if rank == 1 else "") for rank in range(3)]
    for rank in ranks:
        rank.comm()
        rank.drain()
    return ranks


def test_states_are_those_of_the_process_that_has_the_file(
    tmp_path: Path, other: subprocess.Popen[bytes]
) -> None:
    ranks = of_process(tmp_path, other.pid)
    call(ranks)
    watched = JobFolder(tmp_path)
    assert watched.look(0.0).ranks[1].state in ("S", "R")  # it has just begun
    other.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT)
    found = verdict(watched, 1.0)
    assert (found.verdict, found.kind, found.suspects) == (Verdict.FAIL, "stopped", [1])
    assert found.next == f"kill -CONT {other.pid}"
    call((ranks[0], ranks[2]), us=None)
    verdict(watched, 2.0)
    other.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, other.pid, os.WCONTINUED | os.WNOWAIT)
    kinds = [verdict(watched, clock).kind for clock in (30.0, 39.0, 40.0)]
    assert kinds == ["still", "still", "missing"]
    # a process with the pid of one in another container
    (tmp_path / "elsewhere").mkdir()
    job(tmp_path / "elsewhere", pid=other.pid)
    assert JobFolder(tmp_path / "elsewhere").look(0.0).ranks[1].state is None


@pytest.mark.parametrize(
    ("lacks", "killed", "kind"),
    [(True, False, "dead"), (False, True, "dead"), (False, False, "unjudged")],
)
def test_a_process_that_is_gone_has_died_by_a_signal_or_if_others_went_on(
    tmp_path: Path, other: subprocess.Popen[bytes], lacks: bool, killed: bool, kind: str
) -> None:
    ranks = of_process(tmp_path, other.pid)
    for rank in (0, 2):  # so that the others are seen to be of this host
        ranks[rank].path.rename(tmp_path / f"{platform.node()}-{os.getpid()}-{rank}.capture")
    call(ranks)
    watched = JobFolder(tmp_path)
    watched.look(0.0)
    if killed:
        other.kill()
    assert other.stdin
    other.stdin.close()
    while watched.look(0.5).ranks[1].end_s is None:
        os.sched_yield()
    other.wait()
    if lacks:
        call((ranks[0], ranks[2]), us=None)
        watched.look(1.0)
    found = verdict(watched, 2.0)
    assert found.kind == kind
    assert list(found.suspects) == ([1] if kind == "dead" else [])


def test_new_records_are_read_from_the_ring_once_they_wrap(tmp_path: Path) -> None:
    ranks, watched = job(tmp_path, ring=64), JobFolder(tmp_path)
    made = 0
    for size in (1, 30, 20, 20, 1, 0, 20):
        for _ in range(size):
            call(ranks, us=None)
        made += size
        look = watched.look(float(made))
        assert look.ranks[0].last == (f"{made} of comm 0x7" if made else "")
        for rank in ranks:  # as behind 512 MiB, where the plugin writes no more
            rank.drain(append=False)
    for rank in ranks:
        for _ in range(20):
            rank.call(None)
            rank.drain(append=False)
    assert watched.look(100.0).ranks[0].last == f"{made + 20} of comm 0x7"
    assert not watched.look(101.0).unread


def test_records_that_are_being_written_are_left_to_the_next_look(tmp_path: Path) -> None:
    ranks, watched = job(tmp_path), JobFolder(tmp_path)
    call(ranks, us=None)
    watched.look(0.0)
    for rank in ranks:
        rank.call(None)
        rank.show()  # in the ring, and not taken out of it
    place = HEADER_BYTES + (ranks[0].head - 1) % ranks[0].ring * RECORD.size
    written = os.pread(ranks[0].descriptor, 8, place)
    ranks[0].write(place, bytes(8))
    assert watched.look(1.0).ranks[0].last == "1 of comm 0x7"
    assert watched.look(2.0).ranks[1].last == "2 of comm 0x7"
    ranks[0].write(place, written)
    assert watched.look(3.0).ranks[0].last == "2 of comm 0x7"
    assert not watched.look(3.0).unread


def test_lost_records_are_said_and_accuse_nobody(tmp_path: Path) -> None:
    ranks, watched = job(tmp_path, ring=64), JobFolder(tmp_path)
    call(ranks, us=None)
    watched.look(0.0)
    for rank in ranks[:1]:
        for _ in range(100):
            rank.call(None)
            rank.drain(append=False)
    look = watched.look(1.0)
    assert look.unread == [f"{ranks[0].path.name}: records were lost: its calls are not numbered"]
    found = after_12_s(watched)
    assert (found.verdict, found.suspects) == (Verdict.UNKNOWN, ())


def test_files_of_a_network_have_no_ring(tmp_path: Path) -> None:
    ranks, watched = job(tmp_path, ring=0), JobFolder(tmp_path)
    for made in (1, 2):
        call(ranks, us=None)
        assert watched.look(float(made)).ranks[0].last == f"{made} of comm 0x7"


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    ranks, watched = job(tmp_path), JobFolder(tmp_path)
    make_steps(ranks)
    watched.look(0.0)
    ranks[0].write(8, struct.pack("<Q", 2))
    os.truncate(ranks[1].path, 100)
    names = [rank.path.name for rank in ranks]
    assert watched.look(1.0).unread == [
        f"{names[0]}: version 2 of the layout; this busbw reads 1",
        f"{names[1]}: not a file of busbw's profiler plugin",
    ]
    found = verdict(JobFolder(tmp_path))
    assert (found.kind, found.message) == (
        "incomplete",
        "ranks 0-1 of 3 have written nothing: any of them may be the cause",
    )


def test_ranks_of_an_earlier_launch_and_of_another_job_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    first = job(tmp_path, identity=7, pid=2**22 + 1)
    call(first)
    time_ns = time.time_ns() - 10**9
    for rank in first:
        rank.write(9 * 8, struct.pack("<Q", time_ns))
    second = job(tmp_path, identity=8)
    call(second, us=None)
    call(second, us=None)
    look = JobFolder(tmp_path).look(0.0)
    assert look.ranks[0].last == "2 of comm 0x8"
    assert len(look.unread) == 1 and ": left out" in look.unread[0]


def test_a_process_with_several_gpus_is_several_ranks(tmp_path: Path) -> None:
    both = PluginFileWriter(tmp_path, 0, 2, RANK="", WORLD_SIZE="")
    both.comm()
    both.rank = 1
    both.comm(number=1)
    for comm in (0, 1):
        both.call(None, comm=comm)
    both.call(None, comm=0)
    both.drain()
    watched = JobFolder(tmp_path)
    found = after_12_s(watched)
    assert (found.kind, found.suspects) == ("missing", [1])


@pytest.mark.parametrize(("no_events", "times"), [("no driver", False), ("", True)])
def test_kernel_events_after_a_send_to_the_own_rank_are_not_used(
    no_events: str, times: bool, tmp_path: Path
) -> None:
    ranks = job(tmp_path, **({"no_events": no_events} if no_events else {}))
    for rank in ranks:
        rank.pass_on(SEND, rank.rank)
    make_steps(ranks)
    assert (JobFolder(tmp_path).look(0.0).times is not None) == times


def test_calls_in_cuda_graphs_have_no_numbers(tmp_path: Path) -> None:
    ranks, watched = job(tmp_path), JobFolder(tmp_path)
    for rank in ranks:
        for at in range(50):
            rank.add(COLL_CALL, function=ALL_REDUCE, dtype=7, flags=1, id=at + 1, elements=8)
        rank.drain()
    look: JobLook = watched.look(0.0)
    assert look.times is None
    found = judge(look)
    assert (found.verdict, found.kind) == (Verdict.UNKNOWN, "unjudged")
    assert found.message.startswith("no rank of 3 is stopped or missing; no step is seen so far")
    assert found.evidence, "what ranks do is said although they have no steps, as in a server"
    assert found.evidence[0].startswith("ranks 0-2: ")
    assert found.next.startswith("busbw show TRACES, if it is a server")
