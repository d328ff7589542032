"""When a launcher stops waiting: the limits of each stage, with real processes of this machine."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from busbw.core.rank_messages import Gone, Here, Leaving, Stalled, Throttled, Working, encode
from busbw.host import kernel_log
from busbw.launch import rank_monitor
from busbw.launch.cleanup import MARKER
from busbw.launch.rank_monitor import (
    LEAVING_BOUNDS_S,
    REPORT_MARGIN_S,
    STALL_REPORTS_S,
    RankMonitor,
)

HOST = os.uname().nodename


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes = [subprocess.Popen(["busbw-rank", "60"], executable="/bin/sleep") for _ in range(2)]
    for process in processes:
        # until the new program has taken over
        while b"busbw-rank" not in Path(f"/proc/{process.pid}/cmdline").read_bytes():
            time.sleep(0.001)
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def monitor(sleepers: list[subprocess.Popen[bytes]], limit_s: float = 5.0) -> RankMonitor:
    job_monitor = RankMonitor(2, (), limit_s, 10.0)
    for rank, sleeper in enumerate(sleepers):
        assert job_monitor.record_report(encode(Here(rank, HOST, sleeper.pid)))
    return job_monitor


def stall_of(sleepers: list[subprocess.Popen[bytes]], rank: int) -> str:
    return encode(Stalled(rank, HOST, sleepers[rank].pid, "timing", "8", 3, 5.0))


def test_a_host_that_does_not_report_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_monitor, "MAX_SURVEY_S", 0.0)
    job_monitor = RankMonitor(2, (), 5, 5)
    job_monitor.record_report(encode(Here(0, HOST, 1)))
    job_monitor.record_report(encode(Stalled(0, HOST, 1, "timing", "8", 3, 5.0)))
    job_monitor.pending_survey = Future()
    assert job_monitor.collect_evidence().stalled.keys() == {0}


def test_requested_interfaces_are_watched_if_present() -> None:
    assert "lo" in RankMonitor(2, (), 5, 5, ifname="lo").links_at_start
    usual = RankMonitor(2, (), 5, 5).links_at_start
    assert all(
        RankMonitor(2, (), 5, 5, ifname=name).links_at_start == usual
        for name in ("nosuch0", "198.51.100.0/24")
    )


def test_other_lines_are_not_reports() -> None:
    assert not RankMonitor(2, (), 5, 5).record_report("NCCL INFO")


def test_a_stopped_rank_is_found_after_the_gather_time(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    job_monitor = monitor(sleepers)
    job_monitor.record_event()
    sleepers[1].send_signal(signal.SIGSTOP)
    # a signal takes a moment to arrive
    os.waitid(os.P_PID, sleepers[1].pid, os.WSTOPPED | os.WNOWAIT)
    job_monitor.record_report(stall_of(sleepers, 0))
    assert job_monitor.stop_reason() is None
    job_monitor.first_stall_at -= STALL_REPORTS_S + 0.1
    error = job_monitor.stop_reason()
    assert error is not None
    assert f"rank 1 on {HOST} (pid {sleepers[1].pid}) is stopped" in error.message


def test_no_wait_once_all_ranks_reported(sleepers: list[subprocess.Popen[bytes]]) -> None:
    job_monitor = monitor(sleepers)
    for rank in (0, 1):
        job_monitor.record_report(stall_of(sleepers, rank))
    assert "no rank is late" in str(job_monitor.stop_reason())


def test_a_new_row_clears_stall_reports(sleepers: list[subprocess.Popen[bytes]]) -> None:
    job_monitor = monitor(sleepers)
    job_monitor.record_report(stall_of(sleepers, 0))
    job_monitor.record_event()
    job_monitor.first_stall_at -= STALL_REPORTS_S + 0.1 if job_monitor.first_stall_at else 0
    assert job_monitor.stop_reason() is None


def test_a_report_of_the_start_that_comes_after_a_row_is_no_stall(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    """Rows and reports come by two pipes."""
    job_monitor = monitor(sleepers)
    job_monitor.record_event()
    pid = sleepers[1].pid
    job_monitor.record_report(encode(Stalled(1, HOST, pid, "prepare", "", 3, 0.4)))
    assert job_monitor.stall_reports == {}
    job_monitor.record_report(encode(Stalled(1, HOST, pid, "prepare", "", 9, 5.1)))
    assert list(job_monitor.stall_reports) == [1]


def test_silence_ends_the_run_unless_there_is_no_limit(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    job_monitor = monitor(sleepers)
    job_monitor.record_event()
    job_monitor.last_report_at -= 2 * 5.0 + REPORT_MARGIN_S - 0.5
    assert job_monitor.stop_reason() is None
    job_monitor.last_report_at -= 1.1
    assert "no rank has reported for 14 s" in str(job_monitor.stop_reason())
    endless = monitor(sleepers, limit_s=0)
    endless.record_event()
    endless.last_report_at -= 1e6
    assert endless.stop_reason() is None
    endless.record_event(leaving=True)
    assert endless.stop_reason() is None
    endless.last_left_at -= LEAVING_BOUNDS_S[1] + 0.1
    assert "everything was measured, but the job did not end within 60 s" in str(
        endless.stop_reason()
    )


def test_the_end_of_a_job_has_its_own_limit_which_each_leaving_rank_extends(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    job_monitor = monitor(sleepers, limit_s=1.5)
    job_monitor.record_event(leaving=True)
    job_monitor.last_left_at -= LEAVING_BOUNDS_S[0] - 0.5
    job_monitor.record_report(encode(Leaving(1)))
    job_monitor.last_left_at -= LEAVING_BOUNDS_S[0] - 0.5
    # rank 0 is alive, which it says again and again
    job_monitor.record_report(encode(Here(0, HOST, sleepers[0].pid)))
    assert job_monitor.stop_reason() is None
    job_monitor.last_left_at -= 0.6
    assert job_monitor.stop_reason() is not None


def test_a_stopped_launcher_is_named_after_the_limit(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    job_monitor = monitor(sleepers)
    job_monitor.record_event()
    with subprocess.Popen(
        ["sleep", "60"], env={**os.environ, MARKER: job_monitor.cleanup.marker}
    ) as launcher:
        try:
            job_monitor.cleanup.launcher = launcher.pid
            launcher.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, launcher.pid, os.WSTOPPED | os.WNOWAIT)
            assert job_monitor.state_changes() == []
            assert job_monitor.stop_reason() is None
            job_monitor.launcher_stopped_at -= 5.1
            job_monitor.last_report_at -= 5.1
            assert f"sleep on {HOST} (pid {launcher.pid}) is stopped" in str(
                job_monitor.stop_reason()
            )
        finally:
            launcher.kill()


@pytest.mark.parametrize("kills", [1, 7, kernel_log.UNKNOWN])
def test_a_rank_that_the_kernel_killed_for_memory_is_known_by_the_count_of_its_host(
    kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_log, "count", lambda: kills)
    monkeypatch.setattr(kernel_log, "killed", lambda _: None)  # as in a container
    job_monitor = RankMonitor(2, (), 5.0, 10.0)
    for rank, before in enumerate((kills, kills - 1)):
        job_monitor.record_report(encode(Here(rank, HOST, 4000000 + rank, before)))
    texts = [job_monitor.memory_kill(rank) for rank in range(3)]
    assert [text[:7] for text in texts] == ["", "perhaps" if kills > 0 else "", ""]


def test_queue_time_does_not_count_for_absent_ranks(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    job_monitor = RankMonitor(2, ("h1", "h2"), 5.0, 10.0)
    job_monitor.record_report(encode(Here(0, HOST, sleepers[0].pid)))
    job_monitor.began_at -= 11
    assert job_monitor.stop_reason(queued=True) is None
    job_monitor.began_at = time.monotonic() - 11
    assert "launch: rank 1 on h2 did not start within 10 s, 1 of 2 did" in str(
        job_monitor.stop_reason()
    )


def test_all_ranks_start_but_no_sweep_begins(sleepers: list[subprocess.Popen[bytes]]) -> None:
    job_monitor = monitor(sleepers)
    job_monitor.last_report_at -= 10 + REPORT_MARGIN_S + 1
    sleepers[0].kill()
    sleepers[0].wait()
    assert f"rank 0 on {HOST} (pid {sleepers[0].pid}) is gone" in str(job_monitor.stop_reason())


def test_the_first_death_near_the_rank_that_aborted_counts(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    job_monitor = RankMonitor(3, (), 5.0, 10.0)
    for rank, host in enumerate(("h1", "h2", "h2")):
        job_monitor.record_report(encode(Here(rank, host, 50 + rank)))
    job_monitor.record_report(encode(Gone(1, "h1", 50)))
    job_monitor.record_report(encode(Gone(1, "h2", 52)))
    job_monitor.record_report(
        encode(Gone(1, "h2", 9999))
    )  # not a rank, for example the launch agent
    assert "rank 2 on h2" in str(job_monitor.first_exit_error("h2"))
    assert "rank 0 on h1" in str(job_monitor.first_exit_error())
    assert RankMonitor(3, (), 5.0, 10.0).first_exit_error() is None


def test_the_work_of_rank_0_is_passed_on(sleepers: list[subprocess.Popen[bytes]]) -> None:
    job_monitor, works = monitor(sleepers), list[Working]()
    job_monitor.on_working = works.append
    job_monitor.record_report(encode(Working("timing", "8", 2.5)))
    assert works == [Working("timing", "8", 2.5)]


def test_a_rank_that_its_cpu_quota_slows_is_named_once_and_with_a_stall(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    job_monitor = monitor(sleepers)
    for rank in (1, 0):  # of one container
        job_monitor.record_report(encode(Throttled(rank, HOST, 0.08, "/job/cpu.max")))
    slowed = f"rank 1 on {HOST} (pid {sleepers[1].pid}) is slowed by a CPU quota of 0.08 CPUs"
    assert job_monitor.state_changes() == [f"{slowed} (/job/cpu.max)"]
    for rank in (0, 1):
        job_monitor.record_report(stall_of(sleepers, rank))
    assert job_monitor.stall_error().message.endswith(f"; {slowed} (/job/cpu.max)")


def test_a_stopped_rank_is_reported_before_the_limit(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    job_monitor = monitor(sleepers)
    job_monitor.record_event()
    sleepers[1].send_signal(signal.SIGSTOP)
    start, messages = time.monotonic(), []
    while not messages and time.monotonic() - start < 60:
        messages = job_monitor.state_changes()
        time.sleep(0.05)
    rank_name = f"rank 1 on {HOST} (pid {sleepers[1].pid})"
    assert messages == [f"{rank_name} is stopped: the run ends unless it resumes within 5 s"]
    assert job_monitor.stop_reason() is None
    job_monitor.not_running[1] = (job_monitor.not_running[1][0] - 5 - REPORT_MARGIN_S, "T")
    job_monitor.last_report_at -= 5 + REPORT_MARGIN_S
    assert f"{rank_name} is stopped" in str(job_monitor.stop_reason())
    sleepers[1].send_signal(signal.SIGCONT)
    job_monitor.last_process_check_at = 0.0
    assert job_monitor.state_changes() == [f"{rank_name} runs again"]
    assert not job_monitor.not_running


def test_a_dead_rank_is_reported_if_the_launcher_hangs(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    job_monitor = monitor(sleepers, limit_s=0)
    job_monitor.record_event()
    sleepers[0].kill()
    os.waitid(os.P_PID, sleepers[0].pid, os.WEXITED | os.WNOWAIT)
    assert job_monitor.state_changes() == []
    job_monitor.not_running[0] = (job_monitor.not_running[0][0] - 10, "Z")
    job_monitor.last_process_check_at = 0.0
    assert job_monitor.state_changes() == [f"rank 0 on {HOST} (pid {sleepers[0].pid}) is dead"]
    assert f"rank 0 on {HOST} (pid {sleepers[0].pid}) died of signal 9 (SIGKILL)" in str(
        job_monitor.stop_reason()
    )
    job_monitor.record_event(leaving=True)
    job_monitor.last_process_check_at = 0.0
    assert job_monitor.state_changes() == []


def test_time_while_the_launcher_is_stopped_is_ignored(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    job_monitor = monitor(sleepers)
    job_monitor.record_event()
    job_monitor.stop_reason()
    job_monitor.not_running[1] = (time.monotonic() - 100, "T")
    job_monitor.last_check_at -= 100
    assert job_monitor.stop_reason() is None
    assert not job_monitor.not_running


def test_a_pid_of_another_process_on_this_host_is_not_watched() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        job_monitor = RankMonitor(1, (), 5.0, 10.0)
        job_monitor.record_report(encode(Here(0, HOST, other.pid)))
        other.kill()
    assert not job_monitor.local_pids
    assert job_monitor.state_changes() == []
