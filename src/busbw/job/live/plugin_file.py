"""A file of the profiler plugin, read while its process writes it.

Each look reads what came since the last one: at first all records behind the ring, later those in
the ring, since the plugin writes no file above 512 MiB. Records are counted; the last ones are kept
as they are. The file is never mapped: what cuts it off would end this process with SIGBUS.
"""

import os
import platform
import struct
import time
from collections import Counter, deque
from functools import cached_property
from pathlib import Path

from busbw.core.env import CAPTURE
from busbw.core.pattern import AROUND_CALL, EVENTS
from busbw.measure import profiler_calls
from busbw.measure.profiler_calls import (
    ALL_GATHERV_SINCE,
    CAPTURED_FLAG,
    FUNCTIONS,
    SELF_SENDS_COUNTED_SINCE,
    ProfiledCall,
)
from busbw.measure.profiler_file import (
    COLL,
    COLL_CALL,
    COMM,
    COMM_END,
    HEADER_BYTES,
    P2P,
    RECORD_BYTES,
    TEXT,
    ProcessFile,
    ProfilerRecord,
    Ring,
    parse_header,
    unpacked,
)
from busbw.pattern.merge import POINT_TO_POINT

WINDOW_BYTES = 12_000 * RECORD_BYTES  # of the last records: three or four for each timed call
LAST_RECORDS = 3000  # in which the calls of a rank that stands still are looked for
CHUNK_BYTES = 16_384 * RECORD_BYTES
REPORTS_CALLS = 5  # the first interface that does
_KEY = struct.Struct("<8x2B6xIi40x")  # of a record; a counter takes it without a loop in Python
_TICKET = struct.Struct("<Q")
_HEAD_AT = 24


