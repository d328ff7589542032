"""NCCL's log at NCCL_DEBUG=INFO: calls (COLL), choices (TUNING), and which pointers are one
communicator (INIT).

Each line begins with `host:pid:tid [gpu] NCCL INFO`; then a call, a choice, or the start of a
communicator follows:

    AllReduce: opCount 2a sendbuff 0x.. recvbuff 0x.. count 64 datatype 7 op 0 root 0 comm 0x..
        [nranks=2] stream 0x..
    256 Bytes -> Algo 1 proto 0 time 10.8                                    NCCL 2.20 to 2.22, rank
        0 alone
    AllReduce: 256 Bytes -> Algo 1 proto 0 time 10.8                         2.23
    AllReduce: 256 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}        from 2.24 on
    ncclCommInitRank comm 0x.. rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId .. commId 0x.. - Init
        COMPLETE

Sources: src/enqueue.cc, src/init.cc and src/collectives.cc of these releases; RCCL adds `acc`,
`task` and `globalrank` to calls.

Which pointers in NCCL's log are one communicator: those that have one commId, or, without
INIT lines, those whose calls agree.
"""

import re
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from busbw.core.pattern import algbw_bytes
from busbw.core.sizes import counted
from busbw.pattern import merge
from busbw.pattern.collector import Choice, Collector
from busbw.pattern.merge import POINT_TO_POINT, Observed
from busbw.pattern.source import Source

Process = tuple[bytes, bytes, bytes]  # host, process id, GPU
_Name = tuple[bytes, bytes, bytes]  # host, process id, pointer


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
    taken: set[int] = field(default_factory=set)


class Comms:
    """Keys of communicators, by process and pointer.

    A process can drive several GPUs: the pointer, not the line, says which.
    """

    def __init__(self, collector: Collector) -> None:
        self._to = collector
        self._known: dict[_Name, tuple[Hashable, Process]] = {}
        self._started: dict[_Name, Start] = {}
        self._open: list[_Open] = []
        self._guessed = False

    def init(self, start: Start) -> None:
        """Take what a line of the start says.

        A pointer can be used again for another communicator.
        """
        name = (*start.process[:2], start.pointer)
        process = (*start.process[:2], start.device) if start.device else start.process
        if start.identity:
            self._known[name] = (start.identity, process)
            self._to.comm(
                start.identity, start.ranks, process=process, rank=start.rank, hosts=start.hosts
            )
        elif name in self._known:
            self._to.comm(self._known[name][0], hosts=start.hosts)
        else:
            self._started[name] = start

    def of(
        self, process: Process, pointer: bytes, ranks: int, first: tuple[bytes, ...]
    ) -> tuple[Hashable, Process]:
        """The key of a pointer, and the process with its GPU; `first` says what its first call
        is: function, opCount, count, type.
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
        rank = start.rank if start else None
        fitting = [
            one
            for one in self._open
            if one.ranks == ranks and process not in one.processes and rank not in one.taken
        ]
        alike = [one for one in fitting if one.first == first]
        # A log that begins in the middle shows ranks at different calls.
        found = next(iter(alike or ([] if first[1] == b"0" else fitting)), None)
        if found is None:
            found = _Open(("joined", len(self._known), process), ranks, first)
            self._open.append(found)
        found.processes.add(process)
        if rank is not None:
            found.taken.add(rank)
        if len(found.processes) == ranks:
            self._open.remove(found)
        self._to.comm(
            found.key, ranks, process=process, rank=rank, hosts=start.hosts if start else 0
        )
        self._guessed = self._guessed or ranks > 1
        return found.key

    def end(self) -> None:
        """Say what was guessed."""
        if self._guessed:
            self._to.note(
                "the log does not name communicators: ranks were joined by their calls; add INIT to"
                " NCCL_DEBUG_SUBSYS"
            )


MARK = b"NCCL INFO "
_WHERE = re.compile(rb"([^\s:]+):(\d+):\d+(?: \[(-?\d+)\])?$")
_GPU = re.compile(rb"\[(\d{1,4})\]$")
_CALL = re.compile(
    rb"(\w+): opCount ([0-9a-f]{1,16}) sendbuff \S+ recvbuff \S+ (?:acc \S+ )?count (\d{1,18})"
    rb" datatype (\d{1,9}) op (\d{1,9}) "
    rb"root (-?\d{1,9}) comm (\S+) \[nranks=(\d{1,9})\](?: stream (\S+))?(?: task \d+ globalrank"
    rb" (\d{1,9}))?"
)
_CHOICE = re.compile(
    rb"(?:(\w+): +)?(\d{1,18}) Bytes -> Algo (\w{1,20}) proto (\w{1,20}) "
    rb"(?:time (\d+\.?\d*)|channel\{Lo\.\.Hi\}=\{(\d{1,9})\.\.(\d{1,9})\})"
)
_INIT = re.compile(
    rb"comm (0x[0-9a-f]+) rank (\d{1,9}) n[rR]anks (\d{1,9})(?: nNodes (\d{1,9})| cudaDev"
    rb" (\d+))?(?:.*?commId (0x[0-9a-f]+))?"
)
_VERSION = re.compile(rb"NCCL version (\d+\.\d+\.\d+)")
# calls of a process whose choice may still follow: NCCL prints it when their group ends
_WAITING = 64


def recognized(head: bytes) -> bool:
    """Whether this is NCCL's log, or output that holds it."""
    return MARK in head or b"\nNCCL version " in head


