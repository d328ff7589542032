"""Ranks that exchange with each other, and the exchanges that codecs are made of. Own communicators, made once (see mesh)."""

import dataclasses
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist

from busbw.accel.staging import HostStaging


class Working(Protocol):
    """An exchange that has begun."""

    def wait(self) -> object:
        """Until it has ended; on a GPU what follows in its stream does."""


class _Done:
    """One that was none."""

    def wait(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Communicator:
    """The ranks of a group, this rank's index among them, and how many of them are on its host.

    A group of None is a perfect network, over which all other ranks have what this one has: steps take what they take without one, and
    averages are wrong.
    """

    group: dist.ProcessGroup | None
    size: int
    rank: int
    local: int
    staging: HostStaging | None = None  # by which gathers and all-to-alls go, in place of the group's backend

    @property
    def failed(self) -> torch.Tensor | None:
        """See HostStaging."""
        return self.staging.failed if self.staging is not None else None

    def silenced(self) -> "Communicator":
        """The same over a perfect network."""
        return dataclasses.replace(self, group=None, staging=None)

    def ring(self, nbytes: int) -> int:
        """Of bytes that each rank sends to the next in a ring, this rank's share of those that leave its host: a ring leaves it once."""
        return nbytes // self.local if self.local < self.size else 0

    def direct(self, nbytes: int) -> int:
        """Of bytes that each rank sends to all others evenly, those that leave its host."""
        return nbytes * (self.size - self.local) // max(1, self.size - 1)

    def all_reduce(self, own: torch.Tensor) -> None:
        """`own` becomes the sum."""
        if self.group is not None:
            dist.all_reduce(own, group=self.group)

    def average(self, part: torch.Tensor) -> None:
        """`part` becomes its average, in its own format. Divided first, as DDP does: a sum may be too large for it."""
        self.begin_average(part, later=False).wait()

    def begin_average(self, part: torch.Tensor, *, later: bool = True) -> Working:
        """As `average`, once what is returned was waited for."""
        kind = dist.ReduceOp.SUM
        if part.is_cuda and not part.is_sparse and "cuda:nccl" in dist.get_backend_config(self.group):
            kind = dist.ReduceOp.AVG  # NCCL multiplies what it reads: a pass less over memory
        else:
            part.div_(self.size)
        work: Working | None = dist.all_reduce(part, kind, group=self.group, async_op=later) if self.group is not None else None
        return work or _Done()

    def all_gather(self, own: torch.Tensor) -> torch.Tensor:
        """Each rank's, a flat row each."""
        every = torch.empty(self.size, own.numel(), dtype=own.dtype, device=own.device)
        if self.staging is not None:
            self.staging.all_gather(every, own)
        else:
            self.begin_all_gather(every.view(-1), own.view(-1), later=False).wait()
        return every

    def all_to_all(self, rows: torch.Tensor) -> torch.Tensor:
        """What each rank has for this one, a row each; of `rows` each is for the rank of its number."""
        if self.group is None:
            return rows
        came = torch.empty_like(rows)
        if self.staging is not None:
            self.staging.all_to_all(came, rows)
        else:
            dist.all_to_all_single(came, rows, group=self.group)
        return came

    def begin_all_gather(self, every: torch.Tensor, own: torch.Tensor, *, later: bool = True) -> Working:
        """`every`, flat, becomes the ranks' `own` one after the other once what is returned was waited for."""
        if self.group is None:
            every.view(self.size, -1).copy_(own)
            return _Done()
        work: Working | None = dist.all_gather_into_tensor(every, own, group=self.group, async_op=later)
        return work or _Done()

    def begin_reduce_scatter(self, whole: torch.Tensor) -> tuple[torch.Tensor, Working]:
        """This rank's part of the sum, once what is also returned was waited for."""
        shard = torch.empty(whole.numel() // self.size, dtype=whole.dtype, device=whole.device)
        if self.group is None:
            shard.copy_(whole.view(self.size, -1)[self.rank])
            return shard, _Done()
        work: Working = dist.reduce_scatter_tensor(shard, whole, group=self.group, async_op=True)
        return shard, work
