"""The steps of an inference server in the events of one rank: markers, and what was launched in
each.
"""

import math
from collections.abc import Hashable, Iterable, Mapping

from busbw.core.pattern import MAX_FIGURE
from busbw.core.serving import UNKNOWN
from busbw.pattern.collector import Collector
from busbw.pattern.readers import server_markers
from busbw.pattern.readers.kernel_names import OF_SERVERS
from busbw.pattern.readers.kineto_events import (
    KERNEL,
    LAUNCHES,
    ON_GPU,
    KinetoEvent,
    arguments_or_none,
    micros,
    whole_number,
)
from busbw.pattern.serving_steps import LaunchedKernel, Range, Sent

_Launch = tuple[Hashable, Hashable, float]


def add(
    collector: Collector, process: Hashable, events: list[KinetoEvent], sent: Mapping[int, Sent]
) -> None:
    """Add the steps of a rank; `sent` has the events of communication by their `id()`.

    A note says so if a server's steps have no phase.
    """
    on_host = _ranges(event for event in events if server_markers.is_on_host(event.cat))
    on_gpu = _ranges(event for event in events if event.cat == server_markers.ON_GPU)
    markers = on_host or on_gpu
    if markers:
        collector.steps.add(process, on_host, on_gpu, _kernels(events, sent))
    if markers and any(one.phase != UNKNOWN for one in markers):
        return
    if markers or any(one.library in OF_SERVERS for one in sent.values()):
        collector.add_note(
            "whether steps are prefill or decode is unknown: no marker in the trace says it"
        )


def _ranges(events: Iterable[KinetoEvent]) -> list[Range]:
    """The markers of the lowest level among these events."""
    found: dict[int, list[Range]] = {}
    servers = set()
    for event in events:
        marker = server_markers.marker(event.name)
        span = _span(event)
        if marker and span:
            servers.add(marker.server)
            at_us, time_us = span
            place = (event.pid, event.tid)
            one = Range(place, at_us, at_us + time_us, marker.server, marker.phase)
            found.setdefault(marker.level, []).append(one)
    if not found:
        return []
    if server_markers.SGLANG in servers:  # it writes vLLM's markers too
        return [one._replace(server=server_markers.SGLANG) for one in found[min(found)]]
    return found[min(found)]


def _kernels(events: list[KinetoEvent], sent: Mapping[int, Sent]) -> list[LaunchedKernel]:
    """The kernels, and copies between GPUs, with their launches."""
    launches = _launches(events)
    kernels = []
    for event in events:
        kind = event.cat.lower()
        communication = sent.get(id(event))
        span = _span(event) if kind in ON_GPU and (communication or kind == KERNEL) else None
        if span is None:
            continue
        correlation = whole_number(arguments_or_none(event), "correlation", -1)
        kernels.append(LaunchedKernel(event.pid, *span, launches.get(correlation), communication))
    return kernels


def _launches(events: list[KinetoEvent]) -> dict[int, _Launch]:
    """Process, thread and start of each launch, by its correlation number."""
    launches: dict[int, _Launch] = {}
    for event in events:
        span = _span(event) if event.cat in LAUNCHES else None
        if span:
            correlation = whole_number(arguments_or_none(event), "correlation", -1)
            launches[correlation] = (event.pid, event.tid, span[0])
    launches.pop(-1, None)
    return launches


def _span(event: KinetoEvent) -> tuple[float, float] | None:
    """The start and the duration of an event, None if they cannot be true."""
    try:
        at_us, time_us = micros(event.ts), micros(event.dur)
    except ValueError:
        return None
    if math.isfinite(at_us) and 0 <= time_us < MAX_FIGURE:
        return at_us, time_us
    return None
