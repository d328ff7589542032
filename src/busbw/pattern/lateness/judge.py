"""Which ranks were late: those that waited less than the others, beyond what noise explains.

The delay of a rank in a step is how much less it waited than the median of the others. A rank is
named if the mean of its delays is a share of the step, and above 0 by an interval that holds over
all ranks together; or if large rare delays are its own more often than by chance. Steps that follow
each other are not independent, so that the interval is of the means of consecutive ones
(`busbw.stats.rounds`).
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median

from busbw.core.lateness import (
    CALLS,
    CommDelay,
    LateByAnother,
    Lateness,
    LongSteps,
    RankDelay,
    Recurrence,
)
from busbw.core.pattern import SETTLING
from busbw.pattern.lateness import phases
from busbw.pattern.lateness.phases import LatePhase
from busbw.pattern.lateness.steps import MIN_STEPS
from busbw.pattern.lateness.waits import StepWaits
from busbw.stats.history import deviation
from busbw.stats.rounds import Interval, mean_interval

CONFIDENCE = 0.99  # that no rank is named by chance
MIN_SHARE = 0.01  # of a step: smaller delays are not named
MAX_BLOCKS = 20  # of consecutive steps, each with one mean
MOST = 0.8  # of the steps
RARE_SHARE = 0.05  # of a step: a delay of one step that may be rare
DEVIATIONS = 5.0  # of usual delays, or of usual steps: what is further off is no noise
MIN_RARE = 3  # rare delays of which a rank is named
RARE_CHANCE = 0.01  # that chance gives any rank so many of all rare delays
LONG_SHARE = 0.1  # of a step, by which one is long
PERIODIC = 0.8  # of the gaps between steps
MAINLY = 0.5  # of a delay, or of the excess of a long step
MIN_GAPS = 3  # that show a period
MAX_COMMS = 4
DRAWN = 4  # late ranks whose delay in each step is kept
USUAL_RANKS = 64  # of many: how much their delays usually differ
DIGITS = 1  # of microseconds


@dataclass(frozen=True, slots=True)
class JobRanks:
    """What is known of the ranks and communicators."""

    world: int
    hosts: Mapping[int, str] = field(default_factory=dict)  # by rank
    comms: Mapping[int, str] = field(default_factory=dict)  # how a text calls them


@dataclass(frozen=True, slots=True)
class MeanDelay:
    """How much later a rank was than the median of the others, below 0 if it was earlier: the mean
    of steps, and the ends of its interval.
    """

    us: float
    low_us: float
    high_us: float


def lateness(
    times: StepWaits,
    job: JobRanks,
    source: str = CALLS,
    confidence: float = CONFIDENCE,
    *,
    with_phases: bool = False,
) -> Lateness | None:
    """Which ranks were late; None for too few steps that all ranks have, or of unknown length.

    `with_phases`: also those that were late in consecutive steps alone, as of a whole record.
    """
    judge = steps_judge(times, job, confidence)
    return judge.lateness(source, with_phases=with_phases) if judge else None


def steps_judge(
    times: StepWaits, job: JobRanks, confidence: float = CONFIDENCE
) -> "StepsJudge | None":
    """What `lateness` knows of all ranks; None for the same steps."""
    if not all(math.isfinite(sum(values)) for values in (times.steps_us, *times.waits.values())):
        return None
    kept = [at for at in range(len(times.steps_us)) if at not in times.incomplete]
    settling = 0 if times.parts or len(kept) < MIN_STEPS + SETTLING else SETTLING
    kept = [at for at in kept if at >= settling]
    if len(kept) < MIN_STEPS or sum(times.steps_us[at] for at in kept) <= 0:
        return None
    return StepsJudge(times, job, kept, confidence, settling)


class StepsJudge:
    """Compares the ranks in the steps at the places `kept`, `settling` of which came before."""

    def __init__(
        self, times: StepWaits, job: JobRanks, kept: Sequence[int], confidence: float, settling: int
    ) -> None:
        self._times, self._job, self._kept, self._settling = times, job, kept, settling
        self._steps_us = [times.steps_us[at] for at in kept]
        self._step_us = fmean(self._steps_us)
        waits = {rank: [values[at] for at in kept] for rank, values in times.waits.items()}
        self._waits = waits
        self._by_step = list(zip(*waits.values(), strict=True))
        self._delays = delays(waits)
        some = list(self._delays.values())[:: math.ceil(len(waits) / USUAL_RANKS)]
        self._usual_us = median(deviation(values) for values in some)
        self._confidence = confidence = 1 - (1 - confidence) / len(waits)  # Bonferroni
        self._intervals = {
            rank: mean_interval(_blocks(values), confidence) or Interval(-math.inf, math.inf)
            for rank, values in self._delays.items()
        }
        self._phases: dict[int, LatePhase] = {}
        self._by_comm: dict[int, list[tuple[int, float]]] = {}
        self._comms = {
            comm: {rank: fmean([values[at] for at in kept]) for rank, values in of_ranks.items()}
            for comm, of_ranks in times.by_comm.items()
        }

    def means(self) -> dict[int, MeanDelay]:
        """The delay of each rank that was compared."""
        return {
            rank: MeanDelay(fmean(values), self._intervals[rank].low, self._intervals[rank].high)
            for rank, values in self._delays.items()
        }

    def lateness(self, source: str, *, with_phases: bool = False) -> Lateness:
        self._phases = self._find_phases() if with_phases else {}
        numbers, settling = self._numbers(), self._settling
        in_order = numbers == list(range(settling, settling + len(numbers)))
        late_at_times = self._rare() | self._phases.keys()
        named = [rank for rank in self._delays if self._is_late(rank) or rank in late_at_times]
        named.sort(key=lambda rank: -fmean(self._delays[rank]))
        ranks = list(self._waits)
        last = Counter(ranks[values.index(min(values))] for values in self._by_step)
        half_widths = [(ends.high - ends.low) / 2 for ends in self._intervals.values()]
        return Lateness(
            steps_us=_rounded(self._steps_us),
            ranks=sorted(self._waits),
            world=self._job.world,
            bound_us=round(max(MIN_SHARE * self._step_us, *half_widths), DIGITS),
            source=source,
            numbers=[] if in_order else numbers,
            skipped=settling,
            incomplete=len(self._times.incomplete),
            parts=self._times.parts,
            at_most=self._times.at_most,
            late=[self._late(rank, named, last[rank]) for rank in named],
            hosts=self._late_hosts(named),
            long=None if self._times.parts else self._long(),
        )

    def _numbers(self) -> list[int]:
        """The numbers of the steps in the training."""
        numbers = self._times.numbers or range(len(self._times.steps_us))
        return [numbers[at] for at in self._kept]

    def _is_late(self, rank: int) -> bool:
        mean = fmean(self._delays[rank])
        return mean >= MIN_SHARE * self._step_us and self._intervals[rank].low > 0

    def _rare(self) -> set[int]:
        """The ranks that have more of all large delays than chance gives them."""
        large = {rank: self._large(rank) for rank in self._delays}
        total, ranks = sum(map(len, large.values())), len(large)
        return {
            rank
            for rank, places in large.items()
            if len(places) >= MIN_RARE
            and ranks * _chance(len(places), total, 1 / ranks) < RARE_CHANCE
            and sum(self._delays[rank][at] for at in places)
            >= MIN_SHARE * self._step_us * len(self._kept)
        }

    def large_steps(self, rank: int) -> list[int]:
        """The numbers of the steps in which a rank was late by far more than is usual."""
        numbers = self._numbers()
        return [numbers[at] for at in self._large(rank)]

    def _find_phases(self) -> dict[int, LatePhase]:
        """The phases of ranks that were late in them by a share of all steps."""
        ends = _block_ends(len(self._kept))
        least_us = MIN_SHARE * self._step_us * len(self._kept)
        found = {
            rank: phases.find(values, ends, self._confidence)
            for rank, values in self._delays.items()
        }
        return {
            rank: phase
            for rank, phase in found.items()
            if phase and phase.us * (phase.after - phase.first) >= least_us
        }

    def _large(self, rank: int) -> list[int]:
        """The steps in which a rank was late by far more than is usual for the ranks."""
        limit = max(RARE_SHARE * self._step_us, DEVIATIONS * self._usual_us)
        return [at for at, delay in enumerate(self._delays[rank]) if delay > limit]

    def _late(self, rank: int, named: Sequence[int], was_last: int) -> RankDelay:
        values, ends = self._delays[rank], self._intervals[rank]
        comms = self._delays_by_comm(rank)
        return RankDelay(
            rank=rank,
            us=round(fmean(values), DIGITS),
            low_us=round(ends.low, DIGITS),
            high_us=round(ends.high, DIGITS),
            was_last=was_last,
            host=self._job.hosts.get(rank, ""),
            at_times=self._at_times(rank),
            comms=[
                CommDelay(self._job.comms.get(comm, ""), round(us, DIGITS))
                for comm, us in comms[:MAX_COMMS]
            ],
            followers=self._followers(rank, named),
            steps_us=_rounded(values) if rank in named[:DRAWN] else [],
        )

    def _at_times(self, rank: int) -> Recurrence | None:
        """The steps of a rank's phase, or those of its large delays, if they are most of its delay
        and few steps.
        """
        phase = self._phases.get(rank)
        if phase:
            return self._recurrence(range(phase.first, phase.after), phase.us)
        values, large = self._delays[rank], self._large(rank)
        total = sum(values[at] for at in large)
        if not large or len(large) >= MOST * len(values) or total < MAINLY * sum(values):
            return None
        return self._recurrence(large, total / len(large))

    def _recurrence(self, places: Sequence[int], us: float) -> Recurrence:
        numbers = self._numbers()
        steps = [numbers[at] for at in places]
        return Recurrence(len(steps), round(us, DIGITS), steps[0], steps[-1], _period(steps))

    def _delays_by_comm(self, rank: int) -> list[tuple[int, float]]:
        """The communicators in which the others waited for a rank, and how long in each step."""
        if rank not in self._by_comm:
            self._by_comm[rank] = self._find_delays(rank)
        return self._by_comm[rank]

    def _find_delays(self, rank: int) -> list[tuple[int, float]]:
        found = []
        for comm, waits in self._comms.items():
            if rank in waits and len(waits) > 1:
                others = median(us for other, us in waits.items() if other != rank)
                found.append((comm, others - waits[rank]))
        least = MIN_SHARE * self._step_us
        return sorted((item for item in found if item[1] >= least), key=lambda item: -item[1])

    def _followers(self, rank: int, named: Sequence[int]) -> list[LateByAnother]:
        """The ranks that were late in one communicator as they waited for this one in another."""
        own = dict(self._delays_by_comm(rank))
        followers = []
        for waited_in, delay in own.items():
            for other in self._comms[waited_in]:
                if other in named:
                    continue
                late_in = [
                    comm
                    for comm, us in self._delays_by_comm(other)
                    if comm not in own and us >= MAINLY * delay
                ]
                names = self._job.comms
                followers += [
                    LateByAnother(other, names.get(comm, ""), names.get(waited_in, ""))
                    for comm in late_in
                ]
        return followers[:MAX_COMMS]

    def _late_hosts(self, named: Sequence[int]) -> list[str]:
        """The hosts with several ranks, of which all were late."""
        of_host: dict[str, list[int]] = {}
        for rank in self._waits:
            of_host.setdefault(self._job.hosts.get(rank, ""), []).append(rank)
        of_host.pop("", None)
        if len(of_host) < 2:
            return []
        return [
            host
            for host, ranks in of_host.items()
            if len(ranks) > 1 and all(rank in named for rank in ranks)
        ]

    def _long(self) -> LongSteps | None:
        """The steps that were longer on all ranks; None if they cost less than a share of all."""
        usual = median(self._steps_us)
        limit = max(LONG_SHARE * usual, DEVIATIONS * deviation(self._steps_us))
        waited = [min(values) for values in self._by_step]
        usual_wait = median(waited)
        places = []
        for at, step_us in enumerate(self._steps_us):
            excess = step_us - usual
            if excess <= limit:
                continue
            # what a rank does before the first call of the next step makes this one longer
            latest = max(max(delays[at : at + 2]) for delays in self._delays.values())
            if latest < MAINLY * excess:
                places.append(at)
        excess = sum(self._steps_us[at] - usual for at in places)
        if not places or excess < MIN_SHARE * sum(self._steps_us):
            return None
        in_calls = sum(max(0.0, waited[at] - usual_wait) for at in places) / excess
        return LongSteps(
            self._recurrence(places, excess / len(places)), round(min(1.0, in_calls), 3)
        )


def delays(waits: Mapping[int, Sequence[float]]) -> dict[int, list[float]]:
    """By rank and step how much less it waited than the median of the other ranks."""
    by_step = [_delays(values) for values in zip(*waits.values(), strict=True)]
    return {rank: list(own) for rank, own in zip(waits, zip(*by_step, strict=True), strict=True)}


def _delays(values: Sequence[float]) -> list[float]:
    """How much less each is than the median of the others.

    That is one of two medians, by whether the value is below the middle; of an odd number the
    middle itself has a third.
    """
    ascending = sorted(values)
    half = len(ascending) // 2
    if not len(ascending) % 2:
        below, above = ascending[half], ascending[half - 1]
        return [(below if value < below else above) - value for value in values]
    middle = ascending[half]
    lower, upper = ascending[half - 1], ascending[half + 1]
    medians = (middle + upper) / 2, (lower + upper) / 2, (lower + middle) / 2
    return [medians[(value >= middle) + (value > middle)] - value for value in values]


def _blocks(values: Sequence[float]) -> list[float]:
    """The means of up to MAX_BLOCKS equal numbers of consecutive values."""
    ends = _block_ends(len(values))
    return [fmean(values[first:after]) for first, after in pairwise(ends)]


def _block_ends(steps: int) -> list[int]:
    blocks = min(steps, MAX_BLOCKS)
    return [steps * number // blocks for number in range(blocks + 1)]


def _chance(least: int, total: int, share: float) -> float:
    """The probability of at least so many of `total`, each with this probability."""
    return sum(
        math.exp(
            math.lgamma(total + 1)
            - math.lgamma(k + 1)
            - math.lgamma(total - k + 1)
            + k * math.log(share)
            + (total - k) * math.log1p(-share)
        )
        for k in range(least, total + 1)
    )


def _period(steps: Sequence[int]) -> int:
    """The usual number from one step to the next, if most others are multiples of it; else 0."""
    gaps = sorted(after - before for before, after in pairwise(steps))
    if len(gaps) < MIN_GAPS:
        return 0
    period = gaps[(len(gaps) - 1) // 2]
    fitting = sum(gap % period == 0 for gap in gaps)
    return period if period > 1 and fitting >= PERIODIC * len(gaps) else 0


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, DIGITS) for value in values]
