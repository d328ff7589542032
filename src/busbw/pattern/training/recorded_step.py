"""One step of a training as it was recorded: what `busbw plan` knows of a user's own job."""

from itertools import groupby
from math import prod
from typing import Annotated

import msgspec
from msgspec import Meta


class RecordedBucket(msgspec.Struct, frozen=True, omit_defaults=True):
    """One all_reduce of gradients of a step.

    `ready_s`: when it was called, since the first of the step. `shapes`: its parameters, empty if
    unknown.
    """

    nbytes: int
    dtype: str
    ready_s: float = 0.0
    shapes: list[list[int]] = []


class RecordedStep(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One step. Durations are medians over `steps` steps; null is unknown."""

    source: str
    ranks: int
    buckets: list[RecordedBucket]
    steps: int
    step_s: float | None = None
    waited_s: Annotated[
        float | None,
        Meta(description="part of a step that waited for gradients when backward had ended"),
    ] = None
    waited_source: Annotated[str, Meta(description="whose figure `waited_s` is")] = ""
    bucket_mb: Annotated[float | None, Meta(description="DDP's bucket_cap_mb")] = None
    hook: Annotated[str, Meta(description="DDP's communication hook")] = ""
    hosts: list[str] = []
    others: Annotated[list[str], Meta(description="what a step sends besides gradients")] = []
    notes: Annotated[list[str], Meta(description="what the record lacks")] = []

    @property
    def nbytes(self) -> int:
        """Bytes of gradients of a step."""
        return sum(bucket.nbytes for bucket in self.buckets)

    @property
    def has_shapes(self) -> bool:
        """Whether the parameters of all buckets are known."""
        return all(bucket.shapes for bucket in self.buckets)

    def hosts_text(self) -> str:
        """Where its ranks ran, as `--hosts` takes it; '' if it is unknown."""
        counts = [f"{host}:{len(list(ranks))}" for host, ranks in groupby(self.hosts)]
        return ",".join(counts)


def merged(buckets: list[RecordedBucket], bucket_mb: float) -> list[RecordedBucket]:
    """The buckets that DDP would make with a larger bucket_cap_mb, as far as recorded ones show it.

    A bucket of DDP is full when it has reached its limit, and is ready when its last gradient is.
    """
    limit = bucket_mb * 2**20
    groups: list[list[RecordedBucket]] = [[]]
    for bucket in buckets:
        same_type = not groups[-1] or groups[-1][0].dtype == bucket.dtype
        if not same_type or sum(member.nbytes for member in groups[-1]) >= limit:
            groups.append([])
        groups[-1].append(bucket)
    return [_joined(group) for group in groups]


def _joined(group: list[RecordedBucket]) -> RecordedBucket:
    shapes = [shape for bucket in group for shape in bucket.shapes]
    nbytes = sum(bucket.nbytes for bucket in group)
    return RecordedBucket(nbytes, group[0].dtype, group[-1].ready_s, shapes)


def elements(shapes: list[list[int]]) -> int:
    """How many elements parameters of these shapes have."""
    return sum(prod(shape) for shape in shapes)
