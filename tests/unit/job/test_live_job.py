"""What `busbw watch job` says of the files and processes of a job."""

import math
import os
import platform
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from live_job import call, steps, write, write_job

from busbw.cli.main import guarded
from busbw.core.finding import Verdict
from busbw.host import process
from busbw.job.live import text as view
from busbw.job.live.judge import judge
from busbw.job.live.reader import JobFolder
from busbw.job.live.types import JobLook, LiveRank, LiveVerdict, interval
from busbw.pattern.rank_ends import HostEnds, RankEnd

WAITING = {"entries": [call(9, ended=True), call(10)]}
BEFORE = {"entries": [call(8, ended=True), call(9, ended=True)]}


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def verdict(folder: Path) -> LiveVerdict:
    return judge(JobFolder(folder).look())


def after(folder: Path, seconds: int, states: dict[int, dict[str, Any]]) -> LiveVerdict:
    """The verdict on ranks that write the same each second, for so long."""
    watched = JobFolder(folder)
    for second in range(seconds + 1):
        for rank, state in states.items():
            write(folder, rank, state)
        found = judge(watched.look(float(second)))
    return found


def test_a_late_rank_is_named_and_none_of_a_job_without(tmp_path: Path) -> None:
    write_job(tmp_path)
    found = verdict(tmp_path)
    assert found.verdict is Verdict.PASS
    assert found.message.startswith("no rank was late: of 3 ranks over ")
    write_job(tmp_path, late_us=4000.0)
    found = verdict(tmp_path)
    assert (found.verdict, found.kind, found.suspects) == (Verdict.WARN, "late", [1])
    assert found.message.startswith("late: rank 1 on ") and ", by 3.9" in found.message


@pytest.mark.parametrize(
    ("late", "us", "named"),
    [
        (range(200, 600), 2000.0, [1]),
        (range(450), 2000.0, []),  # it was
        (range(500, 600), 5000.0, [1]),  # it has just begun
        (range(300, 600, 10), 20_000.0, [1]),  # at times
        (range(100, 140), 20_000.0, []),  # it was so at times
        ([*range(100, 140), 590], 20_000.0, []),
    ],
)
def test_a_rank_is_named_if_it_still_is_late(
    late: Sequence[int], us: float, named: list[int], tmp_path: Path
) -> None:
    for rank in range(3):
        own = steps(600, seed=rank)
        for at in late if rank == 1 else ():
            own["waits_us"][at] -= us
        write(tmp_path, rank, own)
    assert list(verdict(tmp_path).suspects) == named


@pytest.mark.parametrize("late_us", [0.0, 5000.0])
def test_one_step_as_long_as_many_is_left_out(late_us: float, tmp_path: Path) -> None:
    """Rank 1 was stopped for 14 s: the others waited for it in that step."""
    for stops in ([500], [480, 500]):
        for rank in range(3):
            own = steps(600, late_us if rank == 1 else 0.0, seed=rank)
            for at in stops:
                own["steps_us"][at] += 14e6
                own["waits_us"][at] += 0.0 if rank == 1 else 14e6
            write(tmp_path, rank, own)
        found = verdict(tmp_path)
        said = "one step of 14.05 s is left out: the others waited for rank 1 in it"
        assert (said in found.evidence) == (stops == [500])
        if stops == [500]:
            assert list(found.suspects) == ([1] if late_us else [])
            assert found.verdict is (Verdict.WARN if late_us else Verdict.PASS)
            assert "by 5.0" in found.message or not late_us


@pytest.mark.parametrize(
    ("waits_s", "why"),
    [
        ((14.0, 14.0, 14.0), "all ranks waited in communication, also one that may have been "),
        ((0.0, 0.0, 0.0), "no rank waited in it, as in a checkpoint of all"),
        ((0.0, 0.0, 14.0), "the others waited for ranks 0-1 in it"),
        ((0.0, math.nan, 14.0), "how long each rank waited in it is unknown"),
    ],
)
def test_of_a_step_that_is_left_out_it_is_said_whom_the_ranks_waited_for(
    waits_s: tuple[float, ...], why: str, tmp_path: Path
) -> None:
    for rank, wait_s in enumerate(waits_s):
        own = steps(600, seed=rank)
        own["steps_us"][500] += 14e6
        own["waits_us"][500] = None if math.isnan(wait_s) else 1e6 * wait_s
        write(tmp_path, rank, own)
    assert verdict(tmp_path).evidence[0].startswith(f"one step of 14.05 s is left out: {why}")


