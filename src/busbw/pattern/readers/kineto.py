"""Traces of torch.profiler (Kineto): `record_param_comms` has the arguments of a call, NCCL's
kernels have its duration on the GPU.

A kernel belongs to the call with its `External id`; without one, to that of the launch with its
`correlation`. A trace that was cut to its kernels is read too: they repeat the arguments. The names
of kernels tell neither protocol nor operator: others run under the same name. They do tell which
kernels communicate: those without a call, of CUDA graphs and of other libraries than NCCL, are
counted by name. Source: torch/csrc/distributed/c10d/ParamCommsUtils.hpp, kineto's output_json.cpp.

SGLang merges the traces of all ranks: `pid` is `[TP00-EP00] 7` then, and each label is a rank.
"""

from collections.abc import Hashable
from typing import Any

from busbw.core.pattern import key
from busbw.core.sizes import counted
from busbw.pattern import merge
from busbw.pattern.collector import Collector
from busbw.pattern.gpu_time import Kernels
from busbw.pattern.merge import POINT_TO_POINT, ObservedCall
from busbw.pattern.readers import json_recovery, kineto_steps, operators
from busbw.pattern.readers.execution_trace import make_call
from busbw.pattern.readers.kernel_names import Communication, communication
from busbw.pattern.readers.kineto_events import (
    CALL,
    KERNEL,
    LAUNCHES,
    ON_GPU,
    KinetoEvent,
    arguments_of,
    arguments_or_none,
    kept,
    micros,
    rank_label,
    traces,
    whole_number,
    whole_numbers,
)
from busbw.pattern.serving_steps import Sent
from busbw.pattern.source import PatternSource

_NODE = "graph node id"


def recognizes(head: bytes) -> bool:
    """Whether this is the trace's JSON object, or the list of its events alone."""
    if head.lstrip().startswith(b"["):
        return all(word in head for word in (b'"ph"', b'"pid"'))
    return head.lstrip().startswith(b"{") and any(
        word in head for word in (b'"traceEvents"', b'"schemaVersion"', b'"distributedInfo"')
    )


def read(source: PatternSource, collector: Collector) -> None:
    events: list[KinetoEvent] = []
    job: dict[str, Any] = {}
    base_us = 0.0
    for trace in traces(source, collector):
        events += filter(None, map(kept, trace.traceEvents))
        job |= trace.distributedInfo
        base_us = trace.baseTimeNanoseconds / 1e3 or base_us
    world, header = job.get("world_size"), collector.header
    if isinstance(world, int):
        header.world = max(header.world, world)
    header.nccl = header.nccl or str(job.get("nccl_version", ""))
    labels = {label for label in map(rank_label, events) if label}
    for label in sorted(labels):
        process = f"{source.number} {label}"
        collector.add_process(process)
        merged = [event for event in events if rank_label(event) == label]
        _KinetoReader(source, collector, process).run(merged, base_us)
    if labels:
        return
    rank = job.get("rank", source.rank)
    if not isinstance(rank, int):
        rank = source.number
    if "rank" in job or any(map(_is_of_rank, events)):
        collector.add_process(rank, rank)
        _KinetoReader(source, collector, rank).run(events, base_us)
    else:  # vLLM's own process, which has no GPU
        collector.add_note(f"{source.name}: no rank's trace: it has no rank, no {CALL}, no kernel")


def _is_of_rank(event: KinetoEvent) -> bool:
    return event.name == CALL or event.cat.lower() in ON_GPU


