"""When to stop sampling: the adaptive rule of precise timing, a pure function of the samples so
far.

A cell is visited again and again, each time for a few samples, while the others of the sweep are
measured in between. Samples of one visit share a moment and may all be off by as much, so a visit
counts as one observation: the interval is that of the visits' medians, and of all samples where
that is wider. After the fewest visits that can have such an interval (8 at 99 %), and then after
half as many more each time, sampling stops if the interval is narrow enough. That favors intervals
that are narrow by chance, and a large part of the error rate is reserved for it. Slower visits at
the head (warm-up) are left out, and samples that fall into two groups are reported as unstable.
"""

import itertools
import math
from collections.abc import Sequence
from statistics import median, quantiles

import msgspec

from busbw.core.sweep import Sampling
from busbw.stats.intervals import interval, least_samples, quantile_interval
from busbw.stats.rank_tests import p_higher

MAX_SAMPLES = 4096
MAX_TAIL_SAMPLES = 1 << 16
MAX_VISITS = 32
A_VISIT, TAIL_A_VISIT = 32, 100  # samples of a visit to begin with,
VISIT_S = 2e-3  # or fewer, down to one, so that it takes no longer than this
GRACE_S = 2.0  # beyond --max-time, so that the median of a long operation still has an interval
# visits differ where the interval of all samples, were they of one moment, is a smaller share of
# theirs; else they get longer
WITHIN = 0.5
TAIL = 0.99
THROTTLED_TAKES = 3  # times a visit is repeated while heat or a power limit slows a GPU down
# Share of the error rate kept for repeated looks, and the largest error rate to compute with:
# levels that change between visits need more reserve at 95 % than independent samples.
# benchmarks/visits_202611 has the coverage.
RESERVED, LARGEST_ERROR = 0.2, 0.02
WARM_UP_CHANCE = 0.0005  # noise alone passes for a warm-up in one of two thousand looks
WARM_UP_FROM = 12  # visits; the medians of shorter thirds vary too much
MAX_DROPPED = 0.5  # of the visits
MODES_FROM = 24  # samples
MODES_SURE_FROM = 200  # samples; among fewer, a short disturbance can look like a second mode
MODE_SHARE = 0.2  # of the samples that each mode holds at least
MODE_GAP = 8.0  # times the mean spacing of neighboring values

Visits = Sequence[Sequence[float]]


class Decision(msgspec.Struct, frozen=True):
    """What to do after a visit: one more with `more` samples, or 0 and the reason in `stopped`.

    The first `dropped` visits are warm-up.

    `modes_s` are the medians in seconds of the two groups into which the samples fall.
    """

    more: int = 0
    stopped: str = ""
    dropped: int = 0
    modes_s: tuple[float, float] | None = None


def flat(visits: Visits) -> list[float]:
    """All samples, in the order taken."""
    return list(itertools.chain.from_iterable(visits))


def next_look(count: int) -> int:
    """The number of visits at the look after `count`: half as many more."""
    return min(math.ceil(1.5 * count), max(MAX_VISITS, count))


def fewest_visits(sampling: Sampling) -> int:
    """The number of visits at the first look."""
    return least_samples(_internal(sampling.confidence))


def first(sampling: Sampling, each_s: float) -> int:
    """The number of samples of the first visit, if each takes `each_s`.

    A fixed number is divided between the visits.
    """
    if sampling.fixed:
        return math.ceil(sampling.fixed / fewest_visits(sampling))
    most = TAIL_A_VISIT if sampling.tail else A_VISIT
    return min(max(int(VISIT_S / each_s), 1), most) if each_s > 0 else most


