"""The communicators of a job: all ranks and, in two dimensions, rows and columns of ranks.

A row has the ranks of a host, a column those with the same local rank on all hosts.
"""

import dataclasses
import os
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.constants import default_pg_nccl_timeout, default_pg_timeout

from busbw.core.errors import UsageError
from busbw_accel.communicator import Communicator
from busbw_accel.settings import HOST, Settings
from busbw_accel.staging import connect

# If set, NCCL identifies hosts by it, for example when ranks of one machine emulate several hosts.
HOST_VARIABLE = "NCCL_HOSTID"
INSIDE = Settings()  # exchanges inside a host are dense


@dataclass(frozen=True, slots=True)
class Mesh:
    """All ranks (`world`).

    With two dimensions also the row (`inside`) and the column (`across`) of this rank.
    """

    world: Communicator
    inside: Communicator | None
    across: Communicator | None
    hosts: tuple[str, ...] = ()  # of each rank
    # Why there is one dimension although two were requested, or that rows span hosts.
    note: str = ""
    borrowed: dist.ProcessGroup | None = None  # not closed by the mesh

    @property
    def two_d(self) -> bool:
        return self.inside is not None

    def name(self, rank: int) -> str:
        """A rank, for error messages."""
        return f"rank {rank} on {self.hosts[rank]}"

    def silenced(self) -> "Mesh":
        """This mesh without a network (see Communicator)."""
        inside, across = (comm and comm.silenced() for comm in (self.inside, self.across))
        return dataclasses.replace(self, world=self.world.silenced(), inside=inside, across=across)

    def close(self) -> None:
        """Close the communicators. Raises if one of their last exchanges failed."""
        comms = [comm for comm in (self.inside, self.across, self.world) if comm is not None]
        try:
            for comm in comms:
                if comm.staging is not None:
                    comm.staging.close()
        finally:
            for comm in comms:
                if comm.group not in (None, self.borrowed) and dist.is_initialized():
                    dist.destroy_process_group(comm.group)

    def check(self) -> None:
        """Raise if an exchange failed that was not waited for."""
        for comm in (self.across, self.world):
            if comm is not None and comm.staging is not None:
                comm.staging.check()


def make(
    settings: Settings,
    timeout: timedelta | None = None,
    borrowed: dist.ProcessGroup | None = None,
    ranks: Sequence[int] | None = None,
) -> Mesh:
    """The mesh for these settings over `ranks`, which include this rank; None: over all ranks.

    Every rank of the default group must call it at the same point.

    `intra_size` consecutive ranks make a row; None: the ranks of a host. Uneven hosts, or a single
    row or column, leave one dimension. `borrowed`: an existing group of `ranks` to use instead of
    a new one.

    Raises:
        UsageError: a rank is in several groups, or host staging is not possible on some rank.
            Raised on every rank.
    """
    every_host = _hosts()
    groups = _groups(range(len(every_host)) if ranks is None else ranks)
    own = next(group for group in groups if dist.get_rank() in group)
    hosts = tuple(every_host[rank] for rank in own)
    world = _communicator(groups, every_host, timeout, settings, borrowed)
    assert world is not None
    # The rows of all groups that have as many dimensions, since every rank makes every group.
    rows: list[list[int]] = []
    columns: list[list[int]] = []
    note = ""
    for group in groups if settings.two_d else []:
        numbers, reason = rows_of([every_host[rank] for rank in group], settings.intra_size)
        group_rows = [[group[number] for number in row] for row in numbers]
        rows += group_rows
        columns += [sorted(column) for column in zip(*group_rows, strict=True)]
        if group is own:
            note = reason
    inside = _communicator(rows, every_host, timeout) if rows else None
    across = _communicator(columns, every_host, timeout, settings) if rows else None
    if inside is None or across is None:
        world = _with_staging(world, groups, settings, timeout)
        return Mesh(world, None, None, hosts, note, borrowed)
    across = _with_staging(across, columns, settings, timeout)
    return Mesh(world, inside, across, hosts, note, borrowed)


def _groups(ranks: Sequence[int]) -> list[list[int]]:
    """The groups of all ranks, from the own group of each."""
    gathered: list[tuple[int, ...]] = [()] * dist.get_world_size()
    dist.all_gather_object(gathered, tuple(ranks))
    groups = sorted(set(gathered))
    members = [rank for group in groups for rank in group]
    if len(members) != len(set(members)):
        raise UsageError(
            f"ranks are in several groups at once: {', '.join(map(str, groups))}",
            "use one process group for all ranks whose models exchange gradients",
        )
    return [list(group) for group in groups]


