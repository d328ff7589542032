"""Traces of torch.profiler (Kineto): `record_param_comms` has the arguments of a call, NCCL's
kernels have its duration on the GPU.

A kernel belongs to the call with its `External id`; without one, to that of the launch with its
`correlation`. A trace that was cut to its kernels is read too: they repeat the arguments. The names
of kernels tell neither protocol nor operator: others run under the same name. Source:
torch/csrc/distributed/c10d/ParamCommsUtils.hpp, kineto's output_json.cpp.
"""

import re
from collections.abc import Hashable, Iterable
from typing import Any

import msgspec

from busbw.core.pattern import Figure, key
from busbw.core.sizes import counted
from busbw.pattern import merge
from busbw.pattern.collector import Collector
from busbw.pattern.merge import POINT_TO_POINT, Observed
from busbw.pattern.readers import json_recovery
from busbw.pattern.readers.execution_trace import make_call
from busbw.pattern.source import Source

_CALL = "record_param_comms"
_LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})


class _Event(msgspec.Struct):
    name: str = ""
    cat: str = ""
    ts: float | str | None = None
    dur: float | str | None = None
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Trace(msgspec.Struct):
    traceEvents: list[_Event]  # the trace's own names
    distributedInfo: dict[str, Any] = {}
    baseTimeNanoseconds: Figure = 0


def recognizes(head: bytes) -> bool:
    """Whether this is the trace's JSON object."""
    return head.lstrip().startswith(b"{") and any(
        word in head for word in (b'"traceEvents"', b'"schemaVersion"', b'"distributedInfo"')
    )


def read(source: Source, collector: Collector) -> None:
    """Add the calls of one rank."""
    data = source.read_all(collector)
    try:
        trace = msgspec.json.decode(data, type=_Trace)
    except json_recovery.BROKEN as error:
        collector.add_problem(f"{source.name}: {error}")
        trace = _Trace(list(_events(json_recovery.objects(data, "traceEvents"))))
    job, header = trace.distributedInfo, collector.header
    rank = job.get("rank", source.rank)
    if not isinstance(rank, int):
        rank = source.number
    world = job.get("world_size")
    if isinstance(world, int):
        header.world = max(header.world, world)
    header.nccl = header.nccl or str(job.get("nccl_version", ""))
    collector.add_process(rank, rank)
    _Reader(source, collector, rank).run(trace)


def _events(objects: Iterable[dict[str, Any]]) -> Iterable[_Event]:
    """The events of a broken trace that can be read."""
    for fields in objects:
        try:
            yield _Event(
                str(fields.get("name", "")),
                str(fields.get("cat", "")),
                fields.get("ts"),
                fields.get("dur"),
                msgspec.Raw(msgspec.json.encode(fields.get("args", {}))),
            )
        except json_recovery.UNEXPECTED:
            continue


class _Reader:
    def __init__(self, source: Source, collector: Collector, rank: int) -> None:
        self._source, self._collector, self._rank = source, collector, rank
        self._nameless = 0
        self._found: list[Observed] = []

    def run(self, trace: _Trace) -> None:
        """Read the calls of the host, then what their kernels add; the calls are added in order of
        time.
        """
        events = [event for event in trace.traceEvents if event.name == _CALL]
        kernels = [
            event
            for event in trace.traceEvents
            if event.cat.lower() == "kernel" and "nccl" in event.name
        ]
        base_us = trace.baseTimeNanoseconds / 1e3
        by_id = self._calls(events or kernels, base_us, timed=not events)
        if self._nameless and not self._found:
            self._collector.add_note(
                f"{self._source.name}: its {_CALL} do not name the collective, as PyTorch 2.1 and"
                " older write them: profile again with a newer one"
            )
        elif events:
            launches = self._launches(trace.traceEvents) if kernels else {}
            self._add_times(kernels, base_us, launches, by_id)
        elif not kernels:
            self._collector.add_note(
                f"{self._source.name}: no {_CALL} in this trace: PyTorch records it for NCCL, not"
                " for Gloo on CPUs"
            )
        for call in sorted(self._found, key=lambda call: call.at_us or 0.0):
            self._collector.add_call(self._rank, call)

    def _calls(self, events: list[_Event], base_us: float, *, timed: bool) -> dict[int, Observed]:
        """Add the calls of these events to `self._found`, and return them by id.

        Events that are kernels are `timed`: their durations are those of the calls.
        """
        by_id: dict[int, Observed] = {}
        for event in events:
            try:
                arguments = _arguments(event)
                call = self._call(arguments, base_us + float(event.ts or 0))
                if call is None:
                    continue
                self._found.append(call)
                by_id[_number(arguments, "External id")] = call
                if timed:
                    call.gpu_at_us, call.gpu_us = call.at_us, float(event.dur or 0)
                    call.stream = arguments.get("stream")
            except json_recovery.UNEXPECTED as error:
                self._collector.add_problem(
                    f"{self._source.name}: {_CALL}: {type(error).__name__}: {error}"
                )
        return by_id

    def _launches(self, events: list[_Event]) -> dict[int, int]:
        """The id of the call by the correlation number of each launch."""
        calls = {}
        for event in events:
            if event.cat in _LAUNCHES and b'"correlation"' in bytes(event.args):
                try:
                    arguments = _arguments(event)
                    calls[_number(arguments, "correlation")] = _number(arguments, "External id")
                except json_recovery.UNEXPECTED:
                    continue
        return calls

    def _add_times(
        self,
        kernels: list[_Event],
        base_us: float,
        launches: dict[int, int],
        by_id: dict[int, Observed],
    ) -> None:
        """Add the start, duration and stream of each kernel to its call."""
        unmatched = 0
        for event in kernels:
            try:
                arguments = _arguments(event)
                call = None
                if "External id" in arguments:
                    call = by_id.get(_number(arguments, "External id"))
                call = call or by_id.get(launches.get(_number(arguments, "correlation"), -1))
                if call is None:
                    unmatched += 1
                    continue
                at_us = base_us + float(event.ts or 0)
                call.gpu_at_us = at_us if call.gpu_at_us is None else min(call.gpu_at_us, at_us)
                call.gpu_us = (call.gpu_us or 0.0) + float(event.dur or 0)
                call.stream = arguments.get("stream")
            except json_recovery.UNEXPECTED:
                unmatched += 1
        if unmatched:
            self._collector.add_note(
                f"{self._source.name}: {counted(unmatched, 'kernel')} of NCCL whose call is not in"
                " the trace"
            )

    def _call(self, arguments: dict[str, Any], at_us: float) -> Observed | None:
        """The call with these arguments; None for a function that moves no data."""
        name = str(arguments.get("Collective name", ""))
        self._nameless += not name
        function = merge.function(name)
        if function is None:
            if name and key(name) not in merge.CONTROL:
                raise ValueError(f"unknown function {name}")
            if name not in ("", "wait", "init"):
                self._collector.count_omitted(self._rank, name)
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
        rank = members.index(self._rank) if self._rank in members else None
        self._collector.add_comm(key, ranks, shown, members=members, process=self._rank, rank=rank)
        return key, ranks


def _arguments(event: _Event) -> dict[str, Any]:
    arguments = msgspec.json.decode(event.args)
    if not isinstance(arguments, dict):
        raise ValueError("args are no object")
    return arguments


def _number(arguments: dict[str, Any], name: str, missing: int | None = None) -> int:
    value = arguments.get(name, missing)
    if value is None:
        raise KeyError(name)
    return int(value)


def _numbers(listed: Any) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(listed or ""))]