class PluginFile:
    """One file, from look to look. Communicators are told by their number in the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.moved_s = 0.0  # when records were seen to come
        self.lost = False  # records that were never seen: its calls cannot be numbered
        self.known: ProcessFile | None = None
        self.comms: list[ProfilerRecord] = []  # and their names
        self._ring = Ring(0, 0, 0)
        self._counts: Counter[tuple[int, ...]] = Counter()
        self._ticket = 0  # of the last record that was read
        self._offset = 0
        self._window: deque[bytes] = deque()

    def read(self, now_s: float, *, is_writing: bool = True) -> None:
        """Read what is new. OSError, or UsageError if it is no such file.

        Of a process that writes, the records that are leaving the ring are whole; those after them
        are read once nothing more comes.
        """
        with self.path.open("rb", buffering=0) as file:
            descriptor = file.fileno()
            known, ring = parse_header(os.pread(descriptor, HEADER_BYTES, 0), self.path.name)
            if self.known is None:
                self.moved_s = now_s - self._age_s(descriptor, known, ring)
            stands = not is_writing or ring.head == self._ring.head
            before = self._ticket
            if not (ring.capacity and self.known):
                self._read_appended(descriptor, ring)
            if ring.capacity:
                self._read_ring(descriptor, ring, ring.head if stands else ring.tail)
        self.lost |= known.dropped > 0
        if self._ticket != before:
            self.moved_s = now_s if self.known else self.moved_s
            self.__dict__.pop("calls", None)
        self.known, self._ring = known, ring

    @staticmethod
    def _age_s(descriptor: int, known: ProcessFile, ring: Ring) -> float:
        """How long ago records came, before the first look; 0 if another clock says."""
        if known.facts.get("host") != platform.node() or not ring.capacity:
            return 0.0
        return max(0.0, time.time() - os.fstat(descriptor).st_mtime)

    def _read_appended(self, descriptor: int, ring: Ring) -> None:
        """The records behind the ring."""
        self._offset = self._offset or ring.end
        while data := os.pread(descriptor, CHUNK_BYTES, self._offset):
            whole = data[: len(data) // RECORD_BYTES * RECORD_BYTES]
            self._offset += len(whole)
            self._take(whole)
            if len(whole) < CHUNK_BYTES:
                return

    def _read_ring(self, descriptor: int, ring: Ring, upto: int) -> None:
        """The records with higher tickets than the last one, to `upto`."""
        first = max(self._ticket, ring.head - ring.capacity)
        records = upto - first
        if records <= 0:
            return
        at = first % ring.capacity
        parts = ((at, min(records, ring.capacity - at)), (0, at + records - ring.capacity))
        data = b"".join(
            os.pread(descriptor, count * RECORD_BYTES, HEADER_BYTES + place * RECORD_BYTES)
            for place, count in parts
            if count > 0
        )
        (head,) = _TICKET.unpack(os.pread(descriptor, _TICKET.size, _HEAD_AT))
        if head - first > ring.capacity:  # overwritten meanwhile
            self.lost, self._ticket = True, upto
            return
        whole = max(0, min(ring.tail - first, records))
        while whole < records and _ticket(data, whole) == first + whole + 1:
            whole += 1
        self._take(data[: whole * RECORD_BYTES])

    def _take(self, data: bytes) -> None:
        """Count whole records, which follow those until now, and keep them in the window."""
        records = len(data) // RECORD_BYTES
        if not records:
            return
        last = _ticket(data, records - 1)
        self.lost |= (_ticket(data, 0), last) != (self._ticket + 1, self._ticket + records)
        self._ticket = last
        counts = Counter(_KEY.iter_unpack(data))
        self._counts.update(counts)
        if any(kind in (COMM, TEXT) for kind, *_ in counts):
            self.comms += [one for one in unpacked(data) if one.kind in (COMM, TEXT)]
        self._window.append(data[-WINDOW_BYTES:])
        while sum(map(len, self._window)) - len(self._window[0]) >= WINDOW_BYTES:
            self._window.popleft()

    @property
    def call_kind(self) -> int:
        """The kind of record that each collective has: NCCL before 2.28 reports tasks alone."""
        return COLL_CALL if self.known and self.known.interface >= REPORTS_CALLS else COLL

    def made(self) -> Counter[int]:
        """How many collectives it has called, by communicator."""
        made: Counter[int] = Counter()
        for key, calls in self._counts.items():
            if key[0] == self.call_kind and _function(key[1]):
                made[key[2]] += calls
        return made

    def passed(self) -> Counter[tuple[int, str, int]]:
        """How many sends and receives it has enqueued, by communicator, function and other rank."""
        passed: Counter[tuple[int, str, int]] = Counter()
        for kind, function, comm, peer in self._counts:
            if kind == P2P and _function(function) in POINT_TO_POINT:
                passed[comm, _function(function), peer] += self._counts[kind, function, comm, peer]
        return passed

    def has_ended(self) -> bool:
        """Whether it has ended all its communicators."""
        kinds: Counter[int] = Counter()
        for (kind, *_), records in self._counts.items():
            kinds[kind] += records
        return 0 < kinds[COMM] == kinds[COMM_END]

    def last(self, records: int = LAST_RECORDS) -> ProcessFile:
        """The file with its communicators and its last records, which are forgotten by `forget`."""
        assert self.known
        data = b"".join(self._window)[-records * RECORD_BYTES :]
        later = [one for one in unpacked(data) if one.kind not in (COMM, TEXT)]
        self.known.records = [*self.comms, *later]
        return self.known

    @property
    def kept(self) -> int:
        """How many records `last` can have."""
        return sum(map(len, self._window)) // RECORD_BYTES

    def forget(self) -> None:
        if self.known:
            self.known.records = []

    def before_last(self) -> Counter[int]:
        """How many collectives it had called before the records of `last`, by communicator."""
        made = self.made()
        for record in self.known.records if self.known else ():
            if record.kind == self.call_kind and _function(record.function):
                made[record.comm] -= 1
        return made

    def uses_graphs(self) -> bool:
        """Whether the records of `last` have calls in CUDA graphs, which are not numbered."""
        records = self.known.records if self.known else ()
        return any(one.kind == COLL_CALL and one.flags & CAPTURED_FLAG for one in records)

    def has_uncounted(self) -> bool:
        """Whether NCCL's kernel events may be of other calls, because of calls that it does not
        count (profiler_calls.drop_shifted): sends to the own rank, and broadcasts without a task.
        """
        nccl = self.known.nccl if self.known else 0
        own = {one.comm: one.peer for one in self.comms if one.kind == COMM}
        if any(own.get(comm) == peer for comm, _, peer in self.passed()):
            return nccl < SELF_SENDS_COUNTED_SINCE
        broadcasts = Counter[int]()
        for (kind, function, *_), records in self._counts.items():
            if _function(function) == "broadcast":
                broadcasts[kind] += records
        return nccl >= ALL_GATHERV_SINCE and broadcasts[COLL_CALL] > broadcasts[COLL]

    @cached_property
    def calls(self) -> dict[tuple[int, int], ProfiledCall]:
        """The last collectives, by communicator and number; {} if they cannot be numbered."""
        made = profiler_calls.read_calls(self.last()).calls
        graphs = self.uses_graphs()
        self.forget()
        if self.lost or graphs:
            return {}
        numbers = self.made()
        calls = {}
        for call in reversed(made):
            if call.function not in POINT_TO_POINT:
                calls[call.comm, numbers[call.comm]] = call
                numbers[call.comm] -= 1
        return calls

    def done(self, comm: int) -> int | None:
        """The number of the last collective of a communicator that has ended; None if unknown.

        Only CUDA events tell: NCCL's kernel events come late, or not at all.
        """
        known = self.known
        if known is None or known.facts.get("mode") != CAPTURE.timed:
            return None
        if known.no_event or known.captured or known.failed:
            return None
        ended = [
            number
            for (of, number), call in self.calls.items()
            if of == comm and call.clock in (EVENTS, AROUND_CALL)
        ]
        return max(ended, default=None)


def _function(number: int) -> str:
    return FUNCTIONS[number] if number < len(FUNCTIONS) else ""


def _ticket(data: bytes, record: int) -> int:
    ticket: int = _TICKET.unpack_from(data, record * RECORD_BYTES)[0]
    return ticket
