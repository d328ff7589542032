"""NCCL's log at NCCL_DEBUG=INFO: calls (COLL), choices (TUNING), and which pointers are one
communicator (INIT).

Each line begins with `host:pid:tid [gpu] NCCL INFO`; then a call, a choice, or the start of a
communicator follows (the long lines end in ... here):

    AllReduce: opCount 2a sendbuff 0x.. recvbuff 0x.. count 64 datatype 7 op 0 root 0 comm 0x.. ...
    256 Bytes -> Algo 1 proto 0 time 10.8                                 NCCL 2.20 to 2.22
    AllReduce: 256 Bytes -> Algo 1 proto 0 time 10.8                      2.23
    AllReduce: 256 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}     from 2.24 on
    ncclCommInitRank comm 0x.. rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId .. commId 0x.. ...

After its communicator a call has `[nranks=2] stream 0x..`. NCCL 2.20 to 2.22 print choices only on
rank 0. RCCL adds `acc`, `task` and `globalrank` to calls. Sources: src/enqueue.cc, src/init.cc and
src/collectives.cc of these releases.

`Comms` decides which pointers are one communicator: those that have one commId, or, without INIT
lines, those whose calls agree.
"""

import re
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from busbw.core.pattern import algbw_bytes, nccl_algorithm, nccl_protocol
from busbw.core.sizes import counted
from busbw.pattern import merge
from busbw.pattern.collector import AlgorithmChoice, Collector
from busbw.pattern.merge import POINT_TO_POINT, ObservedCall
from busbw.pattern.source import PatternSource

Process = tuple[bytes, bytes, bytes]  # host, process id, GPU
_Name = tuple[bytes, bytes, bytes]  # host, process id, pointer
MARK = b"NCCL INFO "
# Names have a limit, so that no line takes the square of its characters.
_WHERE = re.compile(rb"([^\s:]{1,255}):(\d+):\d+(?: \[(-?\d+)\])?$")
_LONGEST_PREFIX = 400  # bytes of the end of what stands before a message
_GPU = re.compile(rb"\[(\d{1,4})\]$")
_CALL = re.compile(
    rb"(\w{1,40}): opCount ([0-9a-f]{1,16}) sendbuff \S+ recvbuff \S+ (?:acc \S+ )?count (\d{1,18})"
    rb" datatype (\d{1,9}) op (\d{1,9}) "
    rb"root (-?\d{1,9}) comm (\S+) \[nranks=(\d{1,9})\](?: stream (\S+))?(?: task \d+ globalrank"
    rb" (\d{1,9}))?"
)
_CHOICE = re.compile(
    rb"(?:(\w{1,40}): +)?(\d{1,18}) Bytes -> Algo (\w{1,20}) proto (\w{1,20}) "
    rb"(?:time (\d+\.?\d*)|channel\{Lo\.\.Hi\}=\{(\d{1,9})\.\.(\d{1,9})\})"
)
_INIT = re.compile(
    rb"comm (0x[0-9a-f]+) rank (\d{1,9}) n[rR]anks (\d{1,9})(?: nNodes (\d{1,9})| cudaDev"
    rb" (\d+))?(?:.*?commId (0x[0-9a-f]+))?"
)
_VERSION = re.compile(rb"NCCL version (\d+\.\d+\.\d+)")
# Calls of a process whose choice may still follow: NCCL prints it when their group ends.
_WAITING = 64


@dataclass(frozen=True, slots=True)
class Start:
    """A line of a communicator's start. Not all of them name its identity (commId) and the GPU."""

    process: Process
    pointer: bytes
    device: bytes | None
    rank: int
    ranks: int
    hosts: int
    identity: bytes | None


@dataclass(slots=True)
class _Open:
    """A communicator of which not all ranks have been seen."""

    key: Hashable
    ranks: int
    first: Hashable
    processes: set[Process] = field(default_factory=set)
    joined_ranks: set[int] = field(default_factory=set)


