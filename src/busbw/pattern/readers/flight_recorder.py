"""Dumps of PyTorch's Flight Recorder, and of torchcomms' hook of that name: pickle or JSON,
versions 2.0 to 2.10.

    entries: record_id, process_group, collective_seq_id, profiling_name, time_created_ns,
    duration_ms, input_sizes, input_dtypes, ...

`profiling_name` begins with the backend: `nccl:all_reduce`, `gloo:broadcast`, `nccl:send 0->1`.
Source: c10d/FlightRecorder.hpp.
"""

import re
from collections.abc import Hashable, Sequence
from typing import Any

import msgspec

from busbw.core.pattern import key
from busbw.pattern import merge
from busbw.pattern.collector import Collector
from busbw.pattern.merge import POINT_TO_POINT, ObservedCall
from busbw.pattern.readers import json_recovery
from busbw.pattern.readers.execution_trace import elements, make_call
from busbw.pattern.readers.safe_pickle import Unreadable, inside, load
from busbw.pattern.source import PatternSource

# `nccl:recv 0<-?` is from any rank
NAME = re.compile(r"(?:([\w-]+):)?(\w+)(?: (\d+)\s*(?:->|<-)\s*(\d+|\?))?")
_ON_CPU = frozenset({"gloo", "mpi", "ucc", "fake"})
ANY_DEFAULT = "default_pg"


def recognizes(head: bytes) -> bool:
    """Whether this is a pickle of the dump's dictionary, or its JSON."""
    if head.startswith(b"\x80"):
        return b"version" in head[:200] or b"entries" in head[:2000] or b"profiling_name" in head
    return head.lstrip().startswith(b"{") and any(
        word in head for word in (b'"profiling_name"', b'"nccl_comm_state"', b'"pg_status"')
    )


def read(source: PatternSource, collector: Collector) -> None:
    """Add the calls of one rank, whose number the file's name ends in."""
    dump = read_dump(source, collector)
    if dump is not None:
        rank = source.rank if source.rank is not None else source.number
        _FlightRecorderReader(source, collector, dump, rank).run()


def read_dump(source: PatternSource, collector: Collector) -> dict[str, Any] | None:
    """The dump in a file, or its complete entries if it is cut off.

    A file that is no dump is a problem of the collector, and the result None.
    """
    data = source.read_all(collector)
    try:
        dump = load(data) if data.startswith(b"\x80") else msgspec.json.decode(data)
    except Unreadable as error:
        collector.add_problem(f"{source.name}: not a complete pickle of plain containers: {error}")
        dump = {"entries": list(inside(error.values, _is_entry))}
    except json_recovery.BROKEN as error:
        collector.add_problem(f"{source.name}: {error}")
        dump = {"entries": list(json_recovery.objects(data, "entries"))}
    if not isinstance(dump, dict) or not isinstance(dump.get("entries", []), list):
        collector.add_problem(f"{source.name}: no dictionary with a list of entries")
        return None
    return dump


def group_of(entry: dict[str, Any]) -> tuple[str, str]:
    """The name of an entry's process group and its description, which may be empty."""
    group = entry.get("process_group") or str(entry.get("pg_id", ""))
    if isinstance(group, list | tuple) and len(group) > 1:
        return str(group[0]), str(group[1])
    return str(group), ""


def groups_of(dump: dict[str, Any]) -> dict[str, Any]:
    """The configurations of process groups by the names that a dump's entries have.

    Gloo lists the group that it made last under no name. It is known which that is only if the job
    has one group, that of all ranks.
    """
    configured = dump.get("pg_config")
    if not isinstance(configured, dict):
        return {}
    status = dump.get("pg_status")
    names = {group_of(entry) for entry in dump.get("entries", []) if isinstance(entry, dict)}
    if "" in configured and len(names) == 1 and isinstance(status, dict) and len(status) == 1:
        name, description = names.pop()
        ranks = members(configured, "")
        if description == ANY_DEFAULT and len(ranks) > 1 and ranks == list(range(len(ranks))):
            return {**configured, name: configured[""]}
    return configured


def members(configured: dict[str, Any], group: str) -> list[int]:
    """The ranks of a process group in `groups_of` a dump; [] if it is not listed."""
    config = configured.get(group)
    if not isinstance(config, dict):
        return []
    return [int(rank) for rank in re.findall(r"\b\d{1,9}\b", str(config.get("ranks", "")))]


def has_ended(entry: dict[str, Any]) -> bool:
    """Gloo's entries stay `scheduled`; they are retired when they end."""
    return entry.get("state") == "completed" or bool(entry.get("retired"))


def lists_only_open(entries: Sequence[Any]) -> bool:
    """Whether a dump was made without the calls that had ended, of which it lists none."""
    read = [entry for entry in entries if isinstance(entry, dict)]
    return bool(read and read[0].get("record_id")) and not any(map(has_ended, read))


