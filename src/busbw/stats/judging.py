"""The verdict on each cell, from the best data that both sides have: whole runs, samples of one
run, or single means.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from busbw.core.cells import CellKey, Figure, usable
from busbw.core.comparison import ComparedCell, Verdict
from busbw.core.result import Cell, Result
from busbw.stats.intervals import MIN_CORRELATION, correlation
from busbw.stats.rank_tests import Shift, holm, level, shift, sweep_test
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


def verdict(shift: Shift, limits: Limits) -> Verdict:
    """Slower or faster: significant over all cells, and large enough to matter.

    Same: the whole interval lies within the tolerance.
    """
    relevant, tolerated = 1 + min(RELEVANT_DIFFERENCE, limits.tolerance), 1 + limits.tolerance
    if shift.p <= limits.level and shift.ratio >= relevant:
        return Verdict.SLOWER
    if shift.p <= limits.level and shift.ratio <= 1 / relevant:
        return Verdict.FASTER
    if shift.low is None or shift.high is None:
        return Verdict.AMBIGUOUS
    if 1 / tolerated <= shift.low and shift.high <= tolerated:
        return Verdict.SAME
    return Verdict.AMBIGUOUS


def spread_between_runs(result: Result) -> float:
    """How much runs on such a machine differ, as a standard deviation of logarithms.

    0 for simulated ranks, and if the devices are not known.
    """
    if result.library.engine in ("", "sim"):
        return 0.0
    return GPU_RUNS if any(device.bus for device in result.world.devices) else CPU_RUNS


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
    """The cell with the verdict ambiguous in place of slower or faster.

    This is for machines where one run a side says too little.
    """
    if compared.verdict in (Verdict.SLOWER, Verdict.FASTER):
        return msgspec.structs.replace(compared, verdict=Verdict.AMBIGUOUS)
    return compared


def by_runs(
    keys: Sequence[CellKey], a: Sequence[Cells], b: Sequence[Cells], limits: Limits
) -> dict[CellKey, ComparedCell]:
    """Compare whole runs: each contributes one time per cell."""
    times = [(_times(key, a), _times(key, b)) for key in keys]
    logs = [list(map(math.log, a_times + b_times)) for a_times, b_times in times]
    ps = sweep_test(logs, len(a), two_sided=True)
    compared = {}
    for key, (a_times, b_times), p in zip(keys, times, ps, strict=True):
        compared[key] = _compared_cell(
            key,
            msgspec.structs.replace(shift(a_times, b_times, limits.confidence), p=p),
            limits,
            by="runs",
            a_s=statistics.median(a_times),
            b_s=statistics.median(b_times),
            a_count=len(a),
            b_count=len(b),
        )
    return compared


def _times(key: CellKey, runs: Sequence[Cells]) -> list[float]:
    return [run[key].time_s for run in runs]


def by_cells(
    keys: Sequence[CellKey], a: Cells, b: Cells, limits: Limits, apart: Mapping[CellKey, float]
) -> dict[CellKey, ComparedCell]:
    """Compare one run per side: by samples where both have them (the error rate holds over all such
    cells), else by means.

    One run per side does not show how much runs differ. They are taken to differ as much as the
    visits of one run do, and by `apart` as runs on such a machine do: for each cell a standard
    deviation of logarithms. A difference counts if it is significant even then.
    """
    sampled: dict[CellKey, tuple[Sequence[float], Sequence[float]]] = {}
    compared: dict[CellKey, ComparedCell] = {}
    for key in keys:
        a_samples, b_samples = _samples(a[key]), _samples(b[key])
        if a_samples and b_samples:
            sampled[key] = (a_samples, b_samples)
        else:
            compared[key] = by_means(key, a[key].time_s, b[key].time_s, limits)
    shifts = {key: shift(*samples, limits.confidence) for key, samples in sampled.items()}
    adjusted = holm([shift.p for shift in shifts.values()])
    for (key, samples_shift), p_of_samples in zip(shifts.items(), adjusted, strict=True):
        p_of_runs = len(sampled) * _p_of_runs(a[key].cell, b[key].cell, apart.get(key, 0.0))
        p = max(p_of_samples, min(1.0, p_of_runs))
        a_samples, b_samples = sampled[key]
        compared[key] = _compared_cell(
            key,
            msgspec.structs.replace(samples_shift, p=p),
            limits,
            by="samples",
            a_s=a[key].time_s,
            b_s=b[key].time_s,
            a_count=a[key].n,
            b_count=b[key].n,
            a_effective=len(a_samples),
            b_effective=len(b_samples),
        )
    return compared


def _p_of_runs(a: Cell, b: Cell, apart: float) -> float:
    """The two-sided p-value (Student's t) of this difference between equal runs; 0 if neither
    visits nor `apart` are known.
    """
    if not apart and not (a.visits and b.visits):
        return 0.0
    a_logs, b_logs = _logs(a), _logs(b)
    if min(len(a_logs), len(b_logs)) < FEWEST_SAMPLES:
        return 1.0
    spread = math.sqrt(statistics.variance(a_logs) + statistics.variance(b_logs) + 2 * apart**2)
    if not spread:
        return 0.0
    distance = abs(statistics.median(b_logs) - statistics.median(a_logs))
    return 2 * t_tail(distance / spread, len(a_logs) + len(b_logs) - 2)


def _logs(cell: Cell) -> list[float]:
    return [math.log(moment) for moment in cell.moments_s if usable(moment)]


def by_means(key: CellKey, a_s: float, b_s: float, limits: Limits) -> ComparedCell:
    """Compare single means, which cannot be tested: a difference counts if it exceeds the
    variation of such means.
    """
    ratio = b_s / a_s
    if max(ratio, 1 / ratio) <= 1 + limits.tolerance:
        verdict = Verdict.SAME
    elif abs(b_s - a_s) > MEANS_S + MEANS_SHARE * min(a_s, b_s):
        verdict = Verdict.SLOWER if ratio > 1 else Verdict.FASTER
    else:
        verdict = Verdict.AMBIGUOUS
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
    return ComparedCell(
        key=key,
        verdict=verdict(shift, limits),
        ratio=shift.ratio,
        low=shift.low,
        high=shift.high,
        p=shift.p,
        **fields,
    )
