"""What `busbw plan` measured, and its prediction; a part of busbw.plan/1.

Times are seconds and sizes bytes.

DDP passes on its buckets one after the other during backward; each waits until the previous one has
been exchanged. Each bucket's exchange was measured with nothing else running. Computation of an
exchange on the processors of backward delays backward by its duration. The time from the last
bucket being ready to the end of its exchange is exposed.

Everything is measured once in each of several rounds, and each round gives its own prediction.
train.recommendation says what follows from them.
"""

from statistics import fmean, geometric_mean
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from busbw.model.buckets import Bucket, exposed_s

AS_IS = "as-is"
# What a method loses of a gradient; Exchange.loss is an index into it.
LOSSES = (
    "nothing",
    "rounded to 16 bits",
    "rounded to 8 bits, the rest sent later",
    "a low rank now, the rest later",
    "the largest now, the rest later",
    "rounded to 4 bits, the rest sent later",
    "ranks train apart between exchanges",
)
# Sizes of DDP's buckets to try besides that of the training.
BUCKETS_MB = (1.0, 4.0, 25.0, 100.0)


class PlanSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement for a plan: the transport (train.transports), the repeats of each exchange
    in a round, the target efficiency, and other networks to predict the step for
    (train.as_if_network).
    """

    transport: str = AS_IS
    iters: int = msgspec.field(default=5, name="replays")
    target: float = 0.95
    as_if: tuple[str, ...] = ()


class LayoutRound(msgspec.Struct, frozen=True):
    """One round of steps under DDP over a perfect network: the median step, and the buckets with
    median times.
    """

    still_s: float
    buckets: list[Bucket]


class BucketLayout(msgspec.Struct, frozen=True):
    """The buckets that DDP makes for a bucket_cap_mb."""

    bucket_mb: float
    rounds: list[LayoutRound]


class PlanRun(msgspec.Struct, frozen=True):
    """What the exchanges over one transport are compared with: each round's median step of a rank
    on its own, and all layouts.

    The first layout is that of the training's own bucket_mb.
    """

    transport: str
    alone_s: list[float]
    layouts: list[BucketLayout]

    def layout(self, bucket_mb: float | None) -> BucketLayout:
        """The layout for this bucket_mb, None for the training's own. KeyError if there is none."""
        for layout in self.layouts:
            if bucket_mb in (None, layout.bucket_mb):
                return layout
        raise KeyError(bucket_mb)


class ExchangeRound(msgspec.Struct, frozen=True):
    """One round of an exchange: `bucket_s` and `busy_s` as in MeasuredExchange."""

    bucket_s: list[float]
    busy_s: list[float] = []
    change_s: Annotated[
        float, Meta(description="local steps: the exchange of the change of all parameters")
    ] = 0.0
    change_busy_s: Annotated[
        float, Meta(description="local steps: the part of it that takes processors from backward")
    ] = 0.0


class LocalExchange(msgspec.Struct, frozen=True):
    """How local steps exchange the change of the parameters (busbw_accel.settings)."""

    every: int
    fragments: int = 1
    delay: int = 0

    def wait_s(self, measured: ExchangeRound, step_s: float) -> float:
        """What a step of `step_s` seconds takes longer, as a mean over `every` steps.

        Training goes on for `delay` steps while a fragment is exchanged. That hides what the
        exchange waits for, but not its computation on the processors of backward.
        """
        took_s = measured.change_s - self.delay * self.fragments * step_s
        return max(took_s, measured.change_busy_s) / self.every


class CheckRound(msgspec.Struct, frozen=True):
    """One round of a training run that checks an exchange: the median step of a rank on its own,
    and that with the exchange.
    """

    alone_s: float
    step_s: float


