"""A rank's part, with simulated engines as backends, in one process."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from busbw.backends import job as backends_job
from busbw.backends.kind import SizeMeasured
from busbw.backends.registry import BackendRow, Opening
from busbw.backends.types import EAGER, GRAPH, BackendsJob, BackendsResult
from busbw.core.errors import NoMeasurement
from busbw.core.result import EngineLibrary
from busbw.core.sweep import Sampling, SweepSpec
from busbw.engines.base import CollectiveCall, Engine, Launch, LaunchSequence
from busbw.engines.sim import SimEngine
from busbw.launch.control import SoloControl
from busbw.measure.events import Event, Started

LARGEST = 1 << 14
GRAPH_SAVES_S = 2e-6  # of each call in a graph


class Simulated(SimEngine):
    """With graphs, whose calls take less time, and a size from which it refuses."""

    def __init__(self, refuses_from: int = 1 << 60, **parameters: float) -> None:
        super().__init__(2, {"noise": 0.01, **parameters})
        self._refuses_from = refuses_from

    def bind(self, call: CollectiveCall) -> Launch:
        if call.send * call.dtype.itemsize >= self._refuses_from:
            raise NoMeasurement(f"{call.send} elements are too many")
        return super().bind(call)

    def capture(self, launches: Sequence[Launch]) -> Launch:
        def replay() -> None:
            LaunchSequence(launches)()
            self._now -= GRAPH_SAVES_S * len(launches)

        return replay


def backend(name: str, engine: Callable[[], Engine], why_not: str = "") -> BackendRow:
    return BackendRow(name, name, False, lambda _: why_not, lambda _: engine())


def run(
    monkeypatch: pytest.MonkeyPatch, *rows: BackendRow, **fields: Any
) -> tuple[BackendsResult, list[Event]]:
    """The result of a job with these backends, and its events."""
    by_name = {row.name: row for row in rows}
    monkeypatch.setattr(backends_job, "REPLAYED_S", 60.0)  # by the host's clock: the most replays
    monkeypatch.setattr(backends_job, "BACKENDS", rows)
    monkeypatch.setattr(backends_job, "backend", by_name.__getitem__)
    spec = SweepSpec(
        collective="all_reduce",
        min_bytes=1 << 10,
        max_bytes=LARGEST,
        step_factor=4,
        sampling=Sampling(precision=0.0, max_time_s=0.05),
    )
    job = BackendsJob(engine="sim", sweep=spec, in_graph=4, **fields)
    events: list[Event] = []
    backends_job.measure(job, SoloControl(), events.append, lambda *_: None)
    started = next(event for event in events if isinstance(event, Started))
    assert isinstance(started.result, BackendsResult)
    for event in events:
        event.add_to(started.result)
    return started.result, events


FAST, SLOW = {"alpha_us": 5.0}, {"alpha_us": 20.0}


def test_each_size_has_a_time_of_each_backend_and_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = run(
        monkeypatch,
        backend("slow", lambda: Simulated(**SLOW)),
        backend("fast", lambda: Simulated(**FAST)),
    )
    assert [row.size_bytes for row in result.rows] == [1 << 10, 1 << 12, 1 << 14]
    for row in result.rows:
        assert {(t.backend, t.mode) for t in row.times} == {
            (name, mode) for name in ("slow", "fast") for mode in (EAGER, GRAPH)
        }
        eager, graph = row.of("fast", EAGER), row.of("fast", GRAPH)
        assert eager and eager.cell and graph and graph.cell
        assert eager.operations == 1
        assert graph.operations == 4 * backends_job.MAX_REPLAYS
        saved_s = eager.cell.time_s - graph.cell.time_s
        assert saved_s == pytest.approx(GRAPH_SAVES_S, rel=0.1)
        assert eager.cell.wrong == graph.cell.wrong == 0
    assert [(c.mode, c.backend) for c in result.choices] == [(EAGER, "fast"), (GRAPH, "fast")]


def test_wrong_data_is_counted_in_both_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = backend("bad", lambda: Simulated(corrupt_rank=1, **FAST))
    result, _ = run(monkeypatch, backend("good", lambda: Simulated(**SLOW)), bad)
    eager, graph = result.rows[0].of("bad", EAGER), result.rows[0].of("bad", GRAPH)
    assert eager and eager.cell and graph and graph.cell
    assert (eager.cell.wrong, graph.cell.wrong) == (1, 4)  # in each call of the graph
    assert {choice.backend for choice in result.choices} == {"good"}


def test_a_refused_size_is_left_out_and_the_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    small = backend("small", lambda: Simulated(1 << 14, **FAST))
    result, _ = run(monkeypatch, backend("slow", lambda: Simulated(**SLOW)), small)
    refused = result.rows[-1].of("small", EAGER)
    assert refused is not None and refused.cell is None
    assert refused.why_not == "4096 elements are too many"
    assert [(c.backend, c.last_bytes) for c in result.choices if c.mode == EAGER] == [
        ("small", 1 << 12),
        ("slow", 1 << 14),
    ]


def test_one_that_is_missing_or_cannot_open_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Engine:
        raise RuntimeError("of another CUDA\nmore")

    result, _ = run(
        monkeypatch,
        backend("slow", lambda: Simulated(**SLOW)),
        backend("missing", lambda: Simulated(**FAST), "not installed"),
        backend("broken", broken),
    )
    assert result.left_out == {"missing": "not installed", "broken": "of another CUDA"}
    assert result.backends == ["slow"]


def test_without_any_backend_the_reasons_are_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoMeasurement, match="no backend can run: a: not here"):
        run(monkeypatch, backend("a", lambda: Simulated(), "not here"))


def test_sizes_that_are_done_and_what_was_dropped_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result, events = run(
        monkeypatch,
        backend("slow", lambda: Simulated(**SLOW)),
        backend("fast", lambda: Simulated(**FAST)),
        done=[1 << 10],
        dropped={"slow graph": "it hung"},
    )
    assert [row.size_bytes for row in result.rows] == [1 << 12, 1 << 14]
    assert result.rows[0].of("slow", GRAPH) is None
    assert result.rows[0].of("slow", EAGER) is not None
    assert result.left_out == {"slow graph": "it hung"}
    assert sum(isinstance(event, SizeMeasured) for event in events) == 2


def test_the_result_is_read_back_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = run(monkeypatch, backend("fast", lambda: Simulated(**FAST)))
    encoded = msgspec.json.encode(result)
    assert msgspec.json.decode(encoded, type=BackendsResult) == result


def test_an_opening_has_what_engines_need(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Opening] = []

    def open_it(opening: Opening) -> Engine:
        seen.append(opening)
        return Simulated()

    row = BackendRow("a", "a", False, lambda _: "", open_it)
    run(monkeypatch, row, copies=True)
    assert seen[0].place == (0, 0, 0)
    assert seen[0].copies


class OfPackage(Simulated):
    """The engine of a package with a version of its own."""

    def library(self) -> EngineLibrary:
        return EngineLibrary("package", versions={"package": "1.2"})


def test_the_result_has_the_versions_of_all_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = backend("first", lambda: Simulated()), backend("second", OfPackage)
    made, _ = run(monkeypatch, first, second)
    assert made.library.engine == "sim"
    assert made.library.versions["package"] == "1.2"
