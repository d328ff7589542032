"""The table of collectives: one row each, from which engines, verification, bandwidths, docs and
tests are derived.

Counts are elements. `n` is the number of ranks, `c` the requested number of elements (size //
itemsize). Sources: nccl-tests 2.19.6 (buffer sizes, bandwidth formulas), NCCL's user guide
(semantics).
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from busbw.core import layouts
from busbw.core.errors import unknown
from busbw.core.layouts import Buffers, InPlace, Layout, Move

BusFactor = Callable[[int], Fraction]


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective operation.

    `buffers(c, n, itemsize)` gives the element counts of both buffers. `algbw_units(n)` times count
    and itemsize is the bytes that algbw divides by the time. `bus_factor(n)` is busbw / algbw,
    exact. `moves(layout, rank)` is the expected result: which elements of which ranks must end up
    where in the receive buffer (layouts.Move).
    """

    name: str
    title: str  # NCCL's and nccl-tests' spelling in titles
    torch_name: str  # in PyTorch's benchmark
    buffers: Callable[[int, int, int], Buffers]
    moves: Callable[[Layout, int], tuple[Move, ...]]
    algbw_units: Callable[[int], int]
    bus_factor: BusFactor
    formula: str
    in_place: InPlace
    rooted: bool = False
    reduces: bool = False
    in_place_checked: bool = True
    redop_column: str = "none"  # what nccl-tests prints if the collective does not reduce
    ranks_power_of_two: bool = False
    uneven: bool = False  # a matrix gives the bytes of each pair of ranks
    aliases: tuple[str, ...] = ()

    @property
    def synchronizes(self) -> bool:
        """Whether no rank can end before all have started; then the rank with the shortest
        duration started last.
        """
        return not self.rooted and not self.uneven and self.name != "sendrecv"


def _double_ring(n: int) -> Fraction:
    return Fraction(2 * (n - 1), n)


def _all_but_own(n: int) -> Fraction:
    return Fraction(n - 1, n)


def _one(_n: int) -> Fraction:
    return Fraction(1)


# The formulas of the three bus factors.
_TWICE, _OTHERS, _WHOLE = "2(n-1)/n", "(n-1)/n", "1"

COLLECTIVES: tuple[Collective, ...] = (
    Collective(
        "all_reduce",
        "AllReduce",
        "allreduce",
        layouts.whole,
        layouts.reduce_to_all,
        lambda n: 1,
        _double_ring,
        _TWICE,
        InPlace.SAME,
        reduces=True,
    ),
    Collective(
        "all_gather",
        "AllGather",
        "allgather",
        layouts.gathered,
        layouts.gather_to_all,
        lambda n: n,
        _all_but_own,
        _OTHERS,
        InPlace.SEND_IN_RECV,
    ),
    Collective(
        "reduce_scatter",
        "ReduceScatter",
        "reducescatter",
        layouts.scattered,
        layouts.reduce_and_scatter,
        lambda n: n,
        _all_but_own,
        _OTHERS,
        InPlace.RECV_IN_SEND,
        reduces=True,
    ),
    Collective(
        "broadcast",
        "Broadcast",
        "broadcast",
        layouts.whole,
        layouts.copy_from_root,
        lambda n: 1,
        _one,
        _WHOLE,
        InPlace.SAME,
        rooted=True,
        aliases=("bcast",),
    ),
    Collective(
        "reduce",
        "Reduce",
        "reduce",
        layouts.whole,
        layouts.reduce_to_root,
        lambda n: 1,
        _one,
        _WHOLE,
        InPlace.SAME,
        rooted=True,
        reduces=True,
    ),
    Collective(
        "alltoall",
        "AlltoAll",
        "alltoall",
        layouts.exchanged,
        layouts.transpose,
        lambda n: n,
        _all_but_own,
        _OTHERS,
        InPlace.SAME,
        in_place_checked=False,
        aliases=("all_to_all",),
    ),
    Collective(
        "alltoallv",
        "AlltoAllv",
        "alltoallv",
        layouts.exchanged,
        layouts.transpose_uneven,
        lambda n: n,
        _all_but_own,
        _OTHERS,
        InPlace.SAME,
        in_place_checked=False,
        uneven=True,
        aliases=("all_to_all_v", "all_to_allv"),
    ),
    Collective(
        "gather",
        "Gather",
        "gather",
        layouts.gathered,
        layouts.gather_to_root,
        lambda n: n,
        _all_but_own,
        _OTHERS,
        InPlace.SEND_IN_RECV,
        rooted=True,
    ),
    Collective(
        "scatter",
        "Scatter",
        "scatter",
        layouts.scattered,
        layouts.scatter_from_root,
        lambda n: n,
        _all_but_own,
        _OTHERS,
        InPlace.RECV_IN_SEND,
        rooted=True,
    ),
    Collective(
        "sendrecv",
        "SendRecv",
        "sendrecv",
        layouts.whole,
        layouts.copy_from_previous,
        lambda n: 1,
        _one,
        _WHOLE,
        InPlace.SAME,
        in_place_checked=False,
        redop_column="op",
        aliases=("send_recv",),
    ),
    Collective(
        "hypercube",
        "HyperCube",
        "hypercube",
        layouts.gathered,
        layouts.gather_to_all,
        lambda n: n - 1,
        _one,
        _WHOLE,
        InPlace.SEND_IN_RECV,
        redop_column="",
        ranks_power_of_two=True,
    ),
)

BY_NAME: dict[str, Collective] = {row.name: row for row in COLLECTIVES}


def _key(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


_BY_SPELLING: dict[str, Collective] = {
    name: row for row in COLLECTIVES for name in (row.name, row.torch_name, *row.aliases)
}
_BY_KEY: dict[str, Collective] = {_key(name): row for name, row in _BY_SPELLING.items()}


def collective(name: str) -> Collective:
    """The row for a name such as `allreduce`, `AllReduce`, `all-reduce` or `bcast`; UsageError
    for an unknown name.
    """
    row = _BY_KEY.get(_key(name))
    if row is None:
        names = {spelling: row.name for spelling, row in _BY_SPELLING.items()}
        raise unknown("collective", name, names)
    return row
