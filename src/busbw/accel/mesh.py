"""Who exchanges with whom: the ranks of a host, and those with the same place on the other hosts. Own communicators, made once."""

import os
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist

# NCCL tells hosts apart by it where it is set, for example where ranks of one machine stand for several.
HOST_VARIABLE = "NCCL_HOSTID"


@dataclass(frozen=True, slots=True)
class Line:
    """Ranks that exchange with each other, this rank's place among them, and how many of them are on its host."""

    group: dist.ProcessGroup
    size: int
    place: int
    local: int

    def ring(self, nbytes: int) -> int:
        """Of bytes that each rank sends to the next in a ring, this rank's share of those that leave its host: a ring leaves it once."""
        return nbytes // self.local if self.local < self.size else 0

    def direct(self, nbytes: int) -> int:
        """Of bytes that each rank sends to all others evenly, those that leave its host."""
        return nbytes * (self.size - self.local) // max(1, self.size - 1)


@dataclass(frozen=True, slots=True)
class Mesh:
    """All ranks, and where there are two dimensions the ranks of this one's row (inside) and column (across)."""

    world: Line
    inside: Line | None
    across: Line | None
    hosts: tuple[str, ...] = ()  # of each rank
    note: str = ""  # where two dimensions were asked for and there is one, or rows are no hosts

    @property
    def two_d(self) -> bool:
        """Whether there are two dimensions."""
        return self.inside is not None

    def name(self, rank: int) -> str:
        """A rank, for an error."""
        return f"rank {rank} on {self.hosts[rank]}"

    def close(self) -> None:
        """End the communicators."""
        for line in (self.inside, self.across, self.world):
            if line is not None and dist.is_initialized():
                dist.destroy_process_group(line.group)


def make(two_d: bool, intra_size: int | None = None, timeout: timedelta | None = None) -> Mesh:
    """The mesh over all ranks of the default group; every rank has to call it at the same point.

    `intra_size` consecutive ranks make a row; None takes the ranks of a host. Uneven hosts, or a single row or column, leave one dimension.
    """
    ranks = list(range(dist.get_world_size()))
    hosts = _hosts()
    world = _line([ranks], hosts, timeout)
    rows, note = rows_of(hosts, intra_size) if two_d else ([], "")
    if not rows:
        return Mesh(world, None, None, hosts, note)
    columns = [list(column) for column in zip(*rows, strict=True)]
    return Mesh(world, _line(rows, hosts, timeout), _line(columns, hosts, timeout), hosts, note)


def like(ranks: Sequence[int], timeout: timedelta | None = None) -> Mesh:
    """The mesh over some ranks alone; every rank of the default group has to call it at the same point, with its own."""
    hosts = _hosts()
    told: list[list[int]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(told, list(ranks))
    lines = [list(line) for line in sorted({tuple(line) for line in told})]
    mine = _line(lines, hosts, timeout)
    return Mesh(mine, None, None, tuple(hosts[rank] for rank in ranks))


def rows_of(hosts: Sequence[str], intra_size: int | None) -> tuple[list[list[int]], str]:
    """Ranks by row, from the host of each rank, and what is odd about them; or none, and why there is one dimension alone."""
    ranks = len(hosts)
    if intra_size is None:
        counts = Counter(hosts)
        if len(set(counts.values())) > 1:
            uneven = ", ".join(f"{host}: {count}" for host, count in counts.items())
            return [], f"one dimension alone: hosts have different numbers of ranks ({uneven})"
        rows = [[rank for rank in range(ranks) if hosts[rank] == host] for host in counts]
    else:
        if ranks % intra_size:
            return [], f"one dimension alone: {ranks} ranks are no multiple of {intra_size} in a 2D group"
        rows = [list(range(first, first + intra_size)) for first in range(0, ranks, intra_size)]
    if len(rows) == 1:
        return [], f"one dimension alone: all {ranks} ranks are one 2D group"
    if len(rows[0]) == 1:
        return [], f"one dimension alone: {'each host has one rank' if intra_size is None else 'a 2D group of one rank is none'}"
    spread = next((row for row in rows if len({hosts[rank] for rank in row}) > 1), [])
    note = f"the 2D group of ranks {', '.join(map(str, spread))} spans hosts: what goes inside it goes over the network" if spread else ""
    return rows, note


def _hosts() -> tuple[str, ...]:
    told: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(told, os.environ.get(HOST_VARIABLE) or socket.gethostname())
    return tuple(told)


def _line(rows: list[list[int]], hosts: Sequence[str], timeout: timedelta | None) -> Line:
    """A group for each row; this rank's own."""
    rank, mine = dist.get_rank(), None
    for row in rows:
        group = dist.new_group(row, timeout=timeout)
        if rank in row:
            mine = Line(group, len(row), row.index(rank), sum(hosts[other] == hosts[rank] for other in row))
    assert mine is not None
    return mine
