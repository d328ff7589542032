"""torchcomms' clog, format V1: signatures once, then an event for each enqueue, start and end, also
of replays of CUDA graphs.

    V|1|base_timestamp=1714234567.890
    new_comm|comm=world|rank=0|world_size=8
    C1|sig|all_reduce|in_count=1024|out_count=1024|dtype=f32|red_op=sum|async_op=f|comm=world
    C1|Q|work_id=1|+0.001        G42|R1|C1|S|+2.001

Source: comms/torchcomms/hooks/clog/AI_TOOL_INSTRUCTIONS_V1.md. Times are milliseconds of the host's
clock, when it learned of an event.
"""

from collections import deque
from collections.abc import Hashable

import msgspec

from busbw.core.pattern import key
from busbw.pattern import merge
from busbw.pattern.collector import Collector
from busbw.pattern.merge import POINT_TO_POINT, ObservedCall
from busbw.pattern.readers import json_recovery
from busbw.pattern.readers.execution_trace import make_call
from busbw.pattern.source import PatternSource


def recognizes(head: bytes) -> bool:
    """Whether the first line is the version header."""
    return head.startswith(b"V|") and b"base_timestamp=" in head[:100]


def read(source: PatternSource, collector: Collector) -> None:
    reader = _TorchcommsReader(source, collector)
    for number, line in source.lines(collector):
        text = line.decode(errors="replace").strip()
        if not text:
            continue
        try:
            reader.line(text)
        except json_recovery.UNEXPECTED as error:
            collector.add_problem(
                f"{source.name}: line {number}: {text[:60]} ({type(error).__name__})"
            )


class _TorchcommsReader:
    def __init__(self, source: PatternSource, collector: Collector) -> None:
        self._collector, self._process = collector, source.number
        self._base_us = 0.0
        self._sizes: dict[str, int] = {}
        self._keys: dict[str, Hashable] = {}
        self._signatures: dict[str, ObservedCall | None] = {}
        self._queued: dict[Hashable, deque[ObservedCall]] = {}
        self._running: dict[Hashable, deque[tuple[ObservedCall, float]]] = {}

    def line(self, text: str) -> None:
        """Read one line; ValueError, KeyError or IndexError if it cannot be."""
        first, *fields = text.split("|")
        if first == "V":
            if fields[0] != "1":
                raise ValueError(f"version {fields[0]}")
            self._base_us = 1e6 * float(_fields(fields)["base_timestamp"])
        elif first in ("new_comm", "split"):
            self._comm(first, _fields(fields))
        elif first == "WARN":
            self._collector.add_note(f"clog: {'|'.join(fields)}")
        elif fields[0] == "sig":
            self._signatures[first] = self._signature(fields[1], _fields(fields[2:]))
        else:
            self._event(first, fields)

    def _comm(self, kind: str, fields: dict[str, str]) -> None:
        if kind == "split":
            members = [int(rank) for rank in fields["ranks"].split(",")]
            key = self._keys[fields["child"]] = (fields["child"], *members)
            self._sizes[fields["child"]] = len(members)
            self._collector.add_comm(key, len(members), fields["child"], members=members)
            return
        name, ranks = fields["comm"], int(fields["world_size"])
        self._sizes[name] = ranks
        self._collector.add_comm(
            self._keys.setdefault(name, (name, ranks)),
            ranks,
            name,
            process=self._process,
            rank=int(fields["rank"]),
        )

    def _signature(self, name: str, fields: dict[str, str]) -> ObservedCall | None:
        """A call with the arguments of a signature; None for one that moves no data."""
        function = merge.function(name)
        if function is None:
            if key(name) not in merge.CONTROL:
                raise ValueError(f"unknown function {name}")
            self._collector.add_note(
                f"left out, because it moves no data of the application: {name}"
            )
            return None
        if function == "alltoall" and (
            _is_uneven(fields.get("in_counts", "0")) or _is_uneven(fields.get("out_counts", "0"))
        ):
            function = "alltoallv"
        comm = fields["comm"]
        call = make_call(
            self._keys.setdefault(comm, comm),
            function,
            _total(fields, "in"),
            _total(fields, "out"),
            fields["dtype"],
            self._sizes.get(comm, 0),
        )
        call.op = merge.op(fields.get("red_op", ""))
        call.root = int(fields["root"]) if "root" in fields else None
        call.peer = int(fields["peer"]) if function in POINT_TO_POINT else None
        call.stream = fields.get("async_op")
        return call

    def _event(self, first: str, fields: list[str]) -> None:
        """An event `C1|Q|...|+0.1`, with `G42|` or `G42|R1|` before it in or from a CUDA graph."""
        parts = [first, *fields]
        graph = parts.pop(0) if parts[0].startswith("G") else ""
        replay = parts.pop(0) if parts[0].startswith("R") else ""
        signature = self._signatures[parts[0]]
        kind = parts[1]
        at_us = self._base_us + 1e6 * float(parts[-1].removeprefix("+"))
        if signature is None or kind == "W":
            return
        name = (graph, replay, parts[0])
        if kind == "Q" or (kind == "S" and replay):
            group = (graph, replay) if replay else None
            call = msgspec.structs.replace(signature, at_us=at_us, group=group)
            self._collector.add_call(self._process, call)
            self._queued.setdefault(name, deque()).append(call)
        if kind == "S" and self._queued.get(name):
            self._running.setdefault(name, deque()).append((self._queued[name].popleft(), at_us))
        elif kind == "E" and self._running.get(name):
            call, started_us = self._running[name].popleft()
            call.cpu_us = max(0.0, at_us - started_us)
        elif kind not in ("Q", "S", "E"):
            raise ValueError(f"unknown event {kind}")


def _fields(parts: list[str]) -> dict[str, str]:
    """The values of `name=value` by name."""
    pairs = [part.partition("=") for part in parts]
    return {name: value for name, mark, value in pairs if mark}


def _is_uneven(counts: str) -> bool:
    return len(set(counts.split(","))) > 1


def _total(fields: dict[str, str], side: str) -> int:
    """The elements that are sent (`in`) or received (`out`)."""
    for name in (f"{side}_count", f"{side}_counts", f"{side}_splits"):
        if name in fields:
            return sum(int(value) for value in fields[name].split(",") if value)
    return 0
