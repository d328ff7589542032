"""The elements of the largest magnitude, about a given share of them; the rest waits in the residual.

After DGC (arXiv 1712.01887: momentum correction, warm-up of the ratio) and Ok-Topk (PPoPP'22: a threshold that is carried over instead of a
selection in each step). An exchange has a fixed size, known beforehand: what exceeds it stays in the residual, what falls short is padded
with zeros; so no rank waits for a count, on the device or between ranks.
"""

import math

import torch
import torch.distributed as dist

from busbw.accel.codecs import entries
from busbw.accel.codecs.base import RESIDUAL, Codec, State, carried, left_over
from busbw.accel.mesh import Line

VELOCITY = "velocity"  # of momentum correction, of the part's length
THRESHOLD = "threshold"
# The threshold aims at this share of the room, so that as a rule nothing exceeds it.
FILL = 0.95
# Counts fall with some power of the threshold: 2 in heavy tails, 8 in Gaussian ones. This exponent converges for all of them.
CORRECTION = 1 / 8
# A threshold whose count is off by more than this factor is found anew, among a sample of so many elements.
FAR = 2
SAMPLE = 1 << 16
# The ratio at the begin of a warm-up, and how often it is lowered.
FIRST_RATIO, STAGES = 0.25, 4


class TopK(Codec):
    """Sends `ratio` of the elements to every rank of the line."""

    def exchange(self, part: torch.Tensor, line: Line, state: State, step: int) -> int:
        """See Codec.exchange."""
        settings = self.settings
        total = self._total(part, state)
        room = max(1, math.ceil(ratio_at(step, settings.ratio, settings.warmup_steps) * part.numel()))
        magnitude = torch.nan_to_num(total.abs(), nan=math.inf)  # what is not finite goes first, for all to see
        index, count = _select(magnitude, room, state)
        blob = entries.pack(total, index, count, settings.values)
        if settings.feedback:
            self._keep(total, index, count, entries.values(blob, room, settings.values), state)
        every = torch.empty(line.size * blob.numel(), dtype=torch.uint8, device=part.device)
        dist.all_gather_into_tensor(every, blob, group=line.group)
        result = torch.zeros_like(total)
        for row in every.view(line.size, -1):  # one after the other: indices of a row differ, so the order of additions never changes
            result.index_add_(0, *entries.unpack(row, room, part.numel(), settings.values))
        part.copy_(result)
        return line.ring((line.size - 1) * entries.size(room, part.numel(), settings.values))

    def _total(self, part: torch.Tensor, state: State) -> torch.Tensor:
        """The gradient, or with momentum correction its velocity, and the residual."""
        if not self.settings.momentum:
            return carried(part, state, self.settings.feedback)
        velocity = state.setdefault(VELOCITY, torch.zeros_like(part, dtype=torch.float32))
        velocity.mul_(self.settings.momentum).add_(part)
        return carried(velocity, state, self.settings.feedback)

    def _keep(self, total: torch.Tensor, index: torch.Tensor, count: torch.Tensor, sent: torch.Tensor, state: State) -> None:
        """What was not sent, roundings included. Padding has value zero."""
        state[RESIDUAL] = left_over(total.index_add(0, index, -sent))
        if VELOCITY in state:
            nowhere = total.numel()
            rest = torch.ones(nowhere + 1, device=total.device)
            rest.index_fill_(0, torch.where(_numbers(index) < count, index, nowhere), 0.0)
            state[VELOCITY] = left_over(state[VELOCITY] * rest[:nowhere])


def ratio_at(step: int, ratio: float, warmup_steps: int) -> float:
    """The share that is sent in a step: during the warm-up it falls by the same factor four times, from 1/4 to `ratio`."""
    if step >= warmup_steps or ratio >= FIRST_RATIO:
        return ratio
    stage = step * STAGES // warmup_steps
    return float(FIRST_RATIO * (ratio / FIRST_RATIO) ** (stage / STAGES))


def _select(magnitude: torch.Tensor, room: int, state: State) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions of `room` elements in ascending order, those from the count on padding (position 0); and their count."""
    length, device = magnitude.numel(), magnitude.device
    if room == length:
        return torch.arange(room, device=device), torch.full((), room, device=device)
    threshold = _threshold(magnitude, room, state)
    index, found = _positions(magnitude >= threshold, room)
    count = found.clamp(max=room)
    state[THRESHOLD] = threshold * ((found + 1) / (room * FILL + 1)) ** CORRECTION
    return torch.where(_numbers(index) < count, index, 0), count


def _positions(chosen: torch.Tensor, room: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The first `room` positions that are chosen (whatever it is from their count on), and how many are chosen in all."""
    if chosen.device.type == "cpu":
        every = torch.nonzero(chosen).view(-1)
        return torch.nn.functional.pad(every[:room], (0, max(0, room - every.numel()))), torch.tensor(every.numel())
    return _without_waiting(chosen, room)


def _without_waiting(chosen: torch.Tensor, room: int) -> tuple[torch.Tensor, torch.Tensor]:
    """As `_positions`, while nobody knows the count: each goes to its place, those beyond the room to one place more."""
    place = torch.cumsum(chosen, 0)  # from 1
    slot = torch.where(chosen & (place <= room), place - 1, room)
    index = torch.zeros(room + 1, dtype=torch.int64, device=chosen.device)
    return index.scatter_(0, slot, _numbers(chosen))[:room], place[-1]


def _threshold(magnitude: torch.Tensor, room: int, state: State) -> torch.Tensor:
    """The one that is carried over where its count is near the room, otherwise that of a sample."""
    stride = -(-magnitude.numel() // SAMPLE)
    sample = magnitude[::stride]
    wanted = max(1, min(sample.numel(), int(room * FILL / stride)))
    fresh = torch.topk(sample, wanted).values[-1].clamp(min=torch.finfo(torch.float32).tiny)
    if THRESHOLD not in state:
        return fresh
    found = torch.count_nonzero(magnitude >= state[THRESHOLD])
    far = (found > FAR * room) | (FAR * found < FILL * room)
    return torch.where(far, fresh, state[THRESHOLD])


def _numbers(index: torch.Tensor) -> torch.Tensor:
    return torch.arange(index.numel(), device=index.device)
