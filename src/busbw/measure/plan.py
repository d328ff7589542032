"""From a spec to calls: the memory cap, the buffers, and each size's CollectiveCall."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from busbw.core import layouts
from busbw.core.collectives import Collective
from busbw.core.dtypes import DType
from busbw.core.dtypes import dtype as dtype_row
from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.layouts import Layout
from busbw.core.redops import RedOp, redop
from busbw.core.result import Cell
from busbw.core.sweep import Series, SweepSpec, dtypes
from busbw.engines.base import CollectiveCall

if TYPE_CHECKING:
    from busbw.measure.alltoallv import Matrices, Matrix

GIB = 1 << 30
ALIGNED_BYTES = 16  # of a rank's part: core.layouts.aligned_share
LARGEST_UNALIGN_BYTES = 8  # the widest element: how far -u can shift by one element


def memory_cap(spec: SweepSpec, memory_bytes: int) -> int:
    """The largest size that fits into memory, by the rule of nccl-tests.

    1/16 of the memory (1 to 4 GiB) and another GiB are reserved; 2 or 3 buffers share the rest.
    """
    reserve = min(-(-memory_bytes // (16 * GIB)), 4) * GIB
    usable = memory_bytes - reserve - GIB
    if usable <= 0:  # small machines: half of what there is
        usable = memory_bytes // 2
    return usable // (3 if spec.check else 2)


def capped_max(spec: SweepSpec, memory_bytes: int | None) -> int:
    """The largest size that will be measured."""
    if memory_bytes is None:
        return spec.max_bytes
    return min(spec.max_bytes, memory_cap(spec, memory_bytes))


def buffer_bytes(spec: SweepSpec, max_bytes: int) -> int:
    """Bytes of each of the two buffers."""
    return max_bytes + LARGEST_UNALIGN_BYTES * spec.unalign


def refuse_empty(spec: SweepSpec, max_bytes: int, ranks: int) -> None:
    """UsageError if even the largest size holds no element for each rank.

    Every row would then move 0 bytes.
    """
    if spec.row.uneven:
        return
    sizes = [row.itemsize for row in dtypes(spec)]
    if any(spec.row.buffers(max_bytes // item, ranks, item).count for item in sizes):
        return
    item = min(sizes)
    enough = item
    if not spec.row.buffers(1, ranks, item).count:
        enough = max(item, ALIGNED_BYTES) * ranks
    raise UsageError(
        f"--maxbytes {max_bytes}: {spec.collective} over {ranks} ranks needs {enough} B or more",
        f"give -e {enough}",
    )


@dataclass(frozen=True, slots=True)
class BandwidthFactors:
    """What turns a call's time into bandwidths: the bytes that algbw divides by the time, and
    the bus factor.
    """

    bytes: float
    bus_factor: float

    def cell(self, time_s: float) -> Cell:
        """A cell with this time in seconds."""
        algbw = self.bytes / time_s
        return Cell(time_s, algbw, algbw * self.bus_factor)


class Calls:
    """Makes the calls of one series: type, operator and root are fixed, the size varies."""

    def __init__(self, spec: SweepSpec, series: Series, ranks: int) -> None:
        self.spec, self.series, self.ranks = spec, series, ranks
        self.collective = spec.row
        self.dtype: DType = dtype_row(series.dtype)
        self.op: RedOp | None = redop(series.op) if series.op else None
        self.reduction = self.op if self.collective.reduces else None
        self._matrix_by_size: dict[int, Matrix] = {}

    def at(self, size: int, *, in_place: bool, shift_bytes: int = 0) -> CollectiveCall:
        """The call whose largest buffer has `size` bytes; buffers begin `shift_bytes` later."""
        elements_asked = size // self.dtype.itemsize
        buffers = self.collective.buffers(elements_asked, self.ranks, self.dtype.itemsize)
        matrix: tuple[tuple[int, ...], ...] = ()
        send, recv = buffers.send, buffers.recv
        if self.collective.uneven:
            from busbw.measure.alltoallv import elements

            whole_bytes = elements_asked * self.dtype.itemsize
            matrix = elements(self.matrix_bytes(whole_bytes), self.dtype.itemsize)
            # one call serves all of a process' ranks, whose own totals may be smaller
            send, recv = layouts.matrix_totals(matrix)
        layout = Layout(buffers.count, self.ranks, self.series.root, matrix)
        shift = shift_bytes + self.spec.unalign * self.dtype.itemsize
        return CollectiveCall(
            self.collective, self.dtype, self.reduction, layout, send, recv, in_place, shift
        )

    def matrix_bytes(self, size: int) -> "Matrix":
        """alltoallv's bytes for each pair of ranks, the same for a size throughout the series."""
        if size not in self._matrix_by_size:
            item = self.dtype.itemsize
            buffers = self.collective.buffers(size // item, self.ranks, item)
            self._matrix_by_size[size] = self.matrices.at(size, buffers.send * item)
        return self._matrix_by_size[size]

    @cached_property
    def matrices(self) -> "Matrices":
        """Where alltoallv's bytes come from."""
        from busbw.measure.alltoallv import Matrices

        return Matrices(self.spec, self.ranks)

    def moved_bytes(self, call: CollectiveCall) -> tuple[int, int, float]:
        """(size column, count column, bytes that algbw divides by the time)."""
        item = self.dtype.itemsize
        if self.collective.uneven:
            largest = max(layouts.matrix_totals(call.layout.matrix)) * item
            return largest, 0 if self.matrices.from_file else call.layout.count, largest
        return (
            max(call.send, call.recv) * item,
            call.layout.count,
            call.layout.count * self.collective.algbw_multiple(self.ranks) * item,
        )

    def rates(self, call: CollectiveCall) -> BandwidthFactors:
        return BandwidthFactors(
            self.moved_bytes(call)[2], float(self.collective.bus_factor(self.ranks))
        )


def require_power_of_two(row: Collective, ranks: int) -> None:
    """UsageError if the collective does not run on so many ranks: a hypercube of 3 never ends."""
    if row.ranks_power_of_two and ranks & (ranks - 1):
        fewer = 1 << (ranks.bit_length() - 1)
        raise UsageError(
            f"{row.name} on {ranks} ranks: their number is not a power of two",
            f"-np {fewer}, or -np {2 * fewer}",
        )


def refuse_unsupported(reason: str | None, calls: Calls) -> None:
    """NoMeasurement when the engine cannot run the one type and operator that was asked for."""
    if reason:
        raise NoMeasurement(
            f"{calls.collective.name} of {calls.dtype.name} {calls.series.op}: {reason}".replace(
                "  ", " "
            ),
            "choose another --datatype, --op or --engine",
            options=["engine"],
        )
