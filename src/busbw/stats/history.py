"""Whether a run is slower than earlier runs on its machine.

Which runs are unlike the others, by medians: a few unusual runs hardly move these, so that
they do not hide each other.
"""

import itertools
import math
import statistics
from bisect import bisect_left
from collections.abc import Mapping, Sequence

import msgspec

from busbw.core.cells import CellKey, cells, medians, usable
from busbw.core.history import EARLIEST, Basis, Check, CheckedCell, Standing, machine
from busbw.core.result import Result
from busbw.stats.judging import RELEVANT
from busbw.stats.rank_tests import ROUNDING, fewest_chance, level, sweep_test
from busbw.stats.rounds import quantile, tail

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


NEAREST = 5  # sizes
LARGEST = 700.0  # logarithm that a float can hold
TOLERANCE = 0.1
RARE = 0.2  # share of the stored runs: what more of them do is usual


Times = Mapping[int, Mapping[CellKey, float]]  # seconds by stored run and cell


def spreads(earlier: Times) -> dict[CellKey, float]:
    """How much runs differ, for each cell that all have: the standard deviation of the logarithms
    of their times.

    A cell's own plus the median of those of the nearest sizes, because few runs may agree by
    chance. Empty with fewer than EARLIEST runs.
    """
    runs = list(earlier.values())
    if len(runs) < EARLIEST:
        return {}
    shared = [key for key in runs[0] if all(usable(times.get(key, 0.0)) for times in runs)]
    own = {key: statistics.stdev(math.log(times[key]) for times in runs) for key in shared}
    return {key: value + statistics.median(_nearest(own, key)) for key, value in own.items()}


def needed(confidence: float) -> int:
    """The earlier runs needed for this confidence: 19 for 95 %.

    Any of n runs and a new one is equally likely to be the slowest.
    """
    return next(
        count
        for count in itertools.count(2)
        if fewest_chance(count, 1, two_sided=False) <= level(confidence)
    )


def check(result: Result, earlier: Times, confidence: float, tolerance: float = TOLERANCE) -> Check:
    """Whether any cell of the run is slower than in `earlier` runs on its machine (times in seconds
    by run and cell).

    Runs without all of its cells are ignored. With enough runs the test is by order: if nothing
    changed, each run is equally likely to be the most extreme, so the probability of a false alarm
    over the whole sweep is `alarm`, whatever the distribution of times. From EARLIEST runs on it is
    by their spread, as if the logarithms of times were normal; the run is then fine only if no cell
    can be slower by more than the `tolerance`. One unusual run among the stored ones hides a slow
    cell from both tests: a cell far above the median is not fine either, unless so many runs are
    unusual that this is what the machine does.
    """
    new = {
        key: time_s
        for key, time_s in medians((key, figure.time_s) for key, figure in cells(result)).items()
        if usable(time_s)
    }
    runs = {
        run: times
        for run, times in earlier.items()
        if all(usable(times.get(key, 0.0)) for key in new)
    }
    basis = _basis(len(runs) if new else 0, confidence)
    logs = [[math.log(times[key]) for times in [*runs.values(), new]] for key in new]
    if basis is Basis.SPREAD:
        judged = _by_spread(list(new), logs, level(confidence))
    else:
        judged = (
            [(p, None) for p in sweep_test(logs, len(runs), two_sided=False)]
            if runs
            else [(1.0, None)] * len(new)
        )
    far = (
        _far(list(new), logs, level(confidence), tolerance)
        if basis is not Basis.NONE
        else [[0] * (len(runs) + 1)] * len(new)
    )
    unusual = [run for at, run in enumerate(runs) if any(away[at] for away in far)]
    rare = len(unusual) <= max(1, RARE * len(runs))
    checked = []
    for (key, time_s), (p, most), away in zip(new.items(), judged, far, strict=True):
        times = [run[key] for run in runs.values()] or [time_s]
        middle = statistics.median(times)
        slower = (
            basis is not Basis.NONE and p <= level(confidence) and time_s >= middle * (1 + RELEVANT)
        )
        spread = {"median_s": middle, "low_s": min(times), "high_s": max(times)}
        checked.append(
            CheckedCell(
                key=key,
                time_s=time_s,
                **spread,
                p=p,
                slower=slower,
                most=most,
                far=rare and away[-1] > 0,
            )
        )
    alarm = math.floor(level(confidence) * (len(runs) + 1) + ROUNDING) / (len(runs) + 1)
    return Check(
        machine=machine(result),
        runs=list(runs),
        unusual=unusual if rare else [],
        needed=needed(confidence),
        confidence=confidence,
        tolerance=tolerance,
        alarm=alarm if basis is Basis.ORDER else level(confidence),
        basis=basis,
        cells=checked,
        standing=_standing(basis, checked, tolerance),
    )


