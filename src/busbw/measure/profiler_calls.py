"""The calls in a process's file: what the application called, joined with what NCCL made of it
and how long the GPU took.

Which of the kernel times that NCCL reports belong to the call for which it reports them.

On each channel NCCL and the GPU both count the pieces of work, and NCCL reads start and end from
the slot of its own count, modulo 64. Where one of them counts a piece that the other leaves out,
all later times on that communicator are those of other calls.

Times of operations by the profiler plugin: switched on before NCCL starts, read after the
communicators have ended.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from busbw.core.dtypes import DTYPES
from busbw.core.env import CAPTURE
from busbw.core.errors import NoMeasurement
from busbw.core.pattern import ALGORITHMS, PROTOCOLS, RECV, SEND
from busbw.host import net_plugin
from busbw.measure import profiler_file
from busbw.measure.profiler_file import (
    COLL,
    COLL_CALL,
    P2P,
    P2P_CALL,
    TIMED,
    UNKNOWN,
    ProcessFile,
    Record,
    names,
)

# from which NCCL on sends to the own rank are counted by both (ncclProfilerPostPlanWork)
SELF_COUNTED = 23100


class Timed(Protocol):
    """What is needed of a call. `uncounted`: the GPU counts its work, NCCL does not."""

    comm: int
    group: int | None
    gpu_ns: tuple[int, int] | None
    uncounted: bool


def drop_shifted(made: Sequence[Timed]) -> int:
    """Forget the times of calls from the first uncounted one of their communicator on, and of its
    group; returns how many had one.

    NCCL counts no send to the own rank, as in an alltoall of sends and receives, before 2.31
    (addP2pToPlan), and no broadcast that it runs as an all_gather of unequal parts, from 2.29 on
    (NVIDIA/nccl pull request 2369).
    """
    grouped = {
        (called.comm, called.group)
        for called in made
        if called.uncounted and called.group is not None
    }
    shifted: set[int] = set()
    dropped = 0
    for called in made:
        if called.uncounted or (called.comm, called.group) in grouped:
            shifted.add(called.comm)
        if called.comm in shifted and called.gpu_ns is not None:
            called.gpu_ns = None
            dropped += 1
    return dropped


def drop_overwritten(made: Sequence[Timed]) -> None:
    """Forget times that belong to later kernels.

    NCCL keeps the starts and ends of 64 kernels for each channel. If its thread reads them later
    than that, it reports those of a later kernel. On one communicator kernels run one after the
    other, so such a time ends before it starts, or after the next one has started. Only calls of
    one group share a kernel.
    """
    following: dict[int, tuple[int, int | None]] = {}
    for called in reversed(made):
        if called.gpu_ns is None:
            continue
        start, end = called.gpu_ns
        next_start, next_group = following.get(called.comm, (end, None))
        together = called.group is None or called.group == next_group
        if end < start or (end > next_start and not together):
            called.gpu_ns = None
        else:
            following[called.comm] = min(start, next_start) if together else start, called.group


FUNCTIONS = (
    "broadcast",
    "reduce",
    "all_gather",
    "reduce_scatter",
    "all_reduce",
    "sendrecv",
    SEND,
    RECV,
    "alltoall",
    "scatter",
    "gather",
)
ROOTED = ("broadcast", "reduce", "scatter", "gather")
CAPTURED = 1
ALL_GATHERV = 22900  # from which NCCL on a broadcast may run without a task
# whose elements NCCL counts as bytes once they are enqueued
WITHOUT_TYPE = ("all_gather", "broadcast")


@dataclass(slots=True)
class Called:
    """One call of a process.

    `comm` is the communicator's number there, `gpu_ns` start and end by the GPU's clock.
    """

    comm: int
    function: str
    count: int
    dtype: str | None
    at_ns: int
    root: int | None = None
    peer: int | None = None
    algorithm: str | None = None
    protocol: str | None = None
    channels: int | None = None
    stream: int | None = None
    group: int | None = None
    captured: bool = False
    uncounted: bool = False  # as in kernel_clock
    gpu_ns: tuple[int, int] | None = None

    @property
    def gpu_us(self) -> float | None:
        """Its duration on the GPU."""
        return (self.gpu_ns[1] - self.gpu_ns[0]) / 1000 if self.gpu_ns else None


class Calls(NamedTuple):
    """The calls in the order in which they were made, the number of those of an unknown
    function, and of those with a time of another.
    """

    made: list[Called]
    unknown: int
    shifted: int


@dataclass(slots=True)
class _Join:
    nccl: int
    ranks: dict[int, int]  # the process' own rank by communicator
    calls: dict[int, Called] = field(default_factory=dict)  # by number of the call
    enqueued: dict[int, list[Record]] = field(default_factory=dict)
    timed: dict[int, tuple[int, int]] = field(default_factory=dict)
    alone: list[Record] = field(default_factory=list)  # tasks without a call: NCCL before 2.28


def calls_of(found: ProcessFile) -> Calls:
    """The calls of a process."""
    join = _Join(found.nccl, {record.comm: record.peer for record, _ in names(found)})
    unknown = 0
    for record in found.records:
        if record.kind in (COLL_CALL, P2P_CALL):
            if record.function >= len(FUNCTIONS):
                unknown += 1
            else:
                join.calls[record.id] = _called(record)
        elif record.kind in (COLL, P2P):
            (join.enqueued.setdefault(record.id, []) if record.id else join.alone).append(record)
        elif record.kind == TIMED:
            join.timed[record.id] = (record.a, record.b)
    made = [
        called
        for number in sorted(join.calls)
        for called in _with_tasks(join.calls[number], join.enqueued.get(number, ()), join)
    ]
    unknown += sum(record.function >= len(FUNCTIONS) for record in join.alone)
    made += [
        _with_task(_called(record), record, join)
        for record in join.alone
        if record.function < len(FUNCTIONS)
    ]
    if any(called.captured for called in made):
        made.sort(key=lambda called: called.at_ns)
    shifted = drop_shifted(made)
    drop_overwritten(made)
    return Calls(made, unknown, shifted)


def _called(record: Record) -> Called:
    function = FUNCTIONS[record.function]
    untyped = record.kind == COLL and function in WITHOUT_TYPE
    dtype = DTYPES[record.dtype].name if record.dtype < len(DTYPES) and not untyped else None
    called = Called(
        record.comm,
        function,
        record.elements,
        dtype,
        record.time,
        root=record.peer if function in ROOTED else None,
    )
    if record.kind in (COLL_CALL, P2P_CALL):
        called.stream, called.group, called.captured = (
            record.a,
            record.b or None,
            bool(record.flags & CAPTURED),
        )
    return called


def _with_tasks(
    called: Called, tasks: tuple[Record, ...] | list[Record], join: _Join
) -> Iterator[Called]:
    """The call with its tasks: several sends and receives make one alltoall; a CUDA graph
    enqueues a collective at each replay.
    """
    collectives = [task for task in tasks if task.kind == COLL]
    if called.captured and collectives:
        for task in collectives:
            again = Called(
                called.comm,
                called.function,
                called.count,
                called.dtype,
                task.time,
                called.root,
                stream=called.stream,
            )
            again.captured = True
            yield _with_task(again, task, join)
        return
    for task in tasks:
        _with_task(called, task, join)
    called.uncounted |= called.function == "broadcast" and join.nccl >= ALL_GATHERV and not tasks
    if called.captured:
        called.gpu_ns = None  # its sends and receives are those of all replays
    yield called


def _with_task(called: Called, task: Record, join: _Join) -> Called:
    if task.algorithm != UNKNOWN and task.kind == COLL:
        called.algorithm = ALGORITHMS[task.algorithm] if task.algorithm < len(ALGORITHMS) else None
        called.protocol = PROTOCOLS[task.protocol] if task.protocol < len(PROTOCOLS) else None
    called.channels = max(called.channels or 0, task.channels) or None
    if task.kind == P2P:
        called.uncounted |= join.nccl < SELF_COUNTED and task.peer == join.ranks.get(task.comm)
        if called.function in (SEND, RECV):
            called.peer = task.peer
    timed = join.timed.get(task.b)
    if timed:
        start, end = called.gpu_ns or timed
        called.gpu_ns = min(start, timed[0]), max(end, timed[1])
    return called


# the NCCL that reports the application's own calls too, so that groups can be told apart
SINCE = 22800


@dataclass(frozen=True, slots=True)
class Kernel:
    """What NCCL ran for one operation, and how long its kernels took."""

    time_us: float | None
    algorithm: str | None
    protocol: str | None
    channels: int | None


class KernelTimes:
    """Records this process' operations while it is open.

    Without the plugin, or with another one, `running` is False.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._stack = ExitStack()
        self.folder: Path | None = None
        if environment.get(CAPTURE.plugin) or environment.get(CAPTURE.folder):
            return
        try:
            library = net_plugin.find()
        except NoMeasurement:
            return
        self.folder = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="busbw-replay-"))
        )
        os.environ |= {
            CAPTURE.plugin: str(library),
            CAPTURE.folder: str(self.folder),
            CAPTURE.mode: CAPTURE.timed,
        }

    @property
    def running(self) -> bool:
        """Whether NCCL was told to load the plugin."""
        return self.folder is not None

    def by_comm(self) -> list[list[Kernel]]:
        """The operations on each communicator that had any, in their order; communicators in the
        order of their creation.

        Empty if nothing was recorded.
        """
        files = sorted(self.folder.glob("*.capture")) if self.folder else []
        if len(files) != 1:
            return []
        found = profiler_file.read(files[0])
        if found.dropped:
            return []
        calls: dict[int, list[Called]] = {
            record.comm: [] for record, _ in profiler_file.names(found)
        }
        for called in calls_of(found).made:
            calls[called.comm].append(called)
        return [list(_operations(calls[comm])) for comm in sorted(calls) if calls[comm]]

    def close(self) -> None:
        """Forget the recording."""
        if self.folder:
            for name in (CAPTURE.plugin, CAPTURE.folder, CAPTURE.mode):
                os.environ.pop(name, None)
        self._stack.close()


def _operations(calls: Sequence[Called]) -> Iterator[Kernel]:
    """One for each call; sends and receives of one group are one operation."""
    at = 0
    while at < len(calls):
        first = at
        at += 1
        while _same_group(calls[first], calls, at):
            at += 1
        yield _kernel(calls[first:at])


def _same_group(first: Called, calls: Sequence[Called], at: int) -> bool:
    together = (
        first.function in (SEND, RECV) and at < len(calls) and calls[at].function in (SEND, RECV)
    )
    return together and first.group is not None and calls[at].group == first.group


def _kernel(calls: Sequence[Called]) -> Kernel:
    spans = [called.gpu_ns for called in calls if called.gpu_ns]
    time_us = (
        (max(end for _, end in spans) - min(start for start, _ in spans)) / 1000
        if len(spans) == len(calls)
        else None
    )
    return Kernel(time_us, calls[0].algorithm, calls[0].protocol, calls[0].channels)
