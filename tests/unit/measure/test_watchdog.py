"""The watchdog in real processes: it reports a stall in time, does not report slow sizes, and
leaves no process behind.
"""

import contextlib
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from busbw.core.rank_messages import Gone, Here, Leaving, Report, Stalled, decode
from busbw.measure.job import Job
from busbw.measure.progress import Progress
from busbw.measure.watchdog import Watchdog

SOURCE = str(Path(__file__).parents[3] / "src")


def dog(
    limit_s: float = 0.2, launch_limit_s: float = 0.2, rank: int = 0
) -> tuple[Watchdog, list[Report], threading.Event]:
    reports: list[Report] = []
    stalled = threading.Event()

    def record(report: Report) -> None:
        reports.append(report)
        if isinstance(report, Stalled):
            stalled.set()

    rank_watchdog = Watchdog(rank, Job(limit_s=limit_s, launch_limit_s=launch_limit_s), record)
    rank_watchdog.start()
    return rank_watchdog, reports, stalled


def test_a_rank_reports_its_start_and_later_its_stall() -> None:
    rank_watchdog, reports, stalled = dog()
    rank_watchdog.enter_phase("timing", "8 in place")
    assert stalled.wait(5)
    rank_watchdog.stop()
    start_report, *_, stall_report = reports
    assert isinstance(start_report, Here)
    assert isinstance(stall_report, Stalled)
    assert (
        stall_report.phase,
        stall_report.detail,
        stall_report.step,
        stall_report.phase_text,
    ) == ("timing", "8 in place", 1, "timing of 8 in place")
    assert 0.2 <= stall_report.waited_s < 2
    assert any("test_watchdog.py" in call for call in stall_report.doing) or any(
        "threading.py" in call for call in stall_report.doing
    )


def test_the_end_is_watched_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("busbw.measure.watchdog.TEARDOWN_S", (0.4, 0.4))
    rank_watchdog, reports, stalled = dog(limit_s=0)  # no limit for what is measured
    rank_watchdog.enter_phase("timing", "8 in place")
    rank_watchdog.leave()
    assert stalled.wait(5)
    rank_watchdog.stop()
    assert reports[1] == Leaving(0)
    assert isinstance(reports[-1], Stalled)
    assert reports[-1].phase == "teardown"


def test_a_phase_that_changes_in_time_is_not_a_stall() -> None:
    rank_watchdog, reports, stalled = dog(limit_s=1.5)
    for step in range(16):  # longer than the limit
        rank_watchdog.enter_phase("timing", f"{8 << step} in place")
        time.sleep(0.1)
    rank_watchdog.stop()
    assert not stalled.is_set()
    assert {type(report) for report in reports} == {Here}


def test_the_phases_before_the_sweep_share_one_limit() -> None:
    rank_watchdog, _, _ = dog(limit_s=600, launch_limit_s=300)
    allowed = []
    for phase in ("rendezvous", "init", "prepare", "timing"):
        rank_watchdog.enter_phase(phase)
        allowed.append(rank_watchdog.phase.allowed_s)
        time.sleep(0.01)
    rank_watchdog.stop()
    assert 300 > allowed[0] > allowed[1] > allowed[2]
    assert allowed[3] == 600


def test_a_reopened_engine_has_the_sweeps_limit() -> None:
    rank_watchdog, _, stalled = dog(limit_s=60, launch_limit_s=1)
    rank_watchdog.enter_phase("timing", "8")
    time.sleep(1.1)
    rank_watchdog.enter_phase("init")
    assert not stalled.wait(0.3)
    rank_watchdog.stop()


def test_the_limit_counts_from_the_last_operation() -> None:
    rank_watchdog, reports, stalled = dog(limit_s=1.0)
    progress = Progress(8)
    rank_watchdog.enter_phase("timing", "8 in place", progress)
    ended: list[float] = []
    progress.batch_count = partial(len, ended)
    for _ in range(40):  # a phase of two limits
        ended.append(0.0)
        time.sleep(0.05)
    assert not stalled.is_set()
    last = time.monotonic()
    assert stalled.wait(60)
    rank_watchdog.stop()
    assert time.monotonic() - last > 0.8
    assert [report.phase for report in reports if isinstance(report, Stalled)] == ["timing"]


RANK = """
import sys, time
from busbw.measure import watchdog
from busbw.measure.job import Job
from busbw.measure.events import write_report
watchdog.GRACE_S = 0.3
dog = watchdog.Watchdog(int(sys.argv[1]), Job(limit_s=float(sys.argv[2])), write_report)
dog.start()
dog.enter_phase("init")
dog.enter_phase("timing", "8")
time.sleep(600)
"""


def started(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RANK, *words],
        env={"PYTHONPATH": SOURCE},
        stderr=subprocess.PIPE,
        text=True,
    )


def test_an_abandoned_rank_exits_with_3() -> None:
    with started("1", "0.3") as rank:
        assert rank.wait(100) == 3
        assert rank.stderr is not None
        # other children of pytest may end
        rank_reports = [
            report for line in rank.stderr if not isinstance(report := decode(line), Gone)
        ]
    assert [type(report) for report in rank_reports] == [Here, Stalled]


def test_a_neighbours_exit_is_reported_immediately() -> None:
    with started("0", "600") as other, started("1", "600") as rank:
        assert other.stderr is not None
        assert rank.stderr is not None
        assert isinstance(decode(rank.stderr.readline()), Here)
        other.stderr.readline()
        while not _watches(rank.pid, other.pid):
            time.sleep(0.01)
        other.kill()
        # Other children of pytest may end, too.
        stall_report = next(
            report
            for line in rank.stderr
            if isinstance(report := decode(line), Gone) and report.pid == other.pid
        )
        rank.kill()
    assert stall_report.rank == 1


def _watches(pid: int, other: int) -> bool:
    """Whether a process has a descriptor of the other, which becomes readable when that ends."""
    for info in Path(f"/proc/{pid}/fdinfo").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            if f"\nPid:\t{other}\n" in info.read_text():
                return True
    return False
