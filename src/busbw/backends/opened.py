"""A backend that runs, and what is measured of it at one size."""

from dataclasses import dataclass, field

from busbw.backends.kind import BackendRunning
from busbw.backends.registry import BackendRow
from busbw.engines.base import CollectiveCall, Engine, Launch
from busbw.measure import adaptive_timing
from busbw.measure.batches import Batches
from busbw.measure.plan import Calls


@dataclass(slots=True)
class Opened:
    """A backend that runs."""

    row: BackendRow
    engine: Engine
    calls: Calls
    batches: dict[str, Batches]  # by mode
    bytes: int  # of each of its buffers


@dataclass(slots=True)
class TimedBackend:
    """A backend and mode at one size, while it is measured."""

    opened: Opened
    mode: str
    operations: int = 1
    wrong: int = 0
    why_not: str = ""
    state: adaptive_timing.CellVisits | None = None
    calls: list[CollectiveCall] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)

    @property
    def batches(self) -> Batches:
        return self.opened.batches[self.mode]

    def running(self, size: int) -> BackendRunning:
        """What is reported before it runs."""
        return BackendRunning(self.opened.row.name, self.mode, size)
