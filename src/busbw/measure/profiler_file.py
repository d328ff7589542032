"""Reads the file that the profiler plugin writes for one process: header, ring, and the records
that have left the ring.

The layout is that of native/crates/events. The ring is read too, because a process that was killed
had no time to empty it.
"""

import itertools
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from busbw.core.errors import UsageError

MAGIC, VERSION = b"BUSBWCAP", 1
HEADER_BYTES, TEXT_AT = 4096, 128
_HEADER = struct.Struct("<8s14Q")
_TEXT_BYTES = struct.Struct("<Q")
_RECORD = struct.Struct("<Q8BIi5Q")
RECORD_BYTES = _RECORD.size
COMM, TEXT, COLL_CALL, P2P_CALL, COLL, P2P, TIMED, COMM_END, CALL_TIMING, DEFERRED = range(1, 11)
UNKNOWN = 255
# Variables of launchers. RANK is first, because torchrun may run under any other launcher.
RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
WORLD_NAMES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")


class ProfilerRecord(NamedTuple):
    """One record; the meaning of `id`, `a` and `b` depends on its kind
    (native/crates/events/src/record.rs).
    """

    ticket: int
    kind: int
    function: int
    dtype: int
    algorithm: int
    protocol: int
    channels: int
    flags: int
    unused: int
    comm: int
    peer: int
    time: int
    elements: int
    id: int
    a: int
    b: int


@dataclass(slots=True)
class ProcessFile:
    """The file of one process."""

    name: str
    facts: dict[str, str]
    realtime_ns: int
    monotonic_ns: int
    nccl: int
    interface: int
    # records without room in the ring or on the disk, or cut off by the end of the process
    dropped: int
    untimed: int
    errno: int
    broken: int = 0  # bytes at the end that are no record
    no_event: int = 0  # launches without a time: no CUDA event was free
    captured: int = 0  # launches without a time: their stream was being captured
    failed: int = 0  # launches without a time: the driver returned an error
    records: list[ProfilerRecord] = field(default_factory=list)

    def time_us(self, monotonic_ns: int) -> float:
        """A moment of the process as microseconds since 1970."""
        return (monotonic_ns - self.monotonic_ns + self.realtime_ns) / 1000

    @property
    def rank(self) -> int | None:
        """The rank of the process in its job, from its launcher's variables; None without any."""
        return stated(self.facts, RANK_NAMES)

    @property
    def world(self) -> int:
        """The number of ranks of the job; 0 if no variable says."""
        return stated(self.facts, WORLD_NAMES) or 0


def stated(variables: Mapping[str, str], names: Sequence[str]) -> int | None:
    """The value of the first of these variables that is a number."""
    for name in names:
        value = variables.get(name, "")
        if value.isdecimal():
            return int(value)
    return None


def read(path: Path) -> ProcessFile:
    """The file at `path`; raises as `parse` does."""
    return parse(path.read_bytes(), str(path))


def parse(data: bytes, name: str) -> ProcessFile:
    """The file in `data`, with its records in the order in which they were written.

    UsageError if it is not such a file.
    """
    file, ring = parse_header(data, name)
    file.broken = max(0, len(data) - ring.end) % RECORD_BYTES
    file.records = _records(data, ring.end)
    # Without a shared mapping, as on NFS, records are written before their number is.
    last = file.records[-1].ticket if file.records else 0
    file.dropped += max(ring.head, last) - len(file.records)
    return file


class Ring(NamedTuple):
    """The ring of a file: records that it has room for, that were put in so far, and that have left
    it since, to behind `end`. On a file system of a network it has no room.
    """

    capacity: int
    head: int
    tail: int

    @property
    def end(self) -> int:
        return HEADER_BYTES + self.capacity * RECORD_BYTES


def parse_header(data: bytes, name: str) -> tuple[ProcessFile, Ring]:
    """The file without its records, from its first HEADER_BYTES; UsageError as of `parse`."""
    if len(data) < HEADER_BYTES or not data.startswith(MAGIC):
        raise UsageError(
            f"{name}: not a file of busbw's profiler plugin",
            "busbw capture writes them: one for each process",
        )
    (
        _,
        version,
        capacity,
        head,
        tail,
        dropped,
        untimed,
        no_event,
        errno,
        realtime,
        monotonic,
        nccl,
        interface,
        captured,
        failed,
    ) = _HEADER.unpack_from(data)
    if version != VERSION:
        raise UsageError(
            f"{name}: version {version} of the layout; this busbw reads {VERSION}",
            "use the busbw that recorded it",
        )
    (text_bytes,) = _TEXT_BYTES.unpack_from(data, TEXT_AT - 8)
    text = data[TEXT_AT : min(TEXT_AT + text_bytes, HEADER_BYTES)].decode("utf-8", "replace")
    facts = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    file = ProcessFile(name, facts, realtime, monotonic, nccl, interface, dropped, untimed, errno)
    file.no_event, file.captured, file.failed = no_event, captured, failed
    return file, Ring(capacity, head, tail)


def unpacked(data: bytes) -> Iterator[ProfilerRecord]:
    """The records in `data`, which has whole ones."""
    return itertools.starmap(ProfilerRecord, _RECORD.iter_unpack(data))


def _records(data: bytes, ring_end: int) -> list[ProfilerRecord]:
    """All records, sorted by ticket.

    A record may be in the ring and behind it, if the process was killed after it copied the record
    and before it freed its place.
    """
    by_ticket = {}
    for first, end in ((HEADER_BYTES, min(ring_end, len(data))), (ring_end, len(data))):
        records = max(0, end - first) // RECORD_BYTES
        whole_records = memoryview(data)[first : first + records * RECORD_BYTES]
        for fields in _RECORD.iter_unpack(whole_records):
            if fields[0]:
                by_ticket[fields[0]] = ProfilerRecord(*fields)
    return [by_ticket[ticket] for ticket in sorted(by_ticket)]


def names(file: ProcessFile) -> Iterator[tuple[ProfilerRecord, str]]:
    """The record of every communicator with its name."""
    pieces: dict[int, bytes] = {}
    for record in file.records:
        if record.kind == TEXT:
            piece = struct.pack("<5Q", record.time, record.elements, record.id, record.a, record.b)
            pieces[record.comm] = pieces.get(record.comm, b"") + piece
    for record in file.records:
        if record.kind == COMM:
            yield record, pieces.get(record.comm, b"")[: record.b].decode("utf-8", "replace")
