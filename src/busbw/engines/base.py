"""What an engine is: the only thing that runs collectives. And the control channel that joins its ranks.

A process drives one or several ranks (several GPUs under one MPI process, or all of `sim`); every method acts on all of them.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from busbw.core.collectives import Collective
from busbw.core.dtypes import DType
from busbw.core.layouts import InPlace, Layout
from busbw.core.probe import Probe
from busbw.core.redops import RedOp
from busbw.core.result import Device, Library

Launch = Callable[[], object]


def in_turn(launches: Sequence[Launch]) -> Launch:
    """A thunk that calls all, one after the other."""
    every = tuple(launches)

    def run() -> None:
        for launch in every:
            launch()

    return run


class Control(Protocol):
    """The channel between the processes of a job, outside what is measured. Every method is collective but `abort`."""

    @property
    def rank(self) -> int:
        """This process' number."""

    @property
    def size(self) -> int:
        """Number of processes."""

    def bcast(self, value: Any) -> Any:
        """Process 0's value, on all."""

    def gather(self, value: Any) -> list[Any] | None:
        """All values in order of process, on process 0; None elsewhere."""

    def allgather(self, value: Any) -> list[Any]:
        """All values in order of process, on all."""

    def barrier(self) -> None:
        """Returns once all processes have called it."""

    def reduce_all(self, values: list[float], how: str) -> list[float]:
        """Element by element `sum`, `min` or `max` over processes, on all."""

    def split(self, color: int) -> "Control":
        """The channel of the processes that gave the same colour."""

    def abort(self, code: int, reason: str) -> None:
        """End the whole job on every host with this exit code; does not return."""

    def close(self) -> None:
        """Leave in order."""


@dataclass(frozen=True, slots=True)
class Call:
    """One collective call as an engine runs it; counts are elements, `shift_bytes` moves both buffers (rotation and -u)."""

    collective: Collective
    dtype: DType
    op: RedOp | None
    layout: Layout
    send: int  # elements of the send buffer in use
    recv: int  # elements of the receive buffer in use
    in_place: bool
    shift_bytes: int = 0

    @property
    def root(self) -> int:
        """The root rank (0 where there is none)."""
        return max(self.layout.root, 0)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a call's data lies on one rank: which allocated buffer is sent from, and byte offsets; data is received in "recv"."""

    send_buffer: str
    send_offset: int
    recv_offset: int


def placement(call: Call, rank: int) -> Placement:
    """The addresses nccl-tests uses: in place, everything lies in the receive buffer."""
    shift = call.shift_bytes
    if not call.in_place:
        return Placement("send", shift, shift)
    part = shift + rank * call.layout.count * call.dtype.itemsize
    how = call.collective.in_place
    return Placement("recv", part if how is InPlace.SEND_IN_RECV else shift, part if how is InPlace.RECV_IN_SEND else shift)


@dataclass(frozen=True, slots=True)
class Region:
    """`length` elements from `offset` (elements) of a buffer, with what they must hold: see Probe."""

    offset: int
    length: int
    kind: str  # "sent": rank's own input from first; "reduced": the reduction from first; "untouched": the sentinel
    rank: int = 0  # whose input, for "sent"
    first: int = 0  # index in that rank's send buffer of the region's first element


@dataclass(frozen=True, slots=True)
class Wrong:
    """What a check saw: wrong elements, and the first of them (offset in elements of the checked buffer)."""

    count: int
    offset: int = 0
    expected: bytes = b""
    got: bytes = b""


class Memory(Protocol):
    """Buffer access of one local rank for verification. `buffer` is "send" or "recv" as the call sees them (in-place included)."""

    def write(self, call: Call, buffer: str, regions: Sequence[Region], probe: Probe) -> None:
        """Write each region's values."""

    def check(self, call: Call, buffer: str, regions: Sequence[Region], probe: Probe) -> Wrong:
        """Compare each region bit for bit (or within probe.tolerance units); the first wrong element wins over later regions."""


class Engine(Protocol):
    """One way to run collectives. Opened on a Control; `ranks` are the local ranks in the communicator, in order."""

    name: str
    ranks: Sequence[int]
    size: int  # ranks of the communicator
    queued: bool  # a launch returns before its work is done: marks, not the host's clock, time it

    def clock(self) -> float:
        """Seconds of the clock that times this engine (the host's; virtual in `sim`)."""

    def devices(self) -> list[Device]:
        """One per local rank; ranks are those of the whole job, not of a split group."""

    def library(self) -> Library:
        """Versions of what moves the data."""

    def memory_bytes(self) -> int | None:
        """Total memory of the smallest local device, None when the sweep need not be capped."""

    def memory_use(self) -> dict[str, int]:
        """Bytes of GPU memory that went to `init`, `user` buffers, `collective` and in `total`; empty without a GPU."""

    def unsupported(self, collective: Collective, dtype: DType, op: RedOp | None) -> str | None:
        """Why this engine cannot run the combination, or None when it can."""

    def allocate(self, send_bytes: int, recv_bytes: int) -> None:
        """Make both buffers on every local rank; called once."""

    def memories(self) -> Sequence[Memory]:
        """Buffer access, one per local rank."""

    def bind(self, call: Call) -> Launch:
        """A thunk that enqueues the call on all local ranks (a CPU engine completes it)."""

    def grouped(self, launches: Sequence[Launch]) -> Launch:
        """A thunk that enqueues all launches as one aggregated group where the library has one."""

    def synchronize(self, limit_s: float) -> None:
        """Wait for everything enqueued; NoMeasurement when it takes longer than limit_s (0: no limit) or the library reports an error."""

    def capture(self, launches: Sequence[Launch]) -> Launch:
        """A thunk that replays the launches as one CUDA graph; NoMeasurement where there are none."""

    def held(self) -> AbstractContextManager[None]:
        """Launches inside begin only when it is left (`queued` engines alone); inside nothing may wait for them."""

    def fence(self) -> Launch:
        """A thunk for a tiny collective that no rank leaves before all have come (`queued` engines alone)."""

    def mark(self, index: int) -> None:
        """Note a point in time on every local rank's stream (CPU: the clock)."""

    def elapsed_s(self, first: int, last: int) -> list[float]:
        """Seconds between two marks, per local rank; after `synchronize`."""

    def explained(self, error: Exception) -> Exception:
        """An error of the library underneath as NoMeasurement; any other as it is."""

    def close(self, *, abort: bool = False) -> None:
        """Free everything; `abort` skips what would wait for peers."""
