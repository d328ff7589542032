"""The interface of an engine, which runs collectives.

A process drives one or several ranks (several GPUs under one MPI process, or all of `sim`); every
method acts on all of them.

The parameters of the data that verification sends and expects, which is exact in any order of
reduction.

Floats are integers times a power of two that all ranks share at an index, small enough that every
partial sum is an integer of at most `significand` bits, so that any order, tree or chunking of a
sum gives the same bits. `engines/host_probe.py` computes the values, and `engines/probe.cu` the
same values on a GPU.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

from busbw.core.collectives import Collective
from busbw.core.dtypes import BY_NAME, DType, decode, encode, round_to_bits
from busbw.core.errors import NoMeasurement
from busbw.core.layouts import InPlace, Layout
from busbw.core.redops import RedOp
from busbw.core.result import Device, Library
from busbw.core.tuner_table import Choice

SENTINEL_BYTE = 0xA5
LARGEST_TOTAL_BITS = 31  # so that any total can be drawn from 32 bits, and total * seats fits 64
AVERAGE_SEARCH = 15


@dataclass(frozen=True, slots=True)
class Probe:
    """The data of one check: a seed, an element type, an operator (None without reduction) and
    the number of ranks.
    """

    seed: int
    dtype: DType
    op: RedOp | None
    ranks: int

    @property
    def limit(self) -> int:
        """Largest magnitude of a float partial sum, in units."""
        return dtype_limit(self.dtype)

    @property
    def average_limit(self) -> int:
        """Largest total of avg whose mean is exact for any way to divide; 0 if there is none
        (see `tolerance`).
        """
        return _average_limit(self.dtype, self.ranks)

    @property
    def tolerance(self) -> int:
        """Allowed error in units in the last place: 0, but 2 for a float avg over a number of
        ranks by which the type cannot divide.
        """
        return (
            2
            if self.op and self.op.name == "avg" and self.dtype.is_float and self.average_limit == 0
            else 0
        )

    def text(self, bits: int) -> str:
        """A value as text."""
        if self.dtype.is_float:
            if bits == 1 << (self.dtype.bits - 1):
                return "-0.0"  # a wrong sign must be visible
            value = decode(bits, self.dtype)
            return repr(float(value)) if isinstance(value, Fraction) else value
        return str(
            bits - (1 << self.dtype.bits)
            if self.dtype.kind == "int" and bits >> (self.dtype.bits - 1)
            else bits
        )


@lru_cache(maxsize=256)
def _average_limit(dtype: DType, ranks: int) -> int:
    """Largest total A such that ranks * s is exact for every s <= A, and every common way to divide
    it gives exactly s.

    NCCL multiplies each contribution by 1/n, rounded to the type or to float, before adding; other
    libraries divide the sum.
    """
    if not dtype.is_float:
        return min(
            ((1 << (dtype.bits - (dtype.kind == "int"))) - 1) // ranks,
            (1 << LARGEST_TOTAL_BITS) - 1,
        )
    inverses = [decode(round_to_bits(Fraction(1, ranks), t), t) for t in (dtype, BY_NAME["float"])]
    safe = 0
    for s in range(1, min(dtype_limit(dtype) // ranks, AVERAGE_SEARCH) + 1):
        products = {
            round_to_bits(ranks * s * inverse, dtype)
            for inverse in inverses
            if isinstance(inverse, Fraction)
        }
        if products != {encode(s, 0, dtype)}:
            break
        safe = s
    return safe


def dtype_limit(dtype: DType) -> int:
    """Largest exact integer for sums of a float type, at most 31 bits."""
    return (1 << min(dtype.significand, LARGEST_TOTAL_BITS)) - 1


Launch = Callable[[], object]


class Steps:
    """A thunk that runs launches one after the other."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        self._launches = tuple(launches)

    def __call__(self) -> None:
        """Run them in order."""
        for launch in self._launches:
            launch()


@dataclass(frozen=True, slots=True)
class Call:
    """One collective call as an engine runs it; counts are elements, `shift_bytes` moves both
    buffers (rotation and -u).
    """

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


def placement(call: Call, rank: int, buffer: str) -> tuple[str, slice]:
    """The memory that holds "send" or "recv" of a call on a rank, and the bytes in it; in place,
    as in nccl-tests, it is "recv".
    """
    sends, size = buffer == "send", call.dtype.itemsize
    start = call.shift_bytes
    if call.in_place and call.collective.in_place is (
        InPlace.SEND_IN_RECV if sends else InPlace.RECV_IN_SEND
    ):
        start += rank * call.layout.count * size
    return "recv" if call.in_place else buffer, slice(
        start, start + (call.send if sends else call.recv) * size
    )


@dataclass(frozen=True, slots=True)
class Region:
    """`length` elements from `offset` (elements) of a buffer, and their expected values: see
    Probe.
    """

    offset: int
    length: int
    # "sent": rank's own input from first; "reduced": the reduction from first; "untouched": the
    # sentinel
    kind: str
    rank: int = 0  # whose input, for "sent"
    first: int = 0  # index in that rank's send buffer of the region's first element


