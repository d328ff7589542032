"""From a pattern to the operations that replay it, the same on all ranks.

Sends and receives on one communicator become exchanges: all of them from the first until every send has its receive. In a pattern without
an order every row is repeated, and its time counts once for each recorded call.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from busbw.core.collectives import BY_NAME as COLLECTIVES
from busbw.core.dtypes import DTYPES, DType
from busbw.core.dtypes import dtype as dtype_row
from busbw.core.layouts import Layout, matrix_totals
from busbw.core.pattern import RECV, SEND, Call, Comm, Pattern, PatternRow
from busbw.core.redops import redop
from busbw.engines import base

EXCHANGE = "alltoallv"  # what runs sends and receives in every engine
BYTES = dtype_row("uint8")
UNORDERED_WARM_UP, UNORDERED_CALLS = 3, 20


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of all members of a communicator. `rows` are those whose call it is, of an exchange those of its sends.

    `after` are communicators whose earlier operations had ended before it began. An operation that is not `counted` warms up.
    """

    comm: int
    call: base.Call
    rows: tuple[int, ...]
    after: tuple[int, ...] = ()
    counted: bool = True


@dataclass(slots=True)
class _Pending:
    """Sends and receives that wait for each other: bytes by sender and receiver, and the rows of the sends."""

    sends: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    recvs: dict[tuple[int, int], int] = field(default_factory=dict)
    rows: list[int] = field(default_factory=list)

    @property
    def matched(self) -> bool:
        """Whether every send has its receive."""
        return {pair: len(sizes) for pair, sizes in self.sends.items()} == self.recvs


class ReplayPlan:
    """The operations of a pattern. `skipped` counts calls that cannot be replayed, by reason."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.skipped: dict[str, int] = {}
        self._calls: dict[tuple[int, int], base.Call] = {}
        self.operations = list(self._ordered() if pattern.ordered else self._repeated())

    def buffer_bytes(self, comm: int) -> int:
        """The larger buffer of all operations on a communicator."""
        sizes = [max(one.call.send, one.call.recv) * one.call.dtype.itemsize for one in self.operations if one.comm == comm]
        return max(sizes, default=0)

    def _skip(self, reason: str, calls: int) -> None:
        self.skipped[reason] = self.skipped.get(reason, 0) + calls

    def _ordered(self) -> Iterator[Operation]:
        pending: dict[int, _Pending] = {}
        ends = _Ends()
        for call in self.pattern.calls:
            row = self.pattern.rows[call.row]
            comm = self.pattern.comm(row)
            if row.function in (SEND, RECV):
                done = self._exchange(pending.setdefault(comm.id, _Pending()), row, comm)
                if done is not None:
                    yield Operation(comm.id, done, tuple(pending.pop(comm.id).rows), ends.before(call, comm.id))
            else:
                bound = self._collective(row, comm, 1)
                if bound is not None:
                    yield Operation(comm.id, bound, (row.id,), ends.before(call, comm.id))
            ends.add(call, comm.id)
        for left in pending.values():
            self._skip("a send or receive without its counterpart", sum(map(len, left.sends.values())) + sum(left.recvs.values()))

    def _repeated(self) -> Iterator[Operation]:
        for row in self.pattern.rows:
            comm = self.pattern.comm(row)
            bound = None
            if row.function == SEND and row.rank is not None and row.peer is not None:
                bound = exchange({(row.rank, row.peer): row.bytes}, comm.ranks)
            elif row.function == RECV:
                continue  # its send moves the data
            else:
                bound = self._collective(row, comm, row.calls)
            if bound is not None:
                for number in range(UNORDERED_WARM_UP + UNORDERED_CALLS):
                    yield Operation(comm.id, bound, (row.id,), tuple(other.id for other in self.pattern.comms), number >= UNORDERED_WARM_UP)

    def _collective(self, row: PatternRow, comm: Comm, calls: int) -> base.Call | None:
        key = (row.id, comm.id)
        if key not in self._calls:
            bound = _bound(row, comm)
            if bound is None:
                self._skip(f"{row.function} of unknown size or parts", calls)
                return None
            self._calls[key] = bound
        return self._calls[key]

    def _exchange(self, waiting: _Pending, row: PatternRow, comm: Comm) -> base.Call | None:
        """Add a send or receive; the exchange if it completes one."""
        if row.rank is None or row.peer is None:
            self._skip(f"{row.function} of an unknown rank or peer", 1)
            return None
        if row.function == SEND:
            waiting.sends.setdefault((row.rank, row.peer), []).append(row.bytes)
            waiting.rows.append(row.id)
        else:
            pair = (row.peer, row.rank)
            waiting.recvs[pair] = waiting.recvs.get(pair, 0) + 1
        if not waiting.matched:
            return None
        return exchange({pair: sum(sizes) for pair, sizes in waiting.sends.items()}, comm.ranks)


class _Ends:
    """When the last operation of each communicator ended, to find what an operation did not overlap with."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[float | None, int | None]] = {}

    def add(self, call: Call, comm: int) -> None:
        """Note an operation."""
        end = call.gpu_at_us + call.gpu_us if call.gpu_at_us is not None and call.gpu_us is not None else None
        self._last[comm] = end, call.stream

    def before(self, call: Call, comm: int) -> tuple[int, ...]:
        """The communicators whose last operation had ended: by the GPU's clock, else those of the same or an unknown stream."""
        return tuple(other for other, (end, stream) in self._last.items() if other != comm and _ended(call, end, stream))


def _ended(call: Call, end: float | None, stream: int | None) -> bool:
    if end is not None and call.gpu_at_us is not None:
        return end <= call.gpu_at_us
    return call.stream is None or stream is None or call.stream == stream


def _bound(row: PatternRow, comm: Comm) -> base.Call | None:
    """The call of a collective's row; None if its size is not known or it is uneven."""
    collective = COLLECTIVES[row.function]
    kind, op = _type(row), redop(row.op or "sum") if collective.reduces else None
    count = row.count if row.dtype else row.bytes // (collective.algbw_units(comm.ranks) * kind.itemsize)
    if collective.uneven or count is None or (collective.ranks_power_of_two and comm.ranks & (comm.ranks - 1)):
        return None
    unit = collective.buffers(comm.ranks * 16, comm.ranks, 1)  # of 16 bytes a rank, which no rule rounds
    sizes = (count * unit.send // unit.count, count * unit.recv // unit.count)
    return base.Call(collective, kind, op, Layout(count, comm.ranks, _root(row, comm)), *sizes, in_place=False)


def _type(row: PatternRow) -> DType:
    return next((kind for kind in DTYPES if kind.name == row.dtype), BYTES)


def _root(row: PatternRow, comm: Comm) -> int:
    """The root among the members in ascending order, which is the order in which a replay numbers them."""
    root = row.root or 0
    return sorted(comm.members).index(comm.members[root]) if root < len(comm.members) else root


def exchange(moved: dict[tuple[int, int], int], ranks: int) -> base.Call:
    """One exchange of these bytes by sender and receiver."""
    matrix = tuple(tuple(moved.get((one, other), 0) for other in range(ranks)) for one in range(ranks))
    send, recv = matrix_totals(matrix)
    return base.Call(COLLECTIVES[EXCHANGE], BYTES, None, Layout(0, ranks, 0, matrix), send, recv, in_place=False)


def warm_up(operations: Sequence[Operation]) -> list[Operation]:
    """One operation of each kind, to be run before an ordered pattern: connections are made by the first of a kind."""
    firsts = {(one.comm, id(one.call)): one for one in reversed(operations)}
    return list(firsts.values())
