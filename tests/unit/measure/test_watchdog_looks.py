"""Each look of the watchdog, at times of a clock that only waiting moves."""

from functools import partial

import pytest

from busbw.core.rank_messages import Here, Report, Working
from busbw.measure import watchdog
from busbw.measure.job import Job
from busbw.measure.progress import Progress
from busbw.measure.watchdog import AWAY_S, HEARTBEAT_S, Watchdog

LIMIT_S = 8.0  # looks are 0.5 s apart, so that all times are exact


class Clock:
    """The time, and what waits for descriptors: `away_s` is how much longer the next wait takes."""

    def __init__(self) -> None:
        self.now, self.away_s = 1000.0, 0.0

    def monotonic(self) -> float:
        return self.now

    def poll(self, milliseconds: int) -> list[tuple[int, int]]:
        self.now += milliseconds / 1e3 + self.away_s
        self.away_s = 0.0
        return []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake_clock = Clock()
    monkeypatch.setattr(watchdog, "time", fake_clock)
    monkeypatch.setattr(watchdog.select, "poll", lambda: fake_clock)
    monkeypatch.setattr(watchdog.process, "siblings", dict)
    return fake_clock


def dog(
    rank: int = 0, limit_s: float = LIMIT_S, progress: bool = False
) -> tuple[Watchdog, list[Report]]:
    reports: list[Report] = []
    return (
        Watchdog(rank, Job(limit_s=limit_s, launch_limit_s=0, progress=progress), reports.append),
        reports,
    )


def stalled_after(rank_watchdog: Watchdog, clock: Clock) -> float:
    """Seconds from now to the look that finds a stall."""
    begin = clock.now
    while rank_watchdog._check_once() is None:
        assert clock.now < begin + 100
    return clock.now - begin


def test_the_limit_may_be_reached_but_not_exceeded(clock: Clock) -> None:
    rank_watchdog, _ = dog()
    rank_watchdog.enter_phase("timing", "8")
    assert stalled_after(rank_watchdog, clock) == LIMIT_S + 0.5


def test_a_phase_counts_from_its_start(clock: Clock) -> None:
    rank_watchdog, _ = dog()
    rank_watchdog.enter_phase("timing", "8")
    clock.now += 1.5  # not from the first look
    assert stalled_after(rank_watchdog, clock) == LIMIT_S + 0.5 - 1.5


def test_a_phase_with_completed_operations_counts_from_the_check(clock: Clock) -> None:
    rank_watchdog, _ = dog()
    progress = Progress(8)
    rank_watchdog.enter_phase("timing", "8", progress)
    clock.now += 1.5
    progress.done = 1
    rank_watchdog._check_once()
    assert stalled_after(rank_watchdog, clock) == LIMIT_S + 0.5


@pytest.mark.parametrize("attribute", ["done", "batch_count"])
def test_each_completed_operation_begins_the_limit_anew(clock: Clock, attribute: str) -> None:
    rank_watchdog, _ = dog()
    progress = Progress(8)
    rank_watchdog.enter_phase("timing", "8", progress)
    for number in range(1, 6):
        clock.now += LIMIT_S - 1.5
        setattr(progress, attribute, number if attribute == "done" else partial(int, number))
        assert rank_watchdog._check_once() is None
    assert stalled_after(rank_watchdog, clock) == LIMIT_S + 0.5


@pytest.mark.parametrize(
    ("away_s", "left_s"), [(AWAY_S, LIMIT_S - AWAY_S), (AWAY_S + 0.5, LIMIT_S + 0.5)]
)
def test_a_process_that_was_stopped_itself_has_not_stalled(
    clock: Clock, away_s: float, left_s: float
) -> None:
    rank_watchdog, _ = dog()
    rank_watchdog.enter_phase("timing", "8")
    rank_watchdog._check_once()
    clock.away_s = away_s
    assert rank_watchdog._check_once() is None
    assert stalled_after(rank_watchdog, clock) == left_s - (0.5 if away_s == AWAY_S else 0.0)


@pytest.mark.parametrize(
    ("limit_s", "every_s"),
    [(LIMIT_S, LIMIT_S + 0.5), (0.0, HEARTBEAT_S + 0.5)],
    ids=["each limit", "each hour without one"],
)
def test_rank_0_reports_that_it_is_alive(clock: Clock, limit_s: float, every_s: float) -> None:
    rank_watchdog, reports = dog(limit_s=limit_s)
    progress = Progress(8)
    begin, times = clock.now, []
    rank_watchdog.enter_phase("timing", "8", progress)
    while len(times) < 2:
        progress.done += 1
        assert rank_watchdog._check_once() is None
        if reports:
            assert isinstance(reports.pop(), Here)
            times.append(clock.now - begin)
    assert times == [every_s, 2 * every_s]


def test_other_ranks_report_nothing_while_they_work(clock: Clock) -> None:
    rank_watchdog, reports = dog(rank=1, progress=True)
    progress = Progress(8)
    rank_watchdog.enter_phase("timing", "8", progress)
    for _ in range(50):
        progress.done += 1
        rank_watchdog._check_once()
    assert reports == []


def test_rank_0_reports_its_work_each_second_if_asked(clock: Clock) -> None:
    rank_watchdog, reports = dog(progress=True)
    rank_watchdog.enter_phase("timing", "8 in place", Progress(8, left_s=3.0))
    for _ in range(13):
        rank_watchdog._check_once()
    # Looks after 0.5 s, 1 s ...: more than a second after the last report. No time is left when the
    # estimate has passed.
    assert reports == [
        Working("timing", "8 in place", seconds) for seconds in (1.5, 0.0, None, None)
    ]
    silent, reports = dog()
    silent.enter_phase("timing", "8 in place", Progress(8, left_s=3.0))
    for _ in range(13):
        silent._check_once()
    assert reports == []


def test_a_phase_without_an_estimate_has_no_time_left(clock: Clock) -> None:
    rank_watchdog, reports = dog(progress=True)
    rank_watchdog.enter_phase("verify", "8")
    for _ in range(3):
        rank_watchdog._check_once()
    assert reports == [Working("verify", "8", None)]


def test_connections_are_counted_once_when_half_of_the_limit_has_passed(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[float] = []
    begin = clock.now
    monkeypatch.setattr(
        watchdog.tcp_connections, "read", lambda: counted.append(clock.now - begin) or {}
    )
    rank_watchdog, _ = dog()
    progress = Progress(8)
    rank_watchdog.enter_phase("timing", "8", progress)
    for _ in range(12):
        rank_watchdog._check_once()
    assert counted == [LIMIT_S / 2 + 0.5]
    progress.done = 1  # after 6 s; seen half a second later
    assert stalled_after(rank_watchdog, clock) == 0.5 + LIMIT_S + 0.5
    assert counted == [4.5, 6.5 + 4.5]
