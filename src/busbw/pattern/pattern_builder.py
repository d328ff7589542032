"""Makes the record of what was collected: numbers ranks and communicators, joins what ranks saw,
and says what is missing.
"""

from collections import Counter
from collections.abc import Hashable
from datetime import UTC, datetime
from itertools import pairwise

from busbw.core.pattern import Pattern
from busbw.core.sizes import counted
from busbw.pattern.collector import ARGUMENTS, Arguments, Choice, Collector, Counts, Group, Tally
from busbw.pattern.merge import POINT_TO_POINT, Joined, Observed, merge

_SINCE_EPOCH_US = (1e15, 1e17)  # from 2001 on: other moments are no times of day
_BACK_US = 1000.0


def pattern(collector: Collector) -> Pattern:
    """The record of what was added to a collector."""
    return _Writing(collector).pattern()


class _Writing:
    def __init__(self, collector: Collector) -> None:
        self._from = collector
        self._header = collector.header
        self._ranks = _numbered(collector.ranks, collector.groups)
        twice = [
            rank
            for rank, files in Counter(collector.ranks.values()).items()
            if rank is not None and files > 1
        ]
        if twice:
            collector.note(
                f"rank {min(twice)} is stated by several files, which may be of several jobs: ranks"
                " are numbered by file"
            )
        self._processes = sorted(collector.ranks, key=lambda process: self._ranks[process])
        self._tally = Tally(self._header, ordered=collector.ordered)
        self._comms = {
            comm: self._comm(group) for comm, group in collector.groups.items() if group.callers
        }
        self._base = 0.0
        self._streams: dict[Hashable, int] = {}
        self._numbers: dict[Hashable, int] = {}

    def _comm(self, group: Group) -> int:
        members = list(group.members)
        if not members and len(group.own) == group.ranks:
            members = [
                self._ranks[process]
                for process in sorted(group.own, key=lambda process: group.own[process])
            ]
        ranks = group.ranks or (len(group.callers) if len(group.callers) > 1 else 0)
        listed = {
            process
            for process in self._processes
            if process in group.own or self._ranks[process] in members
        }
        return self._tally.comm(
            ranks, group.name, group.hosts, members, len(listed | group.callers)
        )

    def pattern(self) -> Pattern:
        header, source = self._header, self._from
        header.ranks = [self._ranks[process] for process in self._processes]
        header.world = max(
            [
                header.world,
                *(group.ranks for group in source.groups.values()),
                *(rank + 1 for rank in header.ranks),
            ]
        )
        self._time()
        if source.ordered:
            self._merge()
        else:
            self._sum()
        most: Counter[Hashable] = Counter()
        for (comm, _), calls in source.lost.items():
            most[comm] = max(most[comm], calls)
        header.dropped += most.total()
        self._remarks()
        return self._tally.pattern()

    def _time(self) -> None:
        """Starts are relative to the first."""
        calls = (call for queue in self._from.queues.values() for call in queue)
        spans = [
            (call.at_us, call.at_us + max(call.gpu_us or 0.0, call.cpu_us or 0.0))
            for call in calls
            if call.at_us is not None
        ]
        counts = (one for many in self._from.counts.values() for one in many.values())
        spans += [
            (one.first_us, one.last_us)
            for one in counts
            if one.first_us is not None and one.last_us is not None
        ]
        if not spans:
            return
        self._base = min(start for start, _ in spans)
        self._header.seconds = (max(end for _, end in spans) - self._base) / 1e6
        if _SINCE_EPOCH_US[0] < self._base < _SINCE_EPOCH_US[1]:
            self._header.started = datetime.fromtimestamp(self._base / 1e6, UTC).isoformat(
                timespec="milliseconds"
            )

    def _merge(self) -> None:
        processes = [process for process in self._processes if process in self._from.queues]
        for process in processes:
            starts = [call.at_us for call in self._from.queues[process] if call.at_us is not None]
            back = sum(later < earlier - _BACK_US for earlier, later in pairwise(starts))
            if back:
                self._from.note(
                    f"rank {self._ranks[process]}: {counted(back, 'time')} the clock went back by"
                    " more than 1 ms"
                )
        for call in (
            call
            for queue in self._from.queues.values()
            for call in queue
            if call.comm in self._from.unnumbered
        ):
            call.seq = None
        merged = merge([self._from.queues[process] for process in processes])
        for joined in merged.calls:
            self._add(joined, processes[joined.queues[0]] if joined.queues else processes[0])
        if merged.forced:
            self._from.note(
                f"{counted(merged.forced, 'call')} in the order of their starts, because ranks"
                " disagree about the order"
            )
        if merged.mismatched:
            self._from.note(
                f"{counted(merged.mismatched, 'call')} with other functions or sizes on other"
                " ranks; the lowest rank's are kept"
            )

    def _add(self, joined: Joined, process: Hashable) -> None:
        call = joined.call
        at_us, gpu_at_us = (
            None if moment is None else moment - self._base
            for moment in (call.at_us, call.gpu_at_us)
        )
        self._tally.add(
            self._arguments(call, process),
            at_us=at_us,
            gpu_at_us=gpu_at_us,
            cpu_us=call.cpu_us,
            gpu_us=call.gpu_us,
            predicted_us=self._predicted(call),
            skew_us=joined.skew_us,
            stream=_number(self._streams, process, call.stream),
            group=_number(self._numbers, None, call.group and (process, call.group)),
        )

    def _sum(self) -> None:
        """Without an order, a collective was called as often as the rank that called it most
        often; its times are that rank's.
        """
        most: dict[Hashable, tuple[Counts, Hashable]] = {}
        for process in self._processes:
            for name, one in self._from.counts.get(process, {}).items():
                own = (name, process if one.call.function in POINT_TO_POINT else None)
                if own not in most or most[own][0].calls < one.calls:
                    most[own] = (one, process)
        for one, process in most.values():
            self._add_counts(one, process)

    def _add_counts(self, one: Counts, process: Hashable) -> None:
        arguments, call = self._arguments(one.call, process), one.call
        at_us = [None if at is None else at - self._base for at in (one.first_us, one.last_us)]
        self._tally.add(arguments, one.calls, at_us=at_us[0], predicted_us=self._predicted(call))
        self._tally.add(arguments, 0, at_us=at_us[1])
        for duration in one.cpu_us:
            self._tally.add(arguments, 0, cpu_us=duration)
        for duration in one.gpu_us:
            self._tally.add(arguments, 0, gpu_us=duration)

    def _choice(self, call: Observed) -> Choice | None:
        return self._from.choices.get((call.comm, call.function, call.bytes))

    def _predicted(self, call: Observed) -> float | None:
        choice = self._choice(call)
        return choice.predicted_us if choice else call.predicted_us

    def _arguments(self, call: Observed, process: Hashable) -> Arguments:
        values = {name: getattr(call, name) for name in ARGUMENTS}
        if choice := self._choice(call):
            values |= {
                "algorithm": choice.algorithm,
                "protocol": choice.protocol,
                "channels": choice.channels,
            }
        own = (
            self._from.groups[call.comm].own.get(process)
            if call.function in POINT_TO_POINT
            else None
        )
        return Arguments(self._comms[call.comm], rank=own, **values)

    def _remarks(self) -> None:
        source = self._from
        omitted: Counter[str] = Counter()
        for (what, _), calls in source.omitted.items():
            omitted[what] = max(omitted[what], calls)
        for what, calls in omitted.items():
            source.note(
                f"left out, because it moves no data of the application: {what},"
                f" {counted(calls, 'call')}"
            )
        several = sum(choice is None for choice in source.choices.values())
        if several:
            source.note(
                f"{counted(several, 'size')} for which NCCL chose several algorithms or protocols;"
                " none is stated"
            )


def _number(numbers: dict[Hashable, int], process: Hashable, value: Hashable) -> int | None:
    """A number for a stream or group, counted from 0 for each process."""
    if value is None:
        return None
    name = (process, value)
    if name not in numbers:
        numbers[name] = (
            sum(1 for one in numbers if isinstance(one, tuple) and one[0] == process)
            if process is not None
            else len(numbers)
        )
    return numbers[name]


def _numbered(
    known: dict[Hashable, int | None], groups: dict[Hashable, Group]
) -> dict[Hashable, int]:
    """The rank in the job of each process: as stated, else that in a communicator of all, else
    in order of appearance.
    """
    whole = max(
        (group for group in groups.values() if group.own),
        key=lambda group: group.ranks,
        default=Group(),
    )
    ranks = {
        process: whole.own.get(process) if rank is None else rank for process, rank in known.items()
    }
    if None in ranks.values() or len(set(ranks.values())) < len(ranks):
        return {process: number for number, process in enumerate(ranks)}
    return {process: rank for process, rank in ranks.items() if rank is not None}
