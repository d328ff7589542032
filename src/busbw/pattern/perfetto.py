"""A pattern as a trace in Chrome's format, which Perfetto shows: a track for each communicator and
stream, a slice for each call that was timed.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from busbw.core.errors import UsageError
from busbw.core.pattern import Pattern, PatternCall, PatternRow
from busbw.core.sizes import format_size

_SHOWN = ("bytes", "count", "dtype", "op", "root", "rank", "peer", "algorithm", "protocol")


def trace(pattern: Pattern) -> bytes:
    """The trace; UsageError if no call has a start and a duration."""
    slices = list(_slices(pattern))
    if not slices:
        raise UsageError(
            "--format perfetto: no call of this pattern has a start and a duration",
            "record times: busbw capture --timed",
        )
    tracks = {(event["pid"], event["tid"]) for event in slices}
    document = {
        "displayTimeUnit": "ns",
        "traceEvents": [*_names(pattern, tracks), *slices],
        "otherData": {"source": pattern.header.source, "started": pattern.header.started},
    }
    return msgspec.json.encode(document) + b"\n"


def _slices(pattern: Pattern) -> Iterator[dict[str, Any]]:
    for call in pattern.calls:
        span = _span(call)
        if span is None:
            continue
        row = pattern.rows[call.row]
        start_us, time_us, clock = span
        yield {
            "ph": "X",
            "cat": clock,
            "name": f"{row.function} {format_size(row.bytes)}",
            "pid": row.comm,
            "tid": call.stream or 0,
            "ts": start_us,
            "dur": time_us,
            "args": _arguments(row, call),
        }


def _span(call: PatternCall) -> tuple[float, float, str] | None:
    """Start and duration in microseconds, by the GPU's clock or else the host's."""
    start_us = call.at_us if call.gpu_at_us is None else call.gpu_at_us
    if start_us is not None and call.gpu_us is not None:
        return start_us, call.gpu_us, "gpu"
    if call.at_us is not None and call.cpu_us is not None:
        return call.at_us, call.cpu_us, "cpu"
    return None


def _arguments(row: PatternRow, call: PatternCall) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in _SHOWN} | {"skew_us": call.skew_us}
    return {name: value for name, value in values.items() if value is not None}


def _names(pattern: Pattern, tracks: set[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    for comm in pattern.comms:
        ranks = f", {comm.ranks} ranks" if comm.ranks else ""
        name = f"{comm.name or f'communicator {comm.id}'}{ranks}"
        yield {"ph": "M", "name": "process_name", "pid": comm.id, "args": {"name": name}}
    for pid, tid in sorted(tracks):
        arguments = {"name": f"stream {tid}"}
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": arguments}