def _basis(runs: int, confidence: float) -> Basis:
    return (
        Basis.ORDER
        if runs >= needed(confidence)
        else Basis.SPREAD
        if runs >= EARLIEST
        else Basis.NONE
    )


def _far(
    keys: Sequence[CellKey], logs: Sequence[Sequence[float]], rate: float, tolerance: float
) -> list[list[int]]:
    """Which runs are far from the median, as `distances`; the spread is a cell's own plus the
    median of those of the nearest sizes.
    """
    own = dict(zip(keys, (deviation(log[:-1]) for log in logs), strict=True))
    return distances(
        logs,
        [value + statistics.median(_nearest(own, key)) for key, value in own.items()],
        rate,
        1 + tolerance,
    )


def _by_spread(
    keys: Sequence[CellKey], logs: Sequence[Sequence[float]], rate: float
) -> list[tuple[float, float | None]]:
    """Each cell's p-value times the number of cells (Bonferroni: the rate holds however cells vary
    together), and the largest ratio to earlier runs that its time allows at that rate over all
    cells.

    A cell whose earlier times are all equal has no spread to judge by.

    For the p-value the spread is a cell's own deviation plus the median of those of the nearest
    sizes: few runs may agree by chance, and times have longer tails than a normal distribution.
    benchmarks/history_rates_202611 has the rates with and without such tails.
    """
    runs, family = len(logs[0]) - 1, len(logs)
    far = quantile(rate / family, runs - 1)
    deviations = dict(zip(keys, (statistics.stdev(log[:-1]) for log in logs), strict=True))
    judged: list[tuple[float, float | None]] = []
    for key, log in zip(keys, logs, strict=True):
        own, scale = deviations[key], math.sqrt(1 + 1 / runs)
        if not own:
            judged.append((1.0, None))
            continue
        excess = log[-1] - statistics.fmean(log[:-1])
        t = excess / (scale * (own + statistics.median(_nearest(deviations, key))))
        judged.append(
            (
                min(1.0, family * tail(t, runs - 1)),
                math.exp(min(excess + far * scale * own, LARGEST)),
            )
        )
    return judged


def _nearest(deviations: Mapping[CellKey, float], key: CellKey) -> list[float]:
    """The deviations of this cell and the sizes next to it, NEAREST in all if there are so many."""
    series = sorted(
        (other.size_bytes, value)
        for other, value in deviations.items()
        if _series(other) == _series(key)
    )
    first = bisect_left(series, key.size_bytes, key=lambda pair: pair[0]) - NEAREST // 2
    first = max(0, min(first, len(series) - NEAREST))
    return [value for _, value in series[first : first + NEAREST]]


def _series(key: CellKey) -> CellKey:
    return msgspec.structs.replace(key, size_bytes=0)


def _standing(basis: Basis, checked: Sequence[CheckedCell], tolerance: float) -> Standing:
    if basis is not Basis.NONE and any(cell.slower for cell in checked):
        return Standing.SLOWER
    fine = basis is Basis.ORDER or (
        basis is Basis.SPREAD and all(cell.within(tolerance) for cell in checked)
    )
    fine = fine and not any(cell.far for cell in checked)
    return Standing.FINE if fine else Standing.UNKNOWN
