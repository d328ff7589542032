"""The collectives of an application: the record `busbw.pattern/1`.

It is JSON Lines, one object a line with a `type`: one header, communicators, rows (a histogram with
one row for all calls with the same arguments), and, if the order is known, every call as a
reference to its row. Communicators precede their rows, rows their calls.

Times have their kind in their name: `predicted_us` is the expectation of NCCL's model, `cpu_us` was
measured by a host's clock and `gpu_us` by the GPU's. They are never mixed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from busbw.core.collectives import BY_NAME as COLLECTIVES
from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.core.lateness import Lateness
from busbw.core.serving import ServingSteps
from busbw.core.shown import Tabular

SCHEMA = "busbw.pattern/1"
SEND, RECV = "send", "recv"
FUNCTIONS = (*COLLECTIVES, SEND, RECV)
RANKS_OF_ROW = ("root", "rank", "peer")  # fields of a row that are ranks of its communicator
# Both in the order of NCCL's numbers.
ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
# By which clock the GPU's time of a call is: NCCL's kernel events, or CUDA events.
KERNEL, EVENTS, AROUND_CALL = "kernel", "events", "call"
US = 1e-6
MIN_STEPS = 3  # that a median is taken of
SETTLING = 2  # first steps of a training that are left out, if MIN_STEPS others remain
MAX_RANKS = 1 << 30
MAX_FIGURE = 1 << 62
# What numbers of the record may be; a line with others is broken.
Ranks = Annotated[int, Meta(ge=0, le=MAX_RANKS)]
Rank = Annotated[int, Meta(ge=0, lt=MAX_RANKS)]
Figure = Annotated[int, Meta(ge=0, lt=MAX_FIGURE)]
Positive = Annotated[int, Meta(ge=1, lt=MAX_FIGURE)]
_Step = TypeVar("_Step")


def key(name: str) -> str:
    """A name without case and separators."""
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


def nccl_algorithm(name: str) -> str | None:
    """The algorithm for NCCL's number (`1`) or name (`RING`, `NVLS_TREE`)."""
    return _known(name, ALGORITHMS)


def nccl_protocol(name: str) -> str | None:
    """The protocol for NCCL's number (`2`) or name (`SIMPLE`)."""
    return _known(name, PROTOCOLS)


def _known(name: str, names: tuple[str, ...]) -> str | None:
    if name.isdecimal():
        return names[int(name)] if int(name) < len(names) else None
    return next((known for known in names if key(known) == key(name)), None)


class TrainingSteps(msgspec.Struct, omit_defaults=True, frozen=True):
    """The steps of a model under PyTorch's DistributedDataParallel, as its ranks recorded them."""

    steps_us: Annotated[
        list[float], Meta(description="durations, one for each step after the first")
    ] = []
    waits_us: Annotated[
        list[float],
        Meta(
            description="for each step that DDP timed (on CPUs every one, on GPUs the first ten"
            " and every 100th), how long the rank that waited least waited for"
            " gradients when its backward had ended"
        ),
    ] = []
    bucket_mb: Annotated[float, Meta(description="DDP's bucket_cap_mb")] = 0.0
    hook: Annotated[str, Meta(description="the communication hook; empty for none")] = ""
    shapes: Annotated[
        list[list[list[int]]],
        Meta(description="the parameters of each bucket, in the order of the buckets"),
    ] = []
    hosts: Annotated[list[str], Meta(description="those of the ranks")] = []
    wait_steps: Annotated[
        list[int],
        Meta(
            description="the places of `waits_us` in `steps_us`; empty if they are the first ones"
        ),
    ] = []
    parameter_bytes: Annotated[int, Meta(description="what all parameters take; 0 for unknown")] = 0

    def waits(self) -> dict[int, float]:
        """The waits by the place of their step in `steps_us`."""
        return dict(zip(self.wait_steps or range(len(self.waits_us)), self.waits_us, strict=False))

    def counted(self) -> list[int]:
        """The places in `steps_us` of the steps that medians are of: those with a wait, if any has
        one, so that both medians are of the same steps.
        """
        waits = self.waits()
        places = range(len(self.steps_us))
        return settled([at for at in places if at in waits] or list(places))

    @property
    def step_s(self) -> float | None:
        """The median duration of a step."""
        return US * median(self.steps_us[at] for at in self.counted()) if self.steps_us else None

    @property
    def wait_s(self) -> float | None:
        """The median of the waits for gradients, None if DDP timed none."""
        waits = self.waits()
        timed = [waits[at] for at in self.counted() if at in waits]
        return US * median(timed) if timed else None


def settled(steps: list[_Step]) -> list[_Step]:
    """The steps without the first ones, which are slower."""
    return steps[SETTLING:] if len(steps) >= MIN_STEPS + SETTLING else steps


class Times(msgspec.Struct, omit_defaults=True, frozen=True):
    """Durations of calls in microseconds. `n` is how many were timed."""

    n: Positive
    total: float
    least: float
    median: float
    most: float


class KernelCalls(msgspec.Struct, omit_defaults=True, frozen=True):
    """Communication that is known by its kernels alone: those of one name and size.

    `function` is a collective's name, '' if the kernel does not state one. `bytes` are those of the
    first input of the operator that launched it, None where the trace does not have them.
    """

    name: str
    library: str
    gpu_us: Times
    function: str = ""
    bytes: Figure | None = None
    dtype: str | None = None


