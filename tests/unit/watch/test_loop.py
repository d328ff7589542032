"""Deadlines are absolute: time taken by readings does not add up, and deadlines that were missed are counted."""

import threading
import time

from busbw.watch.loop import ticks


def test_readings_do_not_shift_later_ones():
    start, at = time.monotonic(), []
    for _ in ticks(0.05, threading.Event(), count=10):
        at.append(time.monotonic() - start)
        time.sleep(0.02)  # what a reading takes
    late = [seen - 0.05 * (number + 1) for number, seen in enumerate(at)]
    assert min(late) >= 0 and sorted(late)[5] < 0.02, late


def test_missed_deadlines_are_counted_and_not_made_up_for():
    seen = []
    for missed in ticks(0.1, threading.Event(), last=8):
        seen.append(missed)
        if len(seen) == 2:
            time.sleep(0.35)  # over the third, fourth and fifth deadline
    assert sum(seen) + len(seen) == 8
    assert sum(seen) == seen[2] and 2 <= seen[2] <= 3


def test_stop_ends_the_wait_at_once():
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    start = time.monotonic()
    assert list(ticks(60, stop)) == [] and time.monotonic() - start < 10


def test_count_limits_the_ticks():
    assert len(list(ticks(0.01, threading.Event(), count=3))) == 3
