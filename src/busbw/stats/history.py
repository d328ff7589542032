"""Tests whether a run is slower than earlier runs on its machine.

Unusual runs are found by medians: a few of them hardly move these, so that they do not hide each
other.
"""

import itertools
import math
import statistics
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from busbw.core.cells import CellKey, cells, medians, usable
from busbw.core.history import MIN_RUNS, CheckedCell, HistoryBasis, HistoryCheck, Standing, machine
from busbw.core.result import Result
from busbw.stats.judging import RELEVANT_DIFFERENCE, STDEV_OVER_MAD
from busbw.stats.rank_tests import ROUNDING, fewest_chance, level, sweep_test
from busbw.stats.rounds import t_quantile, t_tail

NEAREST_SIZES = 5  # sizes
LARGEST_LOG = 700.0  # the exponential of more is no finite number
DEFAULT_TOLERANCE = 0.1
MAX_RARE_SHARE = 0.2  # share of the stored runs: what more of them do is usual

Times = Mapping[int, Mapping[CellKey, float]]  # seconds by stored run and cell
Logs = Mapping[CellKey, Sequence[float]]  # logarithms of times by cell; the last run is the new one


def deviation(values: Sequence[float]) -> float:
    """The standard deviation of most of the values, from their median absolute deviation."""
    middle = statistics.median(values)
    return STDEV_OVER_MAD * statistics.median(abs(value - middle) for value in values)


def distances(
    logs: Sequence[Sequence[float]], spreads: Sequence[float], rate: float, factor: float
) -> list[list[int]]:
    """-1, 0 or 1 by cell and run: its time is far below, near or far above the median of the
    stored runs.

    logs[cell][run] is the logarithm of a time; the last run is the new one. Far is more than
    `factor`, and further than Student's t allows at `rate` over all cells, with `spreads` as the
    standard deviations. A cell with a spread of 0 has nothing to judge by: all its runs are near.
    """
    runs = len(logs[0]) - 1
    scale = t_quantile(rate / len(logs), runs - 1) * math.sqrt(1 + 1 / runs)
    signs = []
    for log, spread in zip(logs, spreads, strict=True):
        middle = statistics.median(log[:-1])
        limit = max(scale * spread, math.log(factor)) if spread else math.inf
        signs.append([(value - middle > limit) - (middle - value > limit) for value in log])
    return signs


def spreads(earlier: Times) -> dict[CellKey, float]:
    """How much runs differ: a standard deviation of the logarithms of times, for each cell that
    all runs have.

    It is the cell's deviation plus the median of those of the nearest sizes, because few runs may
    agree by chance. Empty with fewer than EARLIEST runs.
    """
    runs = list(earlier.values())
    if len(runs) < MIN_RUNS:
        return {}
    deviations = {}
    for key in runs[0]:
        times_s = [times.get(key, 0.0) for times in runs]
        if all(map(usable, times_s)):
            deviations[key] = statistics.stdev(map(math.log, times_s))
    return _widened(deviations)


def _widened(deviations: Mapping[CellKey, float]) -> dict[CellKey, float]:
    """Each cell's deviation plus the median of those of the nearest sizes."""
    return {
        key: deviation + statistics.median(_nearest(deviations, key))
        for key, deviation in deviations.items()
    }


def needed(confidence: float) -> int:
    """The earlier runs needed for this confidence: 19 for 95 %.

    If nothing changed, each of n runs and a new one is equally likely to be the slowest.
    """
    rate = level(confidence)
    counts = itertools.count(2)
    return next(count for count in counts if fewest_chance(count, 1, two_sided=False) <= rate)


def check(
    result: Result, earlier: Times, confidence: float, tolerance: float = DEFAULT_TOLERANCE
) -> HistoryCheck:
    """Whether any cell of the run is slower than in `earlier` runs on its machine.

    Runs without all of its cells are ignored. With enough runs the test is by order: if nothing
    changed, each run is equally likely to be the most extreme, so the probability of a false alarm
    over the whole sweep is `alarm`, whatever the distribution of times. From EARLIEST runs on it is
    by their spread, as if the logarithms of times were normal; the run is then fine only if no cell
    can be slower by more than the `tolerance`. One unusual run among the stored ones hides a slow
    cell from both tests: a cell far above the median is not fine either, unless so many runs are
    unusual that this is what the machine does.
    """
    times_s = medians((key, figure.time_s) for key, figure in cells(result))
    new = {key: time_s for key, time_s in times_s.items() if usable(time_s)}
    runs = {run: times for run, times in earlier.items() if _has_all(times, new)}
    basis = _basis(len(runs) if new else 0, confidence)
    rate = level(confidence)
    logs = {}
    for key in new:
        logs[key] = [math.log(times[key]) for times in (*runs.values(), new)]
    signs = [[0] * (len(runs) + 1)] * len(new)
    if basis is not HistoryBasis.NONE:
        signs = _distances(logs, rate, tolerance)
    signs_by_run = zip(*signs, strict=True)  # the last run is the new one
    unusual = [run for run, in_cells in zip(runs, signs_by_run, strict=False) if any(in_cells)]
    rare = len(unusual) <= max(1, MAX_RARE_SHARE * len(runs))
    checked = []
    judged = _judge(logs, basis, rate)
    for (key, time_s), (p, largest_ratio), sign in zip(new.items(), judged, signs, strict=True):
        cell = _checked_cell(key, time_s, [times[key] for times in runs.values()])
        significant = basis is not HistoryBasis.NONE and p <= rate
        slower = significant and time_s >= cell.median_s * (1 + RELEVANT_DIFFERENCE)
        far = rare and sign[-1] > 0
        checked.append(
            msgspec.structs.replace(cell, p=p, slower=slower, most=largest_ratio, far=far)
        )
    return HistoryCheck(
        machine=machine(result),
        runs=list(runs),
        unusual=unusual if rare else [],
        needed=needed(confidence),
        confidence=confidence,
        tolerance=tolerance,
        alarm=_chance_by_order(len(runs), rate) if basis is HistoryBasis.ORDER else rate,
        basis=basis,
        cells=checked,
        standing=_standing(basis, checked, tolerance),
    )


