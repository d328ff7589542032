"""The interface of an engine, which runs collectives, and the probe with which it is verified.

A process drives one or several ranks (several GPUs under one MPI process, or all of `sim`). Every
method of an engine acts on all of them.

A Probe describes the data that verification sends and expects, which is exact in any order of
reduction. Floats are integers times a power of two that all ranks share at an index. They are small
enough that every partial sum is an integer of at most `significand` bits, so that any order, tree
or chunking of a sum gives the same bits. `engines/host_probe.py` computes the values, and
`engines/probe.cu` the same values on a GPU.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from busbw.core.collectives import Collective
from busbw.core.dtypes import BY_NAME, DType, decode, encode, round_to_bits
from busbw.core.errors import NoMeasurement
from busbw.core.layouts import InPlace, Layout
from busbw.core.ran import NcclKernel
from busbw.core.redops import RedOp
from busbw.core.result import EngineLibrary, RankDevice

if TYPE_CHECKING:
    from busbw.core.tuning import TuningChoice
    from busbw.engines.program import Loop

SENTINEL_BYTE = 0xA5
LARGEST_TOTAL_BITS = 31  # so that any total can be drawn from 32 bits, and total * seats fits 64
AVERAGE_SEARCH = 15


@dataclass(frozen=True, slots=True)
class Probe:
    """The data of one check.

    It follows from a seed, an element type, an operator (None without reduction) and the number of
    ranks.
    """

    seed: int
    dtype: DType
    op: RedOp | None
    ranks: int

    @property
    def limit(self) -> int:
        """The largest magnitude of a partial sum of floats, in units."""
        return dtype_limit(self.dtype)

    @property
    def average_limit(self) -> int:
        """The largest total of avg whose mean is exact for any way to divide.

        0 if there is none (see `tolerance`).
        """
        return _average_limit(self.dtype, self.ranks)

    @property
    def tolerance(self) -> int:
        """The allowed error in units in the last place.

        It is 0, except 2 for avg of floats over a number of ranks by which the type cannot divide.
        """
        float_avg = self.op is not None and self.op.name == "avg" and self.dtype.is_float
        return 2 if float_avg and self.average_limit == 0 else 0

    def text(self, bits: int) -> str:
        """The value of a bit pattern as text."""
        if self.dtype.is_float:
            if bits == 1 << (self.dtype.bits - 1):
                return "-0.0"  # a wrong sign must be visible
            value = decode(bits, self.dtype)
            return repr(float(value)) if isinstance(value, Fraction) else value
        is_negative = self.dtype.kind == "int" and bits >> (self.dtype.bits - 1)
        return str(bits - (1 << self.dtype.bits) if is_negative else bits)


@lru_cache(maxsize=256)
def _average_limit(dtype: DType, ranks: int) -> int:
    """The largest total A such that ranks * s is exact for every s <= A, and every common way to
    divide it gives exactly s.

    NCCL multiplies each contribution by 1/n, rounded to the type or to float, before adding; other
    libraries divide the sum.
    """
    if not dtype.is_float:
        value_bits = dtype.bits - (dtype.kind == "int")
        return min(((1 << value_bits) - 1) // ranks, (1 << LARGEST_TOTAL_BITS) - 1)
    rounded = [decode(round_to_bits(Fraction(1, ranks), t), t) for t in (dtype, BY_NAME["float"])]
    inverses = [inverse for inverse in rounded if isinstance(inverse, Fraction)]
    exact = 0
    for s in range(1, min(dtype_limit(dtype) // ranks, AVERAGE_SEARCH) + 1):
        products = {round_to_bits(ranks * s * inverse, dtype) for inverse in inverses}
        if products != {encode(s, 0, dtype)}:
            break
        exact = s
    return exact


def dtype_limit(dtype: DType) -> int:
    """The largest exact integer for sums of a float type, of at most 31 bits."""
    return (1 << min(dtype.significand, LARGEST_TOTAL_BITS)) - 1


Launch = Callable[[], object]


class LaunchSequence:
    """A thunk that runs launches one after the other."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        self.launches = tuple(launches)

    def __call__(self) -> None:
        for launch in self.launches:
            launch()


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """One collective call as an engine runs it. Counts are elements."""

    collective: Collective
    dtype: DType
    op: RedOp | None
    layout: Layout
    send: int  # elements of the send buffer in use
    recv: int  # elements of the receive buffer in use
    in_place: bool
    shift_bytes: int = 0  # moves both buffers (rotation and -u)

    @property
    def root(self) -> int:
        """The root rank (0 where there is none)."""
        return max(self.layout.root, 0)


def buffer_slice(call: CollectiveCall, rank: int, buffer: str) -> tuple[str, slice]:
    """The memory that holds "send" or "recv" of a call on a rank, and the slice of its bytes.

    In place, as in nccl-tests, the memory is "recv".
    """
    size = call.dtype.itemsize
    if buffer == "send":
        count, part_of_other = call.send, InPlace.SEND_IN_RECV
    else:
        count, part_of_other = call.recv, InPlace.RECV_IN_SEND
    start = call.shift_bytes
    if call.in_place and call.collective.in_place is part_of_other:
        start += rank * call.layout.count * size
    return "recv" if call.in_place else buffer, slice(start, start + count * size)


@dataclass(frozen=True, slots=True)
class Region:
    """`length` elements from `offset` (elements) of a buffer, and the kind of their values.

    "sent" is the input of `rank`, "reduced" the reduction over all ranks, "untouched" the sentinel.
    `first` is the index of the region's first element in the send buffer of the rank.
    """

    offset: int
    length: int
    kind: str
    rank: int = 0
    first: int = 0


