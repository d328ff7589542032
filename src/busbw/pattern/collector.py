"""Collects the calls that readers find.

`Collector` takes the calls of each process. Up to ORDER_LIMIT calls are kept in order. A longer
source is counted instead: the memory needed is then that of its distinct calls.

`CallTally` makes a pattern of single calls; `pattern_builder` fills it from a collector.
"""

from array import array
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

import msgspec

from busbw.core.pattern import MAX_FIGURE, MAX_RANKS, Comm, Header, Pattern, PatternCall, PatternRow
from busbw.pattern.gpu_time import GpuTimes, summarize
from busbw.pattern.merge import ObservedCall
from busbw.pattern.pattern_lines import MAX_NOTES
from busbw.pattern.serving_steps import ServedSteps

ORDER_LIMIT = 1_000_000  # calls of a source that are kept in order
# What calls of one process must have in common to be counted together, besides the communicator.
ARGUMENTS = (
    "function",
    "bytes",
    "count",
    "dtype",
    "op",
    "root",
    "peer",
    "algorithm",
    "protocol",
    "channels",
)


class Arguments(msgspec.Struct, frozen=True):
    """What calls of one row have in common; the fields are those of `PatternRow`."""

    comm: int
    function: str
    bytes: int
    count: int | None = None
    dtype: str | None = None
    op: str | None = None
    root: int | None = None
    rank: int | None = None
    peer: int | None = None
    algorithm: str | None = None
    protocol: str | None = None
    channels: int | None = None


@dataclass(slots=True)
class _RowTimes:
    row: PatternRow
    cpu_us: "array[float]" = field(default_factory=lambda: array("d"))
    gpu_us: "array[float]" = field(default_factory=lambda: array("d"))


class CallTally:
    """Collects communicators and calls. With `ordered` False it keeps only counts and times."""

    def __init__(self, header: Header, *, ordered: bool) -> None:
        self.header = header
        self._ordered = ordered
        self.comms: list[Comm] = []
        self._rows: dict[Arguments, _RowTimes] = {}
        self._calls: list[PatternCall] = []

    def add_comm(
        self, ranks: int, name: str = "", hosts: int = 0, members: Sequence[int] = (), read: int = 0
    ) -> int:
        """Add a communicator; returns its id."""
        self.comms.append(Comm(len(self.comms), ranks, name, hosts, list(members), read))
        return len(self.comms) - 1

    def add_calls(
        self,
        arguments: Arguments,
        calls: int = 1,
        *,
        at_us: float | None = None,
        cpu_us: float | None = None,
        gpu_us: float | None = None,
        gpu_at_us: float | None = None,
        predicted_us: float | None = None,
        skew_us: float | None = None,
        stream: int | None = None,
        group: int | None = None,
        clock: str | None = None,
    ) -> int:
        """Add one call, or several that are alike and have no order; returns the id of the row."""
        collected = self._rows.get(arguments)
        if collected is None:
            fields = msgspec.structs.asdict(arguments)
            collected = _RowTimes(PatternRow(len(self._rows), calls=0, **fields))
            self._rows[arguments] = collected
        row = collected.row
        row.calls += calls
        if predicted_us is not None:
            row.predicted_us = predicted_us
        if at_us is not None:
            row.first_us = at_us if row.first_us is None else min(row.first_us, at_us)
            row.last_us = at_us if row.last_us is None else max(row.last_us, at_us)
        if cpu_us is not None:
            collected.cpu_us.append(cpu_us)
        if gpu_us is not None:
            collected.gpu_us.append(gpu_us)
            if clock:
                self.header.clocks[clock] = self.header.clocks.get(clock, 0) + 1
        if self._ordered:
            call = PatternCall(
                row.id, at_us, cpu_us, gpu_us, gpu_at_us, skew_us, stream, group, clock
            )
            self._calls.extend([call] * calls)
        return row.id

    def to_pattern(self) -> Pattern:
        rows = []
        for collected in self._rows.values():
            row = collected.row
            row.cpu_us = summarize(collected.cpu_us) if collected.cpu_us else None
            row.gpu_us = summarize(collected.gpu_us) if collected.gpu_us else None
            rows.append(row)
        return Pattern(self.header, self.comms, rows, self._calls)


@dataclass(slots=True)
class CommMembers:
    """A communicator.

    `rank_of` has the rank in it of each process that was read. `members` are the ranks of the job
    where the source lists them. `callers` are the processes that made calls on it.
    """

    ranks: int = 0
    name: str = ""
    hosts: int = 0
    members: Sequence[int] = ()
    rank_of: dict[Hashable, int] = field(default_factory=dict)
    callers: set[Hashable] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class AlgorithmChoice:
    """What NCCL chose for a call."""

    algorithm: str | None
    protocol: str | None
    channels: int | None = None
    predicted_us: float | None = None


@dataclass(slots=True)
class EqualCalls:
    """Equal calls of one process."""

    call: ObservedCall
    calls: int = 0
    first_us: float | None = None
    last_us: float | None = None
    cpu_us: list[float] = field(default_factory=list)
    gpu_us: list[float] = field(default_factory=list)


