"""Merges the calls of several ranks into one order: a collective is one call of all its members.

The first part has the names of functions and element types in NCCL, PyTorch, torchcomms, Chakra and
SimAI, and the names that a pattern has for them.

`merge` repeatedly takes a call that is next on every rank that made it. Ranks disagree about the
order where a rank uses several streams; then the call that started first is taken, and counted.
"""

import heapq
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from busbw.core.collectives import COLLECTIVES
from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.core.dtypes import DTYPES as ROWS
from busbw.core.pattern import RECV, SEND, key
from busbw.core.redops import REDOPS

# PyTorch's c10d and torchcomms name the same operation by how its buffers are passed.
_VARIANTS = {
    "all_reduce": ("allreduce_coalesced",),
    "all_gather": (
        "_allgather_base",
        "allgather_into_tensor",
        "allgather_into_tensor_coalesced",
        "allgather_coalesced",
        "all_gather_single",
    ),
    "reduce_scatter": (
        "_reduce_scatter_base",
        "reduce_scatter_tensor",
        "reduce_scatter_tensor_coalesced",
        "reduce_scatter_single",
        "reduce_scatter_block",
    ),
    "broadcast": ("_broadcast_oop",),
    "reduce": ("_reduce_oop",),
    "alltoall": ("alltoall_base", "all_to_all_single"),
    "alltoallv": ("all_to_allv", "all_to_all_v_single"),
    "gather": ("gather_single",),
    SEND: ("send", "isend"),
    RECV: ("recv", "irecv", "recv_any_source"),
}
# What moves no data of the application: counted, but no row.
CONTROL = frozenset(
    {
        "barrier",
        "allreducebarrier",
        "monitoredbarrier",
        "wait",
        "coalesced",
        "startcoalescing",
        "endcoalescing",
        "init",
        "broadcastuniquencclid",
        "batchopissue",
    }
)
# Types that no row of the table has: bytes an element.
_OTHER_TYPES = {
    "bool": 1,
    "short": 2,
    "i16": 2,
    "int16": 2,
    "complexhalf": 4,
    "complexfloat": 8,
    "complexdouble": 16,
    "other": 0,
}
_SHORT_TYPES = {
    "i8": "int8",
    "u8": "uint8",
    "i32": "int32",
    "i64": "int64",
    "float8_e4m3fnuz": "f8e4m3",
    "float8_e5m2fnuz": "f8e5m2",
    "fp8e4m3": "f8e4m3",
    "fp8e5m2": "f8e5m2",
}
_OPS = {row.nccl: row.name for row in REDOPS if row.nccl is not None}
POINT_TO_POINT = (SEND, RECV)
_ALL_TO_ALL = {"alltoall", "alltoallv"}
_FILLED = ("count", "dtype", "op", "root", "algorithm", "protocol", "channels", "predicted_us")


_FUNCTIONS = {
    key(name): row.name for row in COLLECTIVES for name in (row.name, row.torch_name, *row.aliases)
} | {key(name): row_name for row_name, names in _VARIANTS.items() for name in names}
_OP_NAMES = {key(name): row.name for row in REDOPS for name in (row.name, *row.aliases)}


def function(name: str) -> str | None:
    """The row for `AllReduce`, `_allgather_base` or `all_to_all_v_single`; None if none."""
    return _FUNCTIONS.get(key(name))


def element(name: str) -> tuple[str | None, int]:
    """The type and its bytes for `Float`, `bf16` or `float16`.

    The type is None, or the bytes 0, where they are unknown.
    """
    lower = name.lower()
    row = DTYPES.get(_SHORT_TYPES.get(lower, lower))
    return (row.name, row.itemsize) if row else (None, _OTHER_TYPES.get(lower, 0))


def nccl_element(number: int) -> tuple[str, int] | None:
    """The type and its bytes for a number of ncclDataType_t."""
    return (ROWS[number].name, ROWS[number].itemsize) if 0 <= number < len(ROWS) else None


