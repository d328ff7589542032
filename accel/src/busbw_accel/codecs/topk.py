"""Top-k: sends about a given share of the elements, those of the largest magnitude.

The other elements stay in the residual.

After DGC (arXiv 1712.01887: momentum correction, warm-up of the ratio) and Ok-Topk (PPoPP'22: a
threshold that is reused instead of a selection in each step). The size of an exchange is fixed:
surplus elements stay in the residual, and missing ones are padded with zeros. So neither ranks nor
the host wait for a count.
"""

import math

import torch

from busbw_accel.codecs import kernels
from busbw_accel.codecs.base import (
    CORRECTION,
    FAR,
    FILL,
    RESIDUAL,
    STEP_TURN,
    TURN,
    VELOCITY,
    Codec,
    State,
    carried,
    keep,
    share,
)
from busbw_accel.codecs.sparse_packing import pack, size, unpack, values
from busbw_accel.communicator import Bytes, Communicator

THRESHOLD = "threshold"
SAMPLE = 1 << 16  # elements of the sample for a new threshold

# The ratio at the start of a warm-up, and the number of reductions.
FIRST_RATIO, STAGES = 0.25, 4


class TopK(Codec):
    """Sends `ratio` of the elements to every rank of the communicator."""

    def exchange(self, part: torch.Tensor, comm: Communicator, state: State, step: int) -> Bytes:
        settings = self.settings
        ratio = ratio_at(step, settings.ratio, settings.warmup_steps)
        room = max(1, math.ceil(ratio * part.numel()))  # entries
        if kernels.usable(part) and not settings.momentum:
            self._exchange_in_kernels(part, comm, state, step, room)
        else:
            self._exchange_in_torch(part, comm, state, step, room)
        return comm.all_gather_bytes(size(room, part.numel(), settings.values))

    def _exchange_in_kernels(
        self, part: torch.Tensor, comm: Communicator, state: State, step: int, room: int
    ) -> None:
        from busbw_accel.codecs.kernels import not_finite, topk  # Triton takes a second to import

        feedback, values = self.settings.feedback, self.settings.values
        residual = state.get(RESIDUAL) if feedback else None
        blob, unsent = topk.packed(
            part, residual, state, comm.size, room, step, values, feedback=feedback
        )
        skipped = topk.add(comm.all_gather(blob), part, room, values)
        if feedback:
            not_finite.restore(unsent, residual, skipped)
            state[RESIDUAL] = unsent

    def _exchange_in_torch(
        self, part: torch.Tensor, comm: Communicator, state: State, step: int, room: int
    ) -> None:
        settings = self.settings
        velocity = self._velocity(part, comm, state)
        if velocity is None:
            total = carried(part, comm, state, settings.feedback)
        else:  # momentum needs feedback
            total = velocity + state.get(RESIDUAL, 0.0)
        index, count = _select(total.abs(), room, step, state)
        blob = pack(total, index, count, settings.values)
        result = part.zero_() if part.dtype == torch.float32 else torch.zeros_like(total)
        # Row by row: the indices of a row differ, so the order of additions is fixed.
        for row in comm.all_gather(blob):
            result.index_add_(0, *unpack(row, room, part.numel(), settings.values))
        if result is not part:
            part.copy_(result)
        residuals: State = {}
        if settings.feedback:
            # What remains includes rounding errors. Padding has value zero.
            received = values(blob, room, total.numel(), settings.values)
            residuals[RESIDUAL] = total.index_add_(0, index, -received)
        if velocity is not None:
            residuals[VELOCITY] = _clear_sent(velocity, index, count)
        keep(state, residuals, part)

    def _velocity(
        self, part: torch.Tensor, comm: Communicator, state: State
    ) -> torch.Tensor | None:
        """The velocity, which momentum correction sends in place of the gradient.

        None without momentum.
        """
        if not self.settings.momentum:
            return None
        before, gradient = state.get(VELOCITY), share(part, comm)
        return gradient if before is None else before * self.settings.momentum + gradient


