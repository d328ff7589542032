"""The whole gradient in fewer bytes: its exponents are coded, and no bit is lost.

Each rank sends to each other rank the coded elements that it sums. The sum, in fp32, in the order
of the ranks and in the gradient's format, is coded and sent to all. Two ranks send everything to
each other, and both sum.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from busbw_accel.codecs import coder
from busbw_accel.codecs.base import Codec, State
from busbw_accel.communicator import Bytes, Communicator, mean
from busbw_accel.methods import BLOCK


class Exact(Codec):
    """Sends rows as they are where coding does not shorten them: the result has the same bits."""

    def exchange(self, part: torch.Tensor, comm: Communicator, state: State, step: int) -> Bytes:
        if comm.size == 2:
            rows = [part, part]
            rows[1 - comm.rank] = torch.empty_like(part)
            sent = _swap(_messages([part]), rows, comm)
            part.copy_(mean(rows))
            return sent
        length = -(-part.numel() // (comm.size * BLOCK)) * BLOCK
        padded = torch.nn.functional.pad(part, (0, comm.size * length - part.numel()))
        shard, sums = part.new_empty(length), torch.empty_like(padded)
        sent = self.reduce_scatter(padded.view(comm.size, length), shard, comm, state, step)
        sent += self.all_gather(shard, sums, comm)
        part.copy_(sums[: part.numel()])
        return sent

    def reduce_scatter(
        self, rows: torch.Tensor, shard: torch.Tensor, comm: Communicator, state: State, step: int
    ) -> Bytes:
        if comm.size == 2:
            messages = _messages([rows[1 - comm.rank]])
        else:
            messages = _messages(rows.unbind(), leave_out=comm.rank)
        received = [torch.empty_like(shard) for _ in rows]
        received[comm.rank] = rows[comm.rank]
        sent = _swap(messages, received, comm)
        shard.copy_(mean(received))
        return sent

    def all_gather(self, shard: torch.Tensor, gathered: torch.Tensor, comm: Communicator) -> Bytes:
        rows = gathered.view(comm.size, -1)
        sent = _swap(_messages([shard]), rows.unbind(), comm)
        rows[comm.rank].copy_(shard)
        return sent


def _messages(rows: Sequence[torch.Tensor], leave_out: int | None = None) -> torch.Tensor:
    """The messages of rows [rows, bytes]. That of one row may be left out: it has no bytes."""
    first = rows[0]
    messages = first.new_empty(len(rows), coder.message_bytes(first), dtype=torch.uint8)
    for number, (row, message) in enumerate(zip(rows, messages, strict=True)):
        if number == leave_out:
            message.view(torch.int64)[0] = 0
        else:
            coder.write(row, message)
    return messages


def _swap(messages: torch.Tensor, rows: Sequence[torch.Tensor], comm: Communicator) -> Bytes:
    """Fill the rows of the other ranks. Returns the bytes that leave this rank's host."""
    received, sent = comm.swap(messages)
    coder.check()  # of earlier messages, after the exchange, which knows better why it has failed
    for rank, (message, row) in enumerate(zip(received, rows, strict=True)):
        if rank == comm.rank:
            continue
        try:
            coder.read(message, row)
        except ValueError as error:
            sender = dist.get_global_rank(comm.group, rank) if comm.group else rank
            raise ValueError(f"from rank {sender}: {error}") from error
    return sent