def nccl_op(number: int) -> str | None:
    """The operator of a ncclRedOp_t; `mulsum` for numbers that the application made."""
    return _OPS.get(number, "mulsum" if number > max(_OPS) else None)


def op(name: str) -> str | None:
    """The operator for `sum` or `premul_sum`; None if there is none."""
    return _OP_NAMES.get(key(name))


def count_of(function: str, sent: int, received: int, ranks: int) -> int | None:
    """NCCL's count argument from both buffers' elements; None for an uneven all-to-all."""
    if function in ("all_gather", "gather", SEND):
        return sent
    if function in ("reduce_scatter", "scatter", RECV):
        return received
    if function == "alltoall":
        return sent // ranks if ranks and sent == received and sent % ranks == 0 else None
    return None if function == "alltoallv" else max(sent, received)


class ObservedCall(msgspec.Struct):
    """One call as one rank saw it. None is what the source does not say."""

    comm: Hashable  # the same on all ranks of a communicator
    function: str  # a collective's name, send or recv
    bytes: int  # as in core.pattern.PatternRow
    count: int | None = None
    dtype: str | None = None
    op: str | None = None
    root: int | None = None
    peer: int | None = None
    algorithm: str | None = None
    protocol: str | None = None
    channels: int | None = None
    # the source's number of the call in its communicator; without it, calls are the same if they
    # are on each rank the n-th with their function and size
    seq: int | None = None
    at_us: float | None = None  # start, since any moment common to all ranks
    cpu_us: float | None = None
    gpu_us: float | None = None
    gpu_at_us: float | None = None  # start by the GPU's clock, moved to the host's
    predicted_us: float | None = None
    stream: Hashable = None  # compared within one rank only
    group: Hashable = None  # compared within one rank only
    clock: str | None = None  # as in core.pattern.PatternCall


@dataclass(slots=True)
class JoinedCall:
    """One call of all ranks in `queues` (indices), each of which made one of `members`.

    Its duration is the shortest of any rank, which waited for no other. It is a lower bound where a
    rank can leave before all have entered, as in a broadcast. `skew_us` is the longest less the
    shortest.
    """

    call: ObservedCall
    queues: list[int]
    skew_us: float | None = None
    members: list[ObservedCall] = field(default_factory=list)


@dataclass(slots=True)
class MergedCalls:
    """The calls in one order, and how often ranks disagreed: about the order, or about the
    arguments of one call.
    """

    calls: list[JoinedCall] = field(default_factory=list)
    forced: int = 0
    mismatched: int = 0


def merge(queues: Sequence[Sequence[ObservedCall]]) -> MergedCalls:
    """The calls of all ranks in one order; each queue has those of a rank in its order."""
    return _Merge(queues).run()


