"""The state of a process between `init` and `shutdown`, and the functions that scripts use to
query it.
"""

from dataclasses import dataclass

import torch.distributed as dist

from busbw.accel import CommWorker
from busbw.horovod.torch.controller import Controller
from busbw.horovod.torch.environment import Options, RankInfo
from busbw.horovod.torch.errors import NotInitialized
from busbw.horovod.torch.executor import Executor
from busbw.horovod.torch.handles import Handles
from busbw.horovod.torch.timeline import Timeline


@dataclass(slots=True)
class Context:
    """Everything that the operations of an initialized process need."""

    info: RankInfo
    options: Options
    controller: Controller
    executor: Executor
    timeline: Timeline
    worker: CommWorker | None
    local_sizes: tuple[int, ...]  # of the host of each rank
    # destroyed one by one at shutdown; None: all of torch.distributed is ours
    groups: list[dist.ProcessGroup] | None


handles = Handles()
_context: Context | None = None


def current() -> Context:
    """The context that `init` made.

    Raises:
        NotInitialized: `init` was not called, or `shutdown` was called since.
    """
    if _context is None:
        raise NotInitialized
    return _context


def replace(context: Context | None) -> Context | None:
    """Make this the process's context; the one before."""
    global _context
    before, _context = _context, context
    return before


def is_initialized() -> bool:
    """Whether `init` was called, and `shutdown` was not since."""
    return _context is not None


def size() -> int:
    """Ranks of the job."""
    return current().info.size


def rank() -> int:
    """This process's rank."""
    return current().info.rank


def local_size() -> int:
    """Ranks of this host."""
    return current().info.local_size


def local_rank() -> int:
    """This process's index on its host."""
    return current().info.local_rank


def cross_size() -> int:
    """Hosts that have a process with this local rank."""
    return current().info.cross_size


def cross_rank() -> int:
    """This host's index among them."""
    return current().info.cross_rank


def is_homogeneous() -> bool:
    """Whether all hosts have the same number of ranks."""
    return len(set(current().local_sizes)) == 1