class GpuTime(msgspec.Struct, omit_defaults=True, frozen=True):
    """What the GPUs of a trace did, in microseconds, added up over `gpus`.

    `kernels_us` adds the durations of all kernels and of copies between GPUs, also of those that
    ran at the same time. `communication_us` is the part that communicates, and `exposed_us` how
    long communication ran while no other kernel did. `unlisted` is the communication whose calls
    are not in the record.
    """

    gpus: Positive
    kernels_us: float
    communication_us: float
    exposed_us: float
    unlisted: list[KernelCalls] = []

    @property
    def unlisted_us(self) -> float:
        """The time of the communication whose calls are not in the record."""
        return sum(kernels.gpu_us.total for kernels in self.unlisted)

    @property
    def unlisted_calls(self) -> int:
        """The number of its kernels."""
        return sum(kernels.gpu_us.n for kernels in self.unlisted)


class Header(msgspec.Struct, tag="header", omit_defaults=True):
    """Where the record comes from, and what it lacks."""

    schema: str = ""
    source: str = ""  # the format that it was made from
    world: Ranks = 0  # ranks of the job; 0: unknown
    ranks: list[Rank] = []  # whose calls were read; empty: not stated
    ranks_known: bool = True  # otherwise `ranks` only numbers the processes that were read
    hosts: list[str] = []
    nccl: str = ""
    started: str = ""  # ISO time of at_us = 0
    seconds: float = 0.0  # from the first call to the end of the last; 0: unknown
    dropped: int = 0  # calls that the job made but that were not recorded
    skipped: int = 0  # lines or records that could not be read
    notes: list[str] = []
    clocks: dict[str, int] = {}  # calls whose gpu_us is by each clock; empty: not stated
    training: TrainingSteps | None = None
    gpu_time: GpuTime | None = None
    lateness: Lateness | None = None
    serving: ServingSteps | None = None  # the steps of an inference server


class Comm(msgspec.Struct, tag="comm", omit_defaults=True, frozen=True):
    """One communicator.

    `members` are ranks of the job in the order of the communicator's own ranks; empty: unknown.
    """

    id: int
    ranks: Ranks  # 0: unknown
    name: str = ""
    hosts: Ranks = 0  # 0: unknown
    members: list[Rank] = []
    read: Ranks = 0  # of its ranks, those whose calls were read; 0: not stated

    def lacks(self, rank: int | None) -> bool:
        """Whether this is none of its ranks, whose number is known."""
        return rank is not None and 0 < self.ranks <= rank


class PatternRow(msgspec.Struct, tag="row", omit_defaults=True):
    """All calls with the same arguments. None is a value that the source does not state."""

    id: int
    comm: int
    function: str  # a collective's name, send or recv
    # what algbw divides by the time; for all_gather and reduce_scatter over all ranks
    bytes: Figure
    calls: Figure
    count: Figure | None = None  # elements, NCCL's argument
    dtype: str | None = None
    op: str | None = None
    root: Rank | None = None  # rank in the communicator
    # the rank that calls send or recv, in the communicator; None for a collective: all members call
    # it
    rank: Rank | None = None
    peer: Rank | None = None
    algorithm: str | None = None  # of NCCL; also Symmetric (memory) and CopyEngine
    protocol: str | None = None
    channels: Figure | None = None
    first_us: float | None = None  # start of the first and the last call since `started`
    last_us: float | None = None
    predicted_us: float | None = None  # of one call
    cpu_us: Times | None = None
    gpu_us: Times | None = None


class PatternCall(msgspec.Struct, tag="call", omit_defaults=True, frozen=True):
    """One call."""

    row: int
    at_us: float | None = None
    cpu_us: float | None = None
    gpu_us: float | None = None
    gpu_at_us: float | None = None  # start on the GPU of the rank that took gpu_us, since `started`
    # from the shortest duration on a rank to the longest: how late the last rank was
    skew_us: float | None = None
    stream: int | None = None  # numbers the streams of a rank
    group: int | None = None  # numbers calls that NCCL started together
    # how gpu_us was taken: `events` are CUDA events around the launch, `call` those around the
    # call, `kernel` NCCL's kernel events
    clock: str | None = None


Line = Header | Comm | PatternRow | PatternCall


@dataclass(slots=True, repr=False)
class Pattern(Tabular):
    """A whole record. `calls` is empty if the order is unknown."""

    header: Header
    comms: list[Comm] = field(default_factory=list)
    rows: list[PatternRow] = field(default_factory=list)
    calls: list[PatternCall] = field(default_factory=list)

    @property
    def ordered(self) -> bool:
        """Whether the order of the calls is known."""
        return bool(self.calls)

    def comm(self, row: PatternRow) -> Comm:
        return self.comms[row.comm]


def lists_each(members: Sequence[int], ranks: int) -> bool:
    """Whether `members` are as many different ranks as `ranks`."""
    return len(members) == len(set(members)) == ranks


def algbw_bytes(function: str, count: int, dtype: str, ranks: int) -> int:
    """The bytes that algbw divides by the time, from NCCL's count argument."""
    units = COLLECTIVES[function].algbw_multiple(ranks) if function in COLLECTIVES else 1
    return count * DTYPES[dtype].itemsize * units
