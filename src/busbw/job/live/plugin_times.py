"""How long steps take and which rank is late in them, from the calls that the plugin timed.

The last calls of all ranks are compared as seldom as keeps that below COMPARING_SHARE of a CPU.
Of ranks without times, only the time of a step is known.
"""

import time
from collections.abc import Sequence
from heapq import nlargest
from pathlib import Path
from statistics import fmean, median

import msgspec

from busbw.core.lateness import CALLS, Lateness
from busbw.core.pattern import US
from busbw.job.live.plugin_file import REPORTS_CALLS, PluginFile
from busbw.job.live.steps import CONFIDENCE, USUAL, goes_on
from busbw.job.live.types import StepTimes
from busbw.pattern.collector import Collector
from busbw.pattern.lateness import waits
from busbw.pattern.lateness.judge import JobRanks, lateness, steps_judge
from busbw.pattern.lateness.steps import Member, RankCall, StepStarts, no_starts
from busbw.pattern.lateness.waits import StepWaits
from busbw.pattern.merge import POINT_TO_POINT
from busbw.pattern.pattern_builder import rank_calls
from busbw.pattern.readers import profiler

COMPARING_SHARE = 0.005
EARLIER = 5  # comparisons of which the usual time of a step is the median
KEPT = 1000  # comparisons
LEAST_RECORDS, MOST_RECORDS = 750, 100_000  # of a rank, and of all, that are compared
FEW_STEPS, MANY_STEPS = 60, 250  # then more or fewer records are compared
UNTIMED = "calls have no times: busbw capture --timed records them"
GRAPHS = "calls are in CUDA graphs"
KERNELS = "NCCL's kernel events are of other calls, after calls that NCCL does not count"
NO_STEP = "no step repeats in the last calls"
FEW = "too few steps so far"
PART = "some ranks were not read"


