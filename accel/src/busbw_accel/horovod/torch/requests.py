"""Requests for operations: what ranks send to match their operations.

Reductions have Horovod's numbers, and scaling is done as Horovod does it. `disagreement` checks
that the requests of all ranks agree. `Cache` has earlier requests: a rank announces a cached
request with a single bit. `RequestTable` has the pending requests of all ranks. Every rank keeps
the same table, so operations become ready in the same order everywhere.
"""

import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import torch
import torch.distributed as dist

Average, Sum, Adasum, Min, Max, Product = range(6)

NAMES = {
    Average: "Average",
    Sum: "Sum",
    Adasum: "Adasum",
    Min: "Min",
    Max: "Max",
    Product: "Product",
}
TORCH_OPS = {
    Average: dist.ReduceOp.SUM,
    Sum: dist.ReduceOp.SUM,
    Min: dist.ReduceOp.MIN,
    Max: dist.ReduceOp.MAX,
    Product: dist.ReduceOp.PRODUCT,
}
# Types that Gloo and NCCL do not reduce, and wider types that hold their sums.
CARRIERS = {torch.int16: torch.int32, torch.uint16: torch.int32, torch.bool: torch.int32}
DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.uint8, torch.int8, torch.int32, torch.int64, torch.int16, torch.uint16, torch.bool),
)
_NARROW = (torch.float16, torch.bfloat16)
# Generated names, which are used only once.
_ONCE = ".noname."


