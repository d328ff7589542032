"""A group of ranks and the collectives that codecs use."""

import dataclasses
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, TypeAlias

import torch
import torch.distributed as dist

from busbw_accel.staging import HostStaging

# Over Gloo and 2 Gbit/s, an all-gather of 13 MB took 82 ms whole, and 56 to 60 in pieces
# (benchmarks/sparse_gradients_2cpu_202611).
PIECE, PIECES_AT_ONCE = 1 << 20, 2
# Averages of at most so many bytes between two ranks take host staging where there is one, with the
# same bits. Both rounds of the backend's all-reduce would queue behind what host staging sends.
STAGED_AVERAGE = 1 << 20


# A number of bytes; a tensor of one element if only a GPU knows it yet.
Bytes: TypeAlias = int | torch.Tensor


class Work(Protocol):
    """A running exchange."""

    def wait(self) -> object:
        """Wait for the end of the exchange; on a GPU the current stream waits."""


class _Done:
    """An exchange that is already complete."""

    def wait(self) -> None:
        pass


class _Pieces:
    """An exchange in pieces, of which PIECES_AT_ONCE run at a time.

    `wait` starts the later pieces.
    """

    def __init__(self, pieces: Iterator[Work]) -> None:
        self._pieces = pieces
        self._running = deque(islice(pieces, PIECES_AT_ONCE))

    def wait(self) -> None:
        while self._running:
            self._running.popleft().wait()
            self._running.extend(islice(self._pieces, 1))


