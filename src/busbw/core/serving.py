"""The steps of an inference server, as `busbw.pattern/1` has them."""

from typing import Annotated

import msgspec
from msgspec import Meta

PREFILL, DECODE, MIXED = "prefill", "decode", "mixed"
DRAFT, IDLE, UNKNOWN = "draft", "idle", "unknown"
PHASES = (PREFILL, DECODE, MIXED, DRAFT, IDLE, UNKNOWN)  # in the order of tables
Count = Annotated[int, Meta(ge=0)]
Number = Annotated[int, Meta(ge=1)]


class Quartiles(msgspec.Struct, frozen=True):
    """The median and both quartiles of the steps."""

    median: float
    low: float
    high: float


class StepCalls(msgspec.Struct, omit_defaults=True, frozen=True):
    """The kernels of communication of one function and library in the steps of a phase."""

    function: Annotated[str, Meta(description="a collective's name; empty if not stated")]
    library: str
    per_step: Annotated[float, Meta(description="kernels in a step, the mean of steps")]
    median_us: Annotated[float, Meta(description="the median duration of a kernel")]
    total_us: float
    kernel: Annotated[str, Meta(description="its name, if it states no function")] = ""
    bytes: Annotated[
        Count | None, Meta(description="the median of the kernels whose size is known")
    ] = None


class PhaseSteps(msgspec.Struct, omit_defaults=True, frozen=True):
    """The steps of one phase, each on one GPU; times are microseconds."""

    phase: Annotated[str, Meta(description=", ".join(PHASES))]
    steps: Number
    duration_us: Annotated[
        Quartiles, Meta(description="from the start of the first kernel to the end of the last")
    ]
    kernels_us: Annotated[Quartiles, Meta(description="durations of all kernels, added up")]
    communication_us: Annotated[Quartiles, Meta(description="the part that communicates")]
    exposed_us: Annotated[
        Quartiles, Meta(description="while no other kernel of the step ran beside communication")
    ]
    share: Annotated[Quartiles, Meta(description="communication_us / kernels_us of each step")]
    calls: list[StepCalls] = []


class ServingSteps(msgspec.Struct, omit_defaults=True, frozen=True):
    """The steps of an inference server, found by its markers in a trace."""

    server: Annotated[str, Meta(description="whose markers they are")]
    gpus: Number
    phases: list[PhaseSteps]
    outside_us: Annotated[float, Meta(description="GPU time of kernels outside of steps")] = 0.0
    communication_outside_us: Annotated[
        float, Meta(description="the part of it that communicates, such as pipeline parallelism's")
    ] = 0.0