def rows_of(hosts: Sequence[str], intra_size: int | None) -> tuple[list[list[int]], str]:
    """The ranks of each row, and a note if rows span hosts. Ranks are numbered as in `hosts`.

    Without rows there is one dimension, and the note is the reason.
    """
    ranks = len(hosts)
    if intra_size is None:
        counts = Counter(hosts)
        if len(set(counts.values())) > 1:
            uneven = ", ".join(f"{host}: {count}" for host, count in counts.items())
            return [], f"one dimension only: hosts have different numbers of ranks ({uneven})"
        rows = [_ranks_on(host, hosts) for host in counts]
    elif ranks % intra_size:
        reason = f"{ranks} ranks are not a multiple of {intra_size} in a 2D group"
        return [], f"one dimension only: {reason}"
    else:
        rows = [list(range(first, first + intra_size)) for first in range(0, ranks, intra_size)]
    if len(rows) == 1:
        return [], f"one dimension only: all {ranks} ranks are one 2D group"
    if len(rows[0]) == 1:
        reason = "a 2D group needs at least two ranks"
        if intra_size is None:
            reason = "each host has one rank"
        return [], f"one dimension only: {reason}"
    for row in rows:
        if len({hosts[rank] for rank in row}) > 1:
            names = ", ".join(map(str, row))
            network = "spans hosts, so its inner traffic uses the network"
            return rows, f"the 2D group of ranks {names} {network}"
    return rows, ""


def _ranks_on(host: str, hosts: Sequence[str]) -> list[int]:
    return [rank for rank, name in enumerate(hosts) if name == host]


def _hosts() -> tuple[str, ...]:
    hosts: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(hosts, os.environ.get(HOST_VARIABLE) or socket.gethostname())
    return tuple(hosts)


def _communicator(
    rows: list[list[int]],
    hosts: Sequence[str],
    timeout: timedelta | None,
    settings: Settings = INSIDE,
    borrowed: dist.ProcessGroup | None = None,
) -> Communicator | None:
    """Make a group for each row. Returns the communicator of this rank's row, if it is in one."""
    rank, comm = dist.get_rank(), None
    for row in rows:
        group = borrowed or _group(
            row,
            _timeout_or_default(timeout),
            narrow=settings.small and len({hosts[other] for other in row}) == len(row),
        )
        if rank in row:
            comm = Communicator(
                group, len(row), row.index(rank), sum(hosts[other] == hosts[rank] for other in row)
            )
    if not borrowed and not _on_gpus():
        # Gloo: a rank that closed the group now would break the start of one that still connects
        dist.barrier()
    return comm


def _with_staging(
    comm: Communicator, rows: list[list[int]], settings: Settings, timeout: timedelta | None
) -> Communicator:
    """The communicator with the requested staging.

    Called after all groups are made, so that an error is raised on every rank.
    """
    if settings.staging != HOST:
        return comm
    own_row = next(row for row in rows if dist.get_rank() in row)
    return dataclasses.replace(
        comm, staging=connect(own_row, _timeout_or_default(timeout).total_seconds())
    )


def _timeout_or_default(timeout: timedelta | None) -> timedelta:
    if timeout is None:
        on_nccl = dist.get_backend() == dist.Backend.NCCL
        default: timedelta = default_pg_nccl_timeout if on_nccl else default_pg_timeout
        return default
    if timeout <= timedelta(0):
        raise UsageError(
            f"timeout={timeout.total_seconds():g} s: an exchange needs time",
            "leave out timeout for the default of PyTorch's process groups",
        )
    return timeout


def _on_gpus() -> bool:
    return "cuda:nccl" in dist.get_backend_config()


def _group(ranks: list[int], timeout: timedelta, *, narrow: bool) -> dist.ProcessGroup:
    """A new group. Each NCCL channel occupies a multiprocessor of the GPU during a transfer.

    `narrow` uses one channel, about 5 GB/s over sockets, which suffices for one rank per host that
    sends little. For ResNet-50 with top-k it lowers the exposed time of a step from 2.5 to 1.2 ms
    (benchmarks/train_2xh200_202611).
    """
    if not _on_gpus():
        return dist.new_group(ranks, timeout=timeout)
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    options._timeout = timeout  # otherwise torch warns about a difference
    if narrow:
        options.config.max_ctas = 1
    return dist.new_group(ranks, timeout=timeout, pg_options=options)
