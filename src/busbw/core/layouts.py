"""The buffers of a collective: element counts, the in-place rule, and the reference result as
moves.

A move states which elements of which ranks must end up at an offset of a rank's receive buffer;
several sources are reduced. Elements without a move must stay unchanged.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

GRAIN_BYTES = 16  # nccl-tests rounds the parts of a buffer down to a multiple of this


class InPlace(Enum):
    """How the two buffers share memory in an in-place call."""

    SAME = "send == recv"
    SEND_IN_RECV = "send == recv + rank * count"
    RECV_IN_SEND = "recv == send + rank * count"


@dataclass(frozen=True, slots=True)
class BufferCounts:
    """The element counts of the send and the receive buffer, and the count argument of the call."""

    send: int
    recv: int
    count: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The parameters of one call: count argument, ranks and root.

    For alltoallv, matrix[i][j] is the number of elements from rank i to rank j.
    """

    count: int
    ranks: int
    root: int = 0
    matrix: Sequence[Sequence[int]] = field(default=())


@dataclass(frozen=True, slots=True)
class Move:
    """`length` elements at `dst` of the receive buffer come from each (rank, offset in its send
    buffer) of `sources`, reduced.
    """

    dst: int
    length: int
    sources: tuple[tuple[int, int], ...]

    @property
    def reduced(self) -> bool:
        """Whether elements of several ranks are reduced."""
        return len(self.sources) > 1


def aligned_share(c: int, n: int, itemsize: int) -> int:
    """One of `n` equal parts of `c` elements, rounded down to a multiple of GRAIN_BYTES."""
    return c // n & -(GRAIN_BYTES // itemsize)


def whole(c: int, n: int, itemsize: int) -> BufferCounts:
    """Both buffers hold all `c` elements."""
    return BufferCounts(c, c, c)


def gathered(c: int, n: int, itemsize: int) -> BufferCounts:
    """A part is sent, `n` parts are received."""
    base = aligned_share(c, n, itemsize)
    return BufferCounts(base, base * n, base)


def scattered(c: int, n: int, itemsize: int) -> BufferCounts:
    """`n` parts are sent, one is received."""
    base = aligned_share(c, n, itemsize)
    return BufferCounts(base * n, base, base)


def exchanged(c: int, n: int, itemsize: int) -> BufferCounts:
    """`n` parts are sent and `n` received.

    For alltoallv the matrix gives the true totals: see `matrix_totals`.
    """
    base = aligned_share(c, n, itemsize)
    return BufferCounts(base * n, base * n, base)


def reduce_to_all(call: Layout, rank: int) -> tuple[Move, ...]:
    """Every rank holds the reduction of all."""
    return (Move(0, call.count, tuple((r, 0) for r in range(call.ranks))),)


def reduce_to_root(call: Layout, rank: int) -> tuple[Move, ...]:
    """The root holds the reduction of all; the receive buffers of other ranks stay unchanged."""
    return reduce_to_all(call, rank) if rank == call.root else ()


def reduce_and_scatter(call: Layout, rank: int) -> tuple[Move, ...]:
    """Rank r holds the reduction of part r."""
    return (Move(0, call.count, tuple((r, rank * call.count) for r in range(call.ranks))),)


def gather_to_all(call: Layout, rank: int) -> tuple[Move, ...]:
    """Every rank holds the parts of all, in order of rank."""
    return tuple(Move(r * call.count, call.count, ((r, 0),)) for r in range(call.ranks))


def gather_to_root(call: Layout, rank: int) -> tuple[Move, ...]:
    """The root holds the parts of all."""
    return gather_to_all(call, rank) if rank == call.root else ()


def copy_from_root(call: Layout, rank: int) -> tuple[Move, ...]:
    """Every rank holds what the root sent."""
    return (Move(0, call.count, ((call.root, 0),)),)


def scatter_from_root(call: Layout, rank: int) -> tuple[Move, ...]:
    """Rank r holds part r of the root's buffer."""
    return (Move(0, call.count, ((call.root, rank * call.count),)),)


def transpose(call: Layout, rank: int) -> tuple[Move, ...]:
    """Part j of rank i lands as part i of rank j."""
    return tuple(
        Move(r * call.count, call.count, ((r, rank * call.count),)) for r in range(call.ranks)
    )


def transpose_uneven(call: Layout, rank: int) -> tuple[Move, ...]:
    """As alltoall, with the matrix's own count for each pair; parts are contiguous, in order of
    rank.
    """
    moves, dst = [], 0
    for r in range(call.ranks):
        length = call.matrix[r][rank]
        moves.append(Move(dst, length, ((r, sum(call.matrix[r][:rank])),)))
        dst += length
    return tuple(moves)


def copy_from_previous(call: Layout, rank: int) -> tuple[Move, ...]:
    """A ring: every rank holds what the previous rank sent."""
    return (Move(0, call.count, (((rank - 1) % call.ranks, 0),)),)


def matrix_totals(matrix: Sequence[Sequence[int]]) -> tuple[int, int]:
    """The largest number of elements that a rank sends, and that a rank receives."""
    return max(map(sum, matrix)), max(map(sum, zip(*matrix, strict=True)))
