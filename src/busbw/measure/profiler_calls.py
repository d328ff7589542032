"""The calls in a process's file, joined with what NCCL made of them and how long the GPU took.

`read_calls` reads the calls from a file of the profiler plugin.

A call's time is by one of three clocks: NCCL's kernel events, CUDA events around its launch, or
CUDA events around the call, where NCCL reports no launch.

Calls in CUDA graphs have none: NCCL reports kernel events of their replays, but reads their times
from slots that the replayed kernels do not write, so that all calls of a replay get the same.

Not every other kernel time belongs to the call for which NCCL reports it. On each channel NCCL and
the GPU both count the pieces of work, and NCCL reads start and end from the slot of its own count,
modulo 64. Where one of them counts a piece that the other leaves out, all later times on that
communicator are those of other calls. `drop_shifted` and `drop_overwritten` remove such times.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from busbw.core.dtypes import DTYPES
from busbw.core.pattern import (
    ALGORITHMS,
    AROUND_CALL,
    EVENTS,
    KERNEL,
    PROTOCOLS,
    RECV,
    SEND,
    algbw_bytes,
)
from busbw.core.ran import COPY_ENGINE, SYMMETRIC
from busbw.measure.profiler_file import (
    CALL_TIMING,
    COLL,
    COLL_CALL,
    DEFERRED,
    P2P,
    P2P_CALL,
    TIMED,
    UNKNOWN,
    ProcessFile,
    ProfilerRecord,
    names,
)

# The first NCCL that counts sends to the own rank, as the GPU does (ncclProfilerPostPlanWork).
SELF_SENDS_COUNTED_SINCE = 23100
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
ROOTED_FUNCTIONS = ("broadcast", "reduce", "scatter", "gather")
CAPTURED_FLAG = 1
# Flags of a task that runs none of NCCL's algorithms, and what stands in their place.
SPECIAL_ALGORITHMS = {4: SYMMETRIC, 8: COPY_ENGINE}
# Flags of a time; without them it is by NCCL's kernel events.
CLOCK_OF_FLAGS = {1: EVENTS, 2: AROUND_CALL}
ALL_GATHERV_SINCE = 22900  # the first NCCL in which a broadcast may run without a task
# Functions whose elements NCCL counts as bytes once they are enqueued.
UNTYPED_FUNCTIONS = ("all_gather", "broadcast")


class TimedCall(Protocol):
    """What is needed of a call. `uncounted`: the GPU counts its work, and NCCL does not."""

    comm: int
    group: int | None
    gpu_ns: tuple[int, int] | None
    clock: str | None
    uncounted: bool


def drop_shifted(calls: Sequence[TimedCall]) -> int:
    """Forget the kernel times of each communicator's first uncounted call, of its group, and of all
    later calls; returns how many times were forgotten.

    NCCL counts no send to the own rank, as in an alltoall of sends and receives, before 2.31
    (addP2pToPlan), and no broadcast that it runs as an all_gather of unequal parts, from 2.29 on
    (NVIDIA/nccl pull request 2369).
    """
    uncounted_groups = {
        (call.comm, call.group) for call in calls if call.uncounted and call.group is not None
    }
    shifted_comms: set[int] = set()
    dropped = 0
    for call in calls:
        if call.uncounted or (call.comm, call.group) in uncounted_groups:
            shifted_comms.add(call.comm)
        if call.comm in shifted_comms and call.clock == KERNEL:
            call.gpu_ns = call.clock = None
            dropped += 1
    return dropped


def drop_overwritten(calls: Sequence[TimedCall]) -> None:
    """Forget kernel times that belong to later kernels.

    NCCL keeps the starts and ends of 64 kernels for each channel. If its thread reads them later
    than that, it reports those of a later kernel. On one communicator kernels run one after the
    other, so such a time ends before it starts, or after the next one has started. Only calls of
    one group share a kernel.
    """
    following: dict[int, tuple[int, int | None]] = {}
    for call in reversed(calls):
        if call.gpu_ns is None or call.clock != KERNEL:
            continue
        start, end = call.gpu_ns
        next_start, next_group = following.get(call.comm, (end, None))
        same_kernel = call.group is None or call.group == next_group
        if end < start or (end > next_start and not same_kernel):
            call.gpu_ns = call.clock = None
        else:
            following[call.comm] = min(start, next_start) if same_kernel else start, call.group


@dataclass(slots=True)
class ProfiledCall:
    """One call of a process."""

    comm: int  # the communicator's number in the process
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
    replayed: bool = False  # NCCL has reported it of a replay, not of its capture
    uncounted: bool = False  # as in TimedCall
    gpu_ns: tuple[int, int] | None = None  # start and end by `clock`
    clock: str | None = None
    timing: int | None = None  # the number of that time, which calls of one launch share

    @property
    def gpu_us(self) -> float | None:
        """The duration on the GPU in microseconds; None if it is unknown."""
        return (self.gpu_ns[1] - self.gpu_ns[0]) / 1000 if self.gpu_ns else None


class ProcessCalls(NamedTuple):
    """The calls of a process in their order.

    `unknown` counts calls of an unknown function, which are left out. `shifted` counts those whose
    time was that of another call.
    """

    calls: list[ProfiledCall]
    unknown: int
    shifted: int


@dataclass(slots=True)
class _Join:
    nccl: int
    ranks: dict[int, int]  # the process' own rank by communicator
    sizes: dict[int, int]  # the number of ranks by communicator
    calls: dict[int, ProfiledCall] = field(default_factory=dict)  # by number of the call
    tasks: dict[int, list[ProfilerRecord]] = field(default_factory=dict)  # by number of the call
    # start, end and clock by number of the timing
    spans_ns: dict[int, tuple[int, int, str]] = field(default_factory=dict)
    timings: dict[int, int] = field(default_factory=dict)  # of calls without tasks, by their number
    deferred: set[int] = field(default_factory=set)  # communicators that launch after their calls
    tasks_without_call: list[ProfilerRecord] = field(default_factory=list)  # of NCCL before 2.28
    unknown: int = 0  # calls of an unknown function
    with_replays: bool = True


def read_calls(file: ProcessFile, *, with_replays: bool = True) -> ProcessCalls:
    """The calls. `with_replays`: as often as NCCL reports those in CUDA graphs, else once."""
    join = _read_records(file)
    join.with_replays = with_replays
    calls: list[ProfiledCall] = []
    for number in sorted(join.calls):
        called = join.calls[number]
        if number in join.timings and number not in join.tasks and called.comm not in join.deferred:
            _add_time(called, join.timings[number], join)
        calls += _with_tasks(called, join.tasks.get(number, ()), join)
    calls += [_with_task(_call_of_record(task), task, join) for task in join.tasks_without_call]
    if any(call.captured for call in calls):
        calls.sort(key=lambda call: call.at_ns)
    shifted = drop_shifted(calls)
    drop_overwritten(calls)
    _divide_launches(calls, join.sizes)
    return ProcessCalls(calls, join.unknown, shifted)


def _read_records(file: ProcessFile) -> _Join:
    """The records of a process by what connects them."""
    comms = [record for record, _ in names(file)]
    join = _Join(
        file.nccl,
        {record.comm: record.peer for record in comms},
        {record.comm: record.elements for record in comms},
    )
    for record in file.records:
        known = record.function < len(FUNCTIONS)
        if record.kind in (COLL_CALL, P2P_CALL):
            join.unknown += not known
            if known:
                join.calls[record.id] = _call_of_record(record)
        elif record.kind in (COLL, P2P) and record.id:
            join.tasks.setdefault(record.id, []).append(record)
        elif record.kind in (COLL, P2P):
            join.unknown += not known
            if known:
                join.tasks_without_call.append(record)
        elif record.kind == TIMED:
            clock = CLOCK_OF_FLAGS.get(record.flags, KERNEL)
            join.spans_ns[record.id] = (record.a, record.b, clock)
        elif record.kind == CALL_TIMING:
            join.timings[record.id] = record.b
        elif record.kind == DEFERRED:
            join.deferred.add(record.comm)
    return join


def _call_of_record(record: ProfilerRecord) -> ProfiledCall:
    function = FUNCTIONS[record.function]
    untyped = record.kind == COLL and function in UNTYPED_FUNCTIONS
    dtype = DTYPES[record.dtype].name if record.dtype < len(DTYPES) and not untyped else None
    call = ProfiledCall(
        record.comm,
        function,
        record.elements,
        dtype,
        record.time,
        root=record.peer if function in ROOTED_FUNCTIONS else None,
    )
    if record.kind in (COLL_CALL, P2P_CALL):
        call.stream = record.a
        call.group = record.b or None
        call.captured = bool(record.flags & CAPTURED_FLAG)
    return call


def _with_tasks(
    call: ProfiledCall, tasks: tuple[ProfilerRecord, ...] | list[ProfilerRecord], join: _Join
) -> Iterator[ProfiledCall]:
    """The call with its tasks: several sends and receives make one alltoall; a CUDA graph
    enqueues a collective at each replay.
    """
    collectives = [task for task in tasks if task.kind == COLL]
    if call.captured and collectives and join.with_replays:
        for task in collectives:
            replayed = ProfiledCall(
                call.comm,
                call.function,
                call.count,
                call.dtype,
                task.time,
                call.root,
                stream=call.stream,
                captured=True,
                replayed=True,
            )
            yield _untimed(_with_task(replayed, task, join))
        return
    for task in tasks:
        _with_task(call, task, join)
    call.uncounted |= call.function == "broadcast" and join.nccl >= ALL_GATHERV_SINCE and not tasks
    yield _untimed(call) if call.captured else call


def _untimed(call: ProfiledCall) -> ProfiledCall:
    call.gpu_ns = call.clock = call.timing = None
    return call


def _with_task(call: ProfiledCall, task: ProfilerRecord, join: _Join) -> ProfiledCall:
    """The call, to which the facts and the time of a task are added."""
    if task.algorithm != UNKNOWN and task.kind == COLL:
        call.algorithm = ALGORITHMS[task.algorithm] if task.algorithm < len(ALGORITHMS) else None
        call.protocol = PROTOCOLS[task.protocol] if task.protocol < len(PROTOCOLS) else None
    for flag, name in SPECIAL_ALGORITHMS.items():
        if task.kind == COLL and task.flags & flag:
            call.algorithm = name
    call.channels = max(call.channels or 0, task.channels) or None
    if task.kind == P2P:
        call.uncounted |= join.nccl < SELF_SENDS_COUNTED_SINCE and task.peer == join.ranks.get(
            task.comm
        )
        if call.function in (SEND, RECV):
            call.peer = task.peer
    _add_time(call, task.b, join)
    return call


def _add_time(call: ProfiledCall, timing: int, join: _Join) -> None:
    """Extend the call's time by that of a task or launch, if it was read."""
    if timing in join.spans_ns:
        first, last, clock = join.spans_ns[timing]
        start, end = call.gpu_ns or (first, last)
        call.gpu_ns = min(start, first), max(end, last)
        call.clock, call.timing = clock, timing


