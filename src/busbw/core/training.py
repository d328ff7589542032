"""The settings and results of a training benchmark, a part of busbw.result/1. Times are seconds and sizes bytes."""

from statistics import fmean, median, pstdev

import msgspec

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
ALONE = "alone"  # each rank trains on its own: the baseline of all methods
NORMAL_95 = 1.96  # standard deviations, as in Horovod's benchmark


class TrainSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One training benchmark as requested.

    `batch_size` is samples per rank and step, `sequence` tokens per sample of a language model. An iteration has `batches` steps and
    gives one rate. All `methods` run one after the other, `rounds` times. `bucket_mb` is DDP's bucket_cap_mb.
    """

    model: str
    batch_size: int = 32
    precision: str = "fp32"
    sequence: int = 1024
    warmup: int = 10
    iters: int = 10
    batches: int = 10
    rounds: int = 1
    methods: tuple[str, ...] = ("none",)
    bucket_mb: float = 25.0


class TrainRun(msgspec.Struct):
    """One method in one round.

    `steps_s` are the durations of steps, each the maximum over ranks; `rates` are samples per second and rank of each iteration, on the
    slowest rank. `counted` and `seen` are bytes per step that left a host, the maximum over hosts: as counted by the exchange (for DDP
    and torch's hooks computed for a ring), and by the host's interfaces; None if unknown. `loss` is the last one of rank 0. `silent_s`
    are steps over a perfect network: no data is exchanged, each rank uses its own in place of the others'. For `alone` they are the
    steps under DDP; they are empty for torch's hooks.
    """

    method: str
    round: int
    steps_s: list[float]
    rates: list[float]
    counted: float | None = None
    seen: float | None = None
    loss: float = 0.0
    silent_s: list[float] = []


class Training(msgspec.Struct):
    """The benchmark and its runs. `unit` is the unit of rates (img, seq); `gradients` is the gradient bytes of a step."""

    spec: TrainSpec
    unit: str
    parameters: int
    gradients: int
    hosts: int
    runs: list[TrainRun] = []

    def of(self, method: str) -> list[TrainRun]:
        """All rounds of a method."""
        return [run for run in self.runs if run.method == method]

    def rate(self, method: str) -> tuple[float, float | None] | None:
        """Samples per second and rank: mean over iterations and 1.96 standard deviations (None for one iteration); None before its run."""
        rates = [rate for run in self.of(method) for rate in run.rates]
        return (fmean(rates), NORMAL_95 * pstdev(rates) if len(rates) > 1 else None) if rates else None

    def step_s(self, method: str) -> float | None:
        """The median step."""
        steps = [step for run in self.of(method) for step in run.steps_s]
        return median(steps) if steps else None

    def efficiency(self, method: str) -> float | None:
        """The rate divided by that of a rank on its own."""
        own, alone = self.rate(method), self.rate(ALONE)
        return own[0] / alone[0] if own and alone and alone[0] > 0 else None

    def exposed_s(self, method: str) -> float | None:
        """How much longer a step takes than alone: communication that is not hidden, and compression."""
        own, alone = self.step_s(method), self.step_s(ALONE)
        return own - alone if own is not None and alone is not None else None

    def silent_s(self, method: str) -> float | None:
        """The median step over a perfect network; for ALONE that of DDP."""
        steps = [step for run in self.of(method) for step in run.silent_s]
        return median(steps) if steps else None

    def codec_s(self, method: str) -> float | None:
        """How much longer a step takes because of the method's computation."""
        own, still = self.silent_s(method), self.silent_s(ALONE)
        return own - still if own is not None and still is not None else None

    def network_s(self, method: str) -> float | None:
        """How much longer a step takes than over a perfect network."""
        own, silent = self.step_s(method), self.silent_s(method)
        return own - silent if own is not None and silent is not None else None
