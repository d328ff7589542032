"""The verdict on each cell, from the best data that both sides have: whole runs, samples of one
run, or single means.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec

from busbw.core.cells import PLACEMENTS, CellKey, Figure, usable
from busbw.core.comparison import ComparedCell, ComparisonVerdict
from busbw.core.result import Cell, Result
from busbw.stats.intervals import MIN_CORRELATION, correlation
from busbw.stats.rank_tests import (
    Shift,
    fewest_chance,
    level,
    shift,
    spread_test,
    sweep_shifts,
    t_interval,
)
from busbw.stats.rounds import t_tail

# Large operations differ by up to 1.7 % between runs on one machine
# (benchmarks/all_reduce_2xh200_202611).
RELEVANT_DIFFERENCE = 0.02
# The variation of means of 20 operations. In that record no pair of 2,170 such cells differs by
# more than the sum of the two, though 12 % differ by more than 30 %.
MEANS_SHARE = 0.1
MEANS_S = 20e-6
FEWEST_SAMPLES = 2
# How much identical runs differ, as a standard deviation of logarithms. Two H200: 0 to 3 % below 1
# MiB; CPUs that have other work: up to a factor of two (benchmarks/visits_202611).
GPU_RUNS, CPU_RUNS = 0.015, 0.2
# Differences between runs have longer tails than a normal distribution. They are taken to be as
# long as those of Student's t with this many degrees of freedom (benchmarks/compare_rates_202611).
RUNS_FREEDOM = 4
FEWEST_STEPS = 8  # between neighbouring sizes, to estimate how much cells scatter
STDEV_OVER_MAD = 1.4826  # of a normal distribution
SUPPORT = 0.5  # of a cell's log ratio: what a neighbour must have to support it
LEFT_CORRELATION = 0.05

Cells = Mapping[CellKey, Figure]


class Limits(msgspec.Struct, frozen=True):
    """When a difference counts.

    `tolerance` is the largest difference treated as equal, a fraction. `confidence` is the
    probability that no verdict in the comparison is false.
    """

    tolerance: float = 0.05
    confidence: float = 0.95

    @property
    def level(self) -> float:
        """The probability of a false verdict on any cell."""
        return level(self.confidence)


def relevant(limits: Limits) -> float:
    """The smallest ratio that matters."""
    return 1 + min(RELEVANT_DIFFERENCE, limits.tolerance)


def verdict(shift: Shift, limits: Limits) -> ComparisonVerdict:
    """Slower or faster: the interval over all cells excludes 1.

    Same: the cell's own interval lies within the tolerance, and 1 is in the other one, or the ratio
    is too small to matter.
    """
    tolerated = 1 + limits.tolerance
    low, high = shift.alone or (0.0, math.inf)
    within = 1 / tolerated <= low and high <= tolerated
    if within and 1 / relevant(limits) < shift.ratio < relevant(limits):
        return ComparisonVerdict.SAME
    if shift.low is not None and shift.low > 1:
        return ComparisonVerdict.SLOWER
    if shift.high is not None and shift.high < 1:
        return ComparisonVerdict.FASTER
    return ComparisonVerdict.SAME if within else ComparisonVerdict.AMBIGUOUS


def spread_between_runs(result: Result) -> float:
    """How much runs on such a machine differ, as a standard deviation of logarithms.

    0 for simulated ranks. Ranks whose devices are not known count as GPUs.
    """
    if result.library.engine == "sim":
        return 0.0
    devices = result.world.devices
    on_cpus = devices and not any(device.bus for device in devices)
    return CPU_RUNS if on_cpus else GPU_RUNS


def why_overloaded(result: Result) -> str:
    """Why one run on CPUs says little about the next: other processes want a host's processors.

    Empty if none do, or if it is not known. If ranks have to wait for their turn, the time of a
    small operation changes by a factor of up to 10,000 from run to run (benchmarks/visits_202611).
    """
    devices = result.world.devices
    if not spread_between_runs(result) or any(device.bus for device in devices):
        return ""
    for host in result.topology.hosts:
        ranks = len({device.pid for device in devices if device.host == host.hostname})
        others = host.running - ranks
        if others >= host.cpus > 0:
            return f"{others} other processes wanted the {host.cpus} processors of {host.hostname}"
    return ""


def undecided(compared: ComparedCell) -> ComparedCell:
    """The cell with the verdict ambiguous, and without an interval, in place of slower or faster.

    This is for machines where one run a side says too little.
    """
    if compared.verdict in (ComparisonVerdict.SLOWER, ComparisonVerdict.FASTER):
        return msgspec.structs.replace(
            compared, verdict=ComparisonVerdict.AMBIGUOUS, low=None, high=None
        )
    return compared


def by_runs(
    keys: Sequence[CellKey], a: Sequence[Cells], b: Sequence[Cells], limits: Limits
) -> dict[CellKey, ComparedCell]:
    """Compare whole runs: each contributes one time per cell.

    The test is by order where there are enough runs for it, else by their spread.
    """
    times = [(_times(key, a), _times(key, b)) for key in keys]
    logs = [list(map(math.log, a_times + b_times)) for a_times, b_times in times]
    by = "runs"
    if fewest_chance(len(a), len(b), two_sided=True) > limits.level:
        by = "spread"
        shifts = spread_test(logs, len(a), limits.confidence)
    else:
        shifts = [
            msgspec.structs.replace(over_all, alone=shift(*both, limits.confidence).alone)
            for both, over_all in zip(
                times, sweep_shifts(logs, len(a), limits.confidence), strict=True
            )
        ]
    compared = {}
    for key, (a_times, b_times), shifted in zip(keys, times, shifts, strict=True):
        compared[key] = _compared_cell(
            key,
            shifted,
            limits,
            by=by,
            a_s=statistics.median(a_times),
            b_s=statistics.median(b_times),
            a_count=len(a),
            b_count=len(b),
        )
    return compared


def _times(key: CellKey, runs: Sequence[Cells]) -> list[float]:
    return [run[key].time_s for run in runs]


@dataclass(frozen=True, slots=True)
class RunSpread:
    """How much equal runs differ, as standard deviations of the logarithm of a cell's time."""

    usual: float  # what is usual for such machines
    known: Mapping[CellKey, float] = field(default_factory=dict)  # of cells, from stored runs
    freedom: int = RUNS_FREEDOM  # degrees of freedom of Student's t

    def is_none(self) -> bool:
        """Whether equal runs do not differ, as simulated ones."""
        return not (self.usual or self.known)

    def widened(self, shift: Shift, deviation: float, confidence: float, family: int) -> Shift:
        """The shift of a cell whose log ratio has this standard deviation in equal runs: p and
        interval over so many cells (Student's t, Bonferroni).
        """
        log_ratio = math.log(shift.ratio)
        low, high = t_interval(log_ratio, deviation, self.freedom, level(confidence) / 2 / family)
        p = min(1.0, 2 * family * t_tail(abs(log_ratio) / deviation, self.freedom))
        return msgspec.structs.replace(shift, p=p, low=low, high=high)

    def deviation(self, key: CellKey, a: Cell, b: Cell, scatter: float) -> float:
        """The standard deviation of the log ratio of a cell in two equal runs."""
        known = self.known.get(msgspec.structs.replace(key, cycle=0))
        return math.sqrt(2) * known if known else self._of_ratio(a, b, scatter)

    def _of_ratio(self, a: Cell, b: Cell, scatter: float) -> float:
        """The standard deviation of the log ratio of a cell in two runs without stored ones.

        Its variance is twice that of runs (`usual`), and that within a run: of the cell's visits,
        or `scatter` of the ratios of neighbouring sizes if that is more.
        """
        of_visits = sum(statistics.variance(_logs(cell)) for cell in (a, b))
        return math.sqrt(max(of_visits, scatter**2) + 2 * self.usual**2)