def test_how_long_a_rank_stands_still_is_known_from_its_last_step_or_at_least(
    tmp_path: Path, other: subprocess.Popen[bytes]
) -> None:
    write_job(tmp_path, pid=other.pid, step_end_ns=round(1e9 * (time.monotonic() - 600.0)))
    other.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT)
    watched = JobFolder(tmp_path)
    watched.look(0.0)
    lines = judge(watched.look(4.0)).evidence
    assert lines[0] == (
        "ranks 0,2: in no call, no progress for at least 4 s, since the watch began"
    )
    assert lines[1] == (
        "rank 1: in no call, process stopped, no progress for at least 4 s, since the watch began;"
        " its last step ended 10 min ago"
    )
    other.kill()
    other.wait()
    assert judge(watched.look(8.0)).evidence[1] == "rank 1: was in no call, process gone"
    status = {"0": {"last_enqueued_collective": 10, "last_completed_collective": 9}}
    for rank in (0, 2):
        write(tmp_path, rank, steps(), pg_status=status)
    watched.look(9.0)
    rank = watched.look(12.0).ranks[0]
    assert (rank.still_s, rank.unmoved) == (3.0, False)


def test_a_small_delay_is_named_by_the_steps_of_minutes(tmp_path: Path) -> None:
    """A fiftieth of a step, less than the noise of one. The files have the last 600 steps."""
    watched = JobFolder(tmp_path)
    noise = random.Random(1)
    named = []
    for first in range(0, 3000, 500):
        for rank in range(3):
            mean_us = 6000.0 - (1000.0 if rank == 1 else 0.0)
            own = steps(600, seed=rank, first_step=first)
            own["waits_us"] = [noise.gauss(mean_us, 3000.0) for _ in range(600)]
            write(tmp_path, rank, own)
        named.append(list(judge(watched.look(50.0 * first)).suspects))
    assert (named[0], named[-1]) == ([], [1])


def test_steps_that_become_longer_are_compared_with_those_before(tmp_path: Path) -> None:
    """The files have the last 600 steps; those before were seen in earlier looks."""
    watched = JobFolder(tmp_path)
    for first in (0, 400, 800):
        for rank in range(3):
            own = steps(1400, seed=rank)
            own["steps_us"][700:] = [1.5 * us for us in own["steps_us"][700:]]
            own |= {name: own[name][first : first + 600] for name in ("steps_us", "waits_us")}
            write(tmp_path, rank, own | {"first_step": first})
        found = judge(watched.look(50.0 * first))
    assert (found.verdict, found.kind) == (Verdict.WARN, "longer")
    assert found.message.startswith("steps are longer: 74.8")
    assert verdict(tmp_path).verdict is Verdict.PASS


def test_a_stopped_process_is_named_with_the_command_that_continues_it(
    tmp_path: Path, other: subprocess.Popen[bytes]
) -> None:
    write_job(tmp_path, pid=other.pid)
    assert verdict(tmp_path).verdict is Verdict.PASS
    other.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT)
    found = verdict(tmp_path)
    assert (found.verdict, found.kind, found.suspects) == (Verdict.FAIL, "stopped", [1])
    assert found.next == f"kill -CONT {other.pid}"
    # The states of another host's processes are unknown here.
    write_job(tmp_path, pid=other.pid, host="elsewhere")
    assert verdict(tmp_path).verdict is Verdict.PASS


def test_a_dead_process_is_named_while_others_run(
    tmp_path: Path, other: subprocess.Popen[bytes]
) -> None:
    write_job(tmp_path, pid=other.pid)
    other.kill()
    other.wait()
    found = verdict(tmp_path)
    assert (found.verdict, found.kind, found.suspects) == (Verdict.FAIL, "dead", [1])
    assert f" has died: process {other.pid} " in found.message
    assert found.message.endswith("; ranks 0,2 still run")
    write_job(tmp_path, pid=other.pid, ended=True)  # it has come to its end
    assert verdict(tmp_path).verdict is Verdict.PASS


def test_a_rank_that_has_not_made_a_call_is_named_once_others_waited_for_long(
    tmp_path: Path,
) -> None:
    states = {0: WAITING, 1: BEFORE, 2: WAITING}
    assert after(tmp_path, 9, states).verdict is Verdict.UNKNOWN
    found = after(tmp_path, 11, states)
    assert (found.verdict, found.kind, found.suspects) == (Verdict.FAIL, "missing", [1])
    assert found.message.startswith("rank 1 has not called all_reduce number 10 of group 0, in")
    assert found.next.startswith("py-spy dump --pid ")