def scale_(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    """Multiply a tensor in place, and return it.

    Integers are multiplied in fp64 and truncated. 16-bit floats are multiplied in fp32 on CPUs, and
    by a factor of the same type on GPUs.
    """
    if factor == 1.0:
        return tensor
    if not tensor.is_floating_point():
        return tensor.copy_(tensor.double().mul_(factor))
    if tensor.dtype in _NARROW and tensor.device.type == "cpu":
        return tensor.copy_(tensor.float().mul_(factor))
    return tensor.mul_(torch.tensor(factor, dtype=tensor.dtype).item())


def postscale(op: int, factor: float, ranks: int) -> float:
    """The factor after the sum, including the division of an average."""
    return factor / ranks if op == Average else factor


Key = tuple[int, str]
Shape = tuple[int, ...]


class OperationKind(StrEnum):
    """The kinds of operations."""

    ALLREDUCE = "allreduce"
    ALLGATHER = "allgather"
    BROADCAST = "broadcast"
    ALLTOALL = "alltoall"
    REDUCESCATTER = "reducescatter"
    BARRIER = "barrier"
    JOIN = "join"
    ADD_SET = "add_process_set"
    REMOVE_SET = "remove_process_set"


# Ranks that have joined take part only in these.
WITH_JOINED = (OperationKind.ALLREDUCE, OperationKind.BARRIER)
_FIRST_DIMENSION_FREE = (OperationKind.ALLGATHER, OperationKind.ALLTOALL)
_NEEDS_ROWS = (OperationKind.ALLGATHER, OperationKind.ALLTOALL, OperationKind.REDUCESCATTER)


@dataclass(frozen=True, slots=True)
class Request:
    """One operation on one tensor or a group of tensors, as it is sent to other ranks."""

    kind: OperationKind
    name: str
    set_id: int = 0
    shapes: tuple[Shape, ...] = ()
    dtypes: tuple[torch.dtype, ...] = ()
    device: str = "cpu"  # the type of the device
    op: int = Sum
    root: int = -1
    prescale: float = 1.0
    postscale: float = 1.0
    gradient: bool = False  # a gradient to which the LIGHT_* variables apply
    # The ranks of the process set to add or remove. `root` is the number of the set to remove.
    ranks: tuple[int, ...] = ()

    @property
    def key(self) -> Key:
        """The key by which ranks match their requests."""
        return self.set_id, self.name


@dataclass(frozen=True, slots=True)
class Response:
    """An operation that all its ranks run now, or that fails with `error`."""

    key: Key
    requests: Mapping[int, Request] = field(default_factory=dict)  # by rank, in order of arrival
    error: str = ""

    @property
    def request(self) -> Request:
        """The request of any rank; they agree."""
        return next(iter(self.requests.values()))


def disagreement(requests: Mapping[int, Request], members: Sequence[int]) -> str:
    """The reason why requests with the same name cannot run together; empty if they can."""
    first_rank, first = next(iter(requests.items()))
    for rank, other in requests.items():
        for field_name, value in _common(first).items():
            other_value = _common(other)[field_name]
            if other_value != value:
                return (
                    f"{first.name}: ranks disagree on the {field_name}: {_text_of(value)} at rank"
                    f" {first_rank}, {_text_of(other_value)} at rank {rank}"
                )
        if other.kind in _NEEDS_ROWS and () in other.shapes:
            return (
                f"{first.name}: {first.kind} needs a first dimension, and rank {rank} gave a scalar"
            )
    if first.kind == OperationKind.BROADCAST and first.root not in members:
        return f"{first.name}: root rank {first.root} is not one of the ranks {list(members)}"
    return ""


def _common(request: Request) -> dict[str, object]:
    """The fields of a request that must be equal on all ranks, by their names in errors."""
    shapes, shape_name = request.shapes, "shape"
    if request.kind in _FIRST_DIMENSION_FREE:
        shapes = tuple(shape[1:] if shape else (-1,) for shape in shapes)
        shape_name = "shape beyond the first dimension"
    return {
        "operation": request.kind,
        "number of tensors": len(shapes),
        "type": request.dtypes,
        "device": request.device,
        shape_name: shapes,
        "reduction": request.op,
        "root rank": request.root,
        "prescale factor": request.prescale,
        "postscale factor": request.postscale,
        "exchange of gradients": request.gradient,
        "ranks of the process set": request.ranks,
    }


def _text_of(value: object) -> str:
    if isinstance(value, OperationKind):
        return str(value)
    return str(value[0]) if isinstance(value, tuple) and len(value) == 1 else str(value)


_KINDS = (
    OperationKind.ALLREDUCE,
    OperationKind.ALLGATHER,
    OperationKind.BROADCAST,
    OperationKind.ALLTOALL,
    OperationKind.REDUCESCATTER,
    OperationKind.BARRIER,
)


class Cache:
    """Responses by slot.

    All ranks add, use and evict the same responses in the same order. So a slot means the same on
    each rank.
    """

    def __init__(self, capacity: int, rank: int) -> None:
        self._capacity, self._rank = capacity, rank
        # Slot and response, the least recently used first.
        self._known: OrderedDict[Key, tuple[int, Response]] = OrderedDict()
        self._by_slot: dict[int, Key] = {}
        # Bits of operations of sets that this rank is not in. It is always ready for them.
        self.foreign = 0

    @property
    def slots(self) -> int:
        """Number of bits that a rank sends."""
        return max(self._by_slot, default=-1) + 1

    def slot(self, request: Request) -> int | None:
        """The slot of an identical request of this rank. None: not cached."""
        if request.key not in self._known:
            return None
        slot, response = self._known[request.key]
        return slot if response.requests.get(self._rank) == request else None

    def take(self, bits: int) -> Iterator[Response]:
        """The responses in these slots, in slot order."""
        for slot in range(self.slots):
            if bits >> slot & 1:
                key = self._by_slot[slot]
                self._known.move_to_end(key)
                yield self._known[key][1]

    def put(self, answer: Response, members: Sequence[int]) -> None:
        """Cache a response if it may occur again."""
        request = answer.request
        complete = set(answer.requests) == set(members)
        repeatable = request.kind in _KINDS and _ONCE not in request.name
        if answer.error or not complete or not repeatable or not self._capacity:
            return
        if answer.key in self._known:
            slot = self._known[answer.key][0]
        elif len(self._known) < self._capacity:
            slot = next(slot for slot in range(self._capacity) if slot not in self._by_slot)
        else:
            oldest, (slot, _) = self._known.popitem(last=False)
            assert self._by_slot[slot] == oldest
        self._known[answer.key] = (slot, answer)
        self._known.move_to_end(answer.key)
        self._by_slot[slot] = answer.key
        bit = 1 << slot
        self.foreign = self.foreign & ~bit if self._rank in members else self.foreign | bit

    def drop_set(self, set_id: int) -> None:
        for key in [key for key in self._known if key[0] == set_id]:
            slot, _ = self._known.pop(key)
            del self._by_slot[slot]
            self.foreign &= ~(1 << slot)


JOIN_KEY: Key = (0, "join")
Members = Mapping[int, tuple[int, ...]]


@dataclass(slots=True)
class _Entry:
    requests: dict[int, Request] = field(default_factory=dict)
    since_s: float = field(default_factory=time.monotonic)
    warned_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Stalled:
    """An operation that ranks wait for, since some (`missing`) have not requested it yet."""

    key: Key
    waited_s: float
    ready: tuple[int, ...]
    missing: tuple[int, ...]


class RequestTable:
    """Pending requests of all ranks."""

    def __init__(self) -> None:
        self._entries: dict[Key, _Entry] = {}

    def __contains__(self, key: Key) -> bool:
        """Whether a rank has requested the operation."""
        return key in self._entries

    @property
    def joined(self) -> frozenset[int]:
        """The ranks that have joined."""
        entry = self._entries.get(JOIN_KEY)
        return frozenset(entry.requests) if entry else frozenset()

    def add(self, rank: int, request: Request) -> None:
        self._entries.setdefault(request.key, _Entry()).requests[rank] = request

    def take_ready(self, members: Members) -> list[Response]:
        """Remove and return the operations that all ranks have requested.

        They are in the order of their first requests.
        """
        answers = [self._answer(key, entry, members) for key, entry in self._entries.items()]
        ready = [answer for answer in answers if answer is not None]
        for answer in ready:
            del self._entries[answer.key]
        return ready

    def _answer(self, key: Key, entry: _Entry, members: Members) -> Response | None:
        ranks = members.get(key[0])
        if ranks is None:
            return Response(key, entry.requests, f"{key[1]}: process set {key[0]} no longer exists")
        missing = set(ranks) - set(entry.requests)
        kinds = {request.kind for request in entry.requests.values()}
        if missing and (OperationKind.JOIN in kinds or not missing <= self.joined):
            return None
        error = disagreement(entry.requests, ranks)
        if missing and not error and not kinds <= set(WITH_JOINED):
            error = (
                f"{key[1]}: {min(kinds)} is not possible while ranks {sorted(missing)} have joined"
            )
        return Response(key, entry.requests, error)

    def fail(self, key: Key, reason: str) -> Response | None:
        """Remove an operation and return its failure."""
        entry = self._entries.pop(key, None)
        return Response(key, entry.requests, reason) if entry else None

    def stalled(self, members: Members, least_s: float, now_s: float) -> list[Stalled]:
        """Operations that have waited for `least_s`, each reported once per `least_s`.

        Joins are excluded.
        """
        stalled = []
        for key, entry in self._entries.items():
            if key == JOIN_KEY or now_s - max(entry.since_s, entry.warned_s) < least_s:
                continue
            entry.warned_s = now_s
            missing = sorted(set(members.get(key[0], ())) - set(entry.requests) - self.joined)
            ready, waited_s = tuple(sorted(entry.requests)), now_s - entry.since_s
            stalled.append(Stalled(key, waited_s, ready, tuple(missing)))
        return stalled

    def overdue(self, least_s: float, now_s: float) -> list[Key]:
        """Operations that have waited for `least_s`."""
        return [
            key
            for key, entry in self._entries.items()
            if key != JOIN_KEY and now_s - entry.since_s >= least_s
        ]
