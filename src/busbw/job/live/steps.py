"""The last steps of the ranks of a running job, compared: who is late, and which are longer."""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from statistics import fmean, median

import msgspec

from busbw.core.lateness import GRADIENTS, Lateness
from busbw.job.live.types import StepTimes
from busbw.pattern.lateness.judge import JobRanks, StepsJudge, steps_judge
from busbw.pattern.lateness.waits import StepWaits

WINDOWS_S = (10.0, 30.0)  # in which ranks are compared: a late rank is so in both
LEAST_STEPS, MOST_STEPS = 50, 600  # of the window
MOST_VALUES = 100_000  # of the window, of all ranks
EARLIER_STEPS = 3000  # before the window, whose median is the usual time
KEPT_STEPS = EARLIER_STEPS + MOST_STEPS
TIMED_RANKS = 16  # all ranks are equally long in a step: of many, so many say how long
USUAL = 0.95  # of the steps before the window, without the longest
CONFIDENCE = 0.9999  # that no rank is named by chance in a window; many follow each other


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
        if excess > MOST_STEPS:
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
        numbers = list(times_us)
        most = max(LEAST_STEPS, min(MOST_STEPS, MOST_VALUES // len(ranks)))
        recent, window = (_window(numbers[-most:], times_us, seconds) for seconds in WINDOWS_S)
        earlier = [times_us[at] for at in numbers[: -len(window)]]
        waits = {number: _chosen(steps, window) for number, steps in ranks.items()}
        by_step = list(zip(*waits.values(), strict=True))
        is_usual = len(earlier) >= LEAST_STEPS
        kept = [at for at, values in enumerate(by_step) if not math.isnan(sum(values))]
        judge = self._judge(waits, kept, window, times_us)
        late = judge.lateness(GRADIENTS) if judge else None
        now = [at for at in kept if window[at] >= recent[0]]
        if late and late.late and len(now) < len(kept):
            now_judge = self._judge(waits, now, window, times_us)
            late = _still(late, now_judge.lateness(GRADIENTS) if now_judge else None)
        least = [min(by_step[at]) for at in kept]
        before = _least_waits(ranks, numbers[: -len(window)][:most])
        return StepTimes(
            now_us=median(times_us[at] for at in recent),
            window_us=median(times_us[at] for at in window),
            usual_us=median(earlier) if is_usual else None,
            longest_us=max(times_us.values()),
            wait_us=median(least) if least else None,
            late=late,
            delays=judge.means() if judge else {},
            mean_us=fmean(times_us[at] for at in window),
            usual_mean_us=_mean(earlier[:MOST_STEPS]) if is_usual else None,
            wait_mean_us=fmean(least) if least else None,
            wait_grew_us=fmean(least) - _mean(before) if least and before else None,
        )

    def _judge(
        self,
        waits: dict[int, Sequence[float]],
        kept: Sequence[int],
        window: Sequence[int],
        times_us: dict[int, float],
    ) -> StepsJudge | None:
        """Compares the ranks in the steps at these places of the window."""
        if min(len(waits), len(kept)) < 2:
            return None
        numbers, of_kept = [window[at] for at in kept], itemgetter(*kept)
        chosen = {rank: of_kept(values) for rank, values in waits.items()}
        times = StepWaits([times_us[at] for at in numbers], chosen, numbers=numbers)
        job = JobRanks(self.world, self.hosts)
        return steps_judge(times, job, CONFIDENCE)


def _least_waits(ranks: dict[int, LiveSteps], numbers: Sequence[int]) -> list[float]:
    """What the rank that waited least did, in those of these steps that all ranks timed."""
    if not numbers:
        return []
    by_step = zip(*(_chosen(steps, numbers) for steps in ranks.values()), strict=True)
    return [min(values) for values in by_step if not math.isnan(sum(values))]


def _mean(values: Sequence[float]) -> float:
    """Without the largest, such as those of the first steps of a training."""
    return fmean(sorted(values)[: math.ceil(USUAL * len(values))])


def _still(late: Lateness, now: Lateness | None) -> Lateness:
    """Without the ranks that are not late now, but for those that are at times."""
    if now is None:
        return late
    named = {one.rank for one in now.late}
    kept = [one for one in late.late if one.at_times or one.rank in named]
    return msgspec.structs.replace(late, late=kept)


def _chosen(steps: LiveSteps, numbers: Sequence[int]) -> Sequence[float]:
    """The waits in the steps with these numbers."""
    first, last = numbers[0], numbers[-1]
    values = steps.waits_us[first - steps.first : last + 1 - steps.first]
    if len(values) == len(numbers):
        return values
    places = [at - first for at in numbers]
    return itemgetter(*places)(values) if len(places) > 1 else [values[places[0]]]


def _window(numbers: Sequence[int], times_us: dict[int, float], seconds: float) -> Sequence[int]:
    """The steps of the last seconds, from LEAST_STEPS on."""
    steps, total_us = 0, 0.0
    for at in reversed(numbers):
        total_us += times_us[at]
        if steps >= LEAST_STEPS and total_us > seconds * 1e6:
            break
        steps += 1
    return numbers[-steps:]
