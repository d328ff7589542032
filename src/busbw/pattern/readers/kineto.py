"""Traces of torch.profiler (Kineto): `record_param_comms` has the arguments of a call, NCCL's
kernels have its duration on the GPU.

A kernel belongs to the call with its `External id`; without one, to that of the launch with its
`correlation`. A trace that was cut to its kernels is read too: they repeat the arguments. The names
of kernels tell neither protocol nor operator: others run under the same name. They do tell which
kernels communicate: those without a call, of CUDA graphs and of other libraries than NCCL, are
counted by name. Source: torch/csrc/distributed/c10d/ParamCommsUtils.hpp, kineto's output_json.cpp.

SGLang merges the traces of all ranks: `pid` is `[TP00-EP00] 7` then, and each label is a rank.
"""

import re
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import msgspec

from busbw.core.pattern import Figure, key
from busbw.core.sizes import counted
from busbw.pattern import merge
from busbw.pattern.collector import Collector
from busbw.pattern.gpu_time import Kernels
from busbw.pattern.merge import POINT_TO_POINT, ObservedCall
from busbw.pattern.readers import json_recovery, operators
from busbw.pattern.readers.execution_trace import make_call
from busbw.pattern.readers.kernel_names import Communication, communication
from busbw.pattern.source import PatternSource

_CALL = "record_param_comms"
_KERNEL, _COPY = "kernel", "gpu_memcpy"
_ON_GPU = frozenset({_KERNEL, _COPY})
_LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})
_NOTHING = msgspec.Raw(b"{}")
_PIECE = 16 << 20  # bytes that are decoded at once
_START = b'{"traceEvents":['
# Up to the last place between two events
_WHOLE_EVENTS = re.compile(
    rb'(?s:(.*\}))\s*,\s*(?=\{\s*"(?:ph|cat|name|pid|tid|ts|dur|args|id)"\s*:)'
)
_NODE = "graph node id"
_LABEL = re.compile(r"\[[\w-]+\] ")


class _KinetoEvent(msgspec.Struct):
    name: str = ""
    cat: str = ""
    ts: float | str | None = None
    dur: float | str | None = None
    pid: float | str | None = None  # of a kernel, the GPU
    args: msgspec.Raw = _NOTHING


class _KinetoTrace(msgspec.Struct):
    traceEvents: list[_KinetoEvent]  # the trace's own names
    distributedInfo: dict[str, Any] = {}
    baseTimeNanoseconds: Figure = 0


def recognizes(head: bytes) -> bool:
    """Whether this is the trace's JSON object."""
    return head.lstrip().startswith(b"{") and any(
        word in head for word in (b'"traceEvents"', b'"schemaVersion"', b'"distributedInfo"')
    )


def read(source: PatternSource, collector: Collector) -> None:
    events: list[_KinetoEvent] = []
    job: dict[str, Any] = {}
    base_us = 0.0
    for trace in _traces(source, collector):
        events += filter(None, map(_kept, trace.traceEvents))
        job |= trace.distributedInfo
        base_us = trace.baseTimeNanoseconds / 1e3 or base_us
    world, header = job.get("world_size"), collector.header
    if isinstance(world, int):
        header.world = max(header.world, world)
    header.nccl = header.nccl or str(job.get("nccl_version", ""))
    labels = {label for label in map(_label, events) if label}
    for label in sorted(labels):
        process = f"{source.number} {label}"
        collector.add_process(process)
        merged = [event for event in events if _label(event) == label]
        _KinetoReader(source, collector, process).run(merged, base_us)
    if not labels:
        rank = job.get("rank", source.rank)
        if not isinstance(rank, int):
            rank = source.number
        collector.add_process(rank, rank)
        _KinetoReader(source, collector, rank).run(events, base_us)


def _traces(source: PatternSource, collector: Collector) -> Iterator[_KinetoTrace]:
    """The trace in parts that end between two events: most events are of no use here, and the
    trace of a long run does not fit in memory.
    """
    start, pending = b"", bytearray()
    enough = _PIECE
    for piece in source.pieces(collector):
        pending += piece
        if len(pending) < enough:
            continue
        whole = _WHOLE_EVENTS.match(pending)
        enough = _PIECE if whole else 2 * len(pending)
        if whole:
            yield _decoded(source, collector, start + whole[1] + b"]}")
            start, pending = _START, pending[whole.end() :]
    yield _decoded(source, collector, start + pending)


def _decoded(source: PatternSource, collector: Collector, data: bytes) -> _KinetoTrace:
    """A part of a trace, or what can be read of it."""
    try:
        return msgspec.json.decode(data, type=_KinetoTrace)
    except json_recovery.BROKEN as error:
        collector.add_problem(f"{source.name}: {error}")
        return _KinetoTrace(list(_events(json_recovery.objects(data, "traceEvents"))))


