"""The replay of a pattern: what is replayed, and what each row took."""

from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.collectives import BY_NAME as COLLECTIVES
from busbw.core.pattern import US, Comm, PatternRow, Times

SCALES = ("none", "bytes", "count")
CHOICES = ("recorded", "nccl")


class ReplaySpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What to replay.

    `scale` is the rule for another number of ranks than recorded: `bytes` keeps the bytes that
    algbw divides by the time, `count` the elements of each rank, `none` refuses. `choice` says
    whether NCCL is asked for the recorded algorithms and protocols.
    """

    pattern: Annotated[str, Meta(description="the file, as given")]
    repeats: int = 1
    scale: str = "none"
    choice: str = "recorded"
    timeout: float = 0.0


class ReplayedRow(msgspec.Struct):
    """One row: as recorded, and as replayed."""

    row: PatternRow
    ranks: int
    weight: Annotated[float, Meta(description="part of the ranks read that a call occupies")] = 1.0
    recorded_weight: Annotated[float, Meta(description="the same of the recorded calls")] = 1.0
    times: Annotated[
        Times | None, Meta(description="of the calls that count; null if the row was not timed")
    ] = None
    kind: Annotated[
        str,
        Meta(
            description="clock of `times`: gpu (kernels, by the profiler plugin), event (CUDA"
            " events around a call) or cpu"
        ),
    ] = ""
    skew_us: Annotated[
        float | None, Meta(description="median time between the first and the last rank's start")
    ] = None
    algorithm: Annotated[str | None, Meta(description="what NCCL chose in the replay")] = None
    protocol: Annotated[str | None, Meta(description="what NCCL chose in the replay")] = None
    channels: int | None = None
    ideal: float | None = None
    ideal_algorithm: str = ""
    step_calls: Annotated[
        int, Meta(description="calls of one step, if the pattern repeats one")
    ] = 0

    @property
    def time_s(self) -> float | None:
        """Median seconds of one call."""
        return self.times.median * US if self.times and self.times.median > 0 else None

    @property
    def algbw(self) -> float | None:
        """Bytes per second."""
        return self.row.bytes / self.time_s if self.time_s else None

    @property
    def busbw(self) -> float | None:
        """Bytes per second; that of algbw for a send."""
        row = COLLECTIVES.get(self.row.function)
        factor = float(row.bus_factor(self.ranks)) if row else 1.0
        return self.algbw * factor if self.algbw is not None else None

    @property
    def efficiency(self) -> float | None:
        """busbw divided by the ideal."""
        return self.busbw / self.ideal if self.busbw is not None and self.ideal else None

    @property
    def ran_another(self) -> bool:
        """Whether NCCL ran another algorithm or protocol than the row states."""
        ran = (self.algorithm, self.protocol)
        stated = (self.row.algorithm, self.row.protocol)
        return None not in ran and None not in stated and ran != stated

    @property
    def total_s(self) -> float | None:
        """Seconds of all recorded calls at the mean time of those replayed, averaged over the
        ranks that were recorded.
        """
        if not self.times or not self.times.n:
            return None
        return self.weight * self.row.calls * self.times.total / self.times.n * US

    @property
    def step_s(self) -> float | None:
        """Seconds of the calls of one step, averaged like total_s."""
        if self.total_s is None or not self.row.calls:
            return None
        return self.total_s * self.step_calls / self.row.calls


class Replay(msgspec.Struct):
    """A replay."""

    spec: ReplaySpec
    source: str = ""
    ordered: bool = False
    recorded_ranks: int = 0
    comms: list[Comm] = []
    rows: list[ReplayedRow] = []
    skipped: dict[str, int] = {}
    wall_s: Annotated[
        list[float],
        Meta(description="time of each repeat, from the first operation to the end of the last"),
    ] = []
    recorded_wall_s: float = 0.0
    period: Annotated[
        int, Meta(description="calls of a step, if the pattern repeats; 0: unknown")
    ] = 0
    steps: Annotated[
        int,
        Meta(description="how often that step is there; other calls come before it; 0: unknown"),
    ] = 0
    average: Annotated[
        str, Meta(description="which ranks totals are the average of; empty: of all")
    ] = ""
    notes: list[str] = []
