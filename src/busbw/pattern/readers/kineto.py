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

from busbw.core.sizes import counted
from busbw.pattern import merge
from busbw.pattern.collector import Collector
from busbw.pattern.merge import POINT_TO_POINT, Observed
from busbw.pattern.readers import json_recovery
from busbw.pattern.readers.execution_trace import observed
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
    baseTimeNanoseconds: int = 0


def recognized(head: bytes) -> bool:
    """Whether this is the trace's JSON object."""
    return head.lstrip().startswith(b"{") and any(
        word in head for word in (b'"traceEvents"', b'"schemaVersion"', b'"distributedInfo"')
    )


def read(source: Source, collector: Collector) -> None:
    """Add the calls of one rank."""
    data = source.whole(collector)
    try:
        trace = msgspec.json.decode(data, type=_Trace)
    except json_recovery.BROKEN as error:
        collector.problem(f"{source.name}: {error}")
        trace = _Trace(list(_events(json_recovery.objects(data, "traceEvents"))))
    rank = trace.distributedInfo.get("rank", source.rank)
    rank = rank if isinstance(rank, int) else source.number
    world = trace.distributedInfo.get("world_size")
    collector.header.world = max(collector.header.world, world if isinstance(world, int) else 0)
    collector.header.nccl = collector.header.nccl or str(
        trace.distributedInfo.get("nccl_version", "")
    )
    collector.process(rank, rank)
    _Reader(source, collector, rank).run(trace)


def _events(objects: Iterable[dict[str, Any]]) -> Iterable[_Event]:
    for one in objects:
        try:
            yield _Event(
                str(one.get("name", "")),
                str(one.get("cat", "")),
                one.get("ts"),
                one.get("dur"),
                msgspec.Raw(msgspec.json.encode(one.get("args", {}))),
            )
        except json_recovery.UNEXPECTED:
            continue


class _Reader:
    def __init__(self, source: Source, collector: Collector, rank: int) -> None:
        self._source, self._to, self._rank = source, collector, rank
        self._nameless = 0

    def run(self, trace: _Trace) -> None:
        """Read calls, then what their kernels add; the calls are those of the host, in order of
        time.
        """
        calls = [event for event in trace.traceEvents if event.name == _CALL]
        kernels = [
            event
            for event in trace.traceEvents
            if event.cat.lower() == "kernel" and "nccl" in event.name
        ]
        launches = {} if not kernels else self._launches(trace.traceEvents)
        by_id: dict[int, Observed] = {}
        found = []
        for event in calls or kernels:
            try:
                arguments = _arguments(event)
                if (
                    call := self._call(
                        arguments, trace.baseTimeNanoseconds / 1e3 + float(event.ts or 0)
                    )
                ) is not None:
                    found.append(call)
                    by_id[_number(arguments, "External id")] = call
                    if not calls:
                        call.gpu_us, call.stream = float(event.dur or 0), arguments.get("stream")
            except json_recovery.UNEXPECTED as error:
                self._to.problem(f"{self._source.name}: {_CALL}: {type(error).__name__}: {error}")
        if self._nameless and not found:
            self._to.note(
                f"{self._source.name}: its {_CALL} do not name the collective, as PyTorch 2.1 and"
                " older write them: profile again with a newer one"
            )
        elif calls:
            self._durations(kernels, launches, by_id)
        elif not kernels:
            self._to.note(
                f"{self._source.name}: no {_CALL} in this trace: PyTorch records it for NCCL, not"
                " for Gloo on CPUs"
            )
        for call in sorted(found, key=lambda call: call.at_us or 0.0):
            self._to.call(self._rank, call)

    def _launches(self, events: list[_Event]) -> dict[int, int]:
        """The id of the call for each launch."""
        found = {}
        for event in events:
            if event.cat in _LAUNCHES and b'"correlation"' in bytes(event.args):
                try:
                    arguments = _arguments(event)
                    found[_number(arguments, "correlation")] = _number(arguments, "External id")
                except json_recovery.UNEXPECTED:
                    continue
        return found

    def _durations(
        self, kernels: list[_Event], launches: dict[int, int], by_id: dict[int, Observed]
    ) -> None:
        lonely = 0
        for event in kernels:
            try:
                arguments = _arguments(event)
                call = (
                    by_id.get(_number(arguments, "External id"))
                    if "External id" in arguments
                    else None
                )
                call = call or by_id.get(launches.get(_number(arguments, "correlation"), -1))
                if call is None:
                    lonely += 1
                    continue
                call.gpu_us, call.stream = (
                    (call.gpu_us or 0.0) + float(event.dur or 0),
                    arguments.get("stream"),
                )
            except json_recovery.UNEXPECTED:
                lonely += 1
        if lonely:
            self._to.note(
                f"{self._source.name}: {counted(lonely, 'kernel')} of NCCL whose call is not in the"
                " trace"
            )

    def _call(self, arguments: dict[str, Any], at_us: float) -> Observed | None:
        name = str(arguments.get("Collective name", ""))
        self._nameless += not name
        function = merge.function(name)
        if function is None:
            if name and merge.key(name) not in merge.CONTROL:
                raise ValueError(f"unknown function {name}")
            if name not in ("", "wait", "init"):
                self._to.left_out(self._rank, name)
            return None
        comm, ranks = self._comm(arguments)
        sent, received = _number(arguments, "In msg nelems"), _number(arguments, "Out msg nelems")
        if function == "alltoallv" and all(
            len(set(_numbers(arguments.get(f"{side} split size")))) < 2 for side in ("In", "Out")
        ):
            function = "alltoall"
        call = observed(
            comm, function, sent, received, str(arguments.get("dtype", "")), ranks, at_us=at_us
        )
        if function in POINT_TO_POINT:
            side = "Dst Rank" if function == "send" else "Src Rank"
            call.peer = _number(arguments, side) if side in arguments else None
        elif "Root rank" in arguments:
            call.root = _number(arguments, "Root rank")
        return call

    def _comm(self, arguments: dict[str, Any]) -> tuple[Hashable, int]:
        name, description = (
            str(arguments.get(f"Process Group {what}", "")) for what in ("Name", "Description")
        )
        listed = str(arguments.get("Process Group Ranks", ""))
        members = [] if "..." in listed else _numbers(listed)  # a long list is shortened
        ranks = len(members) or _number(arguments, "Group size", 0)
        key: Hashable = (name, tuple(members) or listed)
        shown = description if description not in ("", "undefined") else name
        own = members.index(self._rank) if self._rank in members else None
        self._to.comm(key, ranks, shown, members=members, process=self._rank, rank=own)
        return key, ranks


def _arguments(event: _Event) -> dict[str, Any]:
    found = msgspec.json.decode(event.args)
    if not isinstance(found, dict):
        raise ValueError("args are no object")
    return found


def _number(arguments: dict[str, Any], name: str, missing: int | None = None) -> int:
    value = arguments.get(name, missing)
    if value is None:
        raise KeyError(name)
    return int(value)


def _numbers(listed: Any) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(listed or ""))]
