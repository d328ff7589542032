"""The whole gradient in fewer bytes: its exponents are coded, and no bit is lost.

Each rank sends to each other rank the coded elements that it sums. The sum, in fp32, in the order
of the ranks and in the gradient's format, is coded and sent to all. Two ranks send everything to
each other, and both sum.
"""

from collections.abc import Callable

import torch

from busbw_accel.codecs import coder
from busbw_accel.codecs.base import Codec, State
from busbw_accel.communicator import Communicator, mean
from busbw_accel.methods import BLOCK

# Rows that are longer than this share of their elements are sent as they are: coding takes longer
# than what it saves.
MOST_SHARE = 0.95
# Such rows are coded again in every so many steps, since gradients change in the course of a
# training.
PROBE_STEPS = 100


class Exact(Codec):
    """Sends rows as they are while coding does not shorten them: the result has the same bits.

    The lengths of coded rows are exchanged first, for which the host waits.
    """

    def exchange(self, part: torch.Tensor, comm: Communicator, state: State, step: int) -> int:
        if comm.size == 2:
            rows, sent = _swapped(part[None], comm, comm.all_gather, state, "rows", step)
            part.copy_(mean(rows))
            return comm.ring(sent)
        length = -(-part.numel() // (comm.size * BLOCK)) * BLOCK
        padded = torch.nn.functional.pad(part, (0, comm.size * length - part.numel()))
        shard = part.new_empty(length)
        sent = self.reduce_scatter(padded.view(comm.size, length), shard, comm, state, step)
        sums, gathered = _swapped(shard[None], comm, comm.all_gather, state, "sum", step)
        part.copy_(sums.view(-1)[: part.numel()])
        return sent + comm.ring(gathered)

    def reduce_scatter(
        self, rows: torch.Tensor, shard: torch.Tensor, comm: Communicator, state: State, step: int
    ) -> int:
        received, sent = _swapped(rows, comm, comm.all_to_all, state, "rows", step)
        shard.copy_(mean(received))
        return comm.direct(sent)

    def all_gather(self, shard: torch.Tensor, gathered: torch.Tensor, comm: Communicator) -> int:
        # Nothing is kept between calls: each codes, since the parameters of a model do shrink.
        rows, sent = _swapped(shard[None], comm, comm.all_gather, {}, "rows", 0)
        gathered.copy_(rows.view(-1))
        return comm.ring(sent)


def _swapped(
    rows: torch.Tensor,
    comm: Communicator,
    send: Callable[[torch.Tensor], torch.Tensor],
    state: State,
    name: str,
    step: int,
) -> tuple[torch.Tensor, int]:
    """Send rows [rows, elements] to the other ranks, coded if that is shorter.

    `send` is all_to_all (row i goes to rank i) or all_gather (the only row goes to all).

    Returns the rows of all ranks [ranks, elements], and the bytes that this rank sent.
    """
    row_bytes = rows.shape[1] * rows.element_size()
    # Kept is only that coding did not pay: a scale of the loss (`ResidualState.scale`) would change
    # a number.
    plain = f"plain_{name}"
    coded: list[torch.Tensor | None] = []
    longest = row_bytes
    if plain not in state or step % PROBE_STEPS == 0:
        coded = [
            coder.encode(row) if len(rows) == 1 or number != comm.rank else None
            for number, row in enumerate(rows)
        ]
        longest = max(row.numel() for row in coded if row is not None)
    # Always exchanged, so that ranks that have kept something else still do the same.
    length = int(comm.all_gather(rows.new_tensor([longest], dtype=torch.int64)).max())
    if length <= MOST_SHARE * row_bytes:
        state.pop(plain, None)
        came = send(_padded(coded, length))
        return _decoded(came, rows, comm.rank), (comm.size - 1) * length
    state[plain] = rows.new_ones(1, dtype=torch.float32)
    return send(rows).view(comm.size, -1), (comm.size - 1) * row_bytes


def _padded(coded: list[torch.Tensor | None], length: int) -> torch.Tensor:
    """Coded rows in one tensor [rows, length]. The row of this rank itself is not sent."""
    device = next(row.device for row in coded if row is not None)
    padded = torch.empty(len(coded), length, dtype=torch.uint8, device=device)
    for row, place in zip(coded, padded, strict=True):
        if row is not None:
            place[: row.numel()] = row
            place[row.numel() :] = 0
    return padded


def _decoded(came: torch.Tensor, rows: torch.Tensor, rank: int) -> torch.Tensor:
    """The rows of all ranks, of which this rank's own was not coded."""
    decoded = rows.new_empty(len(came), rows.shape[1])
    for number, (row, out) in enumerate(zip(came, decoded, strict=True)):
        if number == rank:
            out.copy_(rows[number if len(rows) > 1 else 0])
        else:
            coder.decode(row, out)
    return decoded
