"""When to read: at start + n intervals, independent of how long a reading takes, so that errors
do not add up.
"""

import time
from collections.abc import Iterator
from threading import Event


def ticks(
    interval_s: float, stop: Event, count: int | None = None, last: int | None = None
) -> Iterator[int]:
    """Wait for each deadline and yield the number of deadlines missed before it, by a long reading
    or a suspended host.

    Ends after `count` ticks, or with deadline number `last`, or when `stop` is set.
    """
    start, number, given = time.monotonic(), 0, 0
    while (count is None or given < count) and (last is None or number < last):
        number += 1
        # deadlines that have passed, including the last one kept
        passed = int((time.monotonic() - start) / interval_s)
        if last is not None:
            passed = min(passed, last)  # later ones are not asked for
        missed = max(0, passed - number)
        number += missed
        if stop.wait(max(0.0, start + number * interval_s - time.monotonic())):
            return
        given += 1
        yield missed
