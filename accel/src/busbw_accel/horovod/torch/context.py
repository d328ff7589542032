"""The state of a process between `init` and `shutdown`, and the functions of scripts to query it.

Process sets are subsets of ranks, for the `process_set` argument of operations.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch.distributed as dist

from busbw_accel import CommWorker
from busbw_accel.horovod.torch.controller import Controller
from busbw_accel.horovod.torch.environment import Options, RankInfo
from busbw_accel.horovod.torch.errors import NotInitialized, Refused
from busbw_accel.horovod.torch.executor import Executor
from busbw_accel.horovod.torch.handles import Handles
from busbw_accel.horovod.torch.timeline import Timeline


@dataclass(slots=True)
class Context:
    """Everything that the operations of an initialized process need."""

    info: RankInfo
    options: Options
    controller: Controller
    executor: Executor
    timeline: Timeline
    worker: CommWorker | None
    local_sizes: tuple[int, ...]  # for each rank: the number of ranks on its host
    # Groups that `shutdown` destroys; None: `init` initialized torch.distributed, and `shutdown`
    # destroys all of it.
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
    """Make this the process's context. Returns the former one."""
    global _context
    before, _context = _context, context
    return before


def is_initialized() -> bool:
    """Whether `init` was called, and `shutdown` was not since."""
    return _context is not None


def size() -> int:
    """The number of ranks of the job."""
    return current().info.size


def rank() -> int:
    """This process's rank."""
    return current().info.rank


def local_size() -> int:
    """The number of ranks on this host."""
    return current().info.local_size


def local_rank() -> int:
    """This process's index on its host."""
    return current().info.local_rank


def cross_size() -> int:
    """The number of hosts that have a process with this local rank."""
    return current().info.cross_size


def cross_rank() -> int:
    """This host's index among the hosts that have a process with this local rank."""
    return current().info.cross_rank


def is_homogeneous() -> bool:
    """Whether all hosts have the same number of ranks."""
    return len(set(current().local_sizes)) == 1


class ProcessSet:
    """Ranks that run operations together.

    Register it with `init(process_sets=[...])` or `add_process_set`.
    """

    process_set_id: int | None = None
    ranks: list[int] | None = None

    def __init__(self, ranks_or_comm: Sequence[int]) -> None:
        """`ranks_or_comm`: ranks, in any order.

        Raises:
            Refused: no ranks.
        """
        if not isinstance(ranks_or_comm, Iterable) or not _are_numbers(ranks_or_comm):
            raise Refused(
                f"a process set has a list of ranks, not {ranks_or_comm!r}",
                "for example hvd.ProcessSet([0, 1])",
            )
        self.ranks = sorted(ranks_or_comm)

    def included(self) -> bool:
        """Whether this process is in the set."""
        return current().info.rank in self._ranks()

    def size(self) -> int:
        """The number of ranks in the set."""
        current()
        return len(self._ranks())

    def rank(self) -> int:
        """This process's index in the set.

        Raises:
            Refused: this process is not in the set.
        """
        rank, ranks = current().info.rank, self._ranks()
        if rank not in ranks:
            raise Refused(
                f"rank {rank} is not one of the process set's ranks {ranks}",
                "check included() first",
            )
        return ranks.index(rank)

    def invalidate(self) -> None:
        """Mark the set as removed. It can be added again."""
        self.process_set_id = None

    def number(self) -> int:
        """The number of the set.

        Raises:
            Refused: it is not registered.
        """
        if self.process_set_id is None:
            raise Refused(
                f"{self} is not registered",
                "give it to hvd.init(process_sets=[...]) or hvd.add_process_set",
            )
        return self.process_set_id

    def _ranks(self) -> list[int]:
        self.number()
        assert self.ranks is not None
        return self.ranks

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


def _are_numbers(ranks: Iterable[object]) -> bool:
    return all(isinstance(rank, int) for rank in ranks)


global_process_set = ProcessSet([])
global_process_set.process_set_id = 0
registered: list[ProcessSet] = []  # `shutdown` unregisters them