def _has_all(times: Mapping[CellKey, float], keys: Iterable[CellKey]) -> bool:
    return all(usable(times.get(key, 0.0)) for key in keys)


def _checked_cell(key: CellKey, time_s: float, earlier_s: Sequence[float]) -> CheckedCell:
    """A cell with its times, not yet judged."""
    times_s = earlier_s or [time_s]
    return CheckedCell(
        key=key,
        time_s=time_s,
        median_s=statistics.median(times_s),
        low_s=min(times_s),
        high_s=max(times_s),
        p=1.0,
        slower=False,
    )


def _basis(runs: int, confidence: float) -> HistoryBasis:
    if runs >= needed(confidence):
        return HistoryBasis.ORDER
    return HistoryBasis.SPREAD if runs >= MIN_RUNS else HistoryBasis.NONE


def _chance_by_order(runs: int, rate: float) -> float:
    """The largest probability, at most `rate`, that a test by order can have."""
    return math.floor(rate * (runs + 1) + ROUNDING) / (runs + 1)


def _judge(logs: Logs, basis: HistoryBasis, rate: float) -> list[tuple[float, float | None]]:
    """The p-value of each cell, and the largest ratio that `_judge_by_spread` finds."""
    if basis is HistoryBasis.SPREAD:
        return _judge_by_spread(logs, rate)
    runs = len(next(iter(logs.values()), [0.0])) - 1
    if not runs:
        return [(1.0, None)] * len(logs)
    return [(p, None) for p in sweep_test(list(logs.values()), runs, two_sided=False)]


def _distances(logs: Logs, rate: float, tolerance: float) -> list[list[int]]:
    """Which runs are far from the median, by cell and run as in `distances`."""
    deviations = {key: deviation(log[:-1]) for key, log in logs.items()}
    spreads = list(_widened(deviations).values())
    return distances(list(logs.values()), spreads, rate, 1 + tolerance)


def _judge_by_spread(logs: Logs, rate: float) -> list[tuple[float, float | None]]:
    """Each cell's p-value times the number of cells, and the largest ratio to earlier runs that its
    time allows at `rate` over all cells.

    With Bonferroni's factor the rate holds however cells vary together. A cell whose earlier times
    are all equal has no spread to judge by: (1.0, None).

    For the p-value, the spread is the cell's deviation plus the median of those of the nearest
    sizes: few runs may agree by chance, and times have longer tails than a normal distribution.
    benchmarks/history_rates_202611 has the rates with and without such tails.
    """
    runs, family = len(next(iter(logs.values()))) - 1, len(logs)
    limit = t_quantile(rate / family, runs - 1)
    scale = math.sqrt(1 + 1 / runs)
    deviations = {key: statistics.stdev(log[:-1]) for key, log in logs.items()}
    spreads = _widened(deviations)
    judged: list[tuple[float, float | None]] = []
    for key, log in logs.items():
        if not deviations[key]:
            judged.append((1.0, None))
            continue
        excess = log[-1] - statistics.fmean(log[:-1])
        p = min(1.0, family * t_tail(excess / (scale * spreads[key]), runs - 1))
        largest_log = excess + limit * scale * deviations[key]
        judged.append((p, math.exp(min(largest_log, LARGEST_LOG))))
    return judged


def _nearest(deviations: Mapping[CellKey, float], key: CellKey) -> list[float]:
    """The deviations of this cell and those nearest in size, up to NEAREST_SIZES in all."""
    series = sorted(
        (neighbor.size_bytes, deviation)
        for neighbor, deviation in deviations.items()
        if _series(neighbor) == _series(key)
    )
    first = bisect_left(series, key.size_bytes, key=lambda pair: pair[0]) - NEAREST_SIZES // 2
    first = max(0, min(first, len(series) - NEAREST_SIZES))
    return [deviation for _, deviation in series[first : first + NEAREST_SIZES]]


def _series(key: CellKey) -> CellKey:
    return msgspec.structs.replace(key, size_bytes=0)


def _standing(basis: HistoryBasis, checked: Sequence[CheckedCell], tolerance: float) -> Standing:
    if basis is not HistoryBasis.NONE and any(cell.slower for cell in checked):
        return Standing.SLOWER
    if basis is HistoryBasis.NONE or any(cell.far for cell in checked):
        return Standing.UNKNOWN
    if basis is HistoryBasis.SPREAD and not all(cell.within(tolerance) for cell in checked):
        return Standing.UNKNOWN
    return Standing.FINE
