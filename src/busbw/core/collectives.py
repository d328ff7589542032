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
from busbw.core.errors import UsageError, unknown
from busbw.core.layouts import BufferCounts, InPlace, Layout, Move

BusFactor = Callable[[int], Fraction]
# The same bus factors as text.
_DOUBLE_RING, _ALL_BUT_OWN, _ONE = "2(n-1)/n", "(n-1)/n", "1"
_FOUR = 4  # ranks, of which an exchange between neighbors does not reach all


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective operation."""

    name: str
    title: str  # NCCL's and nccl-tests' spelling in titles
    torch_name: str  # in PyTorch's benchmark
    # (count, ranks, itemsize) to the element counts of both buffers
    buffers: Callable[[int, int, int], BufferCounts]
    # (layout, rank) to the expected receive buffer: which elements of which ranks are where
    moves: Callable[[Layout, int], tuple[Move, ...]]
    # for n ranks: times count and itemsize, the bytes that algbw divides by the time
    algbw_multiple: Callable[[int], int]
    bus_factor: BusFactor  # busbw / algbw for n ranks, exact
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
        """Whether no rank ends before all start: the last to start has the shortest time."""
        if self.uneven:  # a rank may get nothing of another one
            return False
        layout = Layout(count=_FOUR, ranks=_FOUR, root=0)
        return all(_sources(self.moves(layout, rank)) == _FOUR for rank in range(_FOUR))


def _sources(moves: tuple[Move, ...]) -> int:
    """The number of ranks whose data they move."""
    return len({rank for move in moves for rank, _ in move.sources})


def _double_ring(n: int) -> Fraction:
    return Fraction(2 * (n - 1), n)


def _all_but_own(n: int) -> Fraction:
    return Fraction(n - 1, n)


def _one(_n: int) -> Fraction:
    return Fraction(1)


COLLECTIVES: tuple[Collective, ...] = (
    Collective(
        name="all_reduce",
        title="AllReduce",
        torch_name="allreduce",
        buffers=layouts.whole,
        moves=layouts.reduce_to_all,
        algbw_multiple=lambda n: 1,
        bus_factor=_double_ring,
        formula=_DOUBLE_RING,
        in_place=InPlace.SAME,
        reduces=True,
        aliases=("allr",),  # AWS Neuron's nccom-test
    ),
    Collective(
        name="all_gather",
        title="AllGather",
        torch_name="allgather",
        buffers=layouts.gathered,
        moves=layouts.gather_to_all,
        algbw_multiple=lambda n: n,
        bus_factor=_all_but_own,
        formula=_ALL_BUT_OWN,
        in_place=InPlace.SEND_IN_RECV,
        aliases=("allg",),  # AWS Neuron's nccom-test
    ),
    Collective(
        name="reduce_scatter",
        title="ReduceScatter",
        torch_name="reducescatter",
        buffers=layouts.scattered,
        moves=layouts.reduce_and_scatter,
        algbw_multiple=lambda n: n,
        bus_factor=_all_but_own,
        formula=_ALL_BUT_OWN,
        in_place=InPlace.RECV_IN_SEND,
        reduces=True,
        aliases=("redsct",),  # AWS Neuron's nccom-test
    ),
    Collective(
        name="broadcast",
        title="Broadcast",
        torch_name="broadcast",
        buffers=layouts.whole,
        moves=layouts.copy_from_root,
        algbw_multiple=lambda n: 1,
        bus_factor=_one,
        formula=_ONE,
        in_place=InPlace.SAME,
        rooted=True,
        aliases=("bcast",),
    ),
    Collective(
        name="reduce",
        title="Reduce",
        torch_name="reduce",
        buffers=layouts.whole,
        moves=layouts.reduce_to_root,
        algbw_multiple=lambda n: 1,
        bus_factor=_one,
        formula=_ONE,
        in_place=InPlace.SAME,
        rooted=True,
        reduces=True,
    ),
    Collective(
        name="alltoall",
        title="AlltoAll",
        torch_name="alltoall",
        buffers=layouts.exchanged,
        moves=layouts.transpose,
        algbw_multiple=lambda n: n,
        bus_factor=_all_but_own,
        formula=_ALL_BUT_OWN,
        in_place=InPlace.SAME,
        in_place_checked=False,
        aliases=("all_to_all",),
    ),
    Collective(
        name="alltoallv",
        title="AlltoAllv",
        torch_name="alltoallv",
        buffers=layouts.exchanged,
        moves=layouts.transpose_uneven,
        algbw_multiple=lambda n: n,
        bus_factor=_all_but_own,
        formula=_ALL_BUT_OWN,
        in_place=InPlace.SAME,
        in_place_checked=False,
        uneven=True,
        aliases=("all_to_all_v", "all_to_allv"),
    ),
    Collective(
        name="gather",
        title="Gather",
        torch_name="gather",
        buffers=layouts.gathered,
        moves=layouts.gather_to_root,
        algbw_multiple=lambda n: n,
        bus_factor=_all_but_own,
        formula=_ALL_BUT_OWN,
        in_place=InPlace.SEND_IN_RECV,
        rooted=True,
    ),
    Collective(
        name="scatter",
        title="Scatter",
        torch_name="scatter",
        buffers=layouts.scattered,
        moves=layouts.scatter_from_root,
        algbw_multiple=lambda n: n,
        bus_factor=_all_but_own,
        formula=_ALL_BUT_OWN,
        in_place=InPlace.RECV_IN_SEND,
        rooted=True,
    ),
    Collective(
        name="sendrecv",
        title="SendRecv",
        torch_name="sendrecv",
        buffers=layouts.whole,
        moves=layouts.copy_from_previous,
        algbw_multiple=lambda n: 1,
        bus_factor=_one,
        formula=_ONE,
        in_place=InPlace.SAME,
        in_place_checked=False,
        redop_column="op",
        aliases=("send_recv",),
    ),
    Collective(
        name="hypercube",
        title="HyperCube",
        torch_name="hypercube",
        buffers=layouts.gathered,
        moves=layouts.gather_to_all,
        algbw_multiple=lambda n: n - 1,
        bus_factor=_one,
        formula=_ONE,
        in_place=InPlace.SEND_IN_RECV,
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
OF_EXPERTS = ("dispatch", "combine", "moe", "dispatchcombine")


def collective(name: str) -> Collective:
    """The row for `allreduce`, `AllReduce`, `all-reduce`, `bcast`; UsageError for another name."""
    row = _BY_KEY.get(_key(name))
    if row is None and _key(name) in OF_EXPERTS:
        raise UsageError(f"{name}: what experts exchange has a command of its own", "busbw moe")
    if row is None:
        names = {spelling: row.name for spelling, row in _BY_SPELLING.items()}
        raise unknown("collective", name, names)
    return row
