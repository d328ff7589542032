"""Torch's threads on the host.

Under mpirun torch begins with one thread: its Intel MKL reads OMPI_COMM_WORLD_LOCAL_SIZE, decides
for one, and torch asks MKL.
"""

import contextlib
import os
from collections.abc import Iterator

import torch

MOST_THREADS = 16  # more rarely add memory bandwidth, and other ranks of the host need cores


def usable() -> int:
    """The processors of this process, at most MOST_THREADS."""
    return min(len(os.sched_getaffinity(0)), MOST_THREADS)


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch's operations of the calling thread use `count` threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