@dataclass(frozen=True, slots=True)
class Communicator:
    """The ranks of a group, the index of this rank, and the number of ranks on its host (`local`).

    group=None: no network. All ranks then seem to have the same data, and averages are wrong. It
    serves to time steps without a network.
    """

    group: dist.ProcessGroup | None
    size: int
    rank: int
    local: int
    # Runs all-gathers and all-to-alls in place of the group's backend.
    staging: HostStaging | None = None

    @property
    def failed(self) -> torch.Tensor | None:
        return self.staging.failed if self.staging is not None else None

    def silenced(self) -> "Communicator":
        """This communicator without a network."""
        return dataclasses.replace(self, group=None, staging=None)

    def ring(self, nbytes: Bytes) -> Bytes:
        """This rank's share of the bytes that leave its host when each rank sends `nbytes`.

        The ranks form a ring, which leaves each host once.
        """
        return nbytes // self.local if self.local < self.size else 0

    def direct(self, nbytes: Bytes) -> Bytes:
        """Bytes that leave the host if this rank sends `nbytes` evenly to all other ranks."""
        return nbytes * (self.size - self.local) // max(1, self.size - 1)

    def all_gather_bytes(self, nbytes: Bytes) -> Bytes:
        """This rank's share of the bytes that leave its host in `all_gather` of `nbytes` each.

        A backend's ring leaves each host once; by host staging each rank sends to every other one.
        """
        sent = (self.size - 1) * nbytes
        return self.ring(sent) if self.staging is None else self.direct(sent)

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """Sum `tensor` over ranks, in place."""
        if self.group is not None:
            dist.all_reduce(tensor, group=self.group)

    def average(self, part: torch.Tensor) -> None:
        """Average `part` in its own format.

        It is divided first, as in DDP, because a sum may overflow.
        """
        self.begin_average(part, async_op=False).wait()

    def begin_average(self, part: torch.Tensor, *, async_op: bool = True) -> Work:
        """Start `average` without waiting for its end."""
        if self.staging is not None and self.size == 2 and part.nbytes <= STAGED_AVERAGE:
            average = mean(self.all_gather(part))
            if self.failed is not None:  # on a GPU the host learns of it later
                average = torch.where(self.failed != 0, torch.nan, average)
            part.copy_(average.view_as(part))
            return _Done()
        op = dist.ReduceOp.SUM
        if part.is_cuda and "cuda:nccl" in dist.get_backend_config(self.group):
            op = dist.ReduceOp.AVG  # NCCL scales while it reads, which saves a pass over memory
        else:
            part.mul_(1 / self.size)  # with the same bits as DDP
        if self.group is None:
            return _Done()
        work: Work | None = dist.all_reduce(part, op, group=self.group, async_op=async_op)
        return work or _Done()

    def all_gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensors of all ranks: one flat row each, [size, elements]."""
        gathered = torch.empty(self.size, tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        if self.staging is not None:
            self.staging.all_gather(gathered, tensor)
        else:
            self.begin_all_gather(gathered.view(-1), tensor.view(-1), async_op=False).wait()
        return gathered

    def all_to_all(self, rows: torch.Tensor) -> torch.Tensor:
        """Row i of `rows` is sent to rank i. Row i of the result is from rank i."""
        if self.group is None:
            return rows
        if self.size == 2:
            # The same bytes in a ring, which fills a link of 25 Gbit/s. Over sockets NCCL sends
            # and receives at 1.7 to 2.0 GB/s (benchmarks/net_2xh200_202611).
            both = self.all_gather(rows[1 - self.rank])
            both[self.rank] = rows[self.rank]
            return both
        received = torch.empty_like(rows)
        if self.staging is not None:
            self.staging.all_to_all(received, rows)
        else:
            dist.all_to_all_single(received, rows, group=self.group)
        return received

    def swap(self, messages: torch.Tensor) -> tuple[torch.Tensor, Bytes]:
        """Send each other rank its row of `messages` (uint8), or the only row to all of them.

        A row begins with the number of its bytes that are to arrive (int64, a multiple of 8), which
        is 0 in the row of this rank itself. Host staging sends as many, and waits for nothing. A
        backend gets as many of each row as the longest of all ranks has, for which the host waits.

        Returns the rows of all ranks [size, bytes], and how many bytes leave this rank's host.
        Bytes past a row's length are undefined, and so is the row of this rank itself.
        """
        lengths, to_all = messages.view(torch.int64)[:, 0], len(messages) == 1
        sent: Bytes = lengths.sum()
        if self.staging is not None:
            received = self.staging.swap(messages)
        else:
            if self.group is not None:
                longest = int(self.all_gather(lengths.amax().view(1)).max())
                messages = messages[:, :longest].contiguous()
                sent = longest * (1 if to_all else self.size - 1)
            received = self.all_gather(messages[0]) if to_all else self.all_to_all(messages)
        return received, self.all_gather_bytes(sent) if to_all else self.direct(sent)

    def all_to_all_uneven(
        self, rows: torch.Tensor, send_counts: list[int], receive_counts: list[int]
    ) -> torch.Tensor:
        """Send each rank its own number of rows.

        The first `send_counts[0]` rows of `rows` go to rank 0, the next ones to rank 1, and so on.
        The result has `receive_counts[0]` rows from rank 0, then those from rank 1, and so on.
        """
        received = rows.new_empty(sum(receive_counts), *rows.shape[1:])
        dist.all_to_all_single(received, rows, receive_counts, send_counts, group=self.group)
        return received

    def begin_all_gather(
        self, gathered: torch.Tensor, tensor: torch.Tensor, *, async_op: bool = True
    ) -> Work:
        """Start gathering the `tensor` of each rank into `gathered` (flat, in rank order)."""
        if self.group is None:
            for row in gathered.view(self.size, -1):
                if row.data_ptr() != tensor.data_ptr():  # FSDP2 gathers in place
                    row.copy_(tensor)
            return _Done()
        work: Work | None = dist.all_gather_into_tensor(
            gathered, tensor, group=self.group, async_op=async_op
        )
        return work or _Done()

    def begin_all_gather_large(self, gathered: torch.Tensor, tensor: torch.Tensor) -> Work:
        """`begin_all_gather` of a large tensor: on CPUs in pieces. `gathered`: [size, elements]."""
        if gathered.is_cuda or self.group is None:
            return self.begin_all_gather(gathered.view(-1), tensor)
        length = PIECE // tensor.element_size()
        parts = zip(tensor.split(length), gathered.split(length, 1), strict=True)
        return _Pieces(
            dist.all_gather(list(rows.unbind()), part, group=self.group, async_op=True)
            for part, rows in parts
        )

    def reduce_scatter(
        self, shard: torch.Tensor, full: torch.Tensor, op: dist.ReduceOp, *, async_op: bool = False
    ) -> dist.Work | None:
        """Reduce-scatter `full` into `shard`. Returns what is to be waited for with `async_op`."""
        if self.group is None:
            shard.copy_(full.view(self.size, -1)[self.rank])
            return None
        return dist.reduce_scatter_tensor(shard, full, op, group=self.group, async_op=async_op)

    def begin_reduce_scatter(self, full: torch.Tensor) -> tuple[torch.Tensor, Work]:
        """Start a reduce-scatter.

        Returns this rank's part of the sum, and the exchange to wait for.
        """
        shard = torch.empty(full.numel() // self.size, dtype=full.dtype, device=full.device)
        if self.group is None:
            shard.copy_(full.view(self.size, -1)[self.rank])
            return shard, _Done()
        work: Work = dist.reduce_scatter_tensor(shard, full, group=self.group, async_op=True)
        return shard, work


def mean(rows: torch.Tensor | Sequence[torch.Tensor]) -> torch.Tensor:
    """The average of rows, at least in fp32, summed in their order.

    They are divided first, as in DDP, because a sum may overflow.
    """
    wide = torch.promote_types(rows[0].dtype, torch.float32)
    total = rows[0].to(wide) / len(rows)
    for row in rows[1:]:
        total += row.to(wide) / len(rows)
    return total
