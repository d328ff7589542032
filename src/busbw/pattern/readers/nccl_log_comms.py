"""Which pointers in NCCL's log are one communicator: those that have one commId, or, without
INIT lines, those whose calls agree.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from busbw.pattern.collector import Collector

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
