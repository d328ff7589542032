"""The last steps of the ranks of a running job, compared: who is late, and which are longer."""

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest
from operator import itemgetter
from statistics import fmean, median

import msgspec

from busbw.core.lateness import GRADIENTS, Lateness, RankDelay
from busbw.job.live.types import StepTimes
from busbw.pattern.lateness.judge import JobRanks, MeanDelay, steps_judge
from busbw.pattern.lateness.waits import StepWaits


@dataclass(frozen=True, slots=True)
class StepWindow:
    """The last seconds, of at least and at most so many steps.

    A rank is named by it if the lower end of its delay's interval is `share` of a step. Steps of
    `most_values` of all ranks are compared at most.
    """

    seconds: float
    least: int
    most: int
    share: float = 0.01
    most_values: int = 100_000

    def most_steps(self, ranks: int) -> int:
        """That are compared of so many ranks."""
        return max(self.least, min(self.most, self.most_values // ranks))

    def steps(self, numbers: Sequence[int], times_us: Mapping[int, float], ranks: int) -> list[int]:
        """Those of these steps that are in it."""
        steps, total_us = 0, 0.0
        for at in reversed(numbers[-self.most_steps(ranks) :]):
            total_us += times_us[at]
            if steps >= self.least and total_us > 1e6 * self.seconds:
                break
            steps += 1
        return list(numbers[-steps:])


# A large delay is seen in a few steps. A small one needs many, and more of them if it is smaller.
SHORT = StepWindow(5.0, least=20, most=600, share=0.05)
MIDDLE = StepWindow(12.0, least=20, most=600, share=0.02)
USUAL = StepWindow(30.0, least=50, most=600)
LONG = StepWindow(300.0, least=50, most=3000, most_values=30_000)
EARLIER_STEPS = 3000  # before USUAL, whose median is the usual time
KEPT_STEPS = EARLIER_STEPS + USUAL.most
TIMED_RANKS = 16  # all ranks are equally long in a step: of many, so many say how long
WITHOUT_LONGEST = 0.95  # of the steps before
CONFIDENCE = 0.9999  # that no rank is named by chance in a window; many follow each other
STEADY = 0.8  # of its delay in SHORT, that a rank has in a longer window
LASTS = 0.5  # of its delay in a longer window, that a rank has in SHORT too
# Of a rank that is late at times, this share of its large delays is in the last quarter of a
# window, and the last of them is not longer ago than some usual gaps.
LATER_SHARE, GAPS = 0.12, 3.0


def _doubles() -> "array[float]":
    return array("d")


@dataclass(slots=True)
class LiveSteps:
    """The last steps of a rank, from number `first` on. What is unknown is NaN."""

    first: int = 0
    times_us: "array[float]" = field(default_factory=_doubles)
    waits_us: "array[float]" = field(default_factory=_doubles)

    @property
    def end(self) -> int:
        """The number after the last one."""
        return self.first + len(self.times_us)

    def add(self, first: int, times_us: Sequence[float], waits_us: Sequence[float | None]) -> None:
        """Steps from number `first` on: of another model if they end before the known ones."""
        if not times_us:
            return
        is_other = first < self.first or first + len(times_us) < self.end
        if is_other or not self.times_us or first > self.end + KEPT_STEPS:
            self.first, self.times_us, self.waits_us = first, _doubles(), _doubles()
        for values, added in ((self.times_us, times_us), (self.waits_us, waits_us)):
            known = [math.nan if value is None else value for value in added]
            known += [math.nan] * (len(times_us) - len(known))
            if first > self.first + len(values):
                values.extend([math.nan] * (first - self.first - len(values)))
            values[first - self.first :] = array("d", known[: len(times_us)])
        excess = len(self.times_us) - KEPT_STEPS
        if excess > USUAL.most:
            self.first += excess
            del self.times_us[:excess], self.waits_us[:excess]


@dataclass(frozen=True, slots=True)
class JobSteps:
    """The steps of all ranks of a job of `world` ranks, and their hosts."""

    world: int
    ranks: dict[int, LiveSteps]
    hosts: dict[int, str]

    def compare(self) -> StepTimes | None:
        """The last steps that all ranks have which make any; None without any."""
        ranks = {number: steps for number, steps in self.ranks.items() if steps.times_us}
        first = max((steps.first for steps in ranks.values()), default=0)
        end = min((steps.end for steps in ranks.values()), default=0)
        if first >= end:
            return None
        timed = list(ranks.values())[:: math.ceil(len(ranks) / TIMED_RANKS)]
        columns = [steps.times_us[first - steps.first : end - steps.first] for steps in timed]
        times_us = {
            at: median(values)
            for at, values in enumerate(zip(*columns, strict=True), first)
            if not math.isnan(sum(values))
        }
        return self._times(ranks, times_us) if times_us else None

    def _times(self, ranks: dict[int, LiveSteps], times_us: dict[int, float]) -> StepTimes:
        alone = _alone(times_us)
        numbers = [at for at in times_us if at != alone]
        compared: list[_ComparedSteps] = []
        for window in (SHORT, MIDDLE, USUAL):
            steps = window.steps(numbers, times_us, len(ranks))
            is_same = compared and len(compared[-1].numbers) == len(steps)
            one = compared[-1] if is_same else self._compared(ranks, steps, times_us)
            compared.append(replace(one, window=window))
        short, middle, usual = compared
        # Soon after the begin of a watch there are too few steps before the longer window.
        before = [numbers[: -len(one.numbers)] for one in (usual, middle)]
        earlier_numbers = before[0] if len(before[0]) >= USUAL.least else before[1]
        earlier = [times_us[at] for at in earlier_numbers]
        is_usual = len(earlier) >= USUAL.least
        found = StepTimes(
            now_us=median(short.steps_us),
            lasting_us=median(middle.steps_us),
            usual_us=median(earlier) if is_usual else None,
            long_us=min(nlargest(2, times_us.values())),
            wait_us=median(usual.least_waits_us) if usual.least_waits_us else None,
            late=usual.only([]).late,
            usual_mean_us=_mean(earlier[: USUAL.most]) if is_usual else None,
        )
        shown = short if found.is_longer else usual
        late = _steadiest([one.lasting(short) for one in compared])
        if late is None and LONG.most_steps(len(ranks)) > len(usual.numbers):
            steps = LONG.steps(numbers, times_us, len(ranks))
            late = replace(self._compared(ranks, steps, times_us), window=LONG).lasting(short)
        if late:
            shown, found.late = late, late.late
        usual_waits = _least_waits(ranks, earlier_numbers[: len(usual.numbers)])
        waits = shown.least_waits_us
        return replace(
            found,
            seconds=shown.window.seconds,
            mean_us=fmean(shown.steps_us),
            wait_mean_us=fmean(waits) if waits else None,
            wait_grew_us=fmean(waits) - _mean(usual_waits) if waits and usual_waits else None,
            delays=shown.delays,
            alone_us=None if alone is None else times_us[alone],
            alone_waits_us={} if alone is None else _waits_in(ranks, alone),
        )

    def _compared(
        self, ranks: Mapping[int, LiveSteps], numbers: Sequence[int], times_us: Mapping[int, float]
    ) -> "_ComparedSteps":
        waits = {rank: _chosen(steps, numbers) for rank, steps in ranks.items()}
        by_step = list(zip(*waits.values(), strict=True))
        kept = [at for at, values in enumerate(by_step) if not math.isnan(sum(values))]
        steps_us = [times_us[at] for at in numbers]
        found = _ComparedSteps(numbers, steps_us, [min(by_step[at]) for at in kept])
        if min(len(waits), len(kept)) < 2:
            return found
        of_kept = itemgetter(*kept)
        times = StepWaits(
            list(of_kept(steps_us)),
            {rank: of_kept(values) for rank, values in waits.items()},
            numbers=list(of_kept(numbers)),
        )
        judge = steps_judge(times, JobRanks(self.world, self.hosts), CONFIDENCE)
        if judge is None:
            return found
        late = judge.lateness(GRADIENTS)
        large = {one.rank: judge.large_steps(one.rank) for one in late.late if one.at_times}
        return replace(found, late=late, delays=judge.means(), large=large)


@dataclass(frozen=True, slots=True)
class _ComparedSteps:
    """The ranks in the steps of a window, those that all of them timed."""

    numbers: Sequence[int]
    steps_us: Sequence[float]
    least_waits_us: Sequence[float]  # of the rank that waited least
    late: Lateness | None = None
    delays: Mapping[int, MeanDelay] = field(default_factory=dict)
    large: Mapping[int, Sequence[int]] = field(default_factory=dict)  # numbers of steps by rank
    window: StepWindow = USUAL

    @property
    def named(self) -> Sequence[RankDelay]:
        return self.late.late if self.late else []

    def lasting(self, short: "_ComparedSteps") -> "_ComparedSteps | None":
        """With the ranks alone that still are late; None without any."""
        return self._if_any([one for one in self.named if self._lasts(one, short)])

    def _is_sure(self, late: RankDelay) -> bool:
        return late.low_us >= self.window.share * fmean(self.steps_us)

    def _lasts(self, late: RankDelay, short: "_ComparedSteps") -> bool:
        if late.at_times:
            if self.window not in (MIDDLE, USUAL):  # too few steps, or steps of long ago
                return False
            return late.us > 0 and goes_on(self.large[late.rank], self.numbers)
        own = short.delays.get(late.rank)
        return self._is_sure(late) and (own is None or own.us >= LASTS * late.us)

    def _if_any(self, late: Sequence[RankDelay]) -> "_ComparedSteps | None":
        return self.only(late) if late else None

    def only(self, late: Sequence[RankDelay]) -> "_ComparedSteps":
        """Without other late ranks."""
        kept = self.late and msgspec.structs.replace(self.late, late=list(late))
        return replace(self, late=kept)


def goes_on(large: Sequence[int], numbers: Sequence[int]) -> bool:
    """Whether a rank still is late at times, if its delays were large in these steps of all."""
    if not large:
        return False
    later = sum(number >= numbers[3 * len(numbers) // 4] for number in large)
    gap = len(numbers) / len(large)
    return later >= LATER_SHARE * len(large) and numbers[-1] - large[-1] <= GAPS * gap


def _steadiest(named: Sequence[_ComparedSteps | None]) -> _ComparedSteps | None:
    """What the longest window names, whose figures are steadier, unless the delay has grown since
    then; the windows are in ascending order.
    """
    found = [one for one in named if one]
    if not found:
        return None
    least = {one.rank: STEADY * one.us for one in found[0].named}
    for one in reversed(found):
        own = {late.rank: late.us for late in one.named}
        if all(own.get(rank, 0.0) >= us for rank, us in least.items()):
            return one
    return found[0]


def _alone(times_us: Mapping[int, float]) -> int | None:
    """The one of the last steps that is longer than a window of many, as when a rank was stopped:
    it would hide all others in a mean. None without one, or if there are several.
    """
    last = list(times_us)[-USUAL.most :]
    if len(last) < USUAL.least:
        return None
    longest, second = nlargest(2, last, key=times_us.__getitem__)
    least_us = max(1e6 * SHORT.seconds, SHORT.least * median(times_us[at] for at in last))
    is_alone = times_us[longest] > max(least_us, 2 * times_us[second])
    return longest if is_alone else None


def _waits_in(ranks: Mapping[int, LiveSteps], number: int) -> dict[int, float]:
    """What each rank waited in one step; {} if one has not timed it."""
    waits = {rank: steps.waits_us[number - steps.first] for rank, steps in ranks.items()}
    return {} if math.isnan(sum(waits.values())) else waits


def _least_waits(ranks: dict[int, LiveSteps], numbers: Sequence[int]) -> list[float]:
    """What the rank that waited least did, in those of these steps that all ranks timed."""
    if not numbers:
        return []
    by_step = zip(*(_chosen(steps, numbers) for steps in ranks.values()), strict=True)
    return [min(values) for values in by_step if not math.isnan(sum(values))]


def _mean(values: Sequence[float]) -> float:
    """Without the largest, such as those of the first steps of a training."""
    return fmean(sorted(values)[: math.ceil(WITHOUT_LONGEST * len(values))])


def _chosen(steps: LiveSteps, numbers: Sequence[int]) -> Sequence[float]:
    """The waits in the steps with these numbers."""
    first, last = numbers[0], numbers[-1]
    values = steps.waits_us[first - steps.first : last + 1 - steps.first]
    if len(values) == len(numbers):
        return values
    places = [at - first for at in numbers]
    return itemgetter(*places)(values) if len(places) > 1 else [values[places[0]]]