def read(source: Source, collector: Collector) -> None:
    """Add the calls of every process in the log."""
    reader = _Reader(source, collector)
    for number, line in source.lines(collector):
        at = line.find(MARK)
        if at >= 0:
            reader.line(number, line[:at].rstrip(), line[at + len(MARK) :])
        elif not collector.header.nccl and (version := _VERSION.search(line)):
            collector.header.nccl = version[1].decode()
    reader.end()


class _Reader:
    def __init__(self, source: Source, collector: Collector) -> None:
        self._source, self._to = source, collector
        self._comms = Comms(collector)
        self._waiting: dict[Hashable, deque[Observed]] = {}
        self._group: dict[Hashable, tuple[Hashable, Observed]] = {}
        self._orphans = 0
        self._nameless = False

    def line(self, number: int, where: bytes, text: bytes) -> None:
        """Read one line of NCCL: who wrote it, and what it says."""
        if b"opCount" in text:
            call = _CALL.search(text)
            process = self._process(where)
            if not call or not self._call(process, call):
                self._to.problem(
                    f"{self._source.name}: line {number}: a call that cannot be read:"
                    f" {_shown(text)}"
                )
        elif b" Bytes -> Algo " in text:
            choice = _CHOICE.search(text)
            process = self._process(where)
            if not choice:
                self._to.problem(
                    f"{self._source.name}: line {number}: a choice that cannot be read:"
                    f" {_shown(text)}"
                )
            elif not self._choice(process, choice):
                self._orphans += 1
        elif b"comm 0x" in text and b" Destroy " not in text and (init := _INIT.search(text)):
            pointer, rank, ranks, hosts, device, identity = init.groups()
            self._comms.init(
                Start(
                    self._process(where),
                    pointer,
                    device,
                    int(rank),
                    int(ranks),
                    int(hosts or 0),
                    identity,
                )
            )

    def _process(self, where: bytes) -> Process:
        found = _WHERE.search(where)
        if found:
            return found[1], found[2], found[3] or b""
        self._nameless = True
        gpu = _GPU.search(where)
        return b"", b"%d" % self._source.number, gpu[1] if gpu else b""

    def _call(self, process: Process, found: re.Match[bytes]) -> bool:
        title, op_count, count, dtype, op, root, pointer, ranks, stream, world_rank = found.groups()
        function, element = merge.function(title.decode()), merge.nccl_element(int(dtype))
        if function is None or element is None:
            return False
        comm, process = self._comms.of(
            process, pointer, int(ranks), (title, op_count, count, dtype)
        )
        call = Observed(
            comm,
            function,
            algbw_bytes(function, int(count), element[0], int(ranks)),
            int(count),
            element[0],
            stream=stream,
        )
        if function in POINT_TO_POINT:
            call.peer = int(root)
            self._to.unnumbered.add(comm)  # opCount grows on the ranks alone that send or receive
        else:
            call.seq = int(op_count, 16)
            call.op = (
                merge.nccl_op(int(op))
                if function in ("all_reduce", "reduce_scatter", "reduce")
                else None
            )
            call.root = (
                int(root) if function in ("broadcast", "reduce", "gather", "scatter") else None
            )
            self._waiting.setdefault(process[:2], deque(maxlen=_WAITING)).append(call)
        self._mark_group(process, call, op_count)
        self._to.process(process, None if world_rank is None else int(world_rank))
        self._to.host(process[0].decode(errors="replace"))
        self._to.call(process, call)
        return True

    def _mark_group(self, process: Hashable, call: Observed, op_count: bytes) -> None:
        """Calls in succession with one opCount were started together."""
        name = (call.comm, op_count)
        before = self._group.get(process)
        if before and before[0] == name:
            call.group = before[1].group = before[1].group or (name, id(before[1]))
        self._group[process] = (name, call)

    def _choice(self, process: Process, found: re.Match[bytes]) -> bool:
        title, size, algorithm, protocol, time, low, high = found.groups()
        function = merge.function(title.decode()) if title else None
        waiting = self._waiting.get(process[:2], deque())
        call = next(
            (
                call
                for call in waiting
                if call.bytes == int(size) and function in (None, call.function)
            ),
            None,
        )
        if call is None:
            return False
        waiting.remove(call)
        channels = None if low is None else int(high) - int(low) + 1
        chosen = (merge.algorithm(algorithm.decode()), merge.protocol(protocol.decode()))
        self._to.chose(call, Choice(*chosen, channels, None if time is None else float(time)))
        return True

    def end(self) -> None:
        """Say what could not be joined."""
        self._comms.end()
        if self._nameless:
            self._to.note(
                f"{self._source.name}: lines without NCCL's host:process:thread: each GPU of the"
                " file is taken for one process"
            )
        if self._orphans:
            self._to.note(
                f"{self._source.name}: {counted(self._orphans, 'choice')} (TUNING) whose calls are"
                " not in the log: set NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING"
            )


def _shown(text: bytes) -> str:
    return text[:80].decode(errors="replace").strip()
