"""Calls in CUDA graphs, once for each replay: NCCL reports many only when they are captured.

The recorder inside a process notes when it captured and replayed its graphs
(recorder/busbw_graphs.py). A call that was captured between begin and end of a graph is made once
in each replay of it.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from busbw.measure.profiler_calls import ProfiledCall

SUFFIX = ".graphs"
BEGIN, END, REPLAY, MORE = range(4)
_PAIR = struct.Struct("<qq")
MAX_UNTIMED = 10_000_000  # replays without a moment that a damaged file may state


@dataclass(slots=True)
class RecordedGraph:
    """A graph: moments in ns since 1970, those of its replays, and how many more there were."""

    begin_ns: int
    end_ns: int | None = None
    replays_ns: list[int] = field(default_factory=list)
    more: int = 0

    @property
    def replays(self) -> int:
        return len(self.replays_ns) + self.more

    def has(self, at_ns: float) -> bool:
        """Whether it was being captured at that moment."""
        return self.begin_ns <= at_ns and (self.end_ns is None or at_ns <= self.end_ns)


def parse(data: bytes) -> list[RecordedGraph]:
    """The graphs of a process, as far as the file is whole and makes sense."""
    graphs: dict[int, RecordedGraph] = {}
    for what, value in _PAIR.iter_unpack(data[: len(data) // _PAIR.size * _PAIR.size]):
        number, kind = divmod(what, 4)
        if kind == BEGIN:
            graphs[number] = RecordedGraph(value)
        elif number not in graphs:
            continue
        elif kind == END:
            graphs[number].end_ns = value
        elif kind == REPLAY:
            graphs[number].replays_ns.append(value)
        elif 0 <= value <= MAX_UNTIMED:
            graphs[number].more += value
    return list(graphs.values())


@dataclass(slots=True)
class Expanded:
    """The calls with those of replays. `captured` were in graphs whose replays are known,
    `replayed` are the calls of these, and `unknown` were captured in others. `unordered` are calls
    of replays without a moment, and how many.
    """

    calls: list[ProfiledCall]
    captured: int = 0
    replayed: int = 0
    unknown: int = 0
    unordered: list[tuple[ProfiledCall, int]] = field(default_factory=list)


def expanded(
    calls: Sequence[ProfiledCall], graphs: Sequence[RecordedGraph], ahead_ns: int
) -> Expanded:
    """Each captured call that NCCL does not report again, once for each replay of its graph.

    `ahead_ns` is what the clock of the graphs is ahead of that of the calls. A call that was not
    captured in any of these graphs stays as it is.
    """
    found = Expanded([])
    for call in calls:
        graph = _graph_of(call, graphs, ahead_ns)
        if graph is None:
            found.unknown += call.captured
            found.calls.append(call)
            continue
        found.captured += 1
        found.replayed += graph.replays
        found.calls += [replace(call, at_ns=at_ns - ahead_ns) for at_ns in graph.replays_ns]
        if graph.more:
            found.unordered.append((call, graph.more))
    if found.captured:
        found.calls.sort(key=lambda call: call.at_ns)
    return found


def _graph_of(
    call: ProfiledCall, graphs: Sequence[RecordedGraph], ahead_ns: int
) -> RecordedGraph | None:
    if not call.captured or call.replayed:
        return None
    return next((graph for graph in graphs if graph.has(call.at_ns + ahead_ns)), None)