class _Merge:
    def __init__(self, queues: Sequence[Sequence[ObservedCall]]) -> None:
        self._queues = queues
        self._ids = [_identities(queue, number) for number, queue in enumerate(queues)]
        # Of each call: in how many queues it is, and its position in them.
        self._needed = Counter(itertools.chain.from_iterable(self._ids))
        self._where: dict[Hashable, list[tuple[int, int]]] = defaultdict(list)
        for number, ids in enumerate(self._ids):
            for at, identity in enumerate(ids):
                self._where[identity].append((number, at))
        self._heads = [0] * len(queues)
        self._waiting: Counter[Hashable] = Counter()
        self._taken: set[Hashable] = set()
        self._ready: list[tuple[float, int, Hashable]] = []
        self._merged = MergedCalls()

    def run(self) -> MergedCalls:
        for number in range(len(self._queues)):
            self._show(number)
        while True:
            if self._ready:
                self._take(heapq.heappop(self._ready)[2])
                continue
            first = self._earliest()
            if first is None:
                return self._merged
            self._merged.forced += 1
            self._take(first)

    def _show(self, number: int) -> None:
        """Note that a queue has come to its next call, without those that are merged already.

        If all ranks of the call have come to it, it is ready to be merged.
        """
        ids = self._ids[number]
        while self._heads[number] < len(ids) and ids[self._heads[number]] in self._taken:
            self._heads[number] += 1
        if self._heads[number] == len(ids):
            return
        identity = ids[self._heads[number]]
        self._waiting[identity] += 1
        if self._waiting[identity] == self._needed[identity]:
            starts = [call.at_us for call in self._calls(identity) if call.at_us is not None]
            order = len(self._taken) * len(self._queues) + number
            heapq.heappush(self._ready, (min(starts, default=0.0), order, identity))

    def _earliest(self) -> Hashable | None:
        """The next call of any queue that started first; None at the end of all queues."""
        heads = []
        for number, at in enumerate(self._heads):
            if at < len(self._ids[number]):
                at_us = self._queues[number][at].at_us
                heads.append((math.inf if at_us is None else at_us, number))
        if not heads:
            return None
        _, number = min(heads)
        return self._ids[number][self._heads[number]]

    def _take(self, identity: Hashable) -> None:
        self._taken.add(identity)
        members = list(self._calls(identity))
        joined, agreed = join(members)
        joined.members = members
        joined.queues = [number for number, _ in self._where[identity]]
        self._merged.calls.append(joined)
        self._merged.mismatched += not agreed
        for number, at in self._where[identity]:
            if self._heads[number] == at:
                self._show(number)

    def _calls(self, identity: Hashable) -> Iterable[ObservedCall]:
        return (self._queues[number][at] for number, at in self._where[identity])


def _identities(queue: Sequence[ObservedCall], number: int) -> list[Hashable]:
    """A key for each call of a rank, which is the same for the same call on other ranks.

    A send or receive is a call of its own, so its key is of this queue alone.
    """
    counts: Counter[tuple[Hashable, ...]] = Counter()
    identities: list[Hashable] = []
    for at, call in enumerate(queue):
        if call.function in POINT_TO_POINT:
            identities.append((number, at))
            continue
        name: tuple[Hashable, ...]
        if call.seq is not None:
            name = (call.comm, call.seq)
        elif call.function in _ALL_TO_ALL:
            name = (call.comm, "alltoall")
        else:
            name = (call.comm, call.function, call.bytes)
        identities.append((*name, counts[name]))  # calls of one group can share their number
        counts[name] += 1
    return identities


def join(calls: Sequence[ObservedCall]) -> tuple[JoinedCall, bool]:
    """One call from the records of its ranks, and whether they agree about its arguments.

    What one rank lacks comes from another.
    """
    first = calls[0]
    if len(calls) == 1:
        return JoinedCall(first, []), True
    functions = {call.function for call in calls}
    sizes = {call.bytes for call in calls}
    joined = msgspec.structs.replace(first)
    agreed = len(functions) == len(sizes) == 1
    if functions <= _ALL_TO_ALL and ("alltoallv" in functions or len(sizes) > 1):
        joined.function, joined.bytes, joined.count = "alltoallv", max(sizes), None
        agreed = True
    if agreed and joined.function == first.function:
        for name in _FILLED:
            if getattr(joined, name) is None:
                setattr(joined, name, next(iter(_values(calls, name)), None))
    joined.at_us = min(_values(calls, "at_us"), default=None)
    skew_us = None
    for name in ("cpu_us", "gpu_us"):
        durations = _values(calls, name)
        if durations:
            setattr(joined, name, min(durations))
            skew_us = max(durations) - min(durations) if len(durations) > 1 else None
    shortest = min(calls, key=lambda call: math.inf if call.gpu_us is None else call.gpu_us)
    if shortest.gpu_us is not None:
        joined.gpu_at_us, joined.clock = shortest.gpu_at_us, shortest.clock
    return JoinedCall(joined, [], skew_us), agreed


def _values(calls: Sequence[ObservedCall], name: str) -> list[Any]:
    """The values of a field, of the calls that have one."""
    values = [getattr(call, name) for call in calls]
    return [value for value in values if value is not None]
