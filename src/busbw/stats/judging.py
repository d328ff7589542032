"""The verdict on each cell, by the best that both sides have: whole runs, samples of one run, or single means."""

import math
import statistics
from collections.abc import Mapping, Sequence

import msgspec

from busbw.core.cells import CellKey, usable
from busbw.core.comparison import ComparedCell, Verdict
from busbw.core.result import Cell
from busbw.stats.intervals import LEAST_CORRELATION, correlation
from busbw.stats.rank_tests import holm, level, shift
from busbw.stats.run_tests import sweep_test

RELEVANT = 0.02  # large operations of one machine differ by up to 1.7 % from run to run: benchmarks/all_reduce_2xh200_202611
# What means of 20 operations vary by: none of 3,224 pairs of such cells in that record differs by more than both together, though
# 15 % of them differ by more than 30 %.
MEANS_SHARE = 0.1
MEANS_S = 20e-6
FEWEST_SAMPLES = 2
LEFT_CORRELATION = 0.05

Cells = Mapping[CellKey, Cell]


class Limits(msgspec.Struct, frozen=True):
    """What is asked for: the difference that still counts as none (a fraction), and how sure to be over all cells together."""

    tolerance: float = 0.05
    confidence: float = 0.95

    @property
    def level(self) -> float:
        """The chance of any false verdict over all cells."""
        return level(self.confidence)


def verdict(cell: ComparedCell, limits: Limits) -> Verdict:
    """Slower or faster: proven over all cells, and by enough to matter. Same: the whole interval lies within the tolerance."""
    relevant, most = 1 + min(RELEVANT, limits.tolerance), 1 + limits.tolerance
    if cell.ratio is not None and cell.p is not None and cell.p <= limits.level:
        if cell.ratio >= relevant:
            return Verdict.SLOWER
        if cell.ratio <= 1 / relevant:
            return Verdict.FASTER
    if cell.low is not None and cell.high is not None and 1 / most <= cell.low and cell.high <= most:
        return Verdict.SAME
    return Verdict.AMBIGUOUS


def by_runs(keys: Sequence[CellKey], a: Sequence[Cells], b: Sequence[Cells], limits: Limits) -> dict[CellKey, ComparedCell]:
    """The unit is a run: the median (or mean) that it gives a cell."""
    times = [([run[key].time_s for run in a], [run[key].time_s for run in b]) for key in keys]
    ps = sweep_test([[math.log(time) for time in (*first, *second)] for first, second in times], len(a), two_sided=True)
    judged = {}
    for key, (first, second), p in zip(keys, times, ps, strict=True):
        found = shift(first, second, limits.confidence)
        middles = statistics.median(first), statistics.median(second)
        judged[key] = ComparedCell(key, Verdict.AMBIGUOUS, *middles, found.ratio, found.low, found.high, p, "runs", len(a), len(b))
    return _decided(judged, limits)


def by_cells(keys: Sequence[CellKey], a: Cells, b: Cells, limits: Limits) -> dict[CellKey, ComparedCell]:
    """One run a side: samples where both have them, with the error rate held over all such cells, means elsewhere."""
    sampled = {key: (first, second) for key in keys if (first := _samples(a[key])) and (second := _samples(b[key]))}
    shifts = {key: shift(*samples, limits.confidence) for key, samples in sampled.items()}
    adjusted = dict(zip(shifts, holm([found.p for found in shifts.values()]), strict=True))
    judged = {}
    for key, found in shifts.items():
        first, second = sampled[key]
        middles, counts = (statistics.median(first), statistics.median(second)), (len(first), len(second))
        judged[key] = ComparedCell(key, Verdict.AMBIGUOUS, *middles, found.ratio, found.low, found.high, adjusted[key], "samples", *counts)
    means = {key: by_means(key, a[key].time_s, b[key].time_s, limits) for key in keys if key not in sampled}
    return _decided(judged, limits) | means


def by_means(key: CellKey, a_s: float, b_s: float, limits: Limits) -> ComparedCell:
    """One mean a side, which no test can judge: a difference counts where it exceeds what such means vary by themselves."""
    ratio = b_s / a_s
    if max(ratio, 1 / ratio) <= 1 + limits.tolerance:
        said = Verdict.SAME
    elif abs(b_s - a_s) > MEANS_S + MEANS_SHARE * min(a_s, b_s):
        said = Verdict.SLOWER if ratio > 1 else Verdict.FASTER
    else:
        said = Verdict.AMBIGUOUS
    return ComparedCell(key, said, a_s, b_s, ratio, by="means", a_count=1, b_count=1)


def _samples(cell: Cell) -> Sequence[float]:
    kept = independent([sample for sample in cell.kept_s if usable(sample)])
    return kept if len(kept) >= FEWEST_SAMPLES else []


def independent(samples: Sequence[float]) -> Sequence[float]:
    """The samples, or every k-th of them where neighbours in time are alike: with a lag-1 rank correlation r, so far apart that r^k is 5 %.

    Leaving out keeps the shape of their distribution, which the rank test needs; means of neighbours would not.
    """
    alike = correlation(samples)
    if alike <= max(LEAST_CORRELATION, 2 / math.sqrt(len(samples) or 1)):
        return samples
    return samples[:: math.ceil(math.log(LEFT_CORRELATION) / math.log(alike))] if alike < 1 else samples[:1]


def _decided(judged: dict[CellKey, ComparedCell], limits: Limits) -> dict[CellKey, ComparedCell]:
    return {key: msgspec.structs.replace(cell, verdict=verdict(cell, limits)) for key, cell in judged.items()}