def test_a_rank_without_its_calls_is_judged_by_their_number(tmp_path: Path) -> None:
    status = {"0": {"last_enqueued_collective": 10, "last_completed_collective": 10}}
    assert after(tmp_path, 11, {0: WAITING, 1: {}, 2: WAITING}).suspects == [1]
    states = {0: WAITING, 1: {"pg_status": status}, 2: WAITING}
    assert after(tmp_path, 11, states).kind == "stalled"


def test_files_that_are_not_written_any_more_accuse_nobody(tmp_path: Path) -> None:
    watched = JobFolder(tmp_path)
    for rank, state in {0: WAITING, 1: BEFORE, 2: WAITING}.items():
        write(tmp_path, rank, state)
    watched.look(0.0)
    found = judge(watched.look(30.0))
    assert (found.verdict, found.kind, found.suspects) == (Verdict.UNKNOWN, "still", ())


def test_ranks_that_all_stand_still_outside_of_calls_may_evaluate(tmp_path: Path) -> None:
    found = after(tmp_path, 11, {0: BEFORE, 1: BEFORE, 2: BEFORE})
    assert (found.verdict, found.kind) == (Verdict.UNKNOWN, "still")
    assert ", and no rank is in a call: an evaluation, " in found.message
    status = {"0": {"last_enqueued_collective": 10, "last_completed_collective": 9}, "1": None}
    found = after(tmp_path, 11, {0: BEFORE, 1: BEFORE, 2: {"pg_status": status}})
    assert (
        "rank 2: in call 10 of group 0, no progress for at least 11 s, since the watch began"
        in found.evidence
    )


def test_calls_of_other_sizes_are_named_at_once(tmp_path: Path) -> None:
    odd = {"entries": [call(9, ended=True), call(10, size=3)]}
    found = after(tmp_path, 0, {0: WAITING, 1: odd, 2: WAITING})
    assert (found.verdict, found.kind, found.suspects) == (Verdict.FAIL, "mismatch", [1])
    assert found.message.endswith("rank 1 all_reduce of 3 Float; ranks 0, 2 all_reduce of 4 Float")
    found = after(tmp_path, 0, {0: {}, 1: odd, 2: WAITING})  # one of each: it is either
    assert (found.kind, found.suspects) == ("mismatch", [])


def test_a_verdict_on_a_part_of_the_ranks_says_which(tmp_path: Path) -> None:
    write_job(tmp_path)
    (tmp_path / ".rank_2.now").unlink()
    found = verdict(tmp_path)
    assert (found.verdict, found.kind) == (Verdict.UNKNOWN, "incomplete")
    assert found.message == "rank 2 of 3 has written nothing: any of them may be the cause"
    earlier = {"launch": "another", "written_ns": 1, "started": 1}
    for changes in (earlier, {"version": 2}):
        write(tmp_path, 2, steps(), **changes)
        look = JobFolder(tmp_path).look()
        assert judge(look).message == found.message
        assert len(look.unread) == 1
    write(tmp_path, 2, steps(), launch="of its host")
    assert verdict(tmp_path).verdict is Verdict.PASS
    (tmp_path / ".rank_2.now").write_text('{"version": 1, "ra')
    assert JobFolder(tmp_path).look().unread[0].startswith(".rank_2.now: ")


def test_a_folder_without_ranks_is_told_by_its_other_files(tmp_path: Path) -> None:
    look = JobFolder(tmp_path).look()
    assert (judge(look).kind, look.unread) == ("waiting", [])
    (tmp_path / "h.1.capture").touch()
    assert JobFolder(tmp_path).look().unread == [
        "h.1.capture: not a file of busbw's profiler plugin"
    ]
    (tmp_path / "pattern.jsonl").touch()
    assert verdict(tmp_path).kind == "over"


@pytest.mark.parametrize(
    ("ends", "kind", "suspects"),
    [
        ((0.5, 0.2, 0.6), Verdict.WARN, [1]),
        ((0.205, 0.2, 0.6), Verdict.UNKNOWN, []),  # a signal to all
        ((0.5, None, 0.6), Verdict.UNKNOWN, []),
    ],
)
def test_the_process_that_went_first_is_named(
    ends: tuple[float | None, ...], kind: Verdict, suspects: list[int]
) -> None:
    ranks = {
        rank: LiveRank(rank=rank, host="h", pid=7, state="", end_s=end_s)
        for rank, end_s in enumerate(ends)
    }
    found = judge(JobLook(ranks, 3))
    assert (found.verdict, found.kind, list(found.suspects)) == (kind, "over", suspects)


