"""When to stop sampling: the adaptive rule of precise timing, a pure function of the samples so far.

Samples come in batches. After each batch sampling stops if the confidence interval of the median is narrow enough. This favors intervals
that are narrow by chance, so there are few looks (each at 1.5 times as many samples) and a fifth of the error rate is reserved for them.
A slower head (warm-up) is left out, correlated samples widen the interval (stats.intervals), and samples that fall into two groups are
reported as unstable.
"""

import math
from collections.abc import Sequence
from statistics import median, quantiles

import msgspec

from busbw.core.sweep import Sampling
from busbw.stats.intervals import interval, least_samples, quantile_interval
from busbw.stats.rank_tests import p_higher

MAX_SAMPLES = 4096
MAX_TAIL_SAMPLES = 1 << 16
TAIL = 0.99
THROTTLED_TAKES = 3  # times a cell is sampled while heat or a power limit slows a GPU down
RESERVED = 0.2  # share of the error rate kept for repeated looks; coverage is then 93 to 97 % for 95 % (tests/unit/stats/test_sampling.py)
WARM_UP_CHANCE = 0.0005  # noise alone passes for a warm-up in one of two thousand looks
WARM_UP_FROM = 12  # samples; the medians of shorter thirds vary too much
MAX_DROPPED = 0.5  # of the samples
MODES_FROM = 24  # samples
MODES_SURE_FROM = 200  # samples; among fewer, a short disturbance can look like a second mode
MODE_SHARE = 0.2  # of the samples that each mode holds at least
MODE_GAP = 8.0  # times the mean spacing of neighboring values


class Decision(msgspec.Struct, frozen=True):
    """What to do after a batch: take `more` samples, or 0 and the reason in `stopped`. The first `dropped` samples are warm-up.

    `modes_s` are the medians in seconds of the two groups into which the samples fall.
    """

    more: int = 0
    stopped: str = ""
    dropped: int = 0
    modes_s: tuple[float, float] | None = None


def next_look(n: int) -> int:
    """The number of samples at the look after n: half as many more."""
    return math.ceil(1.5 * n)


def first(sampling: Sampling) -> int:
    """The number of samples at the first look."""
    return sampling.fixed or least_samples(_internal(sampling.confidence))


def next_step(samples: Sequence[float], sampling: Sampling, spent_s: float, tick_s: float = 0.0) -> Decision:
    """Whether to go on after `samples` (seconds, in the order taken, from a clock with resolution `tick_s`) that took `spent_s` so far.

    A fixed number of samples has no warm-up. Two modes stop the cell as unstable, unless the slower one is a warm-up still to be dropped.
    """
    n = len(samples)
    if n < sampling.fixed:
        return Decision(more=sampling.fixed - n)
    dropped = 0 if sampling.fixed else warm_up(samples, sampling.precision)
    kept = samples[dropped:]
    modes = two_modes(kept, sampling.precision, tick_s)
    if sampling.fixed:
        return Decision(stopped="unstable" if modes else "fixed", modes_s=modes)
    if not modes and _precise(kept, sampling, tick_s):
        return Decision(stopped="ok", dropped=dropped)
    most = MAX_TAIL_SAMPLES if sampling.tail else MAX_SAMPLES
    more = min(next_look(n), most) - n
    over = spent_s / n * (n + more) > sampling.max_time_s
    if n >= most or (modes and (over or n >= MODES_SURE_FROM) and not starts_slower(kept, sampling.precision)):
        return Decision(stopped="unstable", dropped=dropped, modes_s=modes)
    return Decision(stopped="budget", dropped=dropped, modes_s=modes) if over else Decision(more=more, dropped=dropped)


def _internal(confidence: float) -> float:
    """The confidence to compute with, so that the reported one holds after repeated looks."""
    return 1 - (1 - confidence) * (1 - RESERVED)


def reported_interval(samples: Sequence[float], confidence: float, tick_s: float = 0.0) -> tuple[float, float] | None:
    """The median's interval (seconds) for samples whose number `next_step` chose; None for too few.

    It is one `tick_s` wider on each side, because no duration is known better than the clock's resolution: 32 ns on GPUs.
    """
    found = interval(samples, _internal(confidence))
    return (max(found[0] - tick_s, 0.0), found[1] + tick_s) if found else None


def _precise(samples: Sequence[float], sampling: Sampling, tick_s: float) -> bool:
    """Whether the interval is within the precision, and the 99th percentile has one too if requested (846 samples at 99 %)."""
    found, middle = reported_interval(samples, sampling.confidence, tick_s), median(samples)
    if found is None or max(middle - found[0], found[1] - middle) > sampling.precision * middle:
        return False
    return not sampling.tail or quantile_interval(samples, TAIL, sampling.confidence) is not None


def warm_up(samples: Sequence[float], precision: float) -> int:
    """The number of slower samples at the head to leave out: a third of the rest at a time, half of all at most."""
    dropped, n = 0, len(samples)
    while starts_slower(samples[dropped:], precision):
        third = (n - dropped) // 3
        if dropped + third > MAX_DROPPED * n:
            break
        dropped += third
    return dropped


def starts_slower(samples: Sequence[float], precision: float) -> bool:
    """Whether the first third's median is above the last third's by more than `precision`, and a rank test rules out chance.

    A head that is faster is never dropped: what follows it might be the disturbance, or a second mode.
    """
    third = len(samples) // 3
    if len(samples) < WARM_UP_FROM:
        return False
    head, end = sorted(samples[:third]), sorted(samples[-third:])
    return median(head) > (1 + precision) * median(end) and p_higher(end, head) <= WARM_UP_CHANCE


def two_modes(samples: Sequence[float], precision: float, tick_s: float = 0.0) -> tuple[float, float] | None:
    """The medians of two groups of samples with a wide gap between them, each at least a fifth of all; None without such a gap.

    On a log scale, the gap is at least the interquartile range of each group and MODE_GAP times the mean spacing of neighboring values,
    outer fifths aside. It exceeds 2 `tick_s`, the error of a difference between two readings of the clock. The medians differ by more than
    `precision`.
    """
    n = len(samples)
    if n < MODES_FROM:
        return None
    ordered, least = sorted(samples), math.ceil(MODE_SHARE * n)
    logs = [math.log(max(value, tick_s, 1e-9)) for value in ordered]
    gap, at = max((logs[i] - logs[i - 1], i) for i in range(least, n - least + 1))
    spacing = (logs[n - least] - logs[least]) / (n - 2 * least)
    low, high = median(ordered[:at]), median(ordered[at:])
    spreads = [third - first for first, _, third in map(quantiles, (logs[:at], logs[at:]))]
    wide = gap >= max(*spreads, MODE_GAP * spacing) and ordered[at] - ordered[at - 1] > 2 * tick_s
    return (low, high) if wide and high - low > precision * low else None
