"""From a pattern to the operations that replay it, the same on all ranks.

A send and its receive become an exchange, those of one group together. In a pattern without an
order every row is repeated, and its time counts once for each recorded call.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from busbw.core.collectives import BY_NAME as COLLECTIVES
from busbw.core.dtypes import DTYPES
from busbw.core.dtypes import dtype as dtype_row
from busbw.core.layouts import Layout, matrix_totals
from busbw.core.pattern import RECV, SEND, Comm, Pattern, PatternCall, PatternRow
from busbw.core.redops import redop
from busbw.engines import base

EXCHANGE = "alltoallv"  # what runs sends and receives in every engine
BYTES = dtype_row("uint8")
UNORDERED_WARM_UP, UNORDERED_CALLS = 3, 20


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of all members of a communicator.

    `rows` are the rows of the pattern that it replays: one for a collective, those of all sends for
    an exchange. `after` are communicators whose earlier operations had ended before it began. An
    operation that is not `counted` warms up.
    """

    comm: int
    call: base.CollectiveCall
    rows: tuple[int, ...]
    after: tuple[int, ...] = ()
    counted: bool = True

    def moves(self, rank: int) -> bool:
        """Whether a rank calls NCCL for it: in an exchange only one that sends or receives."""
        matrix = self.call.layout.matrix
        return not matrix or any(matrix[rank]) or any(line[rank] for line in matrix)

    @property
    def moving(self) -> list[int]:
        """The ranks of the communicator that call NCCL for it."""
        return [rank for rank in range(self.call.layout.ranks) if self.moves(rank)]

    @property
    def to_self(self) -> bool:
        """Whether a rank of an exchange sends to itself."""
        return any(line[rank] for rank, line in enumerate(self.call.layout.matrix))


@dataclass(frozen=True, slots=True)
class _PlannedMessage:
    """A send or receive: bytes, row, and the group of calls that it belongs to on its rank
    (None: unknown).
    """

    bytes: int
    row: int
    group: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class _Exchange:
    """Messages that run at once: bytes by sender and receiver, the rows of the sends, and
    `after` as in Operation.
    """

    moved: dict[tuple[int, int], int]
    rows: tuple[int, ...]
    after: tuple[int, ...]


