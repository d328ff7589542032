"""What `busbw watch job` says of a job that ended, from the last calls of its ranks."""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from live_job import GROUP, call, write

from busbw.core.finding import Verdict
from busbw.job.live.judge import judge
from busbw.job.live.reader import JobFolder
from busbw.job.live.types import JobLook, LiveRank, LiveVerdict

USUAL = [4680, 4] * 10  # sizes of the calls of ten steps
USUALLY = "before, all ranks called all_reduce of 4680 Float at this place"
LEFT_OUT = "rank 1 left out all_reduce of 4680 Float: it made the call that follows"


@pytest.fixture
def gone() -> int:
    """The pid of a process that has ended."""
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


def calls(sizes: Sequence[int]) -> dict[str, Any]:
    """The file of a rank that made calls of these sizes, which have ended."""
    status = {"last_enqueued_collective": len(sizes), "last_completed_collective": len(sizes)}
    entries = [call(number, ended=True, size=size) for number, size in enumerate(sizes, 1)]
    return {"entries": entries, "pg_status": {GROUP: status}}


def verdict(folder: Path) -> LiveVerdict:
    return judge(JobFolder(folder).look(0.0))


def end_job(folder: Path, gone: int, others: Sequence[Sequence[int]]) -> LiveVerdict:
    """Rank 0 aborted some calls after it had written; the others came to their end."""
    write(folder, 0, calls(USUAL[:10]) | {"entries": []}, pid=gone, started=1)
    for rank, sizes in enumerate(others, 1):
        write(folder, rank, calls(sizes), pid=gone, started=1, ended=True)
    return verdict(folder)


def test_a_rank_that_left_out_a_call_is_named_though_the_job_has_ended(
    tmp_path: Path, gone: int
) -> None:
    found = end_job(tmp_path, gone, [[*USUAL, 4], [*USUAL, 4680]])
    assert (found.verdict, found.kind, list(found.suspects)) == (Verdict.FAIL, "mismatch", [1])
    assert found.message.startswith("the job has ended: ranks made different calls as number 21 of")
    assert (list(found.evidence), found.is_over) == ([LEFT_OUT], True)


@pytest.mark.parametrize(
    ("others", "named", "evidence"),
    [
        ([[*USUAL, 8], [*USUAL, 4680]], [1], [USUALLY]),  # the one that is unlike before
        ([[*USUAL, 4], [*USUAL, 8]], [], [USUALLY]),  # both are
        ([[*range(1, 20), 4], [*range(1, 20), 5]], [], []),  # nothing repeats
    ],
)
def test_of_two_ranks_the_one_whose_size_alone_is_unlike_before_is_named(
    others: Sequence[Sequence[int]],
    named: list[int],
    evidence: list[str],
    tmp_path: Path,
    gone: int,
) -> None:
    found = end_job(tmp_path, gone, others)
    assert (found.verdict, found.kind, list(found.suspects)) == (Verdict.FAIL, "mismatch", named)
    assert list(found.evidence) == evidence


@pytest.mark.parametrize("is_over", [True, False])
def test_a_rank_that_ended_before_a_call_of_others_is_named(
    is_over: bool, tmp_path: Path, gone: int
) -> None:
    for rank, number in ((0, 21), (1, 20), (2, 21)):
        ended = {"ended": True, "pid": gone, "started": 1} if is_over or rank == 1 else {}
        write(tmp_path, rank, calls((USUAL * 2)[:number]), **ended)
    found = verdict(tmp_path)
    assert (found.verdict, found.kind, list(found.suspects)) == (Verdict.FAIL, "missing", [1])
    text = "rank 1 came to the end of the program after call 20 of group 0, before ranks 0,2, which"
    assert text in found.message
    assert found.is_over == is_over == found.message.startswith("the job has ended: ")


def test_a_rank_behind_is_not_named_if_one_that_was_killed_may_be_further_behind(
    tmp_path: Path, gone: int
) -> None:
    """Rank 0 was killed after it had written call 10, and rank 2 gave up later than rank 1."""
    found = end_job(tmp_path, gone, [USUAL, [*USUAL, 4680]])
    assert (found.verdict, list(found.suspects)) == (Verdict.UNKNOWN, [])


