"""When to stop sampling: the adaptive rule of precise timing, a pure function of the samples so
far.

A cell is visited again and again, each time for a few samples; the other cells of the sweep are
measured in between. Samples of one visit share a moment and may all be off by the same amount, so a
visit counts as one observation: the interval is that of the visits' medians, or that of all samples
if it is wider. After the fewest visits that can have such an interval (8 at 99 %), and then after
half as many more each time, sampling stops if the interval is narrow enough. That favors intervals
that are narrow by chance, so a part of the error rate is reserved for it. Slower visits at the head
(warm-up) are left out, and samples that fall into two groups are reported as unstable. Sampling
also stops after 32 visits, or as soon as there surely are two groups, if it need not take all of
its time.
"""

import itertools
import math
from collections.abc import Sequence
from statistics import median, quantiles

import msgspec

from busbw.core.sweep import Sampling
from busbw.stats.intervals import interval, least_samples, quantile_interval

MAX_SAMPLES = 4096
MAX_TAIL_SAMPLES = 1 << 16
MAX_VISITS = 32
SAMPLES_PER_VISIT, TAIL_SAMPLES_PER_VISIT = 32, 100  # samples of a visit at first
VISIT_S = 2e-3  # a visit that would take longer has fewer samples, down to one
GRACE_S = 2.0  # beyond --max-time, so that the median of a long operation still has an interval
# Visits differ if the interval of all samples, were they of one moment, is less than this share of
# the interval of the visits' medians. If they do not, they get longer.
MAX_NOISE_SHARE = 0.5
TAIL_QUANTILE = 0.99
THROTTLED_TAKES = 3  # times a visit is repeated while heat or a power limit slows a GPU down
RESERVED_ERROR_SHARE = 0.2  # share of the error rate that is kept for repeated looks
# The largest error rate to compute with: levels that change between visits need more reserve at
# 95 % than independent samples. benchmarks/visits_202611 has the coverage.
LARGEST_ERROR = 0.02
WARM_UP_CHANCE = 0.0005  # noise alone passes for a warm-up in one of two thousand looks
WARM_UP_FROM = 12  # visits; the medians of shorter thirds vary too much
MAX_DROPPED = 0.5  # of the visits
MODES_FROM = 24  # samples
MODES_SURE_FROM = 200  # samples; among fewer, a short disturbance can look like a second mode
MODE_SHARE = 0.2  # of the samples that each mode holds at least
MODE_GAP = 8.0  # times the mean spacing of neighboring values

Visits = Sequence[Sequence[float]]


class Decision(msgspec.Struct, frozen=True):
    """What to do after a visit: make another with `more` samples, or stop.

    To stop, `more` is 0 and `stopped` has the reason. The first `dropped` visits are warm-up.
    `modes_s` are the medians in seconds of the two groups into which the samples fall, if they do.
    """

    more: int = 0
    stopped: str = ""
    dropped: int = 0
    modes_s: tuple[float, float] | None = None


def flat(visits: Visits) -> list[float]:
    """All samples, in the order taken."""
    return list(itertools.chain.from_iterable(visits))


def next_look(count: int, most: float = MAX_VISITS) -> int:
    """The number of visits at the look after `count`: half as many more, and at most `most`."""
    return int(min(math.ceil(1.5 * count), max(most, count)))


def fewest_visits(sampling: Sampling) -> int:
    """The number of visits at the first look."""
    return least_samples(_working_confidence(sampling.confidence))


def first_visit_samples(sampling: Sampling, each_s: float) -> int:
    """The number of samples of the first visit, if each takes `each_s` seconds.

    A fixed number of samples is divided between the visits.
    """
    if sampling.fixed:
        return math.ceil(sampling.fixed / fewest_visits(sampling))
    limit = TAIL_SAMPLES_PER_VISIT if sampling.tail else SAMPLES_PER_VISIT
    return min(max(int(VISIT_S / each_s), 1), limit) if each_s > 0 else limit