class _SendsAndReceives:
    """Sends and receives on one communicator.

    The n-th send from one rank to another belongs to the n-th receive. Those of one group are one
    exchange, as NCCL runs them at the same time.
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, int, int], deque[_PlannedMessage]] = {}
        self._moved: dict[tuple[int, int], int] = {}
        self._rows: list[int] = []
        self._groups: set[tuple[int, int]] = set()
        self._after: tuple[int, ...] = ()

    def add(
        self, row: PatternRow, call: PatternCall, pair: tuple[int, int], after: tuple[int, ...]
    ) -> _Exchange | None:
        """Add a call between this pair of sender and receiver.

        If it begins a new exchange, the result is the one before it.
        """
        caller = pair[0] if row.function == SEND else pair[1]
        message = _PlannedMessage(
            row.bytes, row.id, None if call.group is None else (caller, call.group)
        )
        counterpart = RECV if row.function == SEND else SEND
        if not self._waiting.get((counterpart, *pair)):
            self._waiting.setdefault((row.function, *pair), deque()).append(message)
            return None
        matched = self._waiting[counterpart, *pair].popleft()
        sent = message if row.function == SEND else matched
        groups = {group for group in (message.group, matched.group) if group is not None}
        done = None
        if groups.isdisjoint(self._groups):
            done = self.take()
            self._after = after
        self._moved[pair] = self._moved.get(pair, 0) + sent.bytes
        self._rows.append(sent.row)
        self._groups |= groups
        return done

    def take(self) -> _Exchange | None:
        """The exchange so far, which ends; None if there is none."""
        if not self._rows:
            return None
        done = _Exchange(self._moved, tuple(self._rows), self._after)
        self._moved, self._rows, self._groups = {}, [], set()
        return done

    @property
    def unmatched(self) -> int:
        """The number of calls without their counterpart."""
        return sum(map(len, self._waiting.values()))


class ReplayPlan:
    """The operations of a pattern. `skipped` counts calls that cannot be replayed, by reason."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.skipped: dict[str, int] = {}
        self._calls: dict[int, base.CollectiveCall] = {}  # by row
        self._places = [_places(comm) for comm in pattern.comms]
        self._same: dict[
            tuple[int, frozenset[tuple[tuple[int, int], int]]], base.CollectiveCall
        ] = {}
        self.operations = list(self._ordered() if pattern.ordered else self._repeated())

    def buffer_bytes(self, comm: int) -> int:
        """The bytes of the larger buffer of all operations on a communicator."""
        sizes = [
            _buffer_bytes(operation) for operation in self.operations if operation.comm == comm
        ]
        return max(sizes, default=0)

    def _skip(self, reason: str, calls: int) -> None:
        self.skipped[reason] = self.skipped.get(reason, 0) + calls

    def _ordered(self) -> Iterator[Operation]:
        """The operations in the recorded order."""
        messages: dict[int, _SendsAndReceives] = {}
        ends = _Ends()
        for call in self.pattern.calls:
            row = self.pattern.rows[call.row]
            comm = self.pattern.comm(row)
            after = ends.before(call, comm.id)
            if row.function in (SEND, RECV):
                pair = self._pair(row, comm, 1)
                if pair is not None:
                    pending = messages.setdefault(comm.id, _SendsAndReceives())
                    yield from self._exchanges(comm, pending.add(row, call, pair, after))
            else:
                for number, pending in messages.items():
                    yield from self._exchanges(self.pattern.comms[number], pending.take())
                bound = self._collective(row, comm, 1)
                if bound is not None:
                    yield Operation(comm.id, bound, (row.id,), after)
            ends.add(call, comm.id)
        for number, pending in messages.items():
            yield from self._exchanges(self.pattern.comms[number], pending.take())
            if pending.unmatched:
                self._skip("a send or receive without its counterpart", pending.unmatched)

    def _exchanges(self, comm: Comm, done: _Exchange | None) -> Iterator[Operation]:
        if done is not None:
            yield Operation(comm.id, self._exchange(comm, done.moved), done.rows, done.after)

    def _repeated(self) -> Iterator[Operation]:
        """The operations of a pattern without an order: each row several times."""
        comms = tuple(comm.id for comm in self.pattern.comms)
        for row in self.pattern.rows:
            comm = self.pattern.comm(row)
            bound = None
            if row.function == SEND:
                pair = self._pair(row, comm, row.calls)
                bound = self._exchange(comm, {pair: row.bytes}) if pair else None
            elif row.function == RECV:
                continue  # its send moves the data
            else:
                bound = self._collective(row, comm, row.calls)
            if bound is not None:
                for number in range(UNORDERED_WARM_UP + UNORDERED_CALLS):
                    counted = number >= UNORDERED_WARM_UP
                    yield Operation(comm.id, bound, (row.id,), comms, counted)

    def _collective(self, row: PatternRow, comm: Comm, calls: int) -> base.CollectiveCall | None:
        if row.id not in self._calls:
            bound = _call(row, self._places[comm.id])
            if bound is None:
                self._skip(f"{row.function} of unknown size or parts", calls)
                return None
            self._calls[row.id] = bound
        return self._calls[row.id]

    def _pair(self, row: PatternRow, comm: Comm, calls: int) -> tuple[int, int] | None:
        """Sender and receiver among the members in ascending order; None if one is unknown."""
        if row.rank is None or row.peer is None or comm.ranks <= max(row.rank, row.peer):
            self._skip(f"{row.function} of an unknown rank or peer", calls)
            return None
        places = self._places[comm.id]
        rank, peer = places[row.rank], places[row.peer]
        return (rank, peer) if row.function == SEND else (peer, rank)

    def _exchange(self, comm: Comm, moved: dict[tuple[int, int], int]) -> base.CollectiveCall:
        """One exchange of these bytes by sender and receiver; equal ones are the same call."""
        key = (comm.id, frozenset(moved.items()))
        return self._same.get(key) or self._same.setdefault(key, exchange(moved, comm.ranks))