class _KinetoReader:
    """Reads the events of one rank; `process` is its number, or the key of one that has none."""

    def __init__(self, source: PatternSource, collector: Collector, process: Hashable) -> None:
        self._source, self._collector, self._process = source, collector, process
        self._nameless = 0
        self._on_gpu = 0  # kernels
        self._found: list[ObservedCall] = []
        self._sent: dict[int, Sent] = {}  # by the id() of the event

    def run(self, events: list[KinetoEvent], base_us: float) -> None:
        """Read the host's calls, then add what their kernels say; calls are added in time order."""
        calls = [event for event in events if event.name == CALL]
        kernels = self._kernels(events)
        by_id = self._calls(calls, base_us)
        if not calls:
            kernels = self._calls_of_kernels(kernels, base_us)
        unlisted = self._add_times(kernels, base_us, _launches(events) if kernels else {}, by_id)
        sizes = operators.sizes(events, {number for *_, number in unlisted})
        for event, kernel, number in unlisted:
            size, dtype = sizes.get(number, (None, None))
            self._collector.gpu_times.add_unlisted(
                Kernels(*kernel, bytes=size, dtype=dtype), micros(event.dur)
            )
            self._sent[id(event)] = Sent(kernel.function, kernel.library, kernel.name, size)
        kineto_steps.add(self._collector, self._process, events, self._sent)
        self._add_notes(calls)
        for call in sorted(self._found, key=lambda call: call.at_us or 0.0):
            self._collector.add_call(self._process, call)

    def _kernels(self, events: list[KinetoEvent]) -> list[tuple[KinetoEvent, Communication]]:
        """The kernels of communication. The time of all kernels is added up."""
        found = []
        for event in events:
            kind = event.cat.lower()
            if kind not in ON_GPU:
                continue
            communicates = communication(event.name)
            if communicates is None and kind != KERNEL:
                continue  # memory that is set or copied
            try:
                at_us, time_us = micros(event.ts), micros(event.dur)
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

    def _add_notes(self, calls: list[KinetoEvent]) -> None:
        """Say why there is no call, or no time of one."""
        name = self._source.name
        untimed = sum(call.gpu_us is None for call in self._found)
        if self._nameless and not self._found:
            self._collector.add_note(
                f"{CALL} does not name the collective, as PyTorch 2.1 and older write it: kernels"
                " are counted by name"
            )
        elif not calls and not self._on_gpu:
            self._collector.add_note(
                f"{name}: no {CALL} in this trace: PyTorch records it for NCCL, not for Gloo on"
                " CPUs"
            )
        elif untimed and self._on_gpu:
            self._collector.add_note(
                f"{name}: {counted(untimed, 'call')} without a kernel in the trace: it was captured"
                " into a CUDA graph, is part of a group, or ran outside of the trace"
            )

    def _calls(self, events: list[KinetoEvent], base_us: float) -> dict[int, ObservedCall]:
        """Add the calls of these events to `self._found`, and return them by id."""
        by_id: dict[int, ObservedCall] = {}
        for event in events:
            try:
                arguments = arguments_of(event)
                call = self._call(arguments, base_us + micros(event.ts))
                if call is None:
                    continue
                self._found.append(call)
                by_id[whole_number(arguments, "External id")] = call
            except json_recovery.UNEXPECTED as error:
                self._collector.add_problem(
                    f"{self._source.name}: {CALL}: {type(error).__name__}: {error}"
                )
        return by_id

    def _calls_of_kernels(
        self, kernels: list[tuple[KinetoEvent, Communication]], base_us: float
    ) -> list[tuple[KinetoEvent, Communication]]:
        """Add the calls of kernels that repeat their arguments; the other kernels are returned."""
        others = []
        for event, kernel in kernels:
            arguments = arguments_or_none(event)
            if "Collective name" not in arguments:
                others.append((event, kernel))
                continue
            try:
                call = self._call(arguments, base_us + micros(event.ts))
            except json_recovery.UNEXPECTED as error:
                self._collector.add_problem(
                    f"{self._source.name}: {event.name[:60]}: {type(error).__name__}: {error}"
                )
                call = None
            if call is None:
                others.append((event, kernel))
                continue
            self._found.append(call)
            self._add_kernel(call, event, kernel, base_us)
        return others

    def _add_times(
        self,
        kernels: list[tuple[KinetoEvent, Communication]],
        base_us: float,
        launches: dict[int, int],
        by_id: dict[int, ObservedCall],
    ) -> list[tuple[KinetoEvent, Communication, int]]:
        """Add the start, duration and stream of each kernel to its call. Kernels without a call are
        returned with the id of what launched them, -1 if it is unknown.
        """
        unlisted = []
        for event, kernel in kernels:
            arguments = arguments_or_none(event)
            launch = launches.get(whole_number(arguments, "correlation", -1), -1)
            own = whole_number(arguments, "External id", launch)
            call = by_id.get(own) or by_id.get(launch)
            if call is None:
                # a node of a CUDA graph has the id of what launched the graph
                unlisted.append((event, kernel, -1 if _NODE in arguments else own))
            else:
                self._add_kernel(call, event, kernel, base_us)
        return unlisted

    def _add_kernel(
        self, call: ObservedCall, event: KinetoEvent, kernel: Communication, base_us: float
    ) -> None:
        """Add the time of a kernel to its call."""
        at_us = base_us + micros(event.ts)
        call.gpu_at_us = at_us if call.gpu_at_us is None else min(call.gpu_at_us, at_us)
        call.gpu_us = (call.gpu_us or 0.0) + micros(event.dur)
        stream = arguments_or_none(event).get("stream")
        call.stream = stream if isinstance(stream, int | str) else None
        self._sent[id(event)] = Sent(call.function, kernel.library, kernel.name, call.bytes)

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
        sent, received = (
            whole_number(arguments, "In msg nelems"),
            whole_number(arguments, "Out msg nelems"),
        )
        if function == "alltoallv":
            splits = [whole_numbers(arguments.get(f"{side} split size")) for side in ("In", "Out")]
            if all(len(set(sizes)) < 2 for sizes in splits):
                function = "alltoall"
        dtype = str(arguments.get("dtype", ""))
        call = make_call(comm, function, sent, received, dtype, ranks, at_us=at_us)
        if function in POINT_TO_POINT:
            side = "Dst Rank" if function == "send" else "Src Rank"
            call.peer = whole_number(arguments, side) if side in arguments else None
        elif "Root rank" in arguments:
            call.root = whole_number(arguments, "Root rank")
        return call

    def _comm(self, arguments: dict[str, Any]) -> tuple[Hashable, int]:
        """The key of a call's process group, and the number of its ranks, 0 if unknown."""
        name = str(arguments.get("Process Group Name", ""))
        description = str(arguments.get("Process Group Description", ""))
        listed = str(arguments.get("Process Group Ranks", ""))
        members = [] if "..." in listed else whole_numbers(listed)  # a long list is shortened
        ranks = len(members) or whole_number(arguments, "Group size", 0)
        key: Hashable = (name, tuple(members) or listed)
        shown = description if description not in ("", "undefined") else name
        rank = members.index(self._process) if self._process in members else None
        self._collector.add_comm(
            key, ranks, shown, members=members, process=self._process, rank=rank
        )
        return key, ranks


def _launches(events: list[KinetoEvent]) -> dict[int, int]:
    """The id of the call by the correlation number of each launch."""
    calls = {}
    for event in events:
        if event.cat in LAUNCHES:
            arguments = arguments_or_none(event)
            calls[whole_number(arguments, "correlation", -1)] = whole_number(
                arguments, "External id", -1
            )
    return calls