def by_cells(
    keys: Sequence[CellKey], a: Cells, b: Cells, limits: Limits, spread: RunSpread
) -> dict[CellKey, ComparedCell]:
    """Compare one run per side: by samples where both have them, else by means.

    One run per side does not show how much runs differ, so they are taken to differ by `spread`. A
    difference counts if it is significant even then, over all cells, and if a neighbouring cell
    supports it: a glitch in one run looks like a change of one cell.
    """
    sampled: dict[CellKey, tuple[Sequence[float], Sequence[float]]] = {}
    compared: dict[CellKey, ComparedCell] = {}
    for key in keys:
        a_samples, b_samples = _samples(a[key]), _samples(b[key])
        if a_samples and b_samples:
            sampled[key] = (a_samples, b_samples)
        else:
            compared[key] = by_means(key, a[key].time_s, b[key].time_s, limits)
    family = len(sampled)
    shifts = {key: shift(*samples, limits.confidence, family) for key, samples in sampled.items()}
    scatter = _scatter({key: math.log(shifted.ratio) for key, shifted in shifts.items()})
    for key, shifted in shifts.items():
        a_samples, b_samples = sampled[key]
        over_all = shifted
        if not spread.is_none():
            deviation = spread.deviation(key, a[key].cell, b[key].cell, scatter)
            over_all = spread.widened(shifted, deviation, limits.confidence, family)
        compared[key] = _compared_cell(
            key,
            over_all,
            limits,
            by="samples",
            a_s=a[key].time_s,
            b_s=b[key].time_s,
            a_count=a[key].n,
            b_count=b[key].n,
            a_effective=len(a_samples),
            b_effective=len(b_samples),
        )
    if spread.known or spread.is_none():
        return compared
    neighbours = _neighbours(keys)
    return {key: _supported(cell, neighbours[key], compared) for key, cell in compared.items()}