class _Ends:
    """When the last operation of each communicator ended, to find what an operation did not
    overlap with.
    """

    def __init__(self) -> None:
        self._last: dict[int, tuple[float | None, int | None]] = {}

    def add(self, call: PatternCall, comm: int) -> None:
        """Note the end of an operation."""
        end_us = None
        if call.gpu_at_us is not None and call.gpu_us is not None:
            end_us = call.gpu_at_us + call.gpu_us
        self._last[comm] = end_us, call.stream

    def before(self, call: PatternCall, comm: int) -> tuple[int, ...]:
        """The communicators whose last operation had ended: by the GPU's clock, else those of
        the same or an unknown stream.
        """
        return tuple(
            other
            for other, (end, stream) in self._last.items()
            if other != comm and _ended(call, end, stream)
        )


def _ended(call: PatternCall, end: float | None, stream: int | None) -> bool:
    if end is not None and call.gpu_at_us is not None:
        return end <= call.gpu_at_us
    return call.stream is None or stream is None or call.stream == stream


def _call(row: PatternRow, places: Sequence[int]) -> base.CollectiveCall | None:
    """The call of a collective's row; None if its size is not known or it is uneven."""
    collective, ranks = COLLECTIVES.get(row.function), len(places)
    if collective is None or collective.uneven or not ranks:
        return None
    if collective.ranks_power_of_two and ranks & (ranks - 1):
        return None
    dtype = next((kind for kind in DTYPES if kind.name == row.dtype), BYTES)
    count = row.count
    if not row.dtype:
        count = row.bytes // (collective.algbw_multiple(ranks) * dtype.itemsize)
    if not count:
        return None
    # Buffers of 16 bytes a rank, which no rule rounds, show the ratio of both sizes to the count.
    unit = collective.buffers(ranks * 16, ranks, 1)
    return base.CollectiveCall(
        collective,
        dtype,
        redop(row.op or "sum") if collective.reduces else None,
        Layout(count, ranks, places[row.root or 0]),
        count * unit.send // unit.count,
        count * unit.recv // unit.count,
        in_place=False,
    )


def _places(comm: Comm) -> Sequence[int]:
    """The place of each rank of the communicator among the members in ascending order, which is
    the order in which a replay numbers them.
    """
    if not comm.members:
        return range(comm.ranks)
    place_of = {member: place for place, member in enumerate(sorted(comm.members))}
    return [place_of[member] for member in comm.members]


def exchange(moved: dict[tuple[int, int], int], ranks: int) -> base.CollectiveCall:
    """One exchange of these bytes by sender and receiver."""

    def sent(sender: int) -> tuple[int, ...]:
        return tuple(moved.get((sender, receiver), 0) for receiver in range(ranks))

    matrix = tuple(sent(sender) for sender in range(ranks))
    send, recv = matrix_totals(matrix)
    layout = Layout(0, ranks, 0, matrix)
    return base.CollectiveCall(
        COLLECTIVES[EXCHANGE], BYTES, None, layout, send, recv, in_place=False
    )


def warm_up(operations: Sequence[Operation]) -> list[Operation]:
    """One operation of each kind, to be run before an ordered pattern: connections are made by the
    first of a kind.

    They are in the order of the communicators. Where the first operation creates the communicator,
    as in PyTorch, this is also the order of their creation.
    """
    firsts = {(operation.comm, id(operation.call)): operation for operation in reversed(operations)}
    return sorted(firsts.values(), key=lambda operation: operation.comm)


def _buffer_bytes(operation: Operation) -> int:
    call = operation.call
    return max(call.send, call.recv) * call.dtype.itemsize
