"""Which of the kernel times that NCCL reports belong to the call for which it reports them.

On each channel NCCL and the GPU both count the pieces of work, and NCCL reads start and end from
the slot of its own count, modulo 64. Where one of them counts a piece that the other leaves out,
all later times on that communicator are those of other calls.
"""

from collections.abc import Sequence
from typing import Protocol

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