def test_a_job_whose_ranks_made_the_same_calls_has_ended(tmp_path: Path, gone: int) -> None:
    for rank in range(3):
        write(tmp_path, rank, calls(USUAL), pid=gone, started=1, ended=True)
    found = verdict(tmp_path)
    assert (found.verdict, found.kind, found.message) == (
        Verdict.UNKNOWN,
        "over",
        "the job has ended",
    )


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGKILL, 0])
@pytest.mark.parametrize("first", [0, 2])
def test_a_rank_behind_is_the_cause_if_it_went_first(number: int, first: int) -> None:
    """Rank 2 made fewer calls, and came to its end; rank 0 did not."""
    ranks = {
        rank: LiveRank(rank=rank, host="h", pid=7, state="", end_s=1.0, ended=rank > 0)
        for rank in range(3)
    }
    ranks[0].signal, ranks[first].end_s = number, 0.5
    found = judge(JobLook(ranks, 3, last_calls={GROUP: {0: 21, 1: 21, 2: 20}}))
    assert found.kind == ("missing" if first == 2 else "over")
    named = {(2, number): [2], (0, signal.SIGKILL): [0], (0, 0): [0]}
    assert list(found.suspects) == named.get((first, number), [])


@pytest.mark.parametrize("first", [0, 1, None])
def test_the_launcher_ends_the_ranks_that_wait_for_one_that_left(first: int | None) -> None:
    """Rank 1 came to its end; rank 2 still runs, and rank 0 was ended by a signal."""
    ranks = {
        0: LiveRank(rank=0, host="h", pid=7, state="", signal=signal.SIGTERM),
        1: LiveRank(rank=1, host="h", pid=8, state="", ended=True),
        2: LiveRank(rank=2, host="h", pid=9, state="S"),
    }
    for rank in (0, 1):
        ranks[rank].end_s = None if first is None else 0.5 + (rank != first)
    found = judge(JobLook(ranks, 3, last_calls={GROUP: {0: 21, 1: 20, 2: 21}}))
    assert (found.kind, list(found.suspects)) == (("missing", [1]) if first == 1 else ("dead", [0]))


def test_a_rank_that_left_is_in_nothing(tmp_path: Path, gone: int) -> None:
    doing = {"spent_us": {"input": 1.0}, "doing_s": {"input": 9.0}}
    for rank, number in ((0, 21), (1, 20), (2, 21)):
        own = calls((USUAL * 2)[:number]) | doing
        write(tmp_path, rank, own, ended=True, pid=gone, started=1)
    found = verdict(tmp_path)
    assert (found.kind, found.cause, list(found.suspects)) == ("missing", "", [1])


@pytest.mark.parametrize(
    ("numbers", "ended", "named"),
    [
        ({0: 10, 1: 21, 2: 21}, (1, 2), [0]),
        ({0: 10, 1: 21, 2: 21}, (1,), []),  # rank 2 may have made more calls
        ({0: 10, 1: 21, 2: 22}, (1, 2), []),
        ({0: 10, 1: 21}, (1, 2), []),  # either of two
    ],
)
def test_a_rank_that_aborted_is_the_cause_if_all_others_agree(
    numbers: dict[int, int], ended: Sequence[int], named: list[int]
) -> None:
    ranks = {
        rank: LiveRank(
            rank=rank, host="h", pid=7, state="", end_s=1.0 + rank, ended=rank in ended, signal=15
        )
        for rank in range(3)
    }
    ranks[0].signal = signal.SIGABRT
    found = judge(JobLook(ranks, 3, last_calls={GROUP: numbers}))
    assert (found.kind, list(found.suspects)) == ("over", named)
    agree = ": all others made the same calls, up to number 21 of group 0"
    assert found.message.endswith(agree) == bool(named)
    assert ("which rank made one is unknown" in found.message) == (not named)


@pytest.mark.parametrize(("last", "named"), [(21, [0]), (22, [])])
def test_ranks_that_failed_in_the_same_call_agree(
    last: int, named: list[int], tmp_path: Path, gone: int
) -> None:
    """They wrote that, and were killed; the number of a later call would say that it is old."""
    write(tmp_path, 0, calls(USUAL[:10]) | {"entries": []}, pid=gone, started=1)
    for rank in (1, 2):
        own = calls(USUAL)
        own["entries"].append(call(21, size=4680))
        own["pg_status"][GROUP]["last_enqueued_collective"] = last
        write(tmp_path, rank, own, pid=gone, started=1)
    look = JobFolder(tmp_path).look(0.0)
    for rank in look.ranks.values():
        rank.end_s, rank.signal = 1.0 + rank.rank, signal.SIGTERM if rank.rank else signal.SIGABRT
    found = judge(look)
    assert (found.kind, list(found.suspects)) == ("over", named)
