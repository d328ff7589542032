"""A sweep on the simulated engine that logs its calls: `measured` runs one and returns rows,
notes and the log.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from busbw.core.result import Cell, ResultRow
from busbw.core.sweep import SweepSpec
from busbw.engines.base import CollectiveCall, Launch
from busbw.engines.sim import SimEngine
from busbw.launch.control import SoloControl
from busbw.measure.events import Event, Note, RowDone
from busbw.measure.plan import buffer_bytes, capped_max
from busbw.measure.runner import Runner

sys.path.insert(0, str(Path(__file__).parent))  # printed_tables.py

QUIET = {"noise": 0.0, "alpha_us": 10.0, "gbps": 100.0}
ONE_SIZE = {
    "min_bytes": 1024,
    "max_bytes": 1024,
    "step_factor": 2,
    "iters": 3,
    "warmup_iters": 0,
    "check": 0,
}


class Noting(SimEngine):
    """The simulated engine, with a log of launches, groups, waits and marks."""

    def __init__(self, ranks: int, parameters: dict[str, float]) -> None:
        super().__init__(ranks, parameters)
        self.log: list[tuple[Any, ...]] = []

    def bind(self, call: CollectiveCall) -> Launch:
        launch = super().bind(call)

        def run() -> None:
            self.log.append(("launch", call))
            launch()

        return run

    def grouped(self, launches: Sequence[Launch]) -> Launch:
        launch = super().grouped(launches)

        def run() -> None:
            self.log.append(("group", len(launches)))
            launch()

        return run

    def synchronize(self, limit_s: float) -> None:
        self.log.append(("wait", limit_s))

    def mark(self, index: int) -> None:
        self.log.append(("mark", index))
        super().mark(index)

    def advance(self, seconds: float) -> None:
        """Let virtual time pass."""
        self._now += seconds


class Barriers(SoloControl):
    """One process, whose barriers are logged and take virtual time."""

    def __init__(self, engine: SimEngine, seconds: float) -> None:
        self._engine, self._seconds = engine, seconds

    def barrier(self) -> None:
        if isinstance(self._engine, Noting):
            self._engine.log.append(("barrier",))
            self._engine.advance(self._seconds)


@dataclass(slots=True)
class Measured:
    """The outcome of a sweep."""

    engine: Any
    runner: Runner
    rows: list[ResultRow]
    notes: list[str]
    events: list[RowDone]
    left_s: list[float | None]  # the remaining time that each phase shows

    @property
    def cells(self) -> list[Cell]:
        """Both placements of all rows, in order."""
        return [cell for row in self.rows for cell in (row.out_of_place, row.in_place) if cell]

    @property
    def words(self) -> list[str]:
        """The log without its details."""
        return [entry[0] for entry in self.engine.log]

    def timed(self) -> list[tuple[Any, ...]]:
        """The log from the barrier before the first timed loop to the one after it (run it with
        -z 0 or 2).
        """
        first, second = [i for i, word in enumerate(self.words) if word == "barrier"][:2]
        return list(self.engine.log[first + 1 : second])


@pytest.fixture
def measured() -> Callable[..., Measured]:
    """Runs a sweep: `measured("all_reduce", iters=5)`; `sim` are the simulation's parameters,
    `barrier_s` what a barrier takes.
    """

    def run(
        name: str,
        ranks: int = 2,
        sim: dict[str, float] | None = None,
        kind: type[SimEngine] = Noting,
        barrier_s: float = 0.0,
        **fields: object,
    ) -> Measured:
        spec = msgspec.convert({"collective": name, **ONE_SIZE, **fields}, SweepSpec)
        engine = kind(ranks, QUIET | (sim or {}))
        max_bytes = capped_max(spec, engine.memory_bytes())
        size = buffer_bytes(spec, max_bytes)
        engine.allocate(size, size)
        emitted: list[Event] = []
        left_s: list[float | None] = []
        control = Barriers(engine, barrier_s)
        runner = Runner(
            engine=engine,
            world=control,
            group=control,
            spec=spec,
            max_bytes=max_bytes,
            emit=emitted.append,
            enter_phase=lambda phase, detail, progress: left_s.append(progress.left_s),
        )
        runner.sweep()
        events = [event for event in emitted if isinstance(event, RowDone)]
        rows = [event.row for event in events if event.final]
        return Measured(
            engine,
            runner,
            rows,
            [event.text for event in emitted if isinstance(event, Note)],
            events,
            left_s,
        )

    return run