def test_a_rank_that_failed_before_all_others_is_named_though_python_came_to_its_end() -> None:
    ranks = {
        rank: LiveRank(rank=rank, host="h", pid=7, state="", ended=True, end_s=1.0 + rank)
        for rank in range(3)
    }
    assert judge(JobLook(ranks, 3)).verdict is Verdict.UNKNOWN
    ranks[0].exit_code = 1
    found = judge(JobLook(ranks, 3))
    assert (found.verdict, found.suspects) == (Verdict.WARN, [0])
    assert found.message.endswith(" went first, 1000 ms before another one, and exited with code 1")


def test_the_time_of_the_end_is_said_not_only_that_of_the_look() -> None:
    ranks = {
        rank: LiveRank(
            rank=rank, host="h", pid=7, state="", end_s=1.0 + rank, end_unix_s=1767228498.0 + rank
        )
        for rank in range(3)
    }
    ranks[0].signal = signal.SIGKILL
    found = judge(JobLook(ranks, 3))
    assert found.message.startswith(
        "the job has ended: rank 0 on h went first, at 2026-01-01 00:48:18 UTC, 1000 ms before"
        " another one, and was killed by SIGKILL"
    )
    ranks[2].state = "S"
    assert (
        "rank 0 on h has died at 2026-01-01 00:48:18 UTC: process 7 "
        in judge(JobLook(ranks, 3)).message
    )
    for rank in ranks.values():
        rank.state, rank.end_unix_s = "", time.time()
        rank.end_s, rank.signal = None, 0
    assert re.fullmatch(r"the job has ended at [\d:]{8} UTC", judge(JobLook(ranks, 3)).message)


def test_a_rank_that_was_killed_is_named_though_the_ends_of_others_were_not_seen() -> None:
    ranks = {rank: LiveRank(rank=rank, host="h", pid=7, state="") for rank in range(3)}
    ranks[1].signal, ranks[2].signal = signal.SIGKILL, signal.SIGTERM
    look = JobLook(ranks, 3, has_launcher=True)
    found = judge(look)
    assert (found.verdict, found.kind, found.suspects) == (Verdict.FAIL, "ended", [1])
    assert found.message.endswith("still runs: rank 1 on h was killed by SIGKILL")
    assert found.next.startswith("see the launcher's output; dmesg -T | grep -i -e oom -e killed")
    look.order = signal.SIGTERM  # a launcher kills who does not end
    assert judge(look).suspects == ()
    look.order, ranks[0].exit_code = 0, 1  # it may have failed before
    assert judge(look).verdict is Verdict.UNKNOWN
    alone = LiveRank(rank=0, host="h", pid=7, state="", signal=signal.SIGKILL, end_s=1.0)
    assert judge(JobLook({0: alone}, 1)).suspects == [0]
    alone.signal = signal.SIGSEGV
    assert judge(JobLook({0: alone}, 1)).next.startswith("see what the rank printed last; busbw")


