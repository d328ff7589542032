"""Calls in CUDA graphs: what the recorder notes, and what a record makes of it."""

import os
import platform
import struct
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plugin_file_writer import ALL_REDUCE, FLOAT, PluginFileWriter

from busbw.measure.profiler_calls import CAPTURED_FLAG, ProfiledCall
from busbw.measure.profiler_file import COLL_CALL
from busbw.pattern import graph_replays
from busbw.pattern.capture import RECORDER
from busbw.pattern.graph_replays import RecordedGraph, expanded, parse
from busbw.pattern.registry import load

MS = 1_000_000


def call(at_ns: int, *, captured: bool = True, replayed: bool = False) -> ProfiledCall:
    return ProfiledCall(0, "all_reduce", 10, "float", at_ns, captured=captured, replayed=replayed)


def test_a_captured_call_is_made_once_in_each_replay_of_its_graph() -> None:
    graph = RecordedGraph(100, 200, replays_ns=[300, 400, 500])
    found = expanded([call(50, captured=False), call(110), call(120)], [graph], 0)
    assert [made.at_ns for made in found.calls] == [50, 300, 300, 400, 400, 500, 500]
    assert (found.captured, found.replayed, found.unknown) == (2, 6, 0)


def test_calls_of_other_graphs_and_of_none_stay() -> None:
    first, second = RecordedGraph(100, 200, [300]), RecordedGraph(210, 290)
    found = expanded([call(150), call(250), call(1000)], [first, second], 0)
    assert [made.at_ns for made in found.calls] == [300, 1000]  # the second was never replayed
    assert found.unknown == 1


def test_what_nccl_reports_of_a_replay_is_not_counted_again() -> None:
    graph = RecordedGraph(100, 200, [300, 400])
    found = expanded([call(300, replayed=True), call(400, replayed=True)], [graph], 0)
    assert [made.at_ns for made in found.calls] == [300, 400]


def test_the_clocks_may_differ() -> None:
    graph = RecordedGraph(1100, 1200, [1300])
    assert [made.at_ns for made in expanded([call(150)], [graph], 1000).calls] == [300]


def test_replays_without_a_moment_are_counted() -> None:
    found = expanded([call(150)], [RecordedGraph(100, 200, [300], more=7)], 0)
    assert [(made.at_ns, times) for made, times in found.unordered] == [(150, 7)]
    assert found.replayed == 8


@given(st.binary(max_size=200))
def test_any_bytes_are_read(data: bytes) -> None:
    for graph in parse(data):
        assert graph.replays >= 0


class FakeGraph:
    """In place of PyTorch's, which needs a GPU."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def capture_begin(self, pool: object = None) -> None:
        self.called.append("begin")

    def capture_end(self) -> None:
        self.called.append("end")

    def replay(self) -> str:
        self.called.append("replay")
        return "replayed"


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the recorder, as a rank imports it."""
    monkeypatch.syspath_prepend(str(RECORDER))
    monkeypatch.delitem(sys.modules, "busbw_graphs", raising=False)
    import busbw_graphs  # type: ignore[import-not-found]

    module: ModuleType = busbw_graphs
    return module


def watched(recorder: Any, folder: Path) -> tuple[Any, type[FakeGraph]]:
    """A recorder, and a class of graphs that it watches."""

    class Watched(FakeGraph):
        pass

    for name in ("capture_begin", "capture_end", "replay"):
        setattr(Watched, name, getattr(FakeGraph, name))
    graphs = recorder.Graphs(str(folder))
    graphs.watched[recorder.MODULE](SimpleNamespace(CUDAGraph=Watched))
    return graphs, Watched


def test_the_recorder_notes_captures_and_replays(recorder: Any, tmp_path: Path) -> None:
    graphs, watched_graph = watched(recorder, tmp_path)
    one, other = watched_graph(), watched_graph()
    for graph, times in ((one, 3), (other, 2)):
        graph.capture_begin(pool=None)
        graph.capture_end()
        assert [graph.replay() for _ in range(times)] == ["replayed"] * times
    assert one.called == ["begin", "end", "replay", "replay", "replay"]
    graphs.write()
    file = tmp_path / f"{platform.node()}-{os.getpid()}.graphs"
    read = parse(file.read_bytes())
    assert [graph.replays for graph in read] == [3, 2]
    assert all(graph.end_ns and graph.begin_ns <= graph.end_ns for graph in read)
    assert file.stat().st_mode & 0o777 == 0o600


def test_replays_behind_the_first_ones_are_counted(
    recorder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MAX_TIMED", 5)
    graphs, watched_graph = watched(recorder, tmp_path)
    graph = watched_graph()
    graph.capture_begin()
    graph.capture_end()
    for _ in range(12):
        graph.replay()
    graphs.write()
    (read,) = parse((tmp_path / f"{platform.node()}-{os.getpid()}.graphs").read_bytes())
    assert (len(read.replays_ns), read.more, read.replays) == (5, 7, 12)


def test_a_graph_that_cannot_be_noted_runs_all_the_same(recorder: Any, tmp_path: Path) -> None:
    _, watched_graph = watched(recorder, tmp_path / "is not there")
    graph = watched_graph()
    assert graph.replay() == "replayed"  # captured before it was watched
    graph.capture_begin()
    graph.capture_end()
    assert graph.replay() == "replayed"


def capture_of(folder: Path, rank: int, replays: int) -> None:
    """A rank that calls all_reduce eagerly, captures three, and replays the graph."""
    writer = PluginFileWriter(folder, rank, 2, pid=1000 + rank, mode="cheap")
    writer.comm()
    for flags, us in ((0, 1), (CAPTURED_FLAG, 2), (CAPTURED_FLAG, 3), (CAPTURED_FLAG, 4)):
        writer.calls += 1
        writer.add(
            COLL_CALL,
            function=ALL_REDUCE,
            dtype=FLOAT,
            flags=flags,
            time=us * MS,
            elements=1024,
            id=writer.calls,
        )
    began_ns = struct.unpack_from("<Q", writer.path.read_bytes(), 72)[0]
    pairs = [(4, began_ns + 3 * MS // 2), (5, began_ns + 5 * MS)]
    pairs += [(6, began_ns + (6 + number) * MS) for number in range(replays)]
    data = b"".join(struct.pack("<qq", *pair) for pair in pairs)
    writer.path.with_suffix(graph_replays.SUFFIX).write_bytes(data)
    writer.show()
    writer.end()


def test_a_record_has_calls_times_replays(tmp_path: Path) -> None:
    for rank in range(2):
        capture_of(tmp_path, rank, replays=5)
    record = load([str(tmp_path)])
    (row,) = record.rows
    assert row.calls == 1 + 3 * 5
    assert "rank 0: 3 calls in CUDA graphs, 15 calls by their replays, of which NCCL gives no" in (
        " ".join(record.header.notes)
    )


def test_without_the_recorder_captured_calls_stand_once(tmp_path: Path) -> None:
    for rank in range(2):
        capture_of(tmp_path, rank, replays=5)
    for file in tmp_path.glob("*.graphs"):
        file.unlink()
    record = load([str(tmp_path)])
    assert record.rows[0].calls == 4
    assert any("3 calls in CUDA graphs, of which NCCL" in note for note in record.header.notes)