def _is_entry(value: Any) -> bool:
    return isinstance(value, dict) and "profiling_name" in value


class _FlightRecorderReader:
    def __init__(
        self, source: PatternSource, collector: Collector, dump: dict[str, Any], rank: int
    ) -> None:
        self._source, self._collector, self._rank = source, collector, rank
        self._entries = dump.get("entries", [])
        self._configured = groups_of(dump)
        self._calls: list[tuple[Hashable, ObservedCall]] = []
        self._running = False
        collector.header.nccl = collector.header.nccl or str(
            dump.get("comm_lib_version") or dump.get("nccl_version") or ""
        )

    def run(self) -> None:
        """Read the entries in the order in which they were made."""
        collector = self._collector
        collector.add_process(self._rank, self._rank)
        for number, entry in enumerate(self._entries):
            try:
                self._entry(entry)
            except json_recovery.UNEXPECTED as error:
                collector.add_problem(
                    f"{self._source.name}: entry {number}: {type(error).__name__}: {error}"
                )
        for _, call in self._calls:
            collector.add_call(self._rank, call)
        if lists_only_open(self._entries):
            collector.add_note("calls that had ended are not in dumps that list only open calls")
        elif (lost := self._lost_calls()) > 0:
            collector.add_lost("the ring buffer", self._rank, lost)
            collector.add_note(
                "the ring buffer was full: the first calls are lost; raise TORCH_FR_BUFFER_SIZE"
            )
        if self._running:
            collector.add_note(
                "calls had not ended when the dumps were made; busbw check job --flight-recorder"
                " FOLDER says whom their ranks waited for"
            )

    def _lost_calls(self) -> int:
        """How many entries the ring buffer has overwritten: the number of its first one."""
        if not self._entries or not isinstance(self._entries[0], dict):
            return 0
        first = self._entries[0].get("record_id")
        return first if isinstance(first, int) else 0

    def _entry(self, entry: dict[str, Any]) -> None:
        match = NAME.fullmatch(str(entry["profiling_name"]))
        if not match:
            raise ValueError(f"unknown name {entry['profiling_name']!r}")
        backend, name, rank, peer = match.groups()
        comm, ranks = self._comm(entry)
        seq = entry.get("collective_seq_id", entry.get("seq_id"))
        numbers = (comm, seq, entry.get("p2p_seq_id"))
        if key(name) == "coalesced":
            self._group_calls(numbers)
            return
        function = merge.function(name)
        if function is None:
            if key(name) not in merge.CONTROL:
                raise ValueError(f"unknown function {name}")
            self._collector.count_omitted(self._rank, name)
            return
        sent = elements(entry.get("input_sizes") or [])
        received = elements(entry.get("output_sizes") or [])
        types = entry.get("input_dtypes") or entry.get("output_dtypes") or [""]
        dtype = types[0] if isinstance(types, list) else str(types)
        call = make_call(comm, function, sent, received, dtype, ranks)
        if function in POINT_TO_POINT:
            call.peer = int(peer) if peer and peer.isdecimal() else None
            rank_in_comm = None if rank is None else int(rank)
            self._collector.add_comm(comm, process=self._rank, rank=rank_in_comm)
        else:
            call.seq = seq if isinstance(seq, int) else None
        self._set_times(call, entry, backend or "")
        self._calls.append((numbers, call))

    def _set_times(self, call: ObservedCall, entry: dict[str, Any], backend: str) -> None:
        created = entry.get("time_created_ns")
        if isinstance(created, int) and created > 0:
            call.at_us = created / 1e3
        duration = entry.get("duration_ms")
        if isinstance(duration, int | float) and 0 <= duration < 1e9:
            setattr(call, "cpu_us" if backend in _ON_CPU else "gpu_us", 1e3 * duration)
        self._running |= not has_ended(entry)

    def _group_calls(self, numbers: Hashable) -> None:
        """The calls before an entry `coalesced` that have its numbers were one group."""
        group = (numbers, len(self._calls))
        for other, call in reversed(self._calls):
            if other != numbers:
                break
            call.group = group

    def _comm(self, entry: dict[str, Any]) -> tuple[Hashable, int]:
        """The key of an entry's process group, and its ranks; 0 if the dump does not list them."""
        name, description = group_of(entry)
        listed = members(self._configured, name)
        key = (name, *listed)
        ranks = len(listed)
        if not ranks and description == ANY_DEFAULT and self._source.files > 1:
            ranks = self._source.files
        shown = description if description not in ("", "undefined") else name
        rank = listed.index(self._rank) if self._rank in listed else None
        self._collector.add_comm(key, ranks, shown, members=listed, process=self._rank, rank=rank)
        return key, ranks