def _divide_launches(calls: Sequence[ProfiledCall], sizes: dict[int, int]) -> None:
    """Divide the time of a launch among the collectives that it ran, by their bytes.

    They ran one after the other, or their parts beside each other: CUDA events do not tell. Sends
    and receives do run together, so each has all of it, as with kernel events.
    """
    by_timing: dict[int, list[ProfiledCall]] = {}
    for call in calls:
        if call.timing is not None and call.clock in (EVENTS, AROUND_CALL):
            by_timing.setdefault(call.timing, []).append(call)
    for launched in by_timing.values():
        if len(launched) > 1 and any(call.function not in (SEND, RECV) for call in launched):
            _divide(launched, [_bytes(call, sizes.get(call.comm, 1)) for call in launched])


def _bytes(call: ProfiledCall, ranks: int) -> int:
    """The call's bytes, at least 1."""
    return max(1, algbw_bytes(call.function, call.count, call.dtype or "uint8", max(1, ranks)))


def _divide(launched: Sequence[ProfiledCall], sizes: Sequence[int]) -> None:
    """Give each call its part of the time that all of them have, in their order."""
    assert launched[0].gpu_ns
    start, end = launched[0].gpu_ns
    total, done = sum(sizes), 0
    for call, size in zip(launched, sizes, strict=True):
        first = start + (end - start) * done // total
        done += size
        call.gpu_ns = first, start + (end - start) * done // total