@dataclass(frozen=True, slots=True)
class WrongData:
    """The result of a check: the number of wrong elements, and the first of them.

    `offset` is in elements of the checked buffer.
    """

    count: int
    offset: int = 0
    expected: bytes = b""
    got: bytes = b""


class BufferAccess(Protocol):
    """Buffer access of one local rank for verification.

    `buffer` is "send" or "recv" as the call sees them (in-place included).
    """

    def write(
        self, call: CollectiveCall, buffer: str, regions: Sequence[Region], probe: Probe
    ) -> None:
        """Write each region's values."""

    def check(
        self, call: CollectiveCall, buffer: str, regions: Sequence[Region], probe: Probe
    ) -> WrongData:
        """Compare each region bit for bit, or within probe.tolerance units.

        The result has the first wrong element of the first region that has any.
        """


class Tuner(Protocol):
    """Sets what operations of one collective and size run with.

    All ranks must set the same before each operation.
    """

    def steer(self, collective: str, size_bytes: int, choice: "TuningChoice | None") -> None:
        """From now on these operations use `choice`, or NCCL's own choice for None.

        Other operations use NCCL's own choice.
        """

    def costs(self) -> "dict[TuningChoice, float]":
        """The seconds that NCCL expects of each choice that it can run.

        Empty if NCCL has not asked since the last `steer`.
        """

    def nodes(self) -> int:
        """The hosts of the communicator as NCCL counts them: those that NVLink joins may be one.

        0 if NCCL has not asked since the last `steer`.
        """


class Profiler(Protocol):
    """Asks NCCL what it runs. No operation may be under way at `start` and `stop`.

    `lost` counts the kernels so far for which there was no room. `interface` is the version of
    NCCL's profiler interface, 0 before the first start.
    """

    lost: int
    interface: int

    def start(self) -> bool:
        """Let NCCL report what is enqueued from now on; False if it cannot."""

    def stop(self) -> list[NcclKernel]:
        """Stop the reports; returns the kernels that local ranks ran since `start`, each once."""

    @property
    def reads_log_variables(self) -> bool:
        """Whether `read_log_variables` can be called."""

    def read_log_variables(self) -> None:
        """Let NCCL read the variables of its log again, and open the log's file again."""


class Engine(Protocol):
    """Runs collectives.

    It is opened on a Control. `ranks` are the local ranks of the communicator, in order, and `size`
    is the number of all its ranks. If it is `asynchronous`, a launch returns before its work is
    done, so that marks time it and not the host's clock. Methods with a body suit an engine on
    CPUs, whose calls are complete when they return.
    """

    name: str
    ranks: Sequence[int]
    size: int
    asynchronous: bool

    def clock(self) -> float:
        """Seconds of the clock that times this engine (the host's; virtual in `sim`)."""
        return time.perf_counter()

    def devices(self) -> list[RankDevice]:
        """One per local rank; ranks are those of the whole job, not of a split group."""

    def library(self) -> EngineLibrary:
        """The library that moves the data, and its version."""

    def memory_bytes(self) -> int | None:
        """Bytes of the smallest local device that a sweep may plan with; None: no cap is needed."""

    def memory_use(self) -> dict[str, int]:
        """Bytes of GPU memory for `init`, `user`, `collective` and in `total`; {} if not known."""
        return {}

    def unsupported(self, collective: Collective, dtype: DType, op: RedOp | None) -> str | None:
        """Why this engine cannot run the combination; None if it can."""
        return None

    def moves_data(self, call: CollectiveCall) -> bool:
        """Whether the call's data arrives, so that it can be verified; only `sim` may say no."""
        return True

    def allocate(self, send_bytes: int, recv_bytes: int) -> None:
        """Allocate both buffers of every local rank; called once."""

    def share(self) -> None:
        """Let other ranks use the buffers. Collective, once `allocate` has succeeded on all."""
        return

    def memories(self) -> Sequence[BufferAccess]:
        """Buffer access, one per local rank."""

    def bind(self, call: CollectiveCall) -> Launch:
        """A thunk that enqueues the call on all local ranks (a CPU engine completes it)."""

    def grouped(self, launches: Sequence[Launch]) -> Launch:
        """A thunk that enqueues all launches, as one aggregated group if the library has groups."""
        return LaunchSequence(launches)

    def synchronize(self, limit_s: float) -> None:
        """Wait for everything enqueued.

        NoMeasurement if it takes longer than `limit_s` (0: no limit), or if the library reports an
        error.
        """
        return

    def capture(self, launches: Sequence[Launch]) -> Launch:
        """A thunk that replays the launches as one CUDA graph.

        NoMeasurement for an engine without CUDA graphs.
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
        """What steers NCCL's choice of algorithm; None if this engine has no choice.

        NoMeasurement if busbw-native is not on this host, or does not fit.
        """
        return None

    def profiler(self) -> "Profiler | None":
        """What asks NCCL what it runs; None if this engine has no NCCL.

        NoMeasurement if busbw-native is not on this host, or does not fit.
        """
        return None

    def follow(self, other: "Engine") -> None:
        """Let what is enqueued from now on wait for all that `other`, here too, has enqueued."""
        return

    def loop(self) -> "Loop | None":
        """What runs launches without Python between them; None if this engine has no such loop.

        NoMeasurement if it has one and busbw-native is not on this host, or does not fit.
        """
        return None

    def mark(self, index: int) -> None:
        """Note a point in time on every local rank's stream (CPU: the clock)."""

    def elapsed_s(self, first: int, last: int) -> list[float]:
        """Seconds between two marks, per local rank; after `synchronize`."""

    def explained(self, error: Exception) -> Exception:
        """An error of the library underneath as NoMeasurement; any other as it is."""
        return error

    def close(self, *, abort: bool = False) -> None:
        """Free everything; with `abort`, without waiting for peers."""
