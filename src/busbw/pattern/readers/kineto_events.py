"""The events of a trace of torch.profiler (Kineto), of which only those are kept that say something
of the GPU, of calls, or of the steps of a server.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from busbw.core.pattern import Figure
from busbw.pattern.collector import Collector
from busbw.pattern.readers import json_recovery, operators
from busbw.pattern.readers.kernel_names import communication
from busbw.pattern.readers.server_markers import is_marker
from busbw.pattern.source import PatternSource

CALL = "record_param_comms"
KERNEL, COPY = "kernel", "gpu_memcpy"
ON_GPU = frozenset({KERNEL, COPY})
LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})
_NOTHING = msgspec.Raw(b"{}")
_PIECE = 16 << 20  # bytes that are decoded at once
_OBJECT = b'{"traceEvents":'  # what the list of events is in, unless it is the whole file
_START = _OBJECT + b"["
# Up to the last place between two events
_WHOLE_EVENTS = re.compile(
    rb'(?s:(.*\}))\s*,\s*(?=\{\s*"(?:ph|cat|name|pid|tid|ts|dur|args|id)"\s*:)'
)
_LABEL = re.compile(r"\[[\w-]+\] ")


class KinetoEvent(msgspec.Struct):
    """An event with the fields that are used, named as in the trace."""

    name: str = ""
    cat: str = ""
    ts: float | str | None = None
    dur: float | str | None = None
    pid: float | str | None = None  # of a kernel, the GPU
    tid: float | str | None = None
    args: msgspec.Raw = _NOTHING


class _Launched(msgspec.Struct, omit_defaults=True):
    """What tells the launch of a kernel."""

    correlation: int = -1


class _KinetoTrace(msgspec.Struct):
    traceEvents: list[KinetoEvent]  # the trace's own names
    distributedInfo: dict[str, Any] = {}
    baseTimeNanoseconds: Figure = 0


def traces(source: PatternSource, collector: Collector) -> Iterator[_KinetoTrace]:
    """The trace in parts that end between two events: most events are of no use here, and the
    trace of a long run does not fit in memory.
    """
    start, pending, end = b"", bytearray(), b""
    enough = _PIECE
    for piece in source.pieces(collector):
        if not start and not pending and piece.lstrip().startswith(b"["):
            start, end = _OBJECT, b"}"
        pending += piece
        if len(pending) < enough:
            continue
        whole = _WHOLE_EVENTS.match(pending)
        enough = _PIECE if whole else 2 * len(pending)
        if whole:
            yield _decoded(source, collector, start + whole[1] + b"]}")
            start, pending = _START, pending[whole.end() :]
    yield _decoded(source, collector, start + pending + end)


def _decoded(source: PatternSource, collector: Collector, data: bytes) -> _KinetoTrace:
    """A part of a trace, or what can be read of it."""
    try:
        return msgspec.json.decode(data, type=_KinetoTrace)
    except json_recovery.BROKEN as error:
        collector.add_problem(f"{source.name}: {error}")
        trace = _without_events(data)
        trace.traceEvents = list(_events(json_recovery.objects(data, "traceEvents")))
        return trace


def _without_events(data: bytes) -> _KinetoTrace:
    """What stands before the events of a broken trace, such as its rank."""
    head, key, _ = data.partition(b'"traceEvents"')
    try:
        return msgspec.json.decode(head + key + b":[]}", type=_KinetoTrace)
    except json_recovery.BROKEN:
        return _KinetoTrace([])


def kept(event: KinetoEvent) -> KinetoEvent | None:
    """What of an event says something of the GPU, of calls or of steps; None if nothing does."""
    kind = event.cat.lower()
    if event.name == CALL or (kind in ON_GPU and communication(event.name)):
        event.args = event.args.copy()
    elif kind == KERNEL:
        event.name, event.cat, event.args = "", KERNEL, _launch(event.args)
    elif event.cat in LAUNCHES and b'"correlation"' in bytes(event.args):
        event.name, event.args = "", event.args.copy()
    elif event.cat == operators.CATEGORY and operators.communicates(event.name):
        event.args = event.args.copy()
    elif is_marker(event.cat, event.name):
        event.args = _NOTHING
    else:
        return None
    return event


def _launch(args: msgspec.Raw) -> msgspec.Raw:
    """The part of a kernel's arguments that tells its launch, in few bytes."""
    try:
        launched = msgspec.json.decode(args, type=_Launched)
    except json_recovery.BROKEN:
        return _NOTHING
    return msgspec.Raw(msgspec.json.encode(launched))


def rank_label(event: KinetoEvent) -> str:
    """The label of the rank in a merged trace, '' in any other."""
    match = _LABEL.match(event.pid) if isinstance(event.pid, str) else None
    return match[0] if match else ""


def _events(objects: Iterable[dict[str, Any]]) -> Iterator[KinetoEvent]:
    """The events of a broken trace that can be read."""
    for fields in objects:
        try:
            yield KinetoEvent(
                str(fields.get("name", "")),
                str(fields.get("cat", "")),
                _scalar(fields.get("ts")),
                _scalar(fields.get("dur")),
                _scalar(fields.get("pid")),
                _scalar(fields.get("tid")),
                msgspec.Raw(msgspec.json.encode(fields.get("args", {}))),
            )
        except json_recovery.UNEXPECTED:
            continue


def _scalar(value: Any) -> float | str | None:
    return value if isinstance(value, float | int | str) else None


def micros(time: float | str | None) -> float:
    return float(time or 0)


def arguments_or_none(event: KinetoEvent) -> dict[str, Any]:
    """The arguments of an event, {} if they cannot be read."""
    try:
        return arguments_of(event)
    except json_recovery.UNEXPECTED:
        return {}


def arguments_of(event: KinetoEvent) -> dict[str, Any]:
    arguments = msgspec.json.decode(event.args)
    if not isinstance(arguments, dict):
        raise ValueError("args are no object")
    return arguments


def whole_number(arguments: dict[str, Any], name: str, missing: int | None = None) -> int:
    value: Any = arguments.get(name, missing)
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        if missing is None:
            raise KeyError(name) from None
        return missing


def whole_numbers(listed: Any) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(listed or ""))]