class PluginTimes:
    """The last comparison of the ranks."""

    def __init__(self) -> None:
        self.found: StepTimes | None = None
        self._next_s = 0.0
        self._records = LEAST_RECORDS  # of each rank, that are compared
        self._steps = 0  # in them
        self._starts_us: StepStarts = no_starts
        self._of: set[Path] = set()
        self._medians_us: list[tuple[float, float]] = []  # of steps, and when they were compared

    def take(
        self,
        files: Sequence[PluginFile],
        ranks: int,
        now_s: float,
        starts_us: StepStarts = no_starts,
    ) -> None:
        """Compare the ranks of these files, if it is time to."""
        paths = {file.path for file in files}
        if paths != self._of:
            self.found, self._of, self._next_s, self._medians_us = None, paths, 0.0, []
        if now_s < self._next_s or ranks < 2:
            return
        start_s = time.process_time()
        self._starts_us = starts_us
        self._compare(files, now_s)
        while self._steps < FEW_STEPS and self._grow(files):
            self._compare(files, now_s)
        if self._steps > MANY_STEPS:
            self._records = max(LEAST_RECORDS, self._records // 2)
        if self.found:
            self._medians_us = [*self._medians_us[-KEPT:], (now_s, self.found.now_us)]
        self._next_s = now_s + (time.process_time() - start_s) / COMPARING_SHARE

    def _grow(self, files: Sequence[PluginFile]) -> bool:
        """Take more records for the next comparison; False if there are none."""
        more = 2 * self._records
        if more * len(files) > MOST_RECORDS or all(file.kept < more for file in files):
            return False
        self._records = more
        return True

    def _compare(self, files: Sequence[PluginFile], now_s: float) -> None:
        self.found, self._steps = None, 0
        calls, job, reason = _window(files, self._records)
        timed = any(member.us is not None for call in calls for member in call.members)
        if not timed:
            calls, reason = [_untimed(call) for call in calls], reason or UNTIMED
        times = waits.of_calls(calls, self._starts_us) if calls else None
        if times is None or times.parts:
            return
        known = [at for at in range(len(times.steps_us)) if at not in times.incomplete]
        steps_us = [times.steps_us[at] for at in known]
        self._steps = len(steps_us)
        if not steps_us:
            return
        earlier = [us for at_s, us in self._medians_us if at_s < now_s - USUAL.seconds]
        found = StepTimes(
            now_us=median(steps_us[len(steps_us) // 2 :]),
            lasting_us=median(steps_us),
            usual_us=median(earlier) if len(earlier) >= EARLIER else None,
            long_us=min(nlargest(2, steps_us)),
            wait_us=None,
            late=None,
            unjudged=reason,
            mean_us=fmean(steps_us),
            usual_mean_us=fmean(earlier) if len(earlier) >= EARLIER else None,
        )
        if timed:
            found.wait_us = median(min(own[at] for own in times.waits.values()) for at in known)
            found.late = _late(times, job)
            found.seconds = US * sum(steps_us)
            found.unjudged = "" if found.late else FEW
        self.found = found


def _window(files: Sequence[PluginFile], records: int) -> tuple[list[RankCall], JobRanks, str]:
    """The last calls that all of their ranks have made, and why who is late cannot be told."""
    collector = Collector("profiler")
    reason = ""
    for file in files:
        if file.lost or not file.known:
            return [], JobRanks(0), PART
        last = file.last(records)
        by_kernels = last.interface < REPORTS_CALLS or "no_events" in last.facts
        if file.uses_graphs():
            reason = GRAPHS
        elif by_kernels and file.has_uncounted():
            reason = KERNELS
        profiler.add(last, file.path.name, collector, file.before_last())
        file.forget()
    for key, group in collector.groups.items():
        if isinstance(key, tuple):
            group.name = group.name or f"comm {key[0]:#x}"
    if reason:
        return [], JobRanks(0), reason
    calls, job = rank_calls(collector)
    return _whole(calls, collector), job, reason


def _whole(calls: Sequence[RankCall], collector: Collector) -> list[RankCall]:
    """The calls between the first and the last ones that some of their ranks lack here: the windows
    of ranks do not begin and end together.
    """
    read = [len(group.rank_of) for group in collector.groups.values() if group.callers]
    lacking = [
        at
        for at, call in enumerate(calls)
        if len(call.members) < read[call.comm] and not _is_point_to_point(call)
    ]
    middle = len(calls) // 2
    first = max((at + 1 for at in lacking if at < middle), default=0)
    after = min((at for at in lacking if at >= middle), default=len(calls))
    return list(calls[first:after])


def _is_point_to_point(call: RankCall) -> bool:
    return isinstance(call.alike, tuple) and call.alike[0] in POINT_TO_POINT


def _untimed(call: RankCall) -> RankCall:
    """The call as if it took no time: then only when steps begin is known."""
    return call._replace(
        members=[Member(rank, made_us, made_us, 0.0) for rank, made_us, *_ in call.members]
    )


def _late(times: StepWaits, job: JobRanks) -> Lateness | None:
    """Who is late in all of these steps, and in the last half of them."""
    judge = steps_judge(times, job, CONFIDENCE)
    now = lateness(_last_half(times), job, CALLS, CONFIDENCE)
    if not judge or not now:
        return None
    late, named = judge.lateness(CALLS), {one.rank for one in now.late}
    numbers = range(len(times.steps_us))
    least_us = USUAL.share * fmean(times.steps_us)
    kept = []
    for one in late.late:
        large = judge.large_steps(one.rank) if one.at_times else []
        if (one.rank in named and one.low_us >= least_us) or goes_on(large, numbers):
            kept.append(one)
    return msgspec.structs.replace(late, late=kept)


def _last_half(times: StepWaits) -> StepWaits:
    first = len(times.steps_us) // 2
    return StepWaits(
        times.steps_us[first:],
        {rank: own[first:] for rank, own in times.waits.items()},
        {
            comm: {rank: own[first:] for rank, own in of_ranks.items()}
            for comm, of_ranks in times.by_comm.items()
        },
        {at - first for at in times.incomplete if at >= first},
        at_most=times.at_most,
    )
