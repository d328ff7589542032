"""When to stop sampling: the adaptive rule of precise timing, a pure function of the samples so far.

Samples come in batches; after each the confidence interval of the median decides. Stopping at the first interval that is narrow enough
prefers those that are narrow by chance: looks are few (each has half as many samples more), and a fifth of the error is put aside for it.
Guards: a head that is still warming up is left out, correlated samples count for fewer
(stats.intervals), two modes are reported instead of averaged.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import msgspec

from busbw.core.sweep import Sampling
from busbw.stats.intervals import interval, least_samples, median, quantile_interval

MOST_SAMPLES = 4096
MOST_TAIL_SAMPLES = 1 << 16
TAIL = 0.99
THROTTLED_TAKES = 3  # a cell is sampled again while heat holds a GPU back
PUT_ASIDE = 0.2  # of the error: keeps 93 to 97 % for a stated 95 % (tests/unit/stats/test_sampling.py)
DRIFT_Z = 3.3  # one cell in a thousand would lose its head without drifting
DRIFT_FROM = 12  # samples; thirds of fewer say nothing
MOST_DROPPED = 0.5  # of the samples
MODES_FROM = 24
MODE_SHARE = 0.2  # of the samples that a mode must hold
MODE_GAP = 8.0  # times the usual distance of neighbours, and at least the precision asked for


class Verdict(msgspec.Struct, frozen=True):
    """What to do after a batch. `more` samples to take next; 0 with `stopped` saying why. `dropped` samples at the head do not count."""

    more: int = 0
    stopped: str = ""
    dropped: int = 0
    modes_s: tuple[float, float] | None = None


def counts(n: int) -> int:
    """The count at which to look next after n: half as many more."""
    return math.ceil(1.5 * n)


def first(sampling: Sampling) -> int:
    """Samples to take before looking for the first time."""
    return sampling.fixed or least_samples(1 - (1 - sampling.confidence) * (1 - PUT_ASIDE))


def judge(samples: Sequence[float], sampling: Sampling, spent_s: float, tick_s: float = 0.0) -> Verdict:
    """The verdict on the samples (seconds, in the order taken, by a clock that counts in `tick_s`) of a cell that took `spent_s` so far."""
    n = len(samples)
    if sampling.fixed:
        if n < sampling.fixed:
            return Verdict(more=sampling.fixed - n)
        return Verdict(stopped="fixed", modes_s=two_modes(samples, sampling.precision))
    dropped = drifting(samples, sampling.precision)
    kept = samples[dropped:]
    found = stated(kept, sampling.confidence, tick_s)
    if found is not None and precise(kept, found, sampling.precision) and tail_known(kept, sampling):
        return Verdict(stopped="ok", dropped=dropped, modes_s=two_modes(kept, sampling.precision))
    modes = two_modes(kept, sampling.precision)
    most = MOST_TAIL_SAMPLES if sampling.tail else MOST_SAMPLES
    more = min(counts(n), most) - n
    if n >= most:
        return Verdict(stopped="unstable", dropped=dropped, modes_s=modes)
    if spent_s / n * (n + more) > sampling.max_time_s:
        return Verdict(stopped="budget", dropped=dropped, modes_s=modes)
    return Verdict(more=more, dropped=dropped)


def stated(samples: Sequence[float], confidence: float, tick_s: float = 0.0) -> tuple[float, float] | None:
    """The interval that may be stated with this confidence when the samples' number was chosen by `judge`.

    No duration is known better than the clock counts, so it reaches one tick further to either side: 32 ns on GPUs, which matters at 8 us.
    """
    found = interval(samples, 1 - (1 - confidence) * (1 - PUT_ASIDE))
    return (max(found[0] - tick_s, 0.0), found[1] + tick_s) if found else None


def precise(samples: Sequence[float], found: tuple[float, float], precision: float) -> bool:
    """Whether the interval reaches at most `precision` times the median to either side of it."""
    middle = median(sorted(samples))
    return max(middle - found[0], found[1] - middle) <= precision * middle


def tail_known(samples: Sequence[float], sampling: Sampling) -> bool:
    """Whether the 99th percentile has an interval, where it was asked for: that takes about 500 samples at 95 %, 750 at 99 %."""
    return not sampling.tail or quantile_interval(samples, TAIL, sampling.confidence) is not None


def drifting(samples: Sequence[float], precision: float) -> int:
    """How many samples at the head to leave out: those before the level they keep later. 0 where the head is like the rest.

    A third at a time, while the medians of the first and the last third differ by more than `precision` and a rank test does not take
    that for chance; never more than half of all.
    """
    dropped, n = 0, len(samples)
    while n - dropped >= DRIFT_FROM:
        third = (n - dropped) // 3
        head, end = samples[dropped : dropped + third], samples[-third:]
        before, after = median(sorted(head)), median(sorted(end))
        if abs(before - after) <= precision * after or dropped + third > MOST_DROPPED * n or rank_sum_z(head, end) < DRIFT_Z:
            break
        dropped += third
    return dropped


def rank_sum_z(a: Sequence[float], b: Sequence[float]) -> float:
    """How far two samples are from one distribution, in standard deviations of the rank sum (Mann-Whitney, ties halved, one size each)."""
    ordered = sorted(b)
    wins = sum((bisect_left(ordered, x) + bisect_right(ordered, x)) / 2 for x in a)
    spread = math.sqrt(len(a) * len(b) * (len(a) + len(b) + 1) / 12)
    return abs(wins - len(a) * len(b) / 2) / spread


def two_modes(samples: Sequence[float], precision: float) -> tuple[float, float] | None:
    """The medians of two groups that a wide gap parts, each with a fifth of the samples or more; None where there is no such gap."""
    ordered, n = sorted(samples), len(samples)
    least = math.ceil(MODE_SHARE * n)
    if n < MODES_FROM:
        return None
    gaps = [(ordered[i] - ordered[i - 1], i) for i in range(least, n - least + 1)]
    widest, at = max(gaps)
    usual = (ordered[n - least] - ordered[least]) / (n - 2 * least)
    if widest < max(MODE_GAP * usual, precision * median(ordered)):
        return None
    return median(ordered[:at]), median(ordered[at:])
