"""Deadlines are absolute: time taken by readings does not add up, and deadlines that were missed
are counted.
"""

import threading

import pytest

from busbw.watch import watcher
from busbw.watch.watcher import ticks


class Clock(threading.Event):
    """A clock that only waiting, and what a reading takes, moves forward; nobody sets the event."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0.0
        return False


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake_clock = Clock()
    monkeypatch.setattr(watcher.time, "monotonic", fake_clock.monotonic)
    return fake_clock


def test_readings_do_not_shift_later_ones(clock: Clock):
    at = []
    for _ in ticks(0.05, clock, count=10):
        at.append(clock.now)
        clock.now += 0.02  # what a reading takes
    assert at == pytest.approx([0.05 * (number + 1) for number in range(10)])


@pytest.mark.parametrize(("away_s", "counts"), [(0.35, [0, 0, 2, 0, 0, 0]), (2.0, [0, 0, 5])])
def test_missed_deadlines_are_counted_and_not_made_up_for(
    clock: Clock, away_s: float, counts: list[int]
):
    missed_counts = []
    for missed in ticks(0.1, clock, last=8):
        missed_counts.append(missed)
        if len(missed_counts) == 2:
            clock.now += away_s  # over the third, fourth and fifth deadline, or over the last
    assert missed_counts == counts
    assert len(missed_counts) + sum(missed_counts) == 8


def test_stop_ends_the_wait_at_once():
    """Long before its deadline, which the limit of the test does not reach."""
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    assert list(ticks(6000, stop)) == []


def test_count_limits_the_ticks(clock: Clock):
    assert len(list(ticks(0.01, clock, count=3))) == 3