@dataclass(frozen=True, slots=True)
class Wrong:
    """The result of a check: the number of wrong elements, and the first of them (offset in
    elements of the checked buffer).
    """

    count: int
    offset: int = 0
    expected: bytes = b""
    got: bytes = b""


class Memory(Protocol):
    """Buffer access of one local rank for verification.

    `buffer` is "send" or "recv" as the call sees them (in-place included).
    """

    def write(self, call: Call, buffer: str, regions: Sequence[Region], probe: Probe) -> None:
        """Write each region's values."""

    def check(self, call: Call, buffer: str, regions: Sequence[Region], probe: Probe) -> Wrong:
        """Compare each region bit for bit (or within probe.tolerance units); the first wrong
        element wins over later regions.
        """


class Tuner(Protocol):
    """Says what operations of one collective and size run with.

    All ranks must say the same before each operation.
    """

    def steer(self, collective: str, size_bytes: int, choice: Choice | None) -> None:
        """From now on these operations use `choice`; None: NCCL's own.

        Other operations are NCCL's own.
        """

    def costs(self) -> dict[Choice, float]:
        """The seconds that NCCL expects of everything it can run, since the last `steer`; empty
        if NCCL has not asked.
        """

    def nodes(self) -> int:
        """The hosts of the communicator as NCCL counts them: those that NVLink joins may be one.

        0 if it has not asked since `steer`.
        """


class Engine(Protocol):
    """Runs collectives.

    It is opened on a Control; `ranks` are the local ranks of the communicator, in order.

    Methods with a body suit an engine on CPUs, whose calls are complete when they return.
    """

    name: str
    ranks: Sequence[int]
    size: int  # ranks of the communicator
    # a launch returns before its work is done, so marks time it, not the host's clock
    asynchronous: bool

    def clock(self) -> float:
        """Seconds of the clock that times this engine (the host's; virtual in `sim`)."""
        return time.perf_counter()

    def devices(self) -> list[Device]:
        """One per local rank; ranks are those of the whole job, not of a split group."""

    def library(self) -> Library:
        """The library that moves the data, and its version."""

    def memory_bytes(self) -> int | None:
        """Total memory of the smallest local device, None when the sweep need not be capped."""

    def memory_use(self) -> dict[str, int]:
        """Bytes of GPU memory that went to `init`, `user` buffers, `collective` and in `total`;
        empty if not accounted.
        """
        return {}

    def unsupported(self, collective: Collective, dtype: DType, op: RedOp | None) -> str | None:
        """Why this engine cannot run the combination, or None when it can."""
        return None

    def allocate(self, send_bytes: int, recv_bytes: int) -> None:
        """Make both buffers on every local rank; called once."""

    def memories(self) -> Sequence[Memory]:
        """Buffer access, one per local rank."""

    def bind(self, call: Call) -> Launch:
        """A thunk that enqueues the call on all local ranks (a CPU engine completes it)."""

    def grouped(self, launches: Sequence[Launch]) -> Launch:
        """A thunk that enqueues all launches as one aggregated group where the library has one."""
        return Steps(launches)

    def synchronize(self, limit_s: float) -> None:
        """Wait for everything enqueued; NoMeasurement when it takes longer than limit_s (0: no
        limit) or the library reports an error.
        """
        return

    def capture(self, launches: Sequence[Launch]) -> Launch:
        """A thunk that replays the launches as one CUDA graph; NoMeasurement where there are
        none.
        """
        message = f"-G: the {self.name} engine has no CUDA graphs"
        raise NoMeasurement(message, "leave out -G, or use --engine nccl", options=["engine"])

    def held(self) -> AbstractContextManager[None]:
        """Launches in this context begin when it exits; nothing in it may wait for them.

        Only for `asynchronous` engines.
        """
        return nullcontext()

    def fence(self) -> Launch:
        """A thunk for a tiny collective that no rank leaves before all have entered it.

        Only for `asynchronous` engines.
        """

    def tuner(self) -> "Tuner | None":
        """What steers NCCL's choice of algorithm; None if this engine has no algorithms to choose
        from.

        NoMeasurement if busbw-native is not on this host.
        """
        return None

    def follow(self, other: "Engine") -> None:
        """Let what is enqueued from now on begin after all that `other`, of the same kind and
        process, has enqueued.
        """
        return

    def mark(self, index: int) -> None:
        """Note a point in time on every local rank's stream (CPU: the clock)."""

    def elapsed_s(self, first: int, last: int) -> list[float]:
        """Seconds between two marks, per local rank; after `synchronize`."""

    def explained(self, error: Exception) -> Exception:
        """An error of the library underneath as NoMeasurement; any other as it is."""
        return error

    def close(self, *, abort: bool = False) -> None:
        """Free everything; with `abort`, without waiting for peers."""
