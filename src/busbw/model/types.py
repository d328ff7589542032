"""How fast communication should be: what `busbw predict` and `busbw explain` answer.

Rates are bytes per second in one direction, times are seconds, busbw is that of the collective.
Bands and shares are fractions.
"""

import msgspec

from busbw.core.result import Ideal


class Described(msgspec.Struct, frozen=True):
    """The hardware that an answer is about.

    `source` says where it comes from; `nccl` is the first release of the row of constants.
    """

    source: str
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
    nccl: str
    notes: list[str] = []


class Level(msgspec.Struct, frozen=True):
    """The bounds of one algorithm: at the link rates (`wire`), at what the links carry of data
    (`payload`), and what NCCL's model expects of the size (`planned`).

    `link` is what limits the bound of the data. `planned` is None where NCCL has no model of the
    algorithm.
    """

    algorithm: str
    wire: float
    payload: float
    link: str
    why: str
    planned: float | None = None
    protocol: str = ""


class Bounds(msgspec.Struct, kw_only=True):
    """The bounds of each algorithm on `hosts` hosts, the highest first.

    `chosen` is the algorithm that NCCL takes for `size_bytes`.
    """

    hosts: int
    size_bytes: int
    levels: list[Level]
    endpoint: Ideal | None = None
    chosen: str = ""


class Forecast(msgspec.Struct, frozen=True):
    """The expected time of one size on `hosts` hosts, and the range that busbw is expected in.

    `low` and `high` are bytes per second like `busbw`; `coverage` is the share of runs that such a
    range is made to hold. `basis` is what the time rests on (model.reference.expected.Basis, or
    `calibration`), `runs` names the runs of the table of reference curves that it comes from.
    """

    hosts: int
    ranks: int
    size_bytes: int
    algorithm: str
    protocol: str
    time_s: float
    latency_s: float
    busbw: float
    low: float
    high: float
    coverage: float
    basis: str = "model"
    runs: tuple[str, ...] = ()
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


class Prediction(msgspec.Struct, tag="busbw.prediction/1", tag_field="schema", kw_only=True):
    """The expected times of one collective, and its bounds on the largest number of hosts.

    `rows` is empty where there is no model of times, as for RCCL. `hosts_per_leaf` and `uplinks`
    are those of a leaf switch, 0 where they were not stated.
    """

    collective: str
    described: Described
    rows: list[Forecast]
    crossings: list[Crossing]
    bounds: Bounds
    calibrated_by: list[str] = []
    oversubscription: float = 1.0
    hosts_per_leaf: int = 0
    uplinks: int = 0
    rails_lost: int = 0
    notes: list[str] = []


class Judged(msgspec.Struct, frozen=True):
    """One algorithm compared with a measurement.

    It is `excluded` if the measurement is above its bound `at_most`. `planned` is the busbw that
    the model expects of this size, up to `planned_to` for a ring that fills the NICs, and `off` is
    the relative deviation of the measurement from them (0.01: 1 % above). `in_network` says that
    it needs reduction in the network's switches (SHARP).
    """

    algorithm: str
    at_most: float
    excluded: bool
    planned: float | None = None
    protocol: str = ""
    off: float | None = None
    in_network: bool = False
    planned_to: float | None = None


class Load(msgspec.Struct, frozen=True):
    """How much of a link the measured operation uses: `used` of its rate, of which `payload` is
    left for data.
    """

    link: str
    rate: float
    payload: float
    used: float


class Explanation(msgspec.Struct, tag="busbw.explanation/1", tag_field="schema", kw_only=True):
    """Which algorithm a measurement fits best, how it compares with what is expected of such a
    system, and how much of each link it uses.

    `ran` is what the result says that NCCL ran; empty if it does not. `fits` is that algorithm, or
    the one whose model is nearest; empty if the measurement is above the bounds of all algorithms.
    `about_as_near` are others whose models fit nearly as well. `verdict` is `slower` below the
    range of the forecast, `faster` above its busbw's upper end, else `expected`. `causes` are what
    would explain that it is slower.
    """

    source: str
    collective: str
    described: Described
    size_bytes: int
    placement: str
    busbw: float
    algbw: float
    judged: list[Judged]
    verdict: str
    causes: list[str] = []
    forecast: Forecast | None = None
    ran: str = ""
    fits: str = ""
    about_as_near: list[str] = []
    chosen: str = ""
    loads: list[Load] = []
    notes: list[str] = []


class PredictedRow(msgspec.Struct, frozen=True):
    """One row of a pattern on the other system.

    `forecast` is None where no time can be given, and `reason` says why.

    `weight` is the part of the ranks read that a call occupies (core.pattern_weights), of a send
    that of its sender. `gpu_s` and `nic_s` are what the bytes of a call take on a GPU's links to
    its peers and on the NICs, if nothing else limits them.
    """

    row: int
    function: str
    bytes: int
    calls: int
    hosts: int
    per_host: int
    forecast: Forecast | None = None
    reason: str = ""
    measured_s: float | None = None
    weight: float = 1.0
    gpu_s: float = 0.0
    nic_s: float = 0.0

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
    msgspec.Struct, tag="busbw.pattern-prediction/1", tag_field="schema", kw_only=True
):
    """What a recorded application's communication takes on another system.

    `ranks` is how many it was predicted for, and `recorded_ranks` how many it was recorded on;
    `scale` is the rule where they differ. The calls take from `least_s`, if they overlap as they
    may, to `most_s`; both are total_s if none overlap. Within the ranges of the calls it is from
    `low_s` to `high_s`. `step` is that of a training of which buckets, step and wait were recorded.
    """

    source: str
    described: Described
    rows: list[PredictedRow]
    recorded_s: float = 0.0
    ranks: int = 0
    recorded_ranks: int = 0
    scale: str = ""
    least_s: float = 0.0
    most_s: float = 0.0
    low_s: float = 0.0
    high_s: float = 0.0
    step: PredictedStep | None = None
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