class Comms:
    """Keys of communicators, by process and pointer.

    A process can drive several GPUs: the pointer, not the line, says which.
    """

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._known: dict[_Name, tuple[Hashable, Process]] = {}
        self._started: dict[_Name, Start] = {}
        self._open: list[_Open] = []
        self._guessed = False

    def init(self, start: Start) -> None:
        """Take a line of a communicator's start.

        A pointer can be used again for another communicator.
        """
        name = (*start.process[:2], start.pointer)
        process = (*start.process[:2], start.device) if start.device else start.process
        if start.identity:
            self._known[name] = (start.identity, process)
            self._collector.add_comm(
                start.identity, start.ranks, process=process, rank=start.rank, hosts=start.hosts
            )
        elif name in self._known:
            self._collector.add_comm(self._known[name][0], hosts=start.hosts)
        else:
            self._started[name] = start

    def of(
        self, process: Process, pointer: bytes, ranks: int, first: tuple[bytes, ...]
    ) -> tuple[Hashable, Process]:
        """The key of a pointer, and the process with its GPU.

        `first` identifies the first call of the pointer: function, opCount, count, type.
        """
        name = (*process[:2], pointer)
        if name not in self._known:
            start = self._started.pop(name, None)
            if start and start.device:
                process = (*process[:2], start.device)
            self._known[name] = (self._join(process, ranks, first, start), process)
        return self._known[name]

    def _join(
        self, process: Process, ranks: int, first: tuple[bytes, ...], start: Start | None
    ) -> Hashable:
        """The key of a communicator without identity: one of which ranks are missing and whose
        calls agree, or else a new one.
        """
        rank = start.rank if start else None
        fitting = [
            comm
            for comm in self._open
            if comm.ranks == ranks
            and process not in comm.processes
            and rank not in comm.joined_ranks
        ]
        candidates = [comm for comm in fitting if comm.first == first]
        if first[1] != b"0":  # a log that begins in the middle shows ranks at different calls
            candidates += fitting
        if candidates:
            joined = candidates[0]
        else:
            joined = _Open(("joined", len(self._known), process), ranks, first)
            self._open.append(joined)
        joined.processes.add(process)
        if rank is not None:
            joined.joined_ranks.add(rank)
        if len(joined.processes) == ranks:
            self._open.remove(joined)
        hosts = start.hosts if start else 0
        self._collector.add_comm(joined.key, ranks, process=process, rank=rank, hosts=hosts)
        self._guessed = self._guessed or ranks > 1
        return joined.key

    def end(self) -> None:
        """Note that communicators were guessed, if so."""
        if self._guessed:
            self._collector.add_note(
                "the log does not name communicators: ranks were joined by their calls; add INIT to"
                " NCCL_DEBUG_SUBSYS"
            )


def recognizes(head: bytes) -> bool:
    """Whether this is NCCL's log, or output that holds it."""
    return MARK in head or b"\nNCCL version " in head


def read(source: PatternSource, collector: Collector) -> None:
    reader = _NcclLogReader(source, collector)
    for number, line in source.lines(collector):
        at = line.find(MARK)
        if at >= 0:
            reader.line(number, line[:at].rstrip(), line[at + len(MARK) :])
        elif not collector.header.nccl:
            version = _VERSION.search(line)
            if version:
                collector.header.nccl = version[1].decode()
    reader.end()


