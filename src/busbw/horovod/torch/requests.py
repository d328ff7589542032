"""Requests for operations, and the check that the requests of all ranks agree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import torch

from busbw.horovod.torch import reduceops

Key = tuple[int, str]
Shape = tuple[int, ...]


class Kind(StrEnum):
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
WITH_JOINED = (Kind.ALLREDUCE, Kind.BARRIER)
_FIRST_DIMENSION_FREE = (Kind.ALLGATHER, Kind.ALLTOALL)
_NEEDS_ROWS = (Kind.ALLGATHER, Kind.ALLTOALL, Kind.REDUCESCATTER)


@dataclass(frozen=True, slots=True)
class Request:
    """One operation on one tensor or a group of tensors, as it is sent to other ranks."""

    kind: Kind
    name: str
    set_id: int = 0
    shapes: tuple[Shape, ...] = ()
    dtypes: tuple[torch.dtype, ...] = ()
    device: str = "cpu"  # its type
    op: int = reduceops.Sum
    root: int = -1
    prescale: float = 1.0
    postscale: float = 1.0
    gradient: bool = False  # a gradient to which the LIGHT_* variables apply
    # of the process set to add or remove; `root` is the number of that to remove
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
    """Why requests with the same name cannot run together. Empty: they can."""
    first_rank, first = next(iter(requests.items()))
    for rank, other in requests.items():
        for what, value in _common(first).items():
            theirs = _common(other)[what]
            if theirs != value:
                return (
                    f"{first.name}: ranks disagree on the {what}: {_shown(value)} at rank"
                    f" {first_rank}, {_shown(theirs)} at rank {rank}"
                )
        if other.kind in _NEEDS_ROWS and () in other.shapes:
            return (
                f"{first.name}: {first.kind} needs a first dimension, and rank {rank} gave a scalar"
            )
    if first.kind == Kind.BROADCAST and first.root not in members:
        return f"{first.name}: root rank {first.root} is not one of the ranks {list(members)}"
    return ""


def _common(request: Request) -> dict[str, object]:
    shapes = request.shapes
    if request.kind in _FIRST_DIMENSION_FREE:
        shapes = tuple(shape[1:] if shape else (-1,) for shape in shapes)
    return {
        "operation": request.kind,
        "number of tensors": len(shapes),
        "type": request.dtypes,
        "device": request.device,
        (
            "shape beyond the first dimension" if request.kind in _FIRST_DIMENSION_FREE else "shape"
        ): shapes,
        "reduction": request.op,
        "root rank": request.root,
        "prescale factor": request.prescale,
        "postscale factor": request.postscale,
        "exchange of gradients": request.gradient,
        "ranks of the process set": request.ranks,
    }


def _shown(value: object) -> str:
    if isinstance(value, Kind):
        return str(value)
    return str(value[0]) if isinstance(value, tuple) and len(value) == 1 else str(value)