def next_step(visits: Visits, sampling: Sampling, spent_s: float, tick_s: float = 0.0) -> Decision:
    """Whether to go on after `visits`: the samples of each in seconds, in the order taken.

    They took `spent_s` so far, by a clock with the resolution `tick_s`. A fixed number of samples
    has no warm-up. Two modes stop the cell as unstable, unless the slower one is a warm-up still to
    be dropped.
    """
    if sampling.fixed:
        return _next_of_fixed(visits, sampling, tick_s)
    count, n = len(visits), sum(map(len, visits))
    sample_s = spent_s / n
    size = max(len(visits[-1]), first_visit_samples(sampling, sample_s))
    if not _is_look(count, sampling):
        late = sample_s * (n + size) > sampling.max_time_s + GRACE_S
        return Decision(stopped="budget") if late else Decision(more=size)
    dropped = warm_up(visits, sampling.precision)
    kept = visits[dropped:]
    modes = two_modes(flat(kept), sampling.precision, tick_s)
    if not modes and _is_precise(kept, sampling, tick_s):
        return Decision(stopped="ok", dropped=dropped)
    limit = MAX_TAIL_SAMPLES if sampling.tail or sampling.all_time else MAX_SAMPLES
    more_visits = next_look(count, _most_visits(sampling)) - count
    if _needs_longer_visits(kept, sampling):
        size *= 2
    size = min(size, (limit - n) // max(more_visits, 1))
    over = sample_s * (n + size * more_visits) > sampling.max_time_s
    sure = over or (n >= MODES_SURE_FROM and not sampling.all_time)
    bimodal = modes and sure and not starts_slower(kept, sampling.precision)
    if not more_visits or not size or bimodal:
        return Decision(stopped="unstable", dropped=dropped, modes_s=modes)
    if over:
        return Decision(stopped="budget", dropped=dropped, modes_s=modes)
    return Decision(more=size, dropped=dropped)


def _next_of_fixed(visits: Visits, sampling: Sampling, tick_s: float) -> Decision:
    samples = flat(visits)
    missing = sampling.fixed - len(samples)
    if missing > 0:
        more_visits = max(fewest_visits(sampling) - len(visits), 1)
        return Decision(more=math.ceil(missing / more_visits))
    modes = two_modes(samples, sampling.precision, tick_s)
    return Decision(stopped="unstable" if modes else "fixed", modes_s=modes)


def _is_look(count: int, sampling: Sampling) -> bool:
    """Whether sampling may stop after this number of visits."""
    visits, most = fewest_visits(sampling), _most_visits(sampling)
    while visits < count and next_look(visits, most) > visits:
        visits = next_look(visits, most)
    return visits == count


def _most_visits(sampling: Sampling) -> float:
    return math.inf if sampling.all_time else MAX_VISITS


def _working_confidence(confidence: float) -> float:
    """The confidence to compute with, so that the reported one holds after repeated looks."""
    return 1 - min((1 - confidence) * (1 - RESERVED_ERROR_SHARE), LARGEST_ERROR)


def reported_interval(
    visits: Visits, confidence: float, tick_s: float = 0.0
) -> tuple[float, float] | None:
    """The median's interval (seconds) for visits whose number `next_step` chose; None for too few.

    The interval of all samples is made one `tick_s` wider on each side, because no duration is
    known better than the clock's resolution: 32 ns on GPUs.
    """
    level = _working_confidence(confidence)
    of_visits, of_samples = _interval_of_visits(visits, level), interval(flat(visits), level)
    if of_visits is None or of_samples is None:
        return None
    margin, noise = 0.0, _noise(visits, level)
    if noise < MAX_NOISE_SHARE * _width(of_visits):
        # the visits differ, and each of their medians is known no better than that of all samples
        margin = noise / 2
    low = min(of_samples[0] - tick_s, of_visits[0] - margin)
    high = max(of_samples[1] + tick_s, of_visits[1] + margin)
    return max(low, 0.0), high


def _interval_of_visits(visits: Visits, level: float) -> tuple[float, float] | None:
    return interval([median(visit) for visit in visits], level)


def _noise(visits: Visits, level: float) -> float:
    """The width of the interval that the samples would have if the visits did not differ."""
    offsets: list[float] = []
    for visit in visits:
        middle = median(visit)
        offsets += [sample - middle for sample in visit]
    ends = interval(offsets, level)
    return _width(ends) if ends else 0.0


def _has_tail(samples: Sequence[float], sampling: Sampling) -> bool:
    """Whether the 99th percentile has an interval, if it is requested (846 samples at 99 %)."""
    return (
        not sampling.tail
        or quantile_interval(samples, TAIL_QUANTILE, sampling.confidence) is not None
    )


def _is_precise(visits: Visits, sampling: Sampling, tick_s: float) -> bool:
    """Whether the interval is within the precision, and a requested 99th percentile has one too."""
    ends = reported_interval(visits, sampling.confidence, tick_s)
    if ends is None:
        return False
    samples = flat(visits)
    middle = median(samples)
    half_width = max(middle - ends[0], ends[1] - middle)
    return half_width <= sampling.precision * middle and _has_tail(samples, sampling)


def _needs_longer_visits(visits: Visits, sampling: Sampling) -> bool:
    """Whether longer visits would help: samples of one visit vary so much, or there are too few
    for a requested 99th percentile.
    """
    samples = flat(visits)
    if not _has_tail(samples, sampling):
        return True
    level = _working_confidence(sampling.confidence)
    of_visits = _interval_of_visits(visits, level)
    if of_visits is None:
        return False
    limit = max(MAX_NOISE_SHARE * _width(of_visits), sampling.precision * median(samples))
    return _noise(visits, level) >= limit


def _width(ends: tuple[float, float]) -> float:
    return ends[1] - ends[0]


def warm_up(visits: Visits, precision: float) -> int:
    """The number of slower visits at the head to leave out.

    This is the first, then a third of the remaining ones at a time; at most half of all.
    """
    dropped, count = int(_first_is_slower(visits, precision)), len(visits)
    while starts_slower(visits[dropped:], precision):
        third = (count - dropped) // 3
        if dropped + third > MAX_DROPPED * count:
            break
        dropped += third
    return dropped


def _first_is_slower(visits: Visits, precision: float) -> bool:
    """Whether the first visit is slower than all others by over `precision`, and by a rank test."""
    head, others = visits[0], visits[1:]
    if not others or median(head) <= (1 + precision) * max(map(median, others)):
        return False
    return _is_higher(sorted(flat(others)), sorted(head))


def starts_slower(visits: Visits, precision: float) -> bool:
    """Whether the first third's median is above the last third's by more than `precision`, and a
    rank test rules out chance.

    A faster head is never dropped: the visits after it may be disturbed, or be a second mode.
    """
    if len(visits) < WARM_UP_FROM:
        return False
    third = len(visits) // 3
    head, end = sorted(map(median, visits[:third])), sorted(map(median, visits[-third:]))
    return median(head) > (1 + precision) * median(end) and _is_higher(end, head)


def _is_higher(values: Sequence[float], others: Sequence[float]) -> bool:
    """Whether `others` are higher than `values`, both sorted, by more than chance."""
    from busbw.stats.rank_tests import p_higher

    return p_higher(values, others) <= WARM_UP_CHANCE


def two_modes(
    samples: Sequence[float], precision: float, tick_s: float = 0.0
) -> tuple[float, float] | None:
    """The medians of two groups of samples with a wide gap between them; None without such a gap.

    Each group has at least a fifth of the samples. On a log scale, the gap is at least the
    interquartile range of each group and MODE_GAP times the mean spacing of neighboring values,
    outer fifths aside. It exceeds 2 `tick_s`, the error of a difference between two readings of the
    clock. The medians differ by more than `precision`.
    """
    n = len(samples)
    if n < MODES_FROM:
        return None
    ordered, least = sorted(samples), math.ceil(MODE_SHARE * n)
    logs = [math.log(max(value, tick_s, 1e-9)) for value in ordered]
    gap, split = max((logs[i] - logs[i - 1], i) for i in range(least, n - least + 1))
    if ordered[split] - ordered[split - 1] <= 2 * tick_s:
        return None
    spacing = (logs[n - least] - logs[least]) / (n - 2 * least)
    ranges = (_interquartile_range(logs[:split]), _interquartile_range(logs[split:]))
    if gap < max(*ranges, MODE_GAP * spacing):
        return None
    low, high = median(ordered[:split]), median(ordered[split:])
    return (low, high) if high - low > precision * low else None


def _interquartile_range(values: Sequence[float]) -> float:
    first, _, third = quantiles(values)
    return third - first
