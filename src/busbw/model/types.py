"""How fast communication should be: what `busbw predict` and `busbw explain` answer.

Rates are bytes per second in one direction, times are seconds, busbw is that of the collective.
Bands and shares are fractions.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.result import Ideal
from busbw.core.shown import Shown, Tabular


class DescribedHardware(msgspec.Struct, frozen=True):
    """The hardware that an answer is about."""

    source: Annotated[str, Meta(description="where the description comes from")]
    system: str
    gpu: str
    hosts: int
    per_host: int
    link: float
    link_payload: float
    link_text: str
    nics: float
    nics_payload: float
    nics_text: str
    nccl: Annotated[str, Meta(description="the first release of the row of constants")]
    notes: list[str] = []


class AlgorithmLevels(msgspec.Struct, frozen=True):
    """The bounds of one algorithm."""

    algorithm: str
    wire: Annotated[float, Meta(description="at the link rates")]
    payload: Annotated[float, Meta(description="at what the links carry of data")]
    link: Annotated[str, Meta(description="what limits the bound of the data")]
    why: str
    planned: Annotated[
        float | None,
        Meta(
            description="what NCCL's model expects of the size; null where it has no model of the"
            " algorithm"
        ),
    ] = None
    protocol: str = ""


class Bounds(msgspec.Struct, kw_only=True):
    """The bounds of each algorithm on `hosts` hosts, the highest first.

    `chosen` is the algorithm that NCCL takes for `size_bytes`.
    """

    hosts: int
    size_bytes: int
    levels: list[AlgorithmLevels]
    endpoint: Ideal | None = None
    chosen: str = ""


class Forecast(msgspec.Struct, frozen=True):
    """The expected time of one size, and the range that busbw is expected in. Rates are bytes per
    second.
    """

    hosts: int
    ranks: int
    size_bytes: int
    algorithm: str
    protocol: str
    time_s: float
    latency_s: float
    busbw: float
    low: Annotated[float, Meta(description="low to high is the range of busbw")]
    high: float
    coverage: Annotated[float, Meta(description="share of runs that such a range is made to hold")]
    basis: Annotated[
        str,
        Meta(
            description="what the time rests on: a value of"
            " model.reference.expected.ExpectedBasis, or `calibration`"
        ),
    ] = "model"
    runs: Annotated[
        tuple[str, ...],
        Meta(description="names of the runs of the table of reference curves that it comes from"),
    ] = ()
    extrapolated: bool = False

    @property
    def regime(self) -> str:
        """`latency` if more than half of the time is the same for all sizes, else `bandwidth`."""
        return "latency" if 2 * self.latency_s > self.time_s else "bandwidth"


class Crossing(msgspec.Struct, frozen=True):
    """From `size_bytes` on, bytes take more of the time than latency does; None where they never
    do.
    """

    hosts: int
    ranks: int
    size_bytes: int | None


class Prediction(
    Tabular, msgspec.Struct, tag="busbw.prediction/1", tag_field="schema", kw_only=True
):
    """The expected times of one collective, and its bounds on the largest number of hosts."""

    collective: str
    described: DescribedHardware
    rows: Annotated[
        list[Forecast], Meta(description="empty where there is no model of times, as for RCCL")
    ]
    crossings: list[Crossing]
    bounds: Bounds
    calibrated_by: list[str] = []
    oversubscription: float = 1.0
    hosts_per_leaf: Annotated[int, Meta(description="of a leaf switch; 0 where not stated")] = 0
    uplinks: Annotated[int, Meta(description="of a leaf switch; 0 where not stated")] = 0
    rails_lost: int = 0
    notes: list[str] = []


class JudgedAlgorithm(msgspec.Struct, frozen=True):
    """One algorithm compared with a measurement."""

    algorithm: str
    at_most: Annotated[float, Meta(description="its bound")]
    excluded: Annotated[bool, Meta(description="the measurement is above its bound")]
    planned: Annotated[
        float | None, Meta(description="busbw that the model expects of this size")
    ] = None
    protocol: str = ""
    off: Annotated[
        float | None,
        Meta(description="relative deviation of the measurement from the model (0.01: 1 % above)"),
    ] = None
    in_network: Annotated[
        bool, Meta(description="it needs reduction in the network's switches (SHARP)")
    ] = False
    planned_to: Annotated[
        float | None, Meta(description="upper end of `planned` for a ring that fills the NICs")
    ] = None


class LinkUse(msgspec.Struct, frozen=True):
    """How much of a link the measured operation uses: `used` of its rate, of which `payload` is
    left for data.
    """

    link: str
    rate: float
    payload: float
    used: float


class Explanation(
    Shown, msgspec.Struct, tag="busbw.explanation/1", tag_field="schema", kw_only=True
):
    """Which algorithm a measurement fits best, how it compares with what is expected of such a
    system, and how much of each link it uses.
    """

    source: str
    collective: str
    described: DescribedHardware
    size_bytes: int
    placement: str
    busbw: float
    algbw: float
    judged: list[JudgedAlgorithm]
    verdict: Annotated[
        str,
        Meta(
            description="slower: below the range of the forecast; faster: above its busbw's upper"
            " end; else expected"
        ),
    ]
    causes: Annotated[list[str], Meta(description="what would explain that it is slower")] = []
    forecast: Forecast | None = None
    ran: Annotated[
        str, Meta(description="what the result says that NCCL ran; empty if it does not")
    ] = ""
    fits: Annotated[
        str,
        Meta(
            description="that algorithm, or the one whose model is nearest; empty if the"
            " measurement is above the bounds of all"
        ),
    ] = ""
    about_as_near: Annotated[
        list[str], Meta(description="others whose models fit nearly as well")
    ] = []
    chosen: str = ""
    loads: list[LinkUse] = []
    notes: list[str] = []


class PredictedRow(msgspec.Struct, frozen=True):
    """One row of a pattern on the other system."""

    row: int
    function: str
    bytes: int
    calls: int
    hosts: int
    per_host: int
    forecast: Annotated[Forecast | None, Meta(description="null where no time can be given")] = None
    reason: Annotated[str, Meta(description="why no time can be given")] = ""
    measured_s: float | None = None
    weight: Annotated[
        float,
        Meta(
            description="part of the ranks read that a call occupies; of a send, that of its sender"
        ),
    ] = 1.0
    gpu_s: Annotated[
        float,
        Meta(
            description="what a call's bytes take on a GPU's links to its peers, if nothing else"
            " limits them"
        ),
    ] = 0.0
    nic_s: Annotated[
        float, Meta(description="what a call's bytes take on the NICs, if nothing else limits them")
    ] = 0.0

    @property
    def total_s(self) -> float:
        """The time of all calls, averaged over the ranks that were read."""
        return self.weight * self.forecast.time_s * self.calls if self.forecast else 0.0


class PredictedStep(msgspec.Struct, frozen=True, kw_only=True):
    """The step of a recorded training, in seconds: as recorded, and with computation as recorded
    and the exchange of its gradients on the other system. `exposed_s` is the part of that exchange
    which a step waits for, from `least_exposed_s` to `most_exposed_s` within its ranges.
    """

    recorded_s: float
    recorded_exposed_s: float
    step_s: float
    exposed_s: float
    least_exposed_s: float
    most_exposed_s: float


class PatternPrediction(
    Tabular, msgspec.Struct, tag="busbw.pattern-prediction/1", tag_field="schema", kw_only=True
):
    """What a recorded application's communication takes on another system."""

    source: str
    described: DescribedHardware
    rows: list[PredictedRow]
    recorded_s: float = 0.0
    ranks: Annotated[int, Meta(description="for how many it was predicted")] = 0
    recorded_ranks: Annotated[int, Meta(description="on how many it was recorded")] = 0
    scale: Annotated[str, Meta(description="the rule where they differ")] = ""
    least_s: Annotated[
        float, Meta(description="if calls overlap as they may; total_s if none overlap")
    ] = 0.0
    most_s: Annotated[
        float, Meta(description="the longest that overlapping calls take; total_s if none overlap")
    ] = 0.0
    low_s: Annotated[
        float, Meta(description="low_s to high_s holds within the ranges of the calls")
    ] = 0.0
    high_s: float = 0.0
    step: Annotated[
        PredictedStep | None,
        Meta(description="of a training of which buckets, step and wait were recorded"),
    ] = None
    notes: list[str] = []

    @property
    def total_s(self) -> float:
        """The time of all calls of all rows with a forecast, one after the other, averaged over
        the ranks that were read.
        """
        return sum(row.total_s for row in self.rows)

    @property
    def without(self) -> list[PredictedRow]:
        """The rows without a forecast."""
        return [row for row in self.rows if row.forecast is None]
