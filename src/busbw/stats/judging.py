"""The verdict on each cell, from the best data that both sides have: whole runs, samples of one
run, or single means.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from busbw.core.cells import CellKey, ComparedCell, Figure, Verdict, usable
from busbw.core.result import Cell, Result
from busbw.stats.intervals import LEAST_CORRELATION, correlation
from busbw.stats.rank_tests import Shift, holm, level, shift, sweep_test
from busbw.stats.rounds import tail

# large operations differ by up to 1.7 % between runs on one machine:
# benchmarks/all_reduce_2xh200_202611
RELEVANT = 0.02
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
    """`tolerance`: the largest difference treated as equal, a fraction.

    `confidence`: that no verdict in the comparison is false.
    """

    tolerance: float = 0.05
    confidence: float = 0.95

    @property
    def level(self) -> float:
        """The probability of a false verdict on any cell."""
        return level(self.confidence)


def verdict(found: Shift, limits: Limits) -> Verdict:
    """Slower or faster: significant over all cells, and large enough to matter.

    Same: the whole interval lies within the tolerance.
    """
    relevant, most = 1 + min(RELEVANT, limits.tolerance), 1 + limits.tolerance
    if found.p <= limits.level and found.ratio >= relevant:
        return Verdict.SLOWER
    if found.p <= limits.level and found.ratio <= 1 / relevant:
        return Verdict.FASTER
    if (
        found.low is not None
        and found.high is not None
        and 1 / most <= found.low
        and found.high <= most
    ):
        return Verdict.SAME
    return Verdict.AMBIGUOUS


def runs_apart(result: Result) -> float:
    """How much runs on such a machine differ; 0 for simulated ranks, and if the devices are not
    known.
    """
    if result.library.engine in ("", "sim"):
        return 0.0
    return GPU_RUNS if any(device.bus for device in result.world.devices) else CPU_RUNS


def overloaded(result: Result) -> str:
    """Why one run on CPUs says little of the next: a host whose processors others wanted too.

    '' if it is not so, or not known.

    Then ranks wait for their turn, or do not, which changes the time of a small operation by a
    factor of up to 10,000 from run to run (benchmarks/visits_202611).
    """
    if not runs_apart(result) or any(device.bus for device in result.world.devices):
        return ""
    for host in result.topology.hosts:
        own = len({device.pid for device in result.world.devices if device.host == host.hostname})
        others = host.running - own
        if others >= host.cpus > 0:
            return f"{others} other processes wanted the {host.cpus} processors of {host.hostname}"
    return ""


def undecided(compared: ComparedCell) -> ComparedCell:
    """A cell of which one run a side says too little to call it slower or faster."""
    decided = compared.verdict in (Verdict.SLOWER, Verdict.FASTER)
    return msgspec.structs.replace(compared, verdict=Verdict.AMBIGUOUS) if decided else compared


def by_runs(
    keys: Sequence[CellKey], a: Sequence[Cells], b: Sequence[Cells], limits: Limits
) -> dict[CellKey, ComparedCell]:
    """Compare whole runs: each contributes one time per cell."""
    times = [([run[key].time_s for run in a], [run[key].time_s for run in b]) for key in keys]
    ps = sweep_test(
        [[math.log(time) for time in (*first, *second)] for first, second in times],
        len(a),
        two_sided=True,
    )
    compared = {}
    for key, (first, second), p in zip(keys, times, ps, strict=True):
        found = msgspec.structs.replace(shift(first, second, limits.confidence), p=p)
        times_s = {"a_s": statistics.median(first), "b_s": statistics.median(second)}
        compared[key] = _judged(
            key, found, limits, by="runs", a_count=len(a), b_count=len(b), **times_s
        )
    return compared


def by_cells(
    keys: Sequence[CellKey], a: Cells, b: Cells, limits: Limits, apart: Mapping[CellKey, float]
) -> dict[CellKey, ComparedCell]:
    """Compare one run per side: by samples where both have them (the error rate holds over all such
    cells), else by means.

    One run a side does not show how much runs differ: by as much as two visits of one run, and by
    `apart` (for each cell a standard deviation of logarithms) as runs on such a machine do. A
    difference counts if it is significant even so.
    """
    sampled = {
        key: (first, second)
        for key in keys
        if (first := _samples(a[key])) and (second := _samples(b[key]))
    }
    shifts = [shift(*samples, limits.confidence) for samples in sampled.values()]
    compared = {
        key: by_means(key, a[key].time_s, b[key].time_s, limits)
        for key in keys
        if key not in sampled
    }
    for (key, (first, second)), found, proven in zip(
        sampled.items(), shifts, holm([found.p for found in shifts]), strict=True
    ):
        p = max(
            proven,
            min(1.0, len(sampled) * _chance_of_runs(a[key].cell, b[key].cell, apart.get(key, 0.0))),
        )
        counts = {
            "a_count": a[key].n,
            "b_count": b[key].n,
            "a_effective": len(first),
            "b_effective": len(second),
        }
        times_s = {"a_s": a[key].time_s, "b_s": b[key].time_s}
        compared[key] = _judged(
            key, msgspec.structs.replace(found, p=p), limits, by="samples", **times_s, **counts
        )
    return compared


def _chance_of_runs(a: Cell, b: Cell, apart: float) -> float:
    """The two-sided chance (Student's t) that equal runs differ by this much; 0 if neither
    visits nor `apart` are known.
    """
    if not apart and not (a.visits and b.visits):
        return 0.0
    first, second = (
        [math.log(moment) for moment in cell.moments_s if usable(moment)] for cell in (a, b)
    )
    if min(len(first), len(second)) < FEWEST_SAMPLES:
        return 1.0
    spread = math.sqrt(statistics.variance(first) + statistics.variance(second) + 2 * apart**2)
    distance = abs(statistics.median(second) - statistics.median(first))
    return 2 * tail(distance / spread, len(first) + len(second) - 2) if spread else 0.0


def by_means(key: CellKey, a_s: float, b_s: float, limits: Limits) -> ComparedCell:
    """Compare single means, which cannot be tested: a difference counts if it exceeds the
    variation of such means.
    """
    ratio = b_s / a_s
    if max(ratio, 1 / ratio) <= 1 + limits.tolerance:
        found = Verdict.SAME
    elif abs(b_s - a_s) > MEANS_S + MEANS_SHARE * min(a_s, b_s):
        found = Verdict.SLOWER if ratio > 1 else Verdict.FASTER
    else:
        found = Verdict.AMBIGUOUS
    return ComparedCell(
        key=key, verdict=found, a_s=a_s, b_s=b_s, ratio=ratio, by="means", a_count=1, b_count=1
    )


def _samples(figure: Figure) -> Sequence[float]:
    kept = independent([moment for moment in figure.cell.moments_s if usable(moment)])
    return kept if len(kept) >= FEWEST_SAMPLES else []


def independent(samples: Sequence[float]) -> Sequence[float]:
    """The samples, or every k-th of them if they are correlated: r^k is at most 5 % for a lag-1
    rank correlation of r.

    This keeps the shape of the distribution, which the rank test needs. Means of neighbours would
    not.
    """
    r = correlation(samples)
    if r <= max(LEAST_CORRELATION, 2 / math.sqrt(len(samples) or 1)):
        return samples
    return samples[:: math.ceil(math.log(LEFT_CORRELATION) / math.log(r))] if r < 1 else samples[:1]


def _judged(key: CellKey, found: Shift, limits: Limits, **known: Any) -> ComparedCell:
    return ComparedCell(
        key=key,
        verdict=verdict(found, limits),
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        p=found.p,
        **known,
    )
