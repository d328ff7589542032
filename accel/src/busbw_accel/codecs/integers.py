"""8-bit or 4-bit integers with a scale per block.

Each rank sums one shard of all ranks' integers and sends the sum in the same form. Both rounding
errors are fed back: the first by the sender, the second by the rank that sums. All-to-all, sum and
all-gather are as in ZeRO++ (arXiv 2306.10209) and DynamiQ's baseline (arXiv 2602.08923).
"""

import torch

from busbw_accel.codecs import kernels
from busbw_accel.codecs.base import (
    LEAST_SCALE,
    RESIDUAL,
    SCALE_BYTES,
    SUM_RESIDUAL,
    Codec,
    State,
    carried,
    keep,
    most_steps,
    row_bytes,
    row_length,
    sum_rows,
)
from busbw_accel.communicator import Bytes, Communicator
from busbw_accel.methods import BLOCK


class Integers(Codec):
    """Each rank sends 2 (n-1)/n times `bits` per element plus 4 bytes per BLOCK.

    Two ranks send everything to each other and both sum: the same bytes in one round instead of
    two, with one rounding.
    """

    bits: int

    def exchange(self, part: torch.Tensor, comm: Communicator, state: State, step: int) -> Bytes:
        pair, in_kernels = comm.size == 2, kernels.usable(part)
        # Elements of a row, which one rank sums.
        rows = 1 if pair else comm.size
        length = row_length(-(-part.numel() // rows))
        if pair:
            (self._exchange_pair_in_kernels if in_kernels else self._exchange_pair)(
                part, comm, state, length
            )
        else:
            (self._exchange_in_kernels if in_kernels else self._exchange_in_torch)(
                part, comm, state, length
            )
        row = row_bytes(length, self.bits)
        gathered = comm.all_gather_bytes(row)
        return gathered if pair else comm.direct((comm.size - 1) * row) + gathered

    def _exchange_pair_in_kernels(
        self, part: torch.Tensor, comm: Communicator, state: State, length: int
    ) -> None:
        from busbw_accel.codecs.kernels import (
            integers,
            not_finite,
        )  # Triton takes a second to import

        feedback = self.settings.feedback
        before = state.get(RESIDUAL) if feedback else None
        skipped = not_finite.flag(part.device) if feedback else None
        sent, residual = integers.packed(
            part, before, comm.size, 1, length, self.bits, feedback=feedback
        )
        integers.add(comm.all_gather(sent), self.bits, part, skipped)
        if skipped is not None:
            not_finite.restore(residual, before, skipped)
            state[RESIDUAL] = residual

    def _exchange_in_kernels(
        self, part: torch.Tensor, comm: Communicator, state: State, length: int
    ) -> None:
        from busbw_accel.codecs.kernels import integers, not_finite

        feedback = self.settings.feedback
        before = (state.get(RESIDUAL), state.get(SUM_RESIDUAL)) if feedback else (None, None)
        skipped = not_finite.flag(part.device) if feedback else None
        sent, residual = integers.packed(
            part, before[0], comm.size, comm.size, length, self.bits, feedback=feedback
        )
        own_sum, sum_residual = integers.summed(
            comm.all_to_all(sent), before[1], length, self.bits, feedback=feedback
        )
        integers.unpack(comm.all_gather(own_sum), length, self.bits, part, skipped)
        if skipped is not None:
            not_finite.restore(residual, before[0], skipped)
            not_finite.restore(sum_residual, before[1], skipped)
            state[RESIDUAL], state[SUM_RESIDUAL] = residual, sum_residual

    def _exchange_pair(
        self, part: torch.Tensor, comm: Communicator, state: State, length: int
    ) -> None:
        elements, feedback = part.numel(), self.settings.feedback
        total = _pad(carried(part, comm, state, feedback), length)
        sent, residual = pack(total.view(1, length), self.bits)
        part.copy_(sum_rows(unpack(comm.all_gather(sent), length, self.bits))[:elements])
        if feedback:
            keep(state, {RESIDUAL: residual.view(-1)[:elements]}, part)

    def _exchange_in_torch(
        self, part: torch.Tensor, comm: Communicator, state: State, length: int
    ) -> None:
        elements, feedback = part.numel(), self.settings.feedback
        total = _pad(carried(part, comm, state, feedback), comm.size * length)
        sent, residual = pack(total.view(comm.size, length), self.bits)
        shard = sum_rows(unpack(comm.all_to_all(sent), length, self.bits))
        if feedback and SUM_RESIDUAL in state:
            shard += state[SUM_RESIDUAL]
        own_sum, sum_residual = pack(shard[None], self.bits)
        part.copy_(unpack(comm.all_gather(own_sum), length, self.bits).view(-1)[:elements])
        if feedback:
            keep(
                state,
                {RESIDUAL: residual.view(-1)[:elements], SUM_RESIDUAL: sum_residual.view(-1)},
                part,
            )

    def reduce_scatter(
        self, rows: torch.Tensor, shard: torch.Tensor, comm: Communicator, state: State, step: int
    ) -> Bytes:
        (self._reduce_in_kernels if kernels.usable(rows) else self._reduce_in_torch)(
            rows, shard, comm, state
        )
        return comm.direct((comm.size - 1) * row_bytes(row_length(shard.numel()), self.bits))

    # The other ranks' shards are unknown in a reduce-scatter: what this rank has sent decides
    # whether it keeps the residual.

    def _reduce_in_kernels(
        self, rows: torch.Tensor, shard: torch.Tensor, comm: Communicator, state: State
    ) -> None:
        from busbw_accel.codecs.kernels import integers, not_finite

        feedback = self.settings.feedback
        before = state.get(RESIDUAL) if feedback else None
        skipped = not_finite.flag(rows.device) if feedback else None
        sent, residual = integers.packed(
            rows,
            before,
            comm.size,
            comm.size,
            shard.numel(),
            self.bits,
            feedback=feedback,
            wrong=skipped,
        )
        integers.add(comm.all_to_all(sent), self.bits, shard)
        if skipped is not None:
            not_finite.restore(residual, before, skipped)
            state[RESIDUAL] = residual

    def _reduce_in_torch(
        self, rows: torch.Tensor, shard: torch.Tensor, comm: Communicator, state: State
    ) -> None:
        elements, feedback = shard.numel(), self.settings.feedback
        length = row_length(elements)
        total = carried(rows.view(-1), comm, state, feedback).view(rows.shape)
        sent, residual = pack(_pad(total, length), self.bits)
        received = unpack(comm.all_to_all(sent), length, self.bits)
        shard.copy_(sum_rows(received)[:elements])
        if feedback:
            residual = residual.view(comm.size, length)[:, :elements].flatten()
            keep(state, {RESIDUAL: residual}, residual)

    def all_gather(self, shard: torch.Tensor, gathered: torch.Tensor, comm: Communicator) -> Bytes:
        elements = shard.numel()
        length = row_length(elements)
        if kernels.usable(gathered):
            from busbw_accel.codecs.kernels import integers

            sent, _ = integers.packed(shard, None, 1, 1, elements, self.bits, feedback=False)
            integers.unpack(comm.all_gather(sent), elements, self.bits, gathered)
        else:
            sent, _ = pack(_pad(shard.float(), length)[None], self.bits)
            every = unpack(comm.all_gather(sent), length, self.bits)
            gathered.view(comm.size, -1).copy_(every[:, :elements])
        return comm.all_gather_bytes(row_bytes(length, self.bits))


class Int8(Integers):
    """One byte per element."""

    bits = 8


class Int4(Integers):
    """Two elements per byte."""

    bits = 4


def _pad(total: torch.Tensor, length: int) -> torch.Tensor:
    """`total` with zeros up to `length` in its last dimension."""
    missing = length - total.shape[-1]
    return torch.nn.functional.pad(total, (0, missing)) if missing else total


def pack(rows: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pack rows of fp32, whose length is a multiple of BLOCK.

    Returns rows of uint8 (scales, then `bits` per element) and the rounding errors. The scale of a
    block with a value that is not finite is not finite either, and the whole block is unpacked as
    NaN.
    """
    blocks = rows.view(rows.shape[0], -1, BLOCK)
    scales = blocks.abs().amax(dim=2) / most_steps(bits)  # a norm is not vectorized on CPUs
    scales *= ~(scales < LEAST_SCALE)
    steps = (blocks * torch.where(scales > 0, scales, 1.0).reciprocal()[:, :, None]).round_()
    packed = torch.empty(
        rows.shape[0], row_bytes(rows.shape[1], bits), dtype=torch.uint8, device=rows.device
    )
    at = SCALE_BYTES * scales.shape[1]
    packed[:, :at].view(torch.float32).copy_(scales)
    packed[:, at:].view(torch.int8).copy_(_join_pairs(steps.to(torch.int8), bits).flatten(1))
    return packed, torch.addcmul(blocks, steps, scales[:, :, None], value=-1)


def unpack(rows: torch.Tensor, length: int, bits: int) -> torch.Tensor:
    """The inverse of `pack`, for rows of `length` elements."""
    at = SCALE_BYTES * length // BLOCK
    scales = rows[:, :at].view(torch.float32)
    scales = torch.where(torch.isfinite(scales), scales, torch.nan)
    steps = _split_pairs(rows[:, at:].view(torch.int8), bits).unflatten(1, (-1, BLOCK))
    return (steps * scales[:, :, None]).view(rows.shape[0], length)


def _join_pairs(steps: torch.Tensor, bits: int) -> torch.Tensor:
    """Join two 4-bit integers in a byte, the first in its lower half."""
    return steps if bits == 8 else (steps[..., 0::2] & 15) | (steps[..., 1::2] << 4)


def _split_pairs(packed: torch.Tensor, bits: int) -> torch.Tensor:
    return (
        packed if bits == 8 else torch.stack(((packed << 4) >> 4, packed >> 4), dim=-1).flatten(-2)
    )