class _NcclLogReader:
    def __init__(self, source: PatternSource, collector: Collector) -> None:
        self._source, self._collector = source, collector
        self._comms = Comms(collector)
        self._waiting: dict[Hashable, deque[ObservedCall]] = {}
        self._group: dict[Hashable, tuple[Hashable, ObservedCall]] = {}
        self._orphans = 0
        self._nameless = False

    def line(self, number: int, prefix: bytes, text: bytes) -> None:
        """Read one line of NCCL: the prefix that names its process, and the text after it."""
        if b"opCount" in text:
            call = _CALL.search(text)
            process = self._process(prefix)
            if not call or not self._call(process, call):
                self._problem(number, "a call", text)
        elif b" Bytes -> Algo " in text:
            choice = _CHOICE.search(text)
            process = self._process(prefix)
            if not choice:
                self._problem(number, "a choice", text)
            elif not self._choice(process, choice):
                self._orphans += 1
        elif b"comm 0x" in text and b" Destroy " not in text:
            init = _INIT.search(text)
            if init:
                self._comms.init(_start(self._process(prefix), init))

    def _problem(self, number: int, kind: str, text: bytes) -> None:
        begin = text[:80].decode(errors="replace").strip()
        self._collector.add_problem(
            f"{self._source.name}: line {number}: {kind} that cannot be read: {begin}"
        )

    def _process(self, prefix: bytes) -> Process:
        prefix = prefix[-_LONGEST_PREFIX:]
        match = _WHERE.search(prefix)
        if match:
            return match[1], match[2], match[3] or b""
        self._nameless = True
        gpu = _GPU.search(prefix)
        return b"", b"%d" % self._source.number, gpu[1] if gpu else b""

    def _call(self, process: Process, match: re.Match[bytes]) -> bool:
        """Add a call; False if its function or element type is unknown."""
        title, op_count, count, dtype, op, root, pointer, ranks, stream, world_rank = match.groups()
        function, element = merge.function(title.decode()), merge.nccl_element(int(dtype))
        if function is None or element is None:
            return False
        first = (title, op_count, count, dtype)
        comm, process = self._comms.of(process, pointer, int(ranks), first)
        element_type, _ = element
        size = algbw_bytes(function, int(count), element_type, int(ranks))
        call = ObservedCall(comm, function, size, int(count), element_type, stream=stream)
        if function in POINT_TO_POINT:
            call.peer = int(root)
            # The opCount grows only on the ranks that send or receive.
            self._collector.unnumbered.add(comm)
        else:
            call.seq = int(op_count, 16)
            if function in ("all_reduce", "reduce_scatter", "reduce"):
                call.op = merge.nccl_op(int(op))
            if function in ("broadcast", "reduce", "gather", "scatter"):
                call.root = int(root)
            self._waiting.setdefault(process[:2], deque(maxlen=_WAITING)).append(call)
        self._mark_group(process, call, op_count)
        self._collector.add_process(process, None if world_rank is None else int(world_rank))
        self._collector.add_host(process[0].decode(errors="replace"), process)
        self._collector.add_call(process, call)
        return True

    def _mark_group(self, process: Hashable, call: ObservedCall, op_count: bytes) -> None:
        """Put calls in succession with one opCount in a group: they were started together."""
        name = (call.comm, op_count)
        before = self._group.get(process)
        if before and before[0] == name:
            _, previous = before
            previous.group = previous.group or (name, id(previous))
            call.group = previous.group
        self._group[process] = (name, call)

    def _choice(self, process: Process, match: re.Match[bytes]) -> bool:
        """Add the choice for a call; False if its call is not in the log."""
        title, size, algorithm, protocol, time, low, high = match.groups()
        function = merge.function(title.decode()) if title else None
        waiting = self._waiting.get(process[:2], deque())
        fitting = [
            call
            for call in waiting
            if call.bytes == int(size) and function in (None, call.function)
        ]
        if not fitting:
            return False
        call = fitting[0]
        waiting.remove(call)
        choice = AlgorithmChoice(
            nccl_algorithm(algorithm.decode()),
            nccl_protocol(protocol.decode()),
            None if low is None else int(high) - int(low) + 1,
            None if time is None else float(time),
        )
        self._collector.add_choice(call, choice)
        return True

    def end(self) -> None:
        """Note what could not be joined."""
        self._comms.end()
        if self._nameless:
            self._collector.add_note(
                f"{self._source.name}: lines without NCCL's host:process:thread: each GPU of the"
                " file is taken for one process"
            )
        if self._orphans:
            self._collector.add_note(
                f"{self._source.name}: {counted(self._orphans, 'choice')} (TUNING) whose calls are"
                " not in the log: set NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING"
            )


def _start(process: Process, match: re.Match[bytes]) -> Start:
    pointer, rank, ranks, hosts, device, identity = match.groups()
    return Start(process, pointer, device, int(rank), int(ranks), int(hosts or 0), identity)
