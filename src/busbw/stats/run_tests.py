"""Which rows of a sweep differ between two sets of whole runs.

Westfall and Young's permutation of the largest statistic (1993). It permutes the labels of whole
runs, and with them what the rows of a run have in common (a warm GPU, a busy switch). The level
holds over all rows together.
"""

import math
import random
import statistics
from collections.abc import Iterator, Sequence
from itertools import combinations

MAX_SPLITS = 4000  # beyond it a fixed sample of them is used
ROUNDING = 1e-9


def sweep_test(rows: Sequence[Sequence[float]], first: int, *, two_sided: bool) -> list[float]:
    """Each row's p-value, adjusted for all rows. rows[r][i] is the logarithm of row r's time in run
    i; the `first` runs are the baseline.

    Two-sided, or for the alternative that the other runs are slower. With fewer than 3 runs all are
    1.
    """
    runs = len(rows[0]) if rows else 0
    if runs < 3 or not 0 < first < runs:
        return [1.0] * len(rows)
    centred = [[value - statistics.fmean(row) for value in row] for row in rows]
    squares = [math.fsum(value * value for value in row) for row in centred]
    found = _statistics(centred, squares, range(first), two_sided)
    largest = [
        max(_statistics(centred, squares, split, two_sided)) for split in _splits(runs, first)
    ]
    return [
        sum(other >= own - abs(own) * ROUNDING for other in largest) / len(largest) for own in found
    ]


def fewest_chance(first: int, second: int, *, two_sided: bool) -> float:
    """The smallest possible p-value of `first` runs compared with `second`."""
    mirrored = 2 if two_sided and first == second else 1
    return mirrored / math.comb(first + second, first)


def _splits(runs: int, first: int) -> Iterator[Sequence[int]]:
    """Choices of a baseline among the runs: all, or the actual one and a fixed sample."""
    if math.comb(runs, first) <= MAX_SPLITS:
        yield from combinations(range(runs), first)
        return
    yield range(first)
    draw = random.Random(1)
    for _ in range(MAX_SPLITS - 1):
        yield draw.sample(range(runs), first)


def _statistics(
    rows: Sequence[Sequence[float]], squares: Sequence[float], split: Sequence[int], two_sided: bool
) -> list[float]:
    """Each row's difference of means over its standard deviation within the two sets.

    The median deviation of all rows is added to each, so that a row whose few runs agree by chance
    does not dominate the maximum.
    """
    runs, first = len(rows[0]), len(split)
    differences, deviations = [], []
    for row, square in zip(rows, squares, strict=True):
        total = sum(map(row.__getitem__, split))  # of centred values: the rest sums to its opposite
        between = total * total * (1 / first + 1 / (runs - first))
        differences.append(-total * (1 / first + 1 / (runs - first)))
        deviations.append(math.sqrt(max(0.0, square - between) / (runs - 2)))
    typical = statistics.median(deviations)
    return [
        (abs(difference) if two_sided else difference) / max(deviation + typical, ROUNDING)
        for difference, deviation in zip(differences, deviations, strict=True)
    ]
