"""The calls in a process's file: what the application called, joined with what NCCL made of it
and how long the GPU took.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from busbw.core.dtypes import DTYPES
from busbw.core.pattern import ALGORITHMS, PROTOCOLS, RECV, SEND
from busbw.measure.kernel_clock import SELF_COUNTED, drop_overwritten, drop_shifted
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


def calls(found: ProcessFile) -> Calls:
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