def _kept(event: _KinetoEvent) -> _KinetoEvent | None:
    """What of an event says something of the GPU or its calls; None if nothing does."""
    kind = event.cat.lower()
    if event.name == _CALL or (kind in _ON_GPU and communication(event.name)):
        event.args = event.args.copy()
    elif kind == _KERNEL:
        event.name, event.cat, event.args = "", _KERNEL, _NOTHING
    elif event.cat in _LAUNCHES and b'"correlation"' in bytes(event.args):
        event.name, event.args = "", event.args.copy()
    elif event.cat == operators.CATEGORY and operators.communicates(event.name):
        event.args = event.args.copy()
    else:
        return None
    return event


def _label(event: _KinetoEvent) -> str:
    """The label of the rank in a merged trace, '' in any other."""
    match = _LABEL.match(event.pid) if isinstance(event.pid, str) else None
    return match[0] if match else ""


def _events(objects: Iterable[dict[str, Any]]) -> Iterator[_KinetoEvent]:
    """The events of a broken trace that can be read."""
    for fields in objects:
        try:
            yield _KinetoEvent(
                str(fields.get("name", "")),
                str(fields.get("cat", "")),
                fields.get("ts"),
                fields.get("dur"),
                fields.get("pid"),
                msgspec.Raw(msgspec.json.encode(fields.get("args", {}))),
            )
        except json_recovery.UNEXPECTED:
            continue


class _KinetoReader:
    """Reads the events of one rank; `process` is its number, or the key of one that has none."""

    def __init__(self, source: PatternSource, collector: Collector, process: Hashable) -> None:
        self._source, self._collector, self._process = source, collector, process
        self._nameless = 0
        self._on_gpu = 0  # kernels
        self._found: list[ObservedCall] = []

    def run(self, events: list[_KinetoEvent], base_us: float) -> None:
        """Read the host's calls, then add what their kernels say; calls are added in time order."""
        calls = [event for event in events if event.name == _CALL]
        kernels = self._kernels(events)
        by_id = self._calls(calls, base_us)
        if not calls:
            kernels = self._calls_of_kernels(kernels, base_us)
        unlisted = self._add_times(kernels, base_us, _launches(events) if kernels else {}, by_id)
        sizes = operators.sizes(events, {number for *_, number in unlisted})
        for event, kernel, number in unlisted:
            size, dtype = sizes.get(number, (None, None))
            self._collector.gpu_times.add_unlisted(
                Kernels(*kernel, bytes=size, dtype=dtype), _us(event.dur)
            )
        self._add_notes(calls)
        for call in sorted(self._found, key=lambda call: call.at_us or 0.0):
            self._collector.add_call(self._process, call)

    def _kernels(self, events: list[_KinetoEvent]) -> list[tuple[_KinetoEvent, Communication]]:
        """The kernels of communication. The time of all kernels is added up."""
        found = []
        for event in events:
            kind = event.cat.lower()
            if kind not in _ON_GPU:
                continue
            communicates = communication(event.name)
            if communicates is None and kind != _KERNEL:
                continue  # memory that is set or copied
            try:
                at_us, time_us = _us(event.ts), _us(event.dur)
            except ValueError as error:
                self._collector.add_problem(f"{self._source.name}: a kernel: {error}")
                continue
            self._on_gpu += 1
            self._collector.gpu_times.add(
                (self._process, event.pid), at_us, time_us, communicates=communicates is not None
            )
            if communicates is not None:
                found.append((event, communicates))
        return found

    def _add_notes(self, calls: list[_KinetoEvent]) -> None:
        """Say why there is no call, or no time of one."""
        name = self._source.name
        untimed = sum(call.gpu_us is None for call in self._found)
        if self._nameless and not self._found:
            self._collector.add_note(
                f"{name}: its {_CALL} do not name the collective, as PyTorch 2.1 and older write"
                " them: kernels are counted by name"
            )
        elif not calls and not self._on_gpu:
            self._collector.add_note(
                f"{name}: no {_CALL} in this trace: PyTorch records it for NCCL, not for Gloo on"
                " CPUs"
            )
        elif untimed and self._on_gpu:
            self._collector.add_note(
                f"{name}: {counted(untimed, 'call')} without a kernel in the trace: it was captured"
                " into a CUDA graph, is part of a group, or ran outside of the trace"
            )

    def _calls(self, events: list[_KinetoEvent], base_us: float) -> dict[int, ObservedCall]:
        """Add the calls of these events to `self._found`, and return them by id."""
        by_id: dict[int, ObservedCall] = {}
        for event in events:
            try:
                arguments = _arguments(event)
                call = self._call(arguments, base_us + _us(event.ts))
                if call is None:
                    continue
                self._found.append(call)
                by_id[_number(arguments, "External id")] = call
            except json_recovery.UNEXPECTED as error:
                self._collector.add_problem(
                    f"{self._source.name}: {_CALL}: {type(error).__name__}: {error}"
                )
        return by_id

    def _calls_of_kernels(
        self, kernels: list[tuple[_KinetoEvent, Communication]], base_us: float
    ) -> list[tuple[_KinetoEvent, Communication]]:
        """Add the calls of kernels that repeat their arguments; the other kernels are returned."""
        others = []
        for event, kernel in kernels:
            arguments = _arguments_or_none(event)
            if "Collective name" not in arguments:
                others.append((event, kernel))
                continue
            try:
                call = self._call(arguments, base_us + _us(event.ts))
            except json_recovery.UNEXPECTED as error:
                self._collector.add_problem(
                    f"{self._source.name}: {event.name[:60]}: {type(error).__name__}: {error}"
                )
                call = None
            if call is None:
                others.append((event, kernel))
                continue
            self._found.append(call)
            _add_time(call, event, arguments, base_us)
        return others

    def _add_times(
        self,
        kernels: list[tuple[_KinetoEvent, Communication]],
        base_us: float,
        launches: dict[int, int],
        by_id: dict[int, ObservedCall],
    ) -> list[tuple[_KinetoEvent, Communication, int]]:
        """Add the start, duration and stream of each kernel to its call. Kernels without a call are
        returned with the id of what launched them, -1 if it is unknown.
        """
        unlisted = []
        for event, kernel in kernels:
            arguments = _arguments_or_none(event)
            launch = launches.get(_number(arguments, "correlation", -1), -1)
            own = _number(arguments, "External id", launch)
            call = by_id.get(own) or by_id.get(launch)
            if call is None:
                # a node of a CUDA graph has the id of what launched the graph
                unlisted.append((event, kernel, -1 if _NODE in arguments else own))
            else:
                _add_time(call, event, arguments, base_us)
        return unlisted

    def _call(self, arguments: dict[str, Any], at_us: float) -> ObservedCall | None:
        """The call with these arguments; None for a function that moves no data."""
        name = str(arguments.get("Collective name", ""))
        self._nameless += not name
        function = merge.function(name)
        if function is None:
            if name and key(name) not in merge.CONTROL:
                raise ValueError(f"unknown function {name}")
            if name not in ("", "wait", "init"):
                self._collector.count_omitted(self._process, name)
            return None
        comm, ranks = self._comm(arguments)
        sent, received = _number(arguments, "In msg nelems"), _number(arguments, "Out msg nelems")
        if function == "alltoallv":
            splits = [_numbers(arguments.get(f"{side} split size")) for side in ("In", "Out")]
            if all(len(set(sizes)) < 2 for sizes in splits):
                function = "alltoall"
        dtype = str(arguments.get("dtype", ""))
        call = make_call(comm, function, sent, received, dtype, ranks, at_us=at_us)
        if function in POINT_TO_POINT:
            side = "Dst Rank" if function == "send" else "Src Rank"
            call.peer = _number(arguments, side) if side in arguments else None
        elif "Root rank" in arguments:
            call.root = _number(arguments, "Root rank")
        return call

    def _comm(self, arguments: dict[str, Any]) -> tuple[Hashable, int]:
        """The key of a call's process group, and the number of its ranks, 0 if unknown."""
        name = str(arguments.get("Process Group Name", ""))
        description = str(arguments.get("Process Group Description", ""))
        listed = str(arguments.get("Process Group Ranks", ""))
        members = [] if "..." in listed else _numbers(listed)  # a long list is shortened
        ranks = len(members) or _number(arguments, "Group size", 0)
        key: Hashable = (name, tuple(members) or listed)
        shown = description if description not in ("", "undefined") else name
        rank = members.index(self._process) if self._process in members else None
        self._collector.add_comm(
            key, ranks, shown, members=members, process=self._process, rank=rank
        )
        return key, ranks