class Collector:
    """Collects ranks, communicators and calls from the readers.

    A process makes calls in one order, which is usually that of a rank; any key can name it.
    """

    def __init__(self, source: str, limit: int = ORDER_LIMIT) -> None:
        self.header = Header(source=source)
        self.groups: dict[Hashable, CommMembers] = {}
        self._limit = limit
        self.ordered = True
        self.ranks: dict[Hashable, int | None] = {}
        self.hosts: dict[Hashable, str] = {}  # by process
        self.queues: dict[Hashable, list[ObservedCall]] = {}
        self.counts: dict[Hashable, dict[Hashable, EqualCalls]] = {}
        self.choices: dict[Hashable, AlgorithmChoice | None] = {}
        self.omitted: Counter[tuple[str, Hashable]] = Counter()
        self.lost_calls: dict[tuple[Hashable, Hashable], int] = {}
        # Communicators whose calls have numbers that differ between ranks.
        self.unnumbered: set[Hashable] = set()
        self.gpu_times = GpuTimes()
        self.steps = ServedSteps()
        self._kept = 0
        self.call_count = 0

    def add_problem(self, where: str) -> None:
        """Count something that cannot be read; the first few are named."""
        self.header.skipped += 1
        if self.header.skipped <= MAX_NOTES:
            self.add_note(where)

    def add_note(self, text: str) -> None:
        if text not in self.header.notes:
            self.header.notes.append(text)

    def count_omitted(self, process: Hashable, function: str) -> None:
        """Count a call of a process that is known, but moves no data of the application."""
        self.omitted[function, process] += 1

    def add_lost(self, comm: Hashable, process: Hashable, calls: int) -> None:
        """State how many calls of a process on a communicator lack a record; the largest counts."""
        self.lost_calls[comm, process] = max(calls, self.lost_calls.get((comm, process), 0))

    def add_host(self, name: str, process: Hashable) -> None:
        """Add the host of a process; '' is unknown."""
        if name and name not in self.header.hosts:
            self.header.hosts.append(name)
        self.hosts[process] = name

    def add_process(self, process: Hashable, rank: int | None = None) -> None:
        """Add a process, and its rank in the job where that is known."""
        if _is_rank(rank) or process not in self.ranks:
            self.ranks[process] = rank if _is_rank(rank) else None

    def add_comm(
        self,
        comm: Hashable,
        ranks: int = 0,
        name: str = "",
        hosts: int = 0,
        members: Sequence[int] = (),
        process: Hashable = None,
        rank: int | None = None,
    ) -> CommMembers:
        """Add what is known of a communicator; `rank` is that of `process` in it."""
        group = self.groups.setdefault(comm, CommMembers())
        if 0 < ranks <= MAX_RANKS:
            group.ranks = ranks
        if 0 < hosts <= MAX_RANKS:
            group.hosts = hosts
        group.name = name or group.name
        if members and all(map(_is_rank, members)):
            group.members = members
        if _is_rank(rank):
            self.add_process(process)
            group.rank_of[process] = rank
        return group

    def add_choice(self, call: ObservedCall, choice: AlgorithmChoice) -> None:
        """Add what NCCL chose for calls like this one; where it chose several, none is stated."""
        name = (call.comm, call.function, call.bytes)
        self.choices[name] = choice if self.choices.get(name, choice) == choice else None

    def drop_order(self) -> None:
        """Count the calls that were kept and all later ones, without their order."""
        self.ordered = False
        for process, queue in self.queues.items():
            for call in queue:
                self._count(process, call, 1)
        self.queues = {}

    def add_call(self, process: Hashable, call: ObservedCall, calls: int = 1) -> None:
        """Add a call of a process, or several that are alike; several have no order."""
        _clear_impossible(call)
        if not all(map(_is_plausible, (calls, call.bytes, call.count, call.channels))):
            self.add_problem(f"{call.function} of {call.bytes} bytes: a figure out of range")
            return
        self.add_process(process)
        self.add_comm(call.comm).callers.add(process)
        self.call_count += calls
        if self.ordered:
            self.queues.setdefault(process, []).append(call)
            self._kept += 1
            if self._kept > self._limit:
                self.add_note(
                    f"more than {self._limit} calls: they are counted, their order is not kept"
                )
                self.drop_order()
        else:
            self._count(process, call, calls)

    def _count(self, process: Hashable, call: ObservedCall, calls: int) -> None:
        arguments = (call.comm, *(getattr(call, field) for field in ARGUMENTS))
        process_counts = self.counts.setdefault(process, {})
        counts = process_counts.get(arguments)
        if counts is None:
            counts = process_counts[arguments] = EqualCalls(call)
        counts.calls += calls
        at_us = call.at_us
        if at_us is not None:
            counts.first_us = at_us if counts.first_us is None else min(counts.first_us, at_us)
            counts.last_us = at_us if counts.last_us is None else max(counts.last_us, at_us)
        if call.cpu_us is not None:
            counts.cpu_us.append(call.cpu_us)
        if call.gpu_us is not None:
            counts.gpu_us.append(call.gpu_us)


def _clear_impossible(call: ObservedCall) -> None:
    """Set times of the call that are negative, infinite or not a number to None, and ranks that
    are none: PyTorch writes -1 for any.
    """
    for name in ("at_us", "cpu_us", "gpu_us", "predicted_us"):
        time = getattr(call, name)
        least = -MAX_FIGURE if name == "at_us" else 0
        if time is not None and not least <= time < MAX_FIGURE:
            setattr(call, name, None)
    for name in ("root", "peer"):
        if not _is_rank(getattr(call, name)):
            setattr(call, name, None)


def _is_plausible(figure: object) -> bool:
    """Whether a size or a number can be true, or is not stated."""
    return figure is None or (type(figure) is int and 0 <= figure < MAX_FIGURE)  # no bool


def _is_rank(rank: object) -> TypeGuard[int]:
    """Whether the rank is stated, and can be one."""
    return type(rank) is int and 0 <= rank < MAX_RANKS