def next_step(visits: Visits, sampling: Sampling, spent_s: float, tick_s: float = 0.0) -> Decision:
    """Whether to go on after `visits` (samples in seconds, in the order taken, from a clock with
    resolution `tick_s`).

    They took `spent_s` so far. A fixed number of samples has no warm-up. Two modes stop the cell as
    unstable, unless the slower one is a warm-up still to be dropped.
    """
    if sampling.fixed:
        return _next_of_fixed(visits, sampling, tick_s)
    count, n = len(visits), sum(map(len, visits))
    size = max(len(visits[-1]), first(sampling, spent_s / n))
    if not _is_look(count, sampling):
        late = spent_s / n * (n + size) > sampling.max_time_s + GRACE_S
        return Decision(stopped="budget") if late else Decision(more=size)
    dropped = warm_up(visits, sampling.precision)
    kept = visits[dropped:]
    samples = flat(kept)
    modes = two_modes(samples, sampling.precision, tick_s)
    if not modes and _precise(kept, sampling, tick_s):
        return Decision(stopped="ok", dropped=dropped)
    most = MAX_TAIL_SAMPLES if sampling.tail else MAX_SAMPLES
    more_visits = next_look(count) - count
    if _noisy_within(kept, sampling):
        size *= 2
    size = min(size, (most - n) // max(more_visits, 1))
    over = spent_s / n * (n + size * more_visits) > sampling.max_time_s
    sure = over or n >= MODES_SURE_FROM
    if (
        not more_visits
        or not size
        or (modes and sure and not starts_slower(kept, sampling.precision))
    ):
        return Decision(stopped="unstable", dropped=dropped, modes_s=modes)
    return (
        Decision(stopped="budget", dropped=dropped, modes_s=modes)
        if over
        else Decision(more=size, dropped=dropped)
    )


def _next_of_fixed(visits: Visits, sampling: Sampling, tick_s: float) -> Decision:
    samples = flat(visits)
    left = sampling.fixed - len(samples)
    if left > 0:
        return Decision(more=math.ceil(left / max(fewest_visits(sampling) - len(visits), 1)))
    modes = two_modes(samples, sampling.precision, tick_s)
    return Decision(stopped="unstable" if modes else "fixed", modes_s=modes)


def _is_look(count: int, sampling: Sampling) -> bool:
    look = fewest_visits(sampling)
    while look < count and next_look(look) > look:
        look = next_look(look)
    return look == count


def _internal(confidence: float) -> float:
    """The confidence to compute with, so that the reported one holds after repeated looks."""
    return 1 - min((1 - confidence) * (1 - RESERVED), LARGEST_ERROR)


def reported_interval(
    visits: Visits, confidence: float, tick_s: float = 0.0
) -> tuple[float, float] | None:
    """The median's interval (seconds) for visits whose number `next_step` chose; None for too few.

    That of all samples is one `tick_s` wider on each side, because no duration is known better than
    the clock's resolution: 32 ns on GPUs.
    """
    level = _internal(confidence)
    between, within = _between(visits, level), _within(visits, level)
    if between is None or within is None:
        return None
    low, high = within[0] - tick_s, within[1] + tick_s
    reach = 0.0
    noise = _noise(visits, level)
    if noise < WITHIN * _width(between):
        # the visits differ, and each of their medians is known no better than that of all samples
        reach = noise / 2
    return max(min(low, between[0] - reach), 0.0), max(high, between[1] + reach)


def _between(visits: Visits, level: float) -> tuple[float, float] | None:
    return interval([median(visit) for visit in visits], level)


def _within(visits: Visits, level: float) -> tuple[float, float] | None:
    """The interval if all samples were of one moment."""
    return interval(flat(visits), level)


def _noise(visits: Visits, level: float) -> float:
    """The width of the interval that the samples would have if the visits did not differ."""
    offsets = [sample - median(visit) for visit in visits for sample in visit]
    found = interval(offsets, level)
    return _width(found) if found else 0.0


def _precise(visits: Visits, sampling: Sampling, tick_s: float) -> bool:
    """Whether the interval is within the precision, and the 99th percentile has one too if
    requested (846 samples at 99 %).
    """
    samples = flat(visits)
    found, middle = reported_interval(visits, sampling.confidence, tick_s), median(samples)
    if found is None or max(middle - found[0], found[1] - middle) > sampling.precision * middle:
        return False
    return not sampling.tail or quantile_interval(samples, TAIL, sampling.confidence) is not None


def _noisy_within(visits: Visits, sampling: Sampling) -> bool:
    """Whether longer visits would help: samples of one visit vary so much, or there are too few
    for a requested 99th percentile.
    """
    level = _internal(sampling.confidence)
    samples = flat(visits)
    if sampling.tail and quantile_interval(samples, TAIL, sampling.confidence) is None:
        return True
    between = _between(visits, level)
    return between is not None and _noise(visits, level) >= max(
        WITHIN * _width(between), sampling.precision * median(samples)
    )


def _width(found: tuple[float, float]) -> float:
    return found[1] - found[0]


def warm_up(visits: Visits, precision: float) -> int:
    """The number of slower visits at the head to leave out: the first, or a third of the rest at
    a time; half of all at most.
    """
    dropped, count = int(_first_is_slower(visits, precision)), len(visits)
    while starts_slower(visits[dropped:], precision):
        third = (count - dropped) // 3
        if dropped + third > MAX_DROPPED * count:
            break
        dropped += third
    return dropped


def _first_is_slower(visits: Visits, precision: float) -> bool:
    """Whether the first visit is slower than each other by more than `precision`, and a rank
    test rules out chance.
    """
    head, rest = visits[0], visits[1:]
    if not rest or median(head) <= (1 + precision) * max(map(median, rest)):
        return False
    return p_higher(sorted(flat(rest)), sorted(head)) <= WARM_UP_CHANCE


def starts_slower(visits: Visits, precision: float) -> bool:
    """Whether the first third's median is above the last third's by more than `precision`, and a
    rank test rules out chance.

    A head that is faster is never dropped: what follows it might be the disturbance, or a second
    mode.
    """
    third = len(visits) // 3
    if len(visits) < WARM_UP_FROM:
        return False
    head, end = (sorted(map(median, part)) for part in (visits[:third], visits[-third:]))
    return median(head) > (1 + precision) * median(end) and p_higher(end, head) <= WARM_UP_CHANCE


def two_modes(
    samples: Sequence[float], precision: float, tick_s: float = 0.0
) -> tuple[float, float] | None:
    """The medians of two groups of samples with a wide gap between them, each at least a fifth of
    all; None without such a gap.

    On a log scale, the gap is at least the interquartile range of each group and MODE_GAP times the
    mean spacing of neighboring values, outer fifths aside. It exceeds 2 `tick_s`, the error of a
    difference between two readings of the clock. The medians differ by more than `precision`.
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
