"""Which runs are unlike the others, by medians: a few unusual runs hardly move these, so that
they do not hide each other.
"""

import math
import statistics
from collections.abc import Sequence

from busbw.stats.student import quantile

OF_NORMAL = 1.4826  # standard deviation over median absolute deviation, of a normal distribution


def deviation(values: Sequence[float]) -> float:
    """The standard deviation of most of the values, from their median absolute deviation."""
    middle = statistics.median(values)
    return OF_NORMAL * statistics.median(abs(value - middle) for value in values)


def distances(
    logs: Sequence[Sequence[float]], spreads: Sequence[float], rate: float, least: float
) -> list[list[int]]:
    """For each cell, -1, 0 or 1 for each run: whether its time is far below, near or far above the
    median of the stored runs.

    logs[cell][run] is the logarithm of a time; the last run is the new one. Far is more than the
    factor `least`, and further than Student's t allows at `rate` over all cells, with `spreads` as
    the standard deviations. A spread of 0 says nothing: all is near.
    """
    runs = len(logs[0]) - 1
    scale = quantile(rate / len(logs), runs - 1) * math.sqrt(1 + 1 / runs)
    found = []
    for log, spread in zip(logs, spreads, strict=True):
        middle, limit = statistics.median(log[:-1]), max(scale * spread, math.log(least))
        found.append(
            [(value - middle > limit) - (middle - value > limit) if spread else 0 for value in log]
        )
    return found
