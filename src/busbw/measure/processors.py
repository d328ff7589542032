"""The threads of torch's operations on CPUs, for ranks that share a machine."""

import os
import platform
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from busbw.launch.control import Control


def share_processors(control: Control) -> None:
    """Divide the processors of a machine between its ranks.

    With more threads than cores, threads wait for each other. Under mpirun torch begins with a
    single thread.
    """
    import torch

    rank = (machine(), sorted(os.sched_getaffinity(0)))
    ranks = control.allgather(rank)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(share_of(rank, ranks))


def machine() -> str:
    """The boot id, which containers and emulated hosts on one machine have in common.

    The host's name where it cannot be read.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()


def share_of(rank: tuple[str, list[int]], ranks: Sequence[tuple[str, list[int]]]) -> int:
    """The threads of a rank, at least 1.

    Each core of a machine is divided by the ranks that may use it. A rank is its machine and cores.
    """
    own_machine, cores = rank
    users: Counter[int] = Counter()
    for other_machine, other_cores in ranks:
        if other_machine == own_machine:
            users.update(other_cores)
    return max(1, int(sum(Fraction(1, users[core]) for core in cores)))