def _series(keys: Iterable[CellKey]) -> list[list[CellKey]]:
    """The cells that differ in their size alone, by size."""
    series: dict[CellKey, list[CellKey]] = {}
    for key in keys:
        series.setdefault(msgspec.structs.replace(key, size_bytes=0), []).append(key)
    return [sorted(of_sizes) for of_sizes in series.values()]


def _scatter(log_ratios: Mapping[CellKey, float]) -> float:
    """The standard deviation of the log ratios of cells from size to size; 0 for too few sizes.

    It is estimated from the median step between neighbouring sizes: a few cells that really changed
    do not enlarge it, which would hide their change.
    """
    steps = [
        abs(log_ratios[larger] - log_ratios[smaller])
        for of_sizes in _series(log_ratios)
        for smaller, larger in pairwise(of_sizes)
    ]
    if len(steps) < FEWEST_STEPS:
        return 0.0
    return STDEV_OVER_MAD * statistics.median(steps) / math.sqrt(2)


def _neighbours(keys: Sequence[CellKey]) -> dict[CellKey, list[CellKey]]:
    """The cells next to each: the next sizes, and the same size in the other placement."""
    neighbours: dict[CellKey, list[CellKey]] = {key: [] for key in keys}
    for of_sizes in _series(keys):
        for smaller, larger in pairwise(of_sizes):
            neighbours[smaller].append(larger)
            neighbours[larger].append(smaller)
    for key in keys:
        others = (msgspec.structs.replace(key, placement=placement) for placement in PLACEMENTS)
        neighbours[key] += [other for other in others if other != key and other in neighbours]
    return neighbours


def _supported(
    cell: ComparedCell, neighbours: Sequence[CellKey], compared: Mapping[CellKey, ComparedCell]
) -> ComparedCell:
    """The cell, made ambiguous if it was slower or faster but no neighbour changed likewise.

    A neighbour supports a change in the same direction of at least SUPPORT of the cell's. A cell
    without neighbours keeps its verdict.
    """
    needed = SUPPORT * math.log(cell.ratio or 1.0)
    changes = [math.log(compared[key].ratio or 1.0) for key in neighbours]
    if not changes or any(change / needed >= 1 for change in changes if needed):
        return cell
    return undecided(cell)


def _logs(cell: Cell) -> list[float]:
    return [math.log(moment) for moment in cell.moments_s if usable(moment)]


def by_means(key: CellKey, a_s: float, b_s: float, limits: Limits) -> ComparedCell:
    """Compare single means, which no test can: they must differ by more than such means do."""
    ratio = b_s / a_s
    if max(ratio, 1 / ratio) <= 1 + limits.tolerance:
        verdict = ComparisonVerdict.SAME
    elif abs(b_s - a_s) > MEANS_S + MEANS_SHARE * min(a_s, b_s):
        verdict = ComparisonVerdict.SLOWER if ratio > 1 else ComparisonVerdict.FASTER
    else:
        verdict = ComparisonVerdict.AMBIGUOUS
    return ComparedCell(
        key=key, verdict=verdict, a_s=a_s, b_s=b_s, ratio=ratio, by="means", a_count=1, b_count=1
    )


def _samples(figure: Figure) -> Sequence[float]:
    kept = independent([moment for moment in figure.cell.moments_s if usable(moment)])
    return kept if len(kept) >= FEWEST_SAMPLES else []


def independent(samples: Sequence[float]) -> Sequence[float]:
    """The samples, or every k-th of them if they are correlated.

    For a lag-1 rank correlation of r, k is such that r^k is at most 5 %. This keeps the shape of
    the distribution, which the rank test needs; means of neighbors would not.
    """
    r = correlation(samples)
    if r <= max(MIN_CORRELATION, 2 / math.sqrt(len(samples) or 1)):
        return samples
    if r >= 1:
        return samples[:1]
    step = math.ceil(math.log(LEFT_CORRELATION) / math.log(r))
    return samples[::step]


def _compared_cell(key: CellKey, shift: Shift, limits: Limits, **fields: Any) -> ComparedCell:
    """The cell with its verdict, and the interval that decided it."""
    decided = verdict(shift, limits)
    low, high = shift.low, shift.high
    if decided is ComparisonVerdict.SAME and shift.alone:
        low, high = shift.alone
    return ComparedCell(
        key=key, verdict=decided, ratio=shift.ratio, low=low, high=high, p=shift.p, **fields
    )