class MeasuredExchange(msgspec.Struct):
    """One method over one transport. Times are means over `rounds` of medians."""

    transport: str
    method: str
    loss: Annotated[int, Meta(description="an index into LOSSES")]
    bucket_s: Annotated[
        list[float],
        Meta(description="time of each bucket's exchange, on the rank that started last"),
    ]
    busy_s: Annotated[
        list[float],
        Meta(
            description="the part that delays backward on CPUs: the largest processor time of a"
            " rank divided by its threads; empty on GPUs"
        ),
    ] = []
    counted: Annotated[
        float | None,
        Meta(
            description="bytes per step that leave a host, the maximum over hosts; null if unknown"
        ),
    ] = None
    code: Annotated[str, Meta(description="the line of Python that selects the method")] = ""
    checked_s: Annotated[
        float | None,
        Meta(
            description="step of a training run with it, if there was one: the mean over `checks`"
        ),
    ] = None
    bucket_mb: Annotated[
        float | None, Meta(description="size of DDP's buckets if it is not that of the training")
    ] = None
    rounds: Annotated[
        list[ExchangeRound], Meta(description="files without rounds have one median")
    ] = []
    checks: list[CheckRound] = []
    local: Annotated[
        LocalExchange | None, Meta(description="local steps: how the parameters are exchanged")
    ] = None

    @property
    def exchange_s(self) -> float:
        """Seconds of an exchange of all gradients, or in local steps of all parameters."""
        changes_s = [measured.change_s for measured in self.rounds] or [0.0]
        return sum(self.bucket_s) + fmean(changes_s)

    @property
    def sent(self) -> float | None:
        """Bytes of that exchange that leave a host; None if unknown."""
        if self.local is None or self.counted is None:
            return self.counted
        return self.counted * self.local.every

    def __post_init__(self) -> None:
        """Name the library as it is called now: recorded plans have its earlier name."""
        self.code = self.code.replace("busbw.accel.", "busbw_accel.")


class Prediction(NamedTuple):
    """A step as predicted from the measurements of one round, in seconds: alone, over a perfect
    network, and what is exposed.
    """

    alone_s: float
    still_s: float
    exposed_s: float

    @property
    def step_s(self) -> float:
        """The predicted step."""
        return self.still_s + self.exposed_s


class Plan(msgspec.Struct):
    """`target` as in PlanSpec; `alone_s` is a step of a rank on its own, `still_s` one under DDP
    over a perfect network.

    They and `buckets` are of the first transport and the training's own bucket_mb, as means over
    rounds. `runs` has all transports; it is empty in files without rounds.
    """

    target: float
    alone_s: float
    still_s: float
    buckets: list[Bucket]
    exchanges: list[MeasuredExchange] = []
    runs: list[PlanRun] = []
    as_if: Annotated[
        list[str], Meta(description="networks to predict the step for, such as `2x` (--network)")
    ] = []

    def predictions(self, exchange: MeasuredExchange) -> list[Prediction]:
        """The prediction of each round; in a file without rounds, only one from the medians."""
        run = next((run for run in self.runs if run.transport == exchange.transport), None)
        if run is None or not exchange.rounds:
            late_s = exposed_s(self.buckets, exchange.bucket_s, exchange.busy_s)
            return [Prediction(self.alone_s, self.still_s, late_s)]
        layout = run.layout(exchange.bucket_mb)
        predictions = []
        # The last round may be incomplete.
        rounds = zip(run.alone_s, layout.rounds, exchange.rounds, strict=False)
        for alone_s, steps, exchanged in rounds:
            late_s = exposed_s(steps.buckets, exchanged.bucket_s, exchanged.busy_s)
            if exchange.local:
                late_s += exchange.local.wait_s(exchanged, steps.still_s + late_s)
            predictions.append(Prediction(alone_s, steps.still_s, late_s))
        return predictions

    def exposed_s(self, exchange: MeasuredExchange) -> float:
        """How long a step waits for its exchange."""
        return fmean(prediction.exposed_s for prediction in self.predictions(exchange))

    def step_s(self, exchange: MeasuredExchange) -> float:
        """The predicted step."""
        return fmean(prediction.step_s for prediction in self.predictions(exchange))

    def efficiency(self, exchange: MeasuredExchange) -> float:
        """The predicted rate divided by that of a rank on its own."""
        predictions = self.predictions(exchange)
        return geometric_mean([figures.alone_s / figures.step_s for figures in predictions])

    def known_s(self, exchange: MeasuredExchange) -> float:
        """The step of the training run with the exchange if there was one, or else as predicted."""
        return exchange.checked_s or self.step_s(exchange)

    def shares(self, exchange: MeasuredExchange) -> list[float]:
        """The rate divided by that of a rank on its own, in each round.

        It is that of the training run if there was one, or else the predicted one.
        """
        if exchange.checks:
            return [figures.alone_s / figures.step_s for figures in exchange.checks]
        if exchange.checked_s:
            return [self.alone_s / exchange.checked_s]
        return [figures.alone_s / figures.step_s for figures in self.predictions(exchange)]

    def share(self, exchange: MeasuredExchange) -> float:
        """The geometric mean of `shares`."""
        return geometric_mean(self.shares(exchange))

    def reaches(self, exchange: MeasuredExchange) -> bool:
        """Whether `share` reaches the target."""
        return self.share(exchange) >= self.target
