"""One byte an element with a scale for each block: each rank sums one shard of all ranks' bytes, and sends the sum as bytes again.

Both roundings are fed back: the first by its sender, the second by the rank that sums. The scheme of all-to-all, sum and all-gather is that
of ZeRO++ (arXiv 2306.10209) and DynamiQ's baseline (arXiv 2602.08923).
"""

import torch
import torch.distributed as dist

from busbw.accel.codecs import kernels
from busbw.accel.codecs.base import RESIDUAL, Codec, State, carried, keep
from busbw.accel.codecs.rules import BLOCK, LEAST_SCALE, SCALE_BYTES, STEPS
from busbw.accel.mesh import Line

GRAIN = 4 * BLOCK  # of a row: its scales and bytes are then aligned to 16 bytes
# What the second rounding lost, at the rank that sums, of the length of its shard.
SUM_RESIDUAL = "sum_residual"


class Int8(Codec):
    """Sends 2 (n-1)/n bytes an element and 4 bytes for each block of 256.

    Between two ranks each sends all its bytes to the other, and both sum: as many bytes in one round instead of two, with one rounding.
    """

    def exchange(self, part: torch.Tensor, line: Line, state: State, step: int) -> int:
        """See Codec.exchange."""
        pair, in_kernels = line.size == 2, kernels.usable(part)
        length = -(-part.numel() // (GRAIN * (1 if pair else line.size))) * GRAIN  # of a row: what one rank sums
        if pair:
            (self._pair_in_kernels if in_kernels else self._pair)(part, line, state, length)
        else:
            (self._in_kernels if in_kernels else self._plain)(part, line, state, length)
        others = (line.size - 1) * length * (BLOCK + SCALE_BYTES) // BLOCK
        return line.ring(others) if pair else line.direct(others) + line.ring(others)

    def _pair_in_kernels(self, part: torch.Tensor, line: Line, state: State, length: int) -> None:
        from busbw.accel.codecs.kernels import int8, kept  # Triton takes a second to import

        feedback = self.settings.feedback
        before = state.get(RESIDUAL) if feedback else None
        sent, rest = int8.packed(part, before, line.size, 1, length, feedback=feedback)
        wrong = int8.add(_from_all(sent, line), length, part)
        if feedback:
            kept.restore(rest, before, wrong)
            state[RESIDUAL] = rest

    def _in_kernels(self, part: torch.Tensor, line: Line, state: State, length: int) -> None:
        from busbw.accel.codecs.kernels import int8, kept

        feedback = self.settings.feedback
        before = (state.get(RESIDUAL), state.get(SUM_RESIDUAL)) if feedback else (None, None)
        sent, rest = int8.packed(part, before[0], line.size, line.size, length, feedback=feedback)
        mine, sum_rest = int8.summed(_from_each(sent, line), before[1], length, feedback=feedback)
        wrong = int8.unpack(_from_all(mine, line), length, part)
        if feedback:
            kept.restore(rest, before[0], wrong)
            kept.restore(sum_rest, before[1], wrong)
            state[RESIDUAL], state[SUM_RESIDUAL] = rest, sum_rest

    def _pair(self, part: torch.Tensor, line: Line, state: State, length: int) -> None:
        elements, feedback = part.numel(), self.settings.feedback
        sent, rest = pack(_padded(carried(part, line, state, feedback), length).view(1, length))
        part.copy_(_sum(unpack(_from_all(sent, line), length))[:elements])
        if feedback:
            keep(state, {RESIDUAL: rest.view(-1)[:elements]}, part)

    def _plain(self, part: torch.Tensor, line: Line, state: State, length: int) -> None:
        elements, feedback = part.numel(), self.settings.feedback
        sent, rest = pack(_padded(carried(part, line, state, feedback), line.size * length).view(line.size, length))
        shard = _sum(unpack(_from_each(sent, line), length))
        if feedback and SUM_RESIDUAL in state:
            shard += state[SUM_RESIDUAL]
        mine, sum_rest = pack(shard[None])
        part.copy_(unpack(_from_all(mine, line), length).view(-1)[:elements])
        if feedback:
            keep(state, {RESIDUAL: rest.view(-1)[:elements], SUM_RESIDUAL: sum_rest.view(-1)}, part)


def _padded(total: torch.Tensor, length: int) -> torch.Tensor:
    return torch.nn.functional.pad(total, (0, length - total.numel())) if length > total.numel() else total


def _from_each(sent: torch.Tensor, line: Line) -> torch.Tensor:
    """What each rank has for this one, a row each."""
    came = torch.empty_like(sent)
    dist.all_to_all_single(came, sent, group=line.group)
    return came


def _from_all(mine: torch.Tensor, line: Line) -> torch.Tensor:
    """Each rank's row."""
    every = torch.empty(line.size, mine.numel(), dtype=mine.dtype, device=mine.device)
    dist.all_gather_into_tensor(every.view(-1), mine.view(-1), group=line.group)
    return every


def pack(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of fp32, their length a multiple of BLOCK -> rows of uint8: scales, then a byte an element; and what the rounding lost.

    A block with a value that is not finite has such a scale, and becomes NaN as a whole, whatever its bytes are.
    """
    blocks = rows.view(rows.shape[0], -1, BLOCK)
    scales = torch.linalg.vector_norm(blocks, ord=torch.inf, dim=2) / STEPS
    scales *= ~(scales < LEAST_SCALE)
    steps = (blocks / torch.where(scales > 0, scales, 1.0)[:, :, None]).round_()
    packed = torch.empty(rows.shape[0], SCALE_BYTES * scales.shape[1] + rows.shape[1], dtype=torch.uint8, device=rows.device)
    _scales(packed, rows.shape[1]).copy_(scales)
    _steps(packed, rows.shape[1]).copy_(steps)
    return packed, torch.addcmul(blocks, steps, scales[:, :, None], value=-1)


def unpack(rows: torch.Tensor, length: int) -> torch.Tensor:
    """What `pack` made of rows of this length."""
    scales = _scales(rows, length)
    scales = torch.where(torch.isfinite(scales), scales, torch.nan)
    return (_steps(rows, length) * scales[:, :, None]).view(rows.shape[0], length)


def _scales(packed: torch.Tensor, length: int) -> torch.Tensor:
    return packed[:, : length // BLOCK * SCALE_BYTES].view(torch.float32)


def _steps(packed: torch.Tensor, length: int) -> torch.Tensor:
    return packed[:, length // BLOCK * SCALE_BYTES :].view(torch.int8).unflatten(1, (-1, BLOCK))


def _sum(rows: torch.Tensor) -> torch.Tensor:
    """Row by row, so that the order of additions never changes."""
    total = rows[0]
    for row in rows[1:]:
        total += row
    return total