def test_a_job_that_has_ended_fails_the_watch_if_a_rank_was_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = []
    for rank, number in enumerate((signal.SIGKILL, signal.SIGTERM)):
        with subprocess.Popen(["sleep", "60"]) as one:
            write(tmp_path, rank, world=2, pid=one.pid)
            end = RankEnd(
                rank=rank,
                pid=one.pid,
                started=process.start_time(one.pid),
                begin_s=1.0,
                end_s=5.0 + rank,
                unix_s=1767228498.0 + rank,
                signal=number,
            )
            ends.append(end)
            one.kill()
    where = {"host": platform.node(), "pid_namespace": str(Path("/proc/self/ns/pid").readlink())}
    noted = HostEnds(version=1, pid=1, started=1, ends=ends, **where)
    (tmp_path / ".ends_1.json").write_bytes(msgspec.json.encode(noted))
    assert guarded(["watch", "job", str(tmp_path), "--once"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "went first, at 2026-01-01 00:48:18 UTC, 1000 ms before another one, and was" in said


def test_of_processes_that_are_gone_while_others_run_the_first_has_died() -> None:
    """Their launcher ends the others one by one."""
    gone = {0: LiveRank(rank=0, host="h", pid=7, state="S")}
    for rank, end_s in ((1, 0.2), (2, 0.6)):
        gone[rank] = LiveRank(rank=rank, host="h", pid=7, state="", end_s=end_s)
    assert list(judge(JobLook(gone, 3)).suspects) == [1]
    gone[1].signal = signal.SIGKILL
    assert "process 7 was killed by SIGKILL; rank 0 still runs" in judge(JobLook(gone, 3)).message
    gone[1].signal = signal.SIGABRT  # as Gloo does if another rank makes another call
    assert judge(JobLook(gone, 3)).suspects == []
    gone[1].signal = 0
    gone[2].end_s = 0.205  # together
    assert list(judge(JobLook(gone, 3)).suspects) == [1, 2]


def test_the_end_of_a_process_is_noted(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    write_job(tmp_path, pid=other.pid)
    watched = JobFolder(tmp_path)
    assert watched.look().ranks[1].end_s is None
    begin_s = time.time()
    other.kill()
    other.wait()
    while (end_s := watched.look().ranks[1].end_s) is None:
        os.sched_yield()
    assert math.isfinite(end_s)
    end_unix_s = watched.look().ranks[1].end_unix_s
    assert end_unix_s is not None and begin_s - 1e-3 <= end_unix_s <= time.time()  # in ms


def test_the_line_has_the_step_and_evidence_is_printed_once(tmp_path: Path) -> None:
    write_job(tmp_path, late_us=4000.0)
    look = JobFolder(tmp_path).look()
    found = interval(look, judge(look))
    with_evidence = view.text(found, 1000, evidence=True).splitlines()
    assert "  step 50." in with_evidence[0] and " WARN late: rank 1 on " in with_evidence[0]
    assert with_evidence[-1].startswith("        next: busbw check --hosts ")
    assert view.text(found, 1000, evidence=False).splitlines() == with_evidence[:1]


def test_while_no_step_is_made_none_is_shown_as_of_now(
    tmp_path: Path, other: subprocess.Popen[bytes]
) -> None:
    watched = JobFolder(tmp_path)
    shown = []
    for second in (0.0, 2.0, 9.0):
        write_job(tmp_path, pid=other.pid)
        look = watched.look(second)
        shown.append(interval(look, judge(look)))
    assert [one.no_step_s for one in shown] == [0.0, 0.0, 9.0]
    assert view.steps_text(shown[1]).startswith("step 50.")
    assert shown[2].step_s is shown[2].waiting is None
    assert view.steps_text(shown[2]).startswith("no step for 9 s, usually 50.")
    longer = steps(250) | {"step_end_ns": round(1e9 * (time.monotonic() - 30.0))}
    for rank in range(3):
        write(tmp_path, rank, longer)
    look = JobFolder(tmp_path).look()  # a watch that begins while a rank is stopped
    assert interval(look, judge(look)).no_step_s >= 30.0
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    for rank in range(3):
        write(tmp_path, rank, steps(), pid=gone.pid, started=1)
    look = JobFolder(tmp_path).look()
    ended = interval(look, judge(look))
    assert view.steps_text(ended).startswith("no step any more, usually 50.")


def test_a_folder_that_is_not_there_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(["watch", "job", str(tmp_path / "none"), "--once"]) == 2
    assert "/none: no such folder\n\nhint: busbw capture --output " in capsys.readouterr().err
    assert guarded(["watch", "--count", "1", "job", str(tmp_path)]) == 2
    assert "--count stands before job" in capsys.readouterr().err


def test_after_a_stopped_rank_runs_again_the_wait_for_it_is_counted_anew(
    tmp_path: Path, other: subprocess.Popen[bytes]
) -> None:
    states = {0: WAITING, 1: BEFORE, 2: WAITING}
    watched = JobFolder(tmp_path)

    def kind(clock_s: float) -> str:
        for rank, state in states.items():
            write(tmp_path, rank, state, **({"pid": other.pid} if rank == 1 else {}))
        return judge(watched.look(clock_s)).kind

    assert kind(0.0) != "missing"
    other.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT)
    assert kind(40.0) == "stopped"
    other.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, other.pid, os.WCONTINUED | os.WNOWAIT)
    assert (kind(41.0), kind(50.0), kind(51.0)) == ("still", "still", "missing")


def test_a_call_is_not_held_when_a_stopped_rank_runs_again_that_has_not_written_it(
    tmp_path: Path, other: subprocess.Popen[bytes]
) -> None:
    """Its file says that it is in the call, without the call itself."""
    status = {"0": {"last_enqueued_collective": 10, "last_completed_collective": 9}}
    watched = JobFolder(tmp_path)

    def kind(clock_s: float) -> str:
        for rank in (0, 2):
            write(tmp_path, rank, WAITING)
        write(tmp_path, 1, {"pg_status": status}, pid=other.pid)
        return judge(watched.look(clock_s)).kind

    kind(0.0)
    other.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT)
    assert kind(40.0) == "stopped"
    other.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, other.pid, os.WCONTINUED | os.WNOWAIT)
    assert (kind(41.0), kind(50.0), kind(51.0)) == ("still", "still", "stalled")
