"""One byte an element with a scale for each block: each rank sums one shard of all ranks' bytes, and sends the sum as bytes again.

Both roundings are fed back: the first by its sender, the second by the rank that sums. The scheme of all-to-all, sum and all-gather is that
of ZeRO++ (arXiv 2306.10209) and DynamiQ's baseline (arXiv 2602.08923).
"""

import torch
import torch.distributed as dist

from busbw.accel.codecs.base import RESIDUAL, Codec, State, carried, keep, share
from busbw.accel.mesh import Line

BLOCK = 256
SCALE_BYTES = 4
STEPS = 127
# What the second rounding lost, at the rank that sums, of the length of its shard.
SUM_RESIDUAL = "sum_residual"


class Int8(Codec):
    """Sends 2 (n-1)/n bytes an element and 4 bytes for each block of 256."""

    def exchange(self, part: torch.Tensor, line: Line, state: State, step: int) -> int:
        """See Codec.exchange."""
        feedback = self.settings.feedback
        total = carried(share(part, line), state, feedback)
        length = -(-part.numel() // (line.size * BLOCK)) * BLOCK  # of a rank's shard
        padded = torch.nn.functional.pad(total, (0, line.size * length - part.numel())).view(line.size, length)
        sent = pack(padded)
        rest = total - unpack(sent, length).reshape(-1)[: part.numel()]
        came = torch.empty_like(sent)
        dist.all_to_all_single(came, sent, group=line.group)
        shard = _sum(unpack(came, length))
        if feedback and SUM_RESIDUAL in state:
            shard += state[SUM_RESIDUAL]
        mine = pack(shard[None])
        every = torch.empty_like(sent)
        dist.all_gather_into_tensor(every.view(-1), mine.view(-1), group=line.group)
        part.copy_(unpack(every, length).reshape(-1)[: part.numel()])
        if feedback:
            keep(state, RESIDUAL, rest, part)
            keep(state, SUM_RESIDUAL, shard - unpack(mine, length)[0], part)
        others = (line.size - 1) * int(mine.numel())
        return line.direct(others) + line.ring(others)


def pack(rows: torch.Tensor) -> torch.Tensor:
    """Rows of fp32, their length a multiple of BLOCK -> rows of uint8: scales, then a byte an element.

    A block with a value that is not finite has such a scale, and becomes NaN as a whole.
    """
    blocks = rows.view(rows.shape[0], -1, BLOCK)
    scales = blocks.abs().amax(2) / STEPS
    divisors = torch.where(torch.isfinite(scales) & (scales > 0), scales, 1.0)
    steps = torch.nan_to_num_(blocks / divisors[:, :, None], nan=0.0, posinf=0.0, neginf=0.0).round_().clamp_(-STEPS, STEPS)
    return torch.cat([scales.view(torch.uint8), steps.to(torch.int8).view(torch.uint8).flatten(1)], dim=1)


def unpack(rows: torch.Tensor, length: int) -> torch.Tensor:
    """What `pack` made of rows of this length."""
    scales = rows[:, : length // BLOCK * SCALE_BYTES].contiguous().view(torch.float32)
    steps = rows[:, length // BLOCK * SCALE_BYTES :].contiguous().view(torch.int8).view(rows.shape[0], -1, BLOCK)
    scales = torch.where(torch.isfinite(scales), scales, torch.nan)
    return (steps.float() * scales[:, :, None]).flatten(1)


def _sum(rows: torch.Tensor) -> torch.Tensor:
    """Row by row, so that the order of additions never changes."""
    total = rows[0].clone()
    for row in rows[1:]:
        total += row
    return total
