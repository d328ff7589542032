"""What a training benchmark runs, and what came of it: a part of busbw.result/1. Seconds and bytes throughout."""

from statistics import fmean, median, pstdev

import msgspec

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
ALONE = "alone"  # each rank trains by itself: what every method is held against
NORMAL_95 = 1.96  # of the spread that Horovod's benchmark prints


class TrainSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One training benchmark as asked for.

    `batch_size` counts samples a rank and step, `sequence` tokens a sample of a language model; `batches` are the steps of an iteration,
    whose rate is one figure; all `methods` run in turn, `rounds` times; `bucket_mb` is DDP's bucket_cap_mb.
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

    `steps_s` are the steps' durations, each the longest over ranks; `rates` are samples a second and rank of each iteration, by the
    slowest rank; `counted` and `seen` are bytes a step that left a host, the most of all hosts: as the exchange counts them itself (DDP
    and torch's hooks count nothing: there a ring is assumed), and as its interfaces do, None where that cannot be told. `loss` is the
    last one of rank 0. `silent_s` are steps over a perfect network: all is done but the exchanges, and each rank takes what it has for
    what the others have; of a rank by itself those under DDP; empty where that cannot be had (torch's hooks).
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
    """The benchmark and its runs. `unit` is what is counted a second (img, seq); `gradients` are the gradient bytes of a step."""

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
        """Samples a second and rank: the mean over iterations, and 1.96 standard deviations, None of one alone; None before it has run."""
        rates = [rate for run in self.of(method) for rate in run.rates]
        return (fmean(rates), NORMAL_95 * pstdev(rates) if len(rates) > 1 else None) if rates else None

    def step_s(self, method: str) -> float | None:
        """The median step."""
        steps = [step for run in self.of(method) for step in run.steps_s]
        return median(steps) if steps else None

    def efficiency(self, method: str) -> float | None:
        """Its rate as a share of the rate of a rank by itself."""
        own, alone = self.rate(method), self.rate(ALONE)
        return own[0] / alone[0] if own and alone and alone[0] > 0 else None

    def exposed_s(self, method: str) -> float | None:
        """What a step takes longer than alone: communication that is not hidden, and what compression takes."""
        own, alone = self.step_s(method), self.step_s(ALONE)
        return own - alone if own is not None and alone is not None else None

    def silent_s(self, method: str) -> float | None:
        """The median step over a perfect network; of ALONE that of DDP."""
        steps = [step for run in self.of(method) for step in run.silent_s]
        return median(steps) if steps else None

    def codec_s(self, method: str) -> float | None:
        """What a step takes longer for what the method computes."""
        own, still = self.silent_s(method), self.silent_s(ALONE)
        return own - still if own is not None and still is not None else None

    def network_s(self, method: str) -> float | None:
        """What a step takes longer than over a perfect network."""
        own, silent = self.step_s(method), self.silent_s(method)
        return own - silent if own is not None and silent is not None else None