def _clear_sent(velocity: torch.Tensor, index: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """The velocity, with zeros where it was sent."""
    nowhere = velocity.numel()
    mask = torch.ones(nowhere + 1, dtype=torch.float32, device=velocity.device)
    mask.index_fill_(0, torch.where(_numbers(index) < count, index, nowhere), 0.0)
    return velocity * mask[:nowhere]


def ratio_at(step: int, ratio: float, warmup_steps: int) -> float:
    """The share that is sent in a step.

    During the warm-up it falls in STAGES equal factors from FIRST_RATIO to `ratio`.
    """
    if step >= warmup_steps or ratio >= FIRST_RATIO:
        return ratio
    stage = step * STAGES // warmup_steps
    return float(FIRST_RATIO * (ratio / FIRST_RATIO) ** (stage / STAGES))


def _select(
    magnitude: torch.Tensor, room: int, step: int, state: State
) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions of `room` elements in ascending order, and their count.

    Positions from the count on are padding (0).
    """
    length, device = magnitude.numel(), magnitude.device
    if room == length:
        return torch.arange(room, device=device), torch.full((), room, device=device)
    threshold = _threshold(magnitude, room, step, state)
    index, count = positions(_reach(magnitude, threshold), room, step)
    state[THRESHOLD] = threshold * _factor(count, room)
    return index, count.clamp(max=room)


def positions(chosen: torch.Tensor, room: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Up to `room` chosen positions in ascending order, padded with 0.

    Also returns the total number of chosen positions. If there are more than `room`, the selection
    starts at a position that depends on the step and wraps around, so that no part is always left
    out.
    """
    length = chosen.numel()
    begin = step * TURN % length
    count = torch.count_nonzero(chosen)
    # Ascending from `begin` on, padded with -1.
    turned = torch.nonzero_static(chosen.roll(-begin), size=room).view(-1)
    number, kept = _numbers(turned), count.clamp(max=room)
    before_end = torch.count_nonzero((turned >= 0) & (turned < length - begin))
    at = (number + before_end) % kept.clamp(min=1)  # positions after the wrap are the lowest
    return torch.where(number < kept, (turned[at] + begin) % length, 0), count


def _reach(magnitude: torch.Tensor, threshold: torch.Tensor) -> torch.Tensor:
    """Which elements reach the threshold. NaN does, so that it spreads to all ranks."""
    return (magnitude < threshold).logical_not_()


def _threshold(magnitude: torch.Tensor, room: int, step: int, state: State) -> torch.Tensor:
    """The previous threshold if its count is close to `room`, otherwise one from a sample."""
    stride = -(-magnitude.numel() // SAMPLE)
    # One element per stride, at varying offsets: strides may be as long as the rows of a matrix.
    strides = torch.arange(-(-magnitude.numel() // stride), device=magnitude.device)
    at = strides * stride + (strides * TURN + step * STEP_TURN) % 65_521 % stride
    sample = magnitude[at.clamp(max=magnitude.numel() - 1)]
    target = max(1, min(sample.numel(), int(room * FILL / stride)))
    threshold = torch.topk(sample, target).values[-1].clamp(min=torch.finfo(torch.float32).tiny)
    if THRESHOLD not in state:
        return threshold
    count = torch.count_nonzero(_reach(magnitude, state[THRESHOLD]))
    far = (count > FAR * room) | (FAR * count < FILL * room) | ~torch.isfinite(state[THRESHOLD])
    return torch.where(far, threshold, state[THRESHOLD])


def _factor(count: torch.Tensor, room: int) -> torch.Tensor:
    """The factor for the next threshold if `count` elements reach this one."""
    return ((count.float() + 1) / (room * FILL + 1)) ** CORRECTION


def _numbers(index: torch.Tensor) -> torch.Tensor:
    return torch.arange(index.numel(), device=index.device)
