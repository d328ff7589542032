"""The types of a training benchmark, a part of busbw.training/1. Times are seconds and sizes
bytes.
"""

from statistics import harmonic_mean, median, pstdev
from typing import Annotated

import msgspec
from msgspec import Meta

from busbw_accel.memory_plan.gpt_shape import GptShape

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
ALONE = "alone"  # each rank trains on its own: the baseline of all methods

# Forward and backward without an update: the baseline of ways to keep a model's states.
COMPUTE = "compute"

# DDP's own default. Its first bucket then holds 1 MB, so that the first exchange begins early.
DEFAULT_BUCKET_MB = 25.0
NORMAL_95 = 1.96  # standard deviations, as in Horovod's benchmark


class StatesSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A training that compares ways to keep a model's states: weights, gradients and moments.

    `recompute`: activations inside a layer are computed again in backward. `gpu_memory`: the most
    bytes of a GPU to use, 0 for all.
    """

    shape: GptShape
    recompute: bool = False
    gpu_memory: int = 0


class TrainSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One training benchmark as requested."""

    model: str
    batch_size: Annotated[int, Meta(description="samples per rank and step")] = 32
    precision: str = "fp32"
    sequence: Annotated[int, Meta(description="tokens per sample of a language model")] = 1024
    warmup: int = 10
    iters: Annotated[int, Meta(description="iterations, each of which gives one rate")] = 10
    steps: int = msgspec.field(default=10, name="batches")
    rounds: Annotated[int, Meta(description="how often all methods run, one after the other")] = 1
    methods: tuple[str, ...] = ("none",)
    bucket_mb: Annotated[float, Meta(description="DDP's bucket_cap_mb")] = DEFAULT_BUCKET_MB
    states: Annotated[
        StatesSpec | None,
        Meta(
            description="methods are then ways to keep the states of a gpt, not exchanges of"
            " gradients under DDP"
        ),
    ] = None


class StatesUse(msgspec.Struct):
    """What one way to keep states needed, and where its steps went.

    Fields from `down_bytes` on are per step on the slowest rank; null is unknown.
    """

    start_s: Annotated[float, Meta(description="from the model in memory to the first step")]
    gpu_bytes: Annotated[int, Meta(description="the most that tensors held on one GPU")]
    gpu_reserved: Annotated[int, Meta(description="gpu_bytes, with what the allocator kept")]
    host_bytes: Annotated[
        int,
        Meta(
            description="the most memory of a host, of all its ranks: what their processes held,"
            " or what the host lost from before them until after the last step, if"
            " that is more"
        ),
    ]
    pinned: Annotated[int, Meta(description="the part that cannot be paged out, where it is known")]
    down_bytes: Annotated[float | None, Meta(description="copied to the host")] = None
    up_bytes: Annotated[float | None, Meta(description="copied to the GPU")] = None
    down_s: Annotated[float | None, Meta(description="of copies to the host")] = None
    update_s: Annotated[float | None, Meta(description="of updates on the CPU")] = None
    up_s: Annotated[float | None, Meta(description="of copies to the GPU")] = None
    waited_s: Annotated[float | None, Meta(description="how long the program waited")] = None


class TrainRun(msgspec.Struct):
    """One method in one round."""

    method: str
    round: int
    steps_s: Annotated[
        list[float],
        Meta(
            description="durations of steps, each the maximum over ranks; of a method with `every`"
            " the mean of so many steps"
        ),
    ]
    rates: Annotated[
        list[float],
        Meta(description="samples per second and rank of each iteration, on the slowest rank"),
    ]
    counted: Annotated[
        float | None,
        Meta(
            description="bytes per step that left a host, the maximum over hosts, as counted by"
            " the exchange (for DDP and torch's hooks computed for a ring); null if"
            " unknown"
        ),
    ] = None
    seen: Annotated[
        float | None, Meta(description="the same as counted by the host's interfaces")
    ] = None
    loss: Annotated[float, Meta(description="the last one of rank 0")] = 0.0
    silent_s: Annotated[
        list[float],
        Meta(
            description="steps over a perfect network: no data is exchanged, each rank uses its"
            " own in place of the others'. For `alone` they are the steps under DDP;"
            " empty for torch's hooks"
        ),
    ] = []
    states: Annotated[
        StatesUse | None, Meta(description="only for a training that compares ways to keep states")
    ] = None
    failed: Annotated[str, Meta(description="why it has no steps; empty if it has")] = ""

    @property
    def rate(self) -> float:
        """Samples per second and rank: all samples divided by all time.

        For iterations of one size it is the harmonic mean of their rates.
        """
        return harmonic_mean(self.rates)


class LargestModel(msgspec.Struct, frozen=True):
    """The largest model that trained by a method, None if none did; and of the next larger one
    the parameters and why it did not.
    """

    method: str
    shape: GptShape | None
    parameters: int
    refused: int
    reason: str


class TrainingRuns(msgspec.Struct):
    """The benchmark and its runs."""

    spec: TrainSpec
    unit: Annotated[str, Meta(description="of rates: img, seq or token")]
    parameters: int
    gradients: Annotated[int, Meta(description="their bytes in a step")]
    hosts: int
    runs: list[TrainRun] = []
    largest: list[LargestModel] = []

    @property
    def baseline(self) -> str:
        """The method that the others are compared with."""
        return COMPUTE if self.spec.states else ALONE

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(run.method for run in self.runs))

    def of(self, method: str) -> list[TrainRun]:
        return [run for run in self.runs if run.method == method]

    def rate(self, method: str) -> tuple[float, float | None] | None:
        """Samples per second and rank, and 1.96 standard deviations of an iteration (None for one
        iteration); None before its run.

        All samples over all time: iterations have equally many samples, so this is the harmonic
        mean of their rates.
        """
        rates = [rate for run in self.of(method) for rate in run.rates]
        if not rates:
            return None
        spread = NORMAL_95 * pstdev(rates) if len(rates) > 1 else None
        return harmonic_mean(rates), spread

    def step_s(self, method: str) -> float | None:
        steps = [step for run in self.of(method) for step in run.steps_s]
        return median(steps) if steps else None

    def efficiency(self, method: str) -> float | None:
        """The rate divided by the baseline's: a rank on its own, or computation only."""
        rate, alone = self.rate(method), self.rate(self.baseline)
        return rate[0] / alone[0] if rate and alone and alone[0] > 0 else None

    def exposed_s(self, method: str) -> float | None:
        """How much longer a step takes than the baseline's.

        This is the time of communication and updates that are not hidden, and of compression.
        """
        step, alone = self.step_s(method), self.step_s(self.baseline)
        return step - alone if step is not None and alone is not None else None

    def silent_s(self, method: str) -> float | None:
        """The median step over a perfect network; for ALONE that of DDP."""
        steps = [step for run in self.of(method) for step in run.silent_s]
        return median(steps) if steps else None

    def codec_s(self, method: str) -> float | None:
        """How much longer a step takes because of the method's computation."""
        silent, still = self.silent_s(method), self.silent_s(ALONE)
        return silent - still if silent is not None and still is not None else None

    def network_s(self, method: str) -> float | None:
        """How much longer a step takes than over a perfect network."""
        step, silent = self.step_s(method), self.silent_s(method)
        return step - silent if step is not None and silent is not None else None
