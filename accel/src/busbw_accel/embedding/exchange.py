"""Which rank owns the row of an id, and the exchanges between the ranks that use rows and those
that own them.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist

from busbw.core.errors import BusbwError, UsageError
from busbw_accel.communicator import Communicator
from busbw_accel.embedding.optimizers import GAMMA, mix, signed
from busbw_accel.heartbeat import Heartbeat
from busbw_accel.mesh import HOST_VARIABLE, Mesh, make
from busbw_accel.settings import Settings

WIRES = ("fp32", "bf16")
T = TypeVar("T")


def owners(ids: torch.Tensor, ranks: int) -> torch.Tensor:
    """The rank that owns the row of each id: the upper 31 bits of the first output of SplitMix64
    with the id as its seed, modulo ranks.
    """
    return ((mix(ids + signed(GAMMA)) >> 33) & 0x7FFFFFFF) % ranks


@dataclass(frozen=True, slots=True)
class Route:
    """The ids of one batch that this rank asks of each owner, and those asked of this rank."""

    ids: torch.Tensor  # distinct ids of this rank's batch, by owner
    positions: torch.Tensor  # the position in `ids` of each id of the batch
    asked: list[int]  # number of ids asked of each rank
    requested: torch.Tensor  # ids that ranks ask of this one; may repeat between ranks
    counts: list[int]  # number of ids in `requested` of each rank


class IdExchange:
    """The ranks that share a table.

    All exchanges are collective: every rank takes part in each, if only with no ids.
    """

    def __init__(self, group: dist.ProcessGroup | None, timeout: timedelta | None) -> None:
        """`group`: the ranks; None: a new group of all.

        `timeout`: the limit of each exchange of a new group.
        """
        self._mesh = make(Settings(), timeout) if group is None else _over(group)
        self.ranks, self.rank = self._mesh.world.size, self._mesh.world.rank
        self._group = self._mesh.world.group
        self._heartbeat = Heartbeat(self._mesh)

    def check_device(self, device: torch.device) -> None:
        """Raise UsageError if the group does not exchange tensors of this device."""
        backends = dist.get_backend_config(self._group)
        if f"{device.type}:" not in backends:
            raise UsageError(
                f"the table is on {device.type}, and torch.distributed was initialized for"
                f" {backends}",
                'use init_process_group("cpu:gloo,cuda:nccl"), or another device',
            )

    def route(self, ids: torch.Tensor) -> Route:
        """Send each distinct id of a batch (int64 [n]) to its owner.

        Raises:
            BusbwError: the exchange failed.
        """
        distinct, inverse = torch.unique(ids, return_inverse=True)
        owner = owners(distinct, self.ranks)
        order = torch.argsort(owner, stable=True)
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order), device=ids.device)
        asked = torch.bincount(owner, minlength=self.ranks)
        with self._explaining("ids", "No row was updated"):
            counts = torch.empty_like(asked)
            dist.all_to_all_single(counts, asked, group=self._group)
            both = torch.stack((asked, counts)).tolist()
            requested = self._mesh.world.all_to_all_uneven(distinct[order], both[0], both[1])
        return Route(distinct[order], place[inverse], both[0], requested, both[1])

    def rows_back(self, route: Route, rows: torch.Tensor, wire: str) -> torch.Tensor:
        """Send the rows of `route.requested` (fp32 [requested, dim]) in the format `wire`.

        Returns the rows of `route.ids`.

        Raises:
            BusbwError: the exchange failed.
        """
        with self._explaining("rows", "No row was updated"):
            return self._swap_values(rows, route.counts, route.asked, wire)

    def gradients_out(self, route: Route, gradients: torch.Tensor, wire: str) -> torch.Tensor:
        """Send the gradients of `route.ids` (fp32 [ids, dim]) in the format `wire`.

        Returns the gradients of `route.requested`.

        Raises:
            BusbwError: the exchange failed.
        """
        lost = (
            "This rank's rows were not updated; those of other ranks may have been: continue from a"
            " checkpoint"
        )
        with self._explaining("gradients", lost):
            return self._swap_values(gradients, route.asked, route.counts, wire)

    def first_of(self, candidate: int | None, device: torch.device) -> tuple[int, int | None]:
        """The lowest rank whose `candidate` is an id, and that id; (0, None) if all have None.

        The result is the same on every rank.

        Raises:
            BusbwError: the exchange failed.
        """
        answer = torch.tensor(
            [candidate is not None, candidate or 0], device=device, dtype=torch.int64
        )
        with self._explaining("gradients", "No row was updated"):
            every = torch.empty(2 * self.ranks, device=device, dtype=torch.int64)
            dist.all_gather_into_tensor(every, answer, group=self._group)
            answers = every.view(-1, 2).tolist()
        return next(((rank, first) for rank, (has, first) in enumerate(answers) if has), (0, None))

    def gather(self, value: T) -> list[T]:
        """The objects of all ranks, in rank order.

        Raises:
            BusbwError: the exchange failed.
        """
        gathered: list[T] = [value] * self.ranks
        with self._explaining("results"):
            dist.all_gather_object(gathered, value, group=self._group)
        return gathered

    def name(self, rank: int) -> str:
        """A rank, for error messages."""
        return self._mesh.name(rank)

    def _swap_values(
        self, values: torch.Tensor, out: list[int], back: list[int], wire: str
    ) -> torch.Tensor:
        swap = self._mesh.world.all_to_all_uneven
        if wire == "fp32":
            return swap(values, out, back)
        # As bytes: not every backend of every version exchanges bf16.
        sent = values.to(torch.bfloat16).view(torch.uint8)
        return swap(sent, out, back).view(torch.bfloat16).float()

    @contextmanager
    def _explaining(self, payload: str, consequence: str = "") -> Iterator[None]:
        """Name the lost ranks when an exchange fails."""
        try:
            yield
        except RuntimeError as error:
            lost = self._heartbeat.lost()
            who = "all ranks are alive, so one of them did not take part"
            if lost:
                who = f"lost: {', '.join(lost)}"
            reason = str(error).splitlines()[0]
            message = (
                f"busbw accel: the exchange of {payload} of an embedding failed"
                f" at rank {self.rank} of {self.ranks}; {who} ({reason})"
            )
            raise BusbwError(
                f"{message}. {consequence}" if consequence else message,
                "every rank calls forward and backward of each embedding equally often; one without"
                " data passes no ids",
            ) from error


_shared: dict[
    tuple[dist.ProcessGroup | None, dist.ProcessGroup | None, timedelta | None], IdExchange
] = {}


def shared(group: dist.ProcessGroup | None, timeout: timedelta | None) -> IdExchange:
    """The exchange that all embeddings over these ranks share, so they need one communicator.

    For the arguments, see IdExchange. The exchange is kept as long as the job: if it ended with its
    last embedding, ranks could differ in whether they have to make it again.

    Raises:
        UsageError: this rank is not in the group.
    """
    world = dist.group.WORLD
    for key in [key for key in _shared if key[0] is not world]:  # of a job that was left
        del _shared[key]
    key = (world, group, timeout)
    if key not in _shared:
        _shared[key] = IdExchange(group, timeout)
    return _shared[key]


def _over(group: dist.ProcessGroup) -> Mesh:
    """The mesh over an existing group, which stays open."""
    if dist.get_rank(group) < 0:
        raise UsageError(
            f"rank {dist.get_rank()} is not in the group of the embedding",
            "make it on the ranks of the group only",
        )
    hosts = [""] * group.size()
    dist.all_gather_object(
        hosts, os.environ.get(HOST_VARIABLE) or socket.gethostname(), group=group
    )
    rank = dist.get_rank(group)
    world = Communicator(group, group.size(), rank, hosts.count(hosts[rank]))
    return Mesh(world, None, None, tuple(hosts), borrowed=group)
