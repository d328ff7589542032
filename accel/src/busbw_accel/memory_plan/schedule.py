"""A step of an offloaded training, piece by piece: the GPU, the copies down and up, and the updates
in order of need.

`parts` are the parameters of a gpt in the order of its definition; `on_gpu` says which of their
states stay on the GPU.

`StepSimulation` follows busbw_accel.offloading: a piece of a gradient goes down after its backward
and is updated on the host, those of the units that forward needs first before others, and its
weights go up. A layer's forward waits for the last of its weights.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from busbw_accel.memory_plan.gpt_shape import GptShape
from busbw_accel.memory_plan.types import Machine, PlannedTraining
from busbw_accel.offloading.state_bytes import PIECE, UPDATE_BYTES

ROOT = 0  # the unit of what is outside the layers; layers count from 1
# In the order of definition: elements as a multiple of width^2 and of width, and when a layer's
# backward gives the gradient, as a share of its matrix products.
LAYER = (
    (0, 1, 1.0),
    (0, 1, 1.0),  # norm
    (3, 0, 1.0),
    (0, 3, 1.0),  # queries, keys and values
    (1, 0, 0.75),
    (0, 1, 0.75),  # output of attention
    (0, 1, 2 / 3),
    (0, 1, 2 / 3),  # norm
    (4, 0, 2 / 3),
    (0, 4, 2 / 3),  # up
    (4, 0, 1 / 3),
    (0, 1, 1 / 3),  # down
)
STEPS = 4  # simulated; the last counts
SLOT = 2  # bytes of an element of a gradient or weight on its way


@dataclass(frozen=True, slots=True)
class ScheduledParameter:
    """One parameter: its unit, the number of its elements, and the share of the unit's backward
    after which its gradient exists.
    """

    unit: int
    count: int
    after: float


def parts(shape: GptShape, sequence: int) -> list[ScheduledParameter]:
    """All parameters, unit by unit."""
    width = shape.width
    root = [
        ScheduledParameter(ROOT, shape.vocabulary * width, 1.0),
        ScheduledParameter(ROOT, sequence * width, 1.0),
        ScheduledParameter(ROOT, width, 1.0),
        ScheduledParameter(ROOT, width, 1.0),
    ]
    layers = [
        ScheduledParameter(unit, square * width**2 + line * width, after)
        for unit in range(1, shape.layers + 1)
        for square, line, after in LAYER
    ]
    return root + layers


def on_gpu(all_parts: list[ScheduledParameter], gpu_share: float) -> list[bool]:
    """Which parts keep their states on the GPU: see busbw_accel.offloading.state_memory.choose."""
    total = sum(part.count for part in all_parts)
    kept = 0
    chosen = []
    for part in all_parts:
        fits = kept + part.count <= gpu_share * total + 0.5
        if fits:
            kept += part.count
        chosen.append(fits)
    return chosen


def pieces(count: int) -> Iterator[int]:
    """The elements of each piece of a parameter."""
    for first in range(0, count, PIECE):
        yield min(PIECE, count - first)


@dataclass(frozen=True, slots=True)
class StepTimeline:
    """A step in its steady state.

    `in_flight` are the bytes of gradients that waited for their copies at most. `kept` are the
    parameters whose states are on the GPU, `kept_of_root` those of them outside the layers.
    """

    step_s: float
    in_flight: int
    kept: int
    kept_of_root: int


@dataclass(slots=True)
class _Piece:
    unit: int
    count: int
    made_s: float
    copied_s: float = 0.0


@dataclass(slots=True)
class _LaneTimes:
    """When each lane is free, and when each unit is updated and has its weights in place."""

    gpu: float = 0.0
    down: float = 0.0
    up: float = 0.0
    adam: float = 0.0
    updated: dict[int, float] = field(default_factory=dict)
    ready: dict[int, float] = field(default_factory=dict)


class StepSimulation:
    """Steps of one training on one machine."""

    def __init__(
        self, training: PlannedTraining, machine: Machine, gpu_share: float, *, stream_weights: bool
    ) -> None:
        self._training, self._machine, self._stream = training, machine, stream_weights
        self._parts = parts(training.shape, training.sequence)
        self._on_gpu = on_gpu(self._parts, gpu_share)
        self._units: dict[int, list[tuple[ScheduledParameter, bool]]] = {}
        for part, stays in zip(self._parts, self._on_gpu, strict=True):
            self._units.setdefault(part.unit, []).append((part, stays))
        self._in_flight = 0
        # Gradients go down, and weights up; streamed weights go up in forward and in backward.
        copied = SLOT * (3 if stream_weights else 2)
        # Copies take their share of the memory's rate.
        self._adam_rate = machine.host_adam * UPDATE_BYTES / (UPDATE_BYTES + copied)

    def timeline(self) -> StepTimeline:
        """The last of STEPS steps."""
        state = _LaneTimes()
        ends = []
        for _ in range(STEPS):
            self._forward(state)
            self._update(state, self._backward(state))
            ends.append(state.gpu)
        kept = [part for part, stays in zip(self._parts, self._on_gpu, strict=True) if stays]
        count = sum(part.count for part in kept)
        root = sum(part.count for part in kept if part.unit == ROOT)
        return StepTimeline(ends[-1] - ends[-2], self._in_flight, count, root)

    def _forward(self, state: _LaneTimes) -> None:
        compute, layers = self._machine.compute, self._training.shape.layers
        state.gpu = max(state.gpu, state.ready.get(ROOT, 0.0))
        if self._stream:
            state.gpu = max(state.gpu, self._fetch(state, ROOT, state.gpu))
        began = state.gpu
        for unit in range(1, layers + 1):
            ready = state.ready.get(unit, 0.0)
            if self._stream:
                ready = self._fetch(state, unit, began)
            began = state.gpu = max(state.gpu, ready)
            state.gpu += compute.layer_forward_s
        state.gpu += compute.root_forward_s

    def _fetch(self, state: _LaneTimes, unit: int, room_s: float) -> float:
        """Copy a unit's weights to the GPU, once there is room and they are updated.

        Returns the end of the copy, 0 for a unit that is on the GPU.
        """
        count = sum(part.count for part, stays in self._units[unit] if not stays)
        if not count:
            return 0.0
        start = max(state.up, room_s, state.updated.get(unit, 0.0))
        state.up = start + SLOT * count / self._machine.up
        return state.up

    def _backward(self, state: _LaneTimes) -> list[_Piece]:
        """The pieces of gradients in the order of their making."""
        compute, layers = self._machine.compute, self._training.shape.layers
        gradients: list[_Piece] = []
        began = state.gpu
        state.gpu += compute.root_backward_s
        again_s = compute.layer_forward_s if self._training.recompute else 0.0
        for unit in range(layers, 0, -1):
            if self._stream and unit < layers:
                state.gpu = max(state.gpu, self._fetch(state, unit, began))
            began = state.gpu
            takes_s = max(0.0, compute.layer_backward_s - again_s)
            gradients += self._pieces(unit, began + compute.layer_backward_s - takes_s, takes_s)
            state.gpu += compute.layer_backward_s + self._on_device_s(unit)
        gradients += self._pieces(ROOT, state.gpu, 0.0)
        state.gpu += self._on_device_s(ROOT)
        return gradients

    def _pieces(self, unit: int, begin_s: float, takes_s: float) -> list[_Piece]:
        """The gradients of a unit that go to the host, in the order of their making.

        They are made from `begin_s` on, within `takes_s`.
        """
        offloaded = [part for part, stays in self._units[unit] if not stays]
        offloaded.sort(key=lambda part: part.after)
        return [
            _Piece(unit, count, begin_s + part.after * takes_s)
            for part in offloaded
            for count in pieces(part.count)
        ]

    def _on_device_s(self, unit: int) -> float:
        """Seconds to update a unit's states on the GPU."""
        count = sum(part.count for part, stays in self._units[unit] if stays)
        return count / self._machine.gpu_adam if self._machine.gpu_adam else 0.0

    def _update(self, state: _LaneTimes, gradients: list[_Piece]) -> None:
        machine = self._machine
        for piece in gradients:
            state.down = max(state.down, piece.made_s) + SLOT * piece.count / machine.down
            piece.copied_s = state.down
        self._in_flight = max(self._in_flight, _largest_waiting(gradients))
        waiting: list[tuple[int, int]] = []  # unit and number of pieces that may be updated
        coming, at = 0, state.adam
        for _ in gradients:
            while coming < len(gradients):
                available_s = self._available_s(gradients[coming], state)
                if waiting and available_s > at:
                    break
                if not waiting:
                    at = max(at, available_s)
                heapq.heappush(waiting, (gradients[coming].unit, coming))
                coming += 1
            unit, number = heapq.heappop(waiting)
            at += gradients[number].count / self._adam_rate
            state.updated[unit] = at
            if not self._stream:
                state.up = max(state.up, at) + SLOT * gradients[number].count / machine.up
                state.ready[unit] = state.up
        state.adam = at
        if self._stream:
            state.ready[ROOT] = state.updated.get(ROOT, 0.0)

    def _available_s(self, piece: _Piece, state: _LaneTimes) -> float:
        """When a piece may be updated: with clipping and streamed weights after backward."""
        if self._training.max_norm is not None and self._stream:
            return max(piece.copied_s, state.gpu)
        return piece.copied_s


def _largest_waiting(gradients: list[_Piece]) -> int:
    """The largest number of bytes of gradients that exist at a time and have not been copied."""
    changes = [(piece.made_s, SLOT * piece.count) for piece in gradients]
    changes += [(piece.copied_s, -SLOT * piece.count) for piece in gradients]
    largest = waiting = 0
    for _, change in sorted(changes):
        waiting += change
        largest = max(largest, waiting)
    return largest