def _launches(events: list[_KinetoEvent]) -> dict[int, int]:
    """The id of the call by the correlation number of each launch."""
    calls = {}
    for event in events:
        if event.cat in _LAUNCHES:
            arguments = _arguments_or_none(event)
            calls[_number(arguments, "correlation", -1)] = _number(arguments, "External id", -1)
    return calls


def _add_time(
    call: ObservedCall, event: _KinetoEvent, arguments: dict[str, Any], base_us: float
) -> None:
    """Add a kernel to its call."""
    at_us = base_us + _us(event.ts)
    call.gpu_at_us = at_us if call.gpu_at_us is None else min(call.gpu_at_us, at_us)
    call.gpu_us = (call.gpu_us or 0.0) + _us(event.dur)
    stream = arguments.get("stream")
    call.stream = stream if isinstance(stream, int | str) else None


def _us(time: float | str | None) -> float:
    return float(time or 0)


def _arguments_or_none(event: _KinetoEvent) -> dict[str, Any]:
    """The arguments of an event, {} if they cannot be read."""
    try:
        return _arguments(event)
    except json_recovery.UNEXPECTED:
        return {}


def _arguments(event: _KinetoEvent) -> dict[str, Any]:
    arguments = msgspec.json.decode(event.args)
    if not isinstance(arguments, dict):
        raise ValueError("args are no object")
    return arguments


def _number(arguments: dict[str, Any], name: str, missing: int | None = None) -> int:
    value: Any = arguments.get(name, missing)
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        if missing is None:
            raise KeyError(name) from None
        return missing


def _numbers(listed: Any) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(listed or ""))]
