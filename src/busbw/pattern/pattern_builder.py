"""Makes the record of what was collected: numbers ranks and communicators, joins what several
ranks recorded of one call, and notes what is missing.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import count, pairwise

from busbw.core.lateness import Lateness
from busbw.core.pattern import MAX_RANKS, RANKS_OF_ROW, Comm, Pattern, lists_each
from busbw.core.pattern_weights import spans
from busbw.core.sizes import counted
from busbw.pattern.collector import (
    ARGUMENTS,
    AlgorithmChoice,
    Arguments,
    CallTally,
    Collector,
    CommMembers,
    EqualCalls,
)
from busbw.pattern.lateness import waits
from busbw.pattern.lateness.judge import JobRanks, lateness
from busbw.pattern.lateness.steps import Member, RankCall
from busbw.pattern.merge import POINT_TO_POINT, JoinedCall, MergedCalls, ObservedCall, merge

_SINCE_EPOCH_US = (1e15, 1e17)  # from 2001 on: other moments are no times of day
_BACK_US = 1000.0
_Numbers = dict[Hashable, dict[Hashable, int]]  # by process, then by stream or group


def pattern(collector: Collector) -> Pattern:
    return _Builder(collector).pattern()


def rank_calls(collector: Collector) -> tuple[list[RankCall], JobRanks]:
    """All calls in their order with what each rank has of them, also without times; and the ranks
    of the job.
    """
    builder = _Builder(collector)
    return list(builder.calls_of_ranks()), builder.job_ranks()


class _Builder:
    def __init__(self, collector: Collector) -> None:
        self._from = collector
        self._header = collector.header
        stated = stated_ranks(collector.ranks, collector.groups)
        self._header.ranks_known = bool(stated) or not collector.ranks
        self._ranks = stated or _rank_numbers(collector.ranks, collector.groups)
        files_of_rank = Counter(rank for rank in collector.ranks.values() if rank is not None)
        repeated = [rank for rank, files in files_of_rank.items() if files > 1]
        if repeated:
            collector.add_note(
                f"rank {min(repeated)} is stated by several files, which may be of several jobs:"
                " ranks are numbered by file"
            )
        self._processes = sorted(collector.ranks, key=lambda process: self._ranks[process])
        self._tally = CallTally(self._header, ordered=collector.ordered)
        self._comms = {
            comm: self._comm(group) for comm, group in collector.groups.items() if group.callers
        }
        self._base_us = 0.0
        self._streams: _Numbers = {}
        self._call_groups: _Numbers = {}

    def _comm(self, group: CommMembers) -> int:
        """Add a communicator to the record; returns its id."""
        rank_of = group.rank_of
        members = list(group.members)
        if not members and len(rank_of) == group.ranks:
            in_order = sorted(rank_of, key=lambda process: rank_of[process])
            members = [self._ranks[process] for process in in_order]
        ranks = group.ranks
        if not ranks and len(group.callers) > 1:
            ranks = len(group.callers)
        if not lists_each(members, ranks):
            members = []
        read = {
            process
            for process in self._processes
            if process in rank_of or self._ranks[process] in members
        }
        return self._tally.add_comm(
            ranks, group.name, group.hosts, members, len(read | group.callers)
        )

    def pattern(self) -> Pattern:
        header, source = self._header, self._from
        header.ranks = [self._ranks[process] for process in self._processes]
        worlds = [header.world, *(group.ranks for group in source.groups.values())]
        worlds += [rank + 1 for rank in header.ranks]
        worlds += [max(comm.members, default=-1) + 1 for comm in self._tally.comms]
        header.world = max((world for world in worlds if world <= MAX_RANKS), default=0)
        header.gpu_time = source.gpu_times.total()
        header.serving = source.steps.total()
        self._set_times()
        if source.ordered:
            self._merge()
        else:
            self._sum()
        lost: Counter[Hashable] = Counter()
        for (comm, _), calls in source.lost_calls.items():
            lost[comm] = max(lost[comm], calls)
        header.dropped += lost.total()
        self._add_remarks()
        return self._tally.to_pattern()

    def _set_times(self) -> None:
        """Find the first start, to which all starts are relative, and the time of the record.

        A trace that is cut off lacks the moment to which its times are relative: beside others,
        which have it, its starts are unknown.
        """
        spans: list[tuple[float, float]] = []
        for queue in self._from.queues.values():
            for call in queue:
                if call.at_us is not None:
                    end_us = call.at_us + max(call.gpu_us or 0.0, call.cpu_us or 0.0)
                    spans.append((call.at_us, end_us))
        for process_counts in self._from.counts.values():
            spans += [
                (counts.first_us, counts.last_us)
                for counts in process_counts.values()
                if counts.first_us is not None and counts.last_us is not None
            ]
        if not spans:
            return
        earliest, latest = _SINCE_EPOCH_US
        dated = [span for span in spans if earliest < span[0] < latest]
        self._base_us = min(start for start, _ in dated or spans)
        self._header.seconds = (max(end for _, end in dated or spans) - self._base_us) / 1e6
        if dated:
            started = datetime.fromtimestamp(self._base_us / 1e6, UTC)
            self._header.started = started.isoformat(timespec="milliseconds")

    def _merge(self) -> None:
        queues = self._from.queues
        for process in self._called():
            starts = [call.at_us for call in queues[process] if call.at_us is not None]
            back = sum(later < earlier - _BACK_US for earlier, later in pairwise(starts))
            if back:
                self._from.add_note(
                    f"rank {self._ranks[process]}: {counted(back, 'time')} the clock went back by"
                    " more than 1 ms"
                )
        for queue in queues.values():
            for call in queue:
                if call.comm in self._from.unnumbered:
                    call.seq = None
        merged = merge([queues[process] for process in self._called()])
        self._header.lateness = self._lateness(list(self._rank_calls(merged, timed=True)))
        if merged.forced:
            self._from.add_note(
                f"{counted(merged.forced, 'call')} in the order of their starts, because ranks"
                " disagree about the order"
            )
        if merged.mismatched:
            self._from.add_note(
                f"{counted(merged.mismatched, 'call')} with other functions or sizes on other"
                " ranks; the lowest rank's are kept"
            )

    def _called(self) -> list[Hashable]:
        """The processes that made calls, in the order of their ranks."""
        return [process for process in self._processes if process in self._from.queues]

    def calls_of_ranks(self) -> Iterator[RankCall]:
        queues = self._from.queues
        return self._rank_calls(merge([queues[process] for process in self._called()]))

    def _rank_calls(self, merged: MergedCalls, *, timed: bool = False) -> Iterator[RankCall]:
        """Add the calls to the record; all of them, or those of several ranks with times."""
        processes = self._called()
        for joined in merged.calls:
            row = self._add(joined, processes[joined.queues[0]])
            is_timed = joined.call.gpu_us is not None or joined.call.cpu_us is not None
            if not timed or (is_timed and len(processes) > 1):
                yield self._rank_call(joined, row, processes)

    def _rank_call(self, joined: JoinedCall, row: int, processes: Sequence[Hashable]) -> RankCall:
        """The call with the time of each rank, on the GPU if any rank has that."""
        members = []
        for queue, call in zip(joined.queues, joined.members, strict=True):
            start_us, time_us = call.gpu_at_us, call.gpu_us
            if joined.call.gpu_us is None:
                start_us, time_us = call.at_us, call.cpu_us
            rank = self._ranks[processes[queue]]
            members.append(Member(rank, call.at_us, start_us, time_us))
        alike = joined.call.function, joined.call.bytes
        return RankCall(row, self._comms[joined.call.comm], members, alike)

    def _lateness(self, calls: Sequence[RankCall]) -> Lateness | None:
        if self._header.skipped:
            calls = self._until_first_end(calls)
        times = waits.of_calls(calls)
        if times is None or not self._header.ranks_known:
            return None
        return lateness(times, self.job_ranks(), with_phases=True)

    def _until_first_end(self, calls: Sequence[RankCall]) -> Sequence[RankCall]:
        """The calls up to the last one of the rank whose record ends first: where its file is cut
        off, it would seem to come late to all calls that follow.
        """
        last = {member.rank: at for at, call in enumerate(calls) for member in call.members}
        end = min(last.values(), default=0) + 1
        if end < len(calls):
            rank = min(last, key=lambda rank: last[rank])
            self._from.add_note(
                f"who was late is judged until the record of rank {rank} ends, after {end} of"
                f" {len(calls)} calls"
            )
        return calls[:end]

    def job_ranks(self) -> JobRanks:
        known = self._from.hosts
        hosts = {self._ranks[process]: known.get(process, "") for process in self._processes}
        comms = {comm.id: comm_text(comm) for comm in self._tally.comms}
        return JobRanks(self._header.world, hosts, comms)

    def _add(self, joined: JoinedCall, process: Hashable) -> int:
        call = joined.call
        return self._tally.add_calls(
            self._arguments(call, process),
            at_us=self._relative_us(call.at_us),
            gpu_at_us=self._relative_us(call.gpu_at_us),
            cpu_us=call.cpu_us,
            gpu_us=call.gpu_us,
            predicted_us=self._predicted_us(call),
            skew_us=joined.skew_us,
            stream=_number(self._streams, process, call.stream),
            group=_number(self._call_groups, None, call.group and (process, call.group)),
            clock=call.clock,
        )

    def _relative_us(self, at_us: float | None) -> float | None:
        earliest, _ = _SINCE_EPOCH_US
        if at_us is None or at_us < earliest < self._base_us:
            return None
        return at_us - self._base_us

    def _sum(self) -> None:
        """Add the counts of all processes without an order.

        A collective was called as often as the rank that called it most often; its times are those
        of that rank. Sends and receives of each process count.
        """
        largest: dict[Hashable, tuple[EqualCalls, Hashable]] = {}
        for process in self._processes:
            for name, counts in self._from.counts.get(process, {}).items():
                point_to_point = counts.call.function in POINT_TO_POINT
                key = (name, process if point_to_point else None)
                if key not in largest or largest[key][0].calls < counts.calls:
                    largest[key] = (counts, process)
        for counts, process in largest.values():
            self._add_counts(counts, process)

    def _add_counts(self, counts: EqualCalls, process: Hashable) -> None:
        arguments = self._arguments(counts.call, process)
        self._tally.add_calls(
            arguments,
            counts.calls,
            at_us=self._relative_us(counts.first_us),
            predicted_us=self._predicted_us(counts.call),
        )
        self._tally.add_calls(arguments, 0, at_us=self._relative_us(counts.last_us))
        for duration in counts.cpu_us:
            self._tally.add_calls(arguments, 0, cpu_us=duration)
        for duration in counts.gpu_us:
            self._tally.add_calls(arguments, 0, gpu_us=duration)

    def _choice(self, call: ObservedCall) -> AlgorithmChoice | None:
        return self._from.choices.get((call.comm, call.function, call.bytes))

    def _predicted_us(self, call: ObservedCall) -> float | None:
        choice = self._choice(call)
        return choice.predicted_us if choice else call.predicted_us

    def _arguments(self, call: ObservedCall, process: Hashable) -> Arguments:
        values = {name: getattr(call, name) for name in ARGUMENTS}
        choice = self._choice(call)
        if choice:
            values["algorithm"] = choice.algorithm
            values["protocol"] = choice.protocol
            values["channels"] = choice.channels
        values["rank"] = None
        if call.function in POINT_TO_POINT:
            values["rank"] = self._from.groups[call.comm].rank_of.get(process)
        comm = self._tally.comms[self._comms[call.comm]]
        for name in RANKS_OF_ROW:
            if comm.lacks(values[name]):
                values[name] = None
        return Arguments(comm.id, **values)

    def _add_remarks(self) -> None:
        source = self._from
        omitted: Counter[str] = Counter()
        for (function, _), calls in source.omitted.items():
            omitted[function] = max(omitted[function], calls)
        for function, calls in omitted.items():
            source.add_note(
                f"left out, because it moves no data of the application: {function},"
                f" {counted(calls, 'call')}"
            )
        several = sum(choice is None for choice in source.choices.values())
        if several:
            source.add_note(
                f"{counted(several, 'size')} for which NCCL chose several algorithms or protocols;"
                " none is stated"
            )


def comm_text(comm: Comm) -> str:
    """`dp (ranks 0,2)`: the name of a communicator, and its members where they are known."""
    name = comm.name or f"communicator {comm.id}"
    members = spans(sorted(comm.members)) if comm.members else f"{comm.ranks} of the job"
    return f"{name[:20]} (ranks {members})" if comm.ranks else name[:20]


def _number(numbers: _Numbers, process: Hashable, value: Hashable) -> int | None:
    """A small number for a stream or group, the same each time; None for None.

    A value that is new in `numbers` gets the next number of its process, from 0 on. With None as
    `process` all processes share one count.
    """
    if value is None:
        return None
    own = numbers.setdefault(process, {})
    return own.setdefault(value, len(own))


def _rank_numbers(
    processes: Iterable[Hashable], groups: dict[Hashable, CommMembers]
) -> dict[Hashable, int]:
    """A rank for each process, for sources that do not state the ranks of their processes.

    It is the lowest free rank that is a member of every communicator that the process called. For
    a process that called none with known members it is any free rank.
    """
    called: dict[Hashable, list[set[int]]] = {process: [] for process in processes}
    for group in groups.values():
        members = set(group.members)
        for process in group.callers if members else ():
            called[process].append(members)
    numbers: dict[Hashable, int] = {}
    taken: set[int] = set()
    not_taken = (number for number in count() if number not in taken)
    for process in sorted(called, key=lambda process: not called[process]):
        common = set.intersection(*called[process]) - taken if called[process] else set()
        numbers[process] = min(common) if common else next(not_taken)
        taken.add(numbers[process])
    return numbers


def stated_ranks(
    known: dict[Hashable, int | None], groups: dict[Hashable, CommMembers]
) -> dict[Hashable, int]:
    """The rank in the job of each process: as stated, else its rank in the largest communicator;
    {} if the source does not say.
    """
    with_ranks = [group for group in groups.values() if group.rank_of]
    largest = max(with_ranks, key=lambda group: group.ranks, default=CommMembers())
    ranks = {
        process: largest.rank_of.get(process) if rank is None else rank
        for process, rank in known.items()
    }
    known_ranks = {process: rank for process, rank in ranks.items() if rank is not None}
    return known_ranks if len(set(known_ranks.values())) == len(ranks) else {}
