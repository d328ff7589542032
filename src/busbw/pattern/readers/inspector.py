"""JSON of NVIDIA's NCCL Inspector, formats v4.0 to v4.3: one object a line for each call that
ended.

Up to v4.2 each line has header and metadata. In v4.3 both stand in a `dump_stats` line, and apply
to the lines after it. From v4.2 on these lines state how many calls were dropped. Source:
plugins/profiler/inspector/README.md and inspector_json.cc of NCCL.
"""

from collections.abc import Hashable
from typing import Any

import msgspec

from busbw.core.pattern import nccl_algorithm, nccl_protocol
from busbw.pattern import merge
from busbw.pattern.collector import Collector
from busbw.pattern.merge import POINT_TO_POINT, ObservedCall
from busbw.pattern.readers import json_recovery
from busbw.pattern.source import PatternSource

_TIMES_RANKS = ("all_gather", "reduce_scatter")  # its size is one rank's part
_MARKS = (b'"inspector_output_format_version"', b'"coll_perf"', b'"dump_stats"')
_OPENINGS = (b"{", b"[", b"[{")  # first lines of indented JSON


class _CommHeader(msgspec.Struct):
    id: str
    rank: int
    n_ranks: int
    nnodes: int = 0
    comm_name: str = ""


class _Metadata(msgspec.Struct):
    hostname: str = ""
    pid: int = 0
    inspector_output_format_version: str = ""


class _Coll(msgspec.Struct):
    coll: str
    coll_sn: int
    coll_msg_size_bytes: int
    coll_exec_time_us: float
    coll_timing_source: str = ""
    coll_algo: str = ""
    coll_proto: str = ""
    event_trace_ts: dict[str, Any] = {}


class _P2p(msgspec.Struct):
    p2p: str
    p2p_msg_size_bytes: int
    p2p_exec_time_us: float
    p2p_peer: int | None = None
    p2p_timing_source: str = ""
    event_trace_ts: dict[str, Any] = {}


class _InspectorLine(msgspec.Struct):
    header: _CommHeader | None = None
    metadata: _Metadata | None = None
    coll_perf: _Coll | None = None
    p2p_perf: _P2p | None = None
    dump_stats: dict[str, int] | None = None


_DECODER = msgspec.json.Decoder(_InspectorLine)


def recognizes(head: bytes) -> bool:
    """Whether the first line has the Inspector's metadata, or is one of its payloads."""
    first = head.lstrip().partition(b"\n")[0]
    if first.strip() in _OPENINGS:  # indented by another program
        first = head
    return first.lstrip()[:1] in (b"{", b"[") and any(word in first for word in _MARKS)


def read(source: PatternSource, collector: Collector) -> None:
    """Add the calls of one process, or of several whose files were concatenated."""
    reader = _InspectorReader(collector)
    head = source.head.lstrip()
    if head.partition(b"\n")[0].strip() in _OPENINGS:
        _read_indented(source, collector, reader)
    else:
        for number, text in source.lines(collector):
            if text.strip():
                _read_line(collector, reader, text, f"{source.name}: line {number}")
    collector.add_note(
        "the Inspector records neither element types, operators and roots nor, by default, messages"
        " below 8192 bytes"
    )
    if len(collector.groups) > 1 and not reader.started:
        collector.add_note(
            "the order between communicators is unknown: the Inspector writes the calls of each"
            " together"
        )


def _read_line(collector: Collector, reader: "_InspectorReader", text: bytes, where: str) -> None:
    try:
        reader.line(_DECODER.decode(text))
    except json_recovery.UNEXPECTED as error:
        collector.add_problem(f"{where}: {error}")


def _read_indented(source: PatternSource, collector: Collector, reader: "_InspectorReader") -> None:
    """Read objects that another program wrote over several lines, such as `jq .`."""
    data = source.read_all(collector)
    objects = json_recovery.documents(
        data, lambda at: collector.add_problem(f"{source.name}: {at}")
    )
    for number, document in enumerate(objects, 1):
        text = msgspec.json.encode(document)
        _read_line(collector, reader, text, f"{source.name}: object {number}")


class _InspectorReader:
    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._header: _CommHeader | None = None
        self._metadata = _Metadata()
        self._owners: dict[Hashable, int] = {}
        self.started = False

    def line(self, line: _InspectorLine) -> None:
        """Add what a line holds; ValueError for a payload without its header."""
        stats = line.dump_stats
        if stats is not None:
            self._header, self._metadata = line.header, line.metadata or _Metadata()
        header, metadata = line.header or self._header, line.metadata or self._metadata
        if header is None:
            raise ValueError("a record without its header")
        process = self._process(header, metadata)
        self._collector.add_comm(
            header.id,
            header.n_ranks,
            "" if header.comm_name == "unknown" else header.comm_name,
            header.nnodes,
            process=process,
            rank=header.rank,
        )
        self._collector.add_host(metadata.hostname, process)
        if stats is not None:
            lost = stats.get("coll_dropped_total", 0) + stats.get("p2p_dropped_total", 0)
            self._collector.add_lost(header.id, process, lost)
        if line.coll_perf:
            self._coll(process, header, line.coll_perf)
        if line.p2p_perf:
            self._p2p(process, header, line.p2p_perf)

    def _process(self, header: _CommHeader, metadata: _Metadata) -> Hashable:
        """The process, and where it has several ranks of one communicator the rank."""
        process = (metadata.hostname, metadata.pid)
        owner = self._owners.setdefault((process, header.id), header.rank)
        return process if owner == header.rank else (*process, header.rank)

    def _coll(self, process: Hashable, header: _CommHeader, record: _Coll) -> None:
        function = merge.function(record.coll)
        if function is None:
            raise ValueError(f"unknown function {record.coll}")
        size = record.coll_msg_size_bytes * (header.n_ranks if function in _TIMES_RANKS else 1)
        call = ObservedCall(
            header.id,
            function,
            size,
            seq=record.coll_sn,
            algorithm=nccl_algorithm(record.coll_algo),
            protocol=nccl_protocol(record.coll_proto),
        )
        self._set_times(
            call,
            record.coll_timing_source,
            record.coll_exec_time_us,
            record.event_trace_ts.get("coll_start_ts"),
        )
        self._collector.add_call(process, call)

    def _p2p(self, process: Hashable, header: _CommHeader, record: _P2p) -> None:
        function = merge.function(record.p2p)
        if function not in POINT_TO_POINT:
            raise ValueError(f"unknown function {record.p2p}")
        call = ObservedCall(header.id, function, record.p2p_msg_size_bytes, peer=record.p2p_peer)
        self._set_times(
            call,
            record.p2p_timing_source,
            record.p2p_exec_time_us,
            record.event_trace_ts.get("p2p_start_ts"),
        )
        self._collector.add_call(process, call)

    def _set_times(self, call: ObservedCall, source: str, time_us: float, start: object) -> None:
        if source == "kernel_gpu":
            call.gpu_us = time_us
        else:
            call.cpu_us = time_us
            if not source:
                self._collector.add_note(
                    "the file does not say which clock its times were taken by: they are given as"
                    " the CPU's"
                )
        if isinstance(start, int | float) and start > 0:
            call.at_us = float(start)
            self.started = True
