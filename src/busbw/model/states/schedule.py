"""A step of an offloaded training, piece by piece: the GPU, the copies down and up, and the updates
in order of need.

It follows busbw.accel.offloading: a piece of a gradient goes down after its backward, is updated
when it is there, those of the units that forward needs first before others, and its weights go up.
A layer's forward waits for the last of its weights.

The parameters of a gpt in the order of its definition, and which of their states stay on the
GPU.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from busbw.core.gpt_shape import PIECE, UPDATE_BYTES, GptShape
from busbw.model.states.types import Machine, Training

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


@dataclass(frozen=True, slots=True)
class Part:
    """One parameter: its unit, its elements, and the share of the unit's backward after which
    its gradient is there.
    """

    unit: int
    count: int
    after: float


def parts(shape: GptShape, sequence: int) -> list[Part]:
    """All parameters, unit by unit."""
    width = shape.width
    root = [
        Part(ROOT, shape.vocabulary * width, 1.0),
        Part(ROOT, sequence * width, 1.0),
        Part(ROOT, width, 1.0),
        Part(ROOT, width, 1.0),
    ]
    layers = [
        Part(unit, square * width**2 + line * width, after)
        for unit in range(1, shape.layers + 1)
        for square, line, after in LAYER
    ]
    return root + layers


def on_gpu(all_parts: list[Part], gpu_share: float) -> list[bool]:
    """For each part whether its states stay on the GPU: see
    busbw.accel.offloading.placement.choose.
    """
    total, kept, chosen = sum(part.count for part in all_parts), 0, []
    for part in all_parts:
        fits = kept + part.count <= gpu_share * total + 0.5
        kept += part.count * fits
        chosen.append(fits)
    return chosen


def pieces(count: int) -> Iterator[int]:
    """The elements of each piece of a parameter."""
    for first in range(0, count, PIECE):
        yield min(PIECE, count - first)


STEPS = 4  # simulated; the last counts
SLOT = 2  # bytes of an element of a gradient or weight on its way


@dataclass(frozen=True, slots=True)
class Timeline:
    """A step in its steady state: seconds, the bytes of gradients that waited for their copies
    at most, and parameters on the GPU.
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
    came_s: float = 0.0


@dataclass(slots=True)
class _State:
    """When each lane is free, and when each unit is updated and has its weights in place."""

    gpu: float = 0.0
    down: float = 0.0
    up: float = 0.0
    adam: float = 0.0
    updated: dict[int, float] = field(default_factory=dict)
    ready: dict[int, float] = field(default_factory=dict)


class Schedule:
    """Steps of one training on one machine."""

    def __init__(
        self, training: Training, machine: Machine, gpu_share: float, *, stream_weights: bool
    ) -> None:
        self._training, self._machine, self._stream = training, machine, stream_weights
        self._parts = parts(training.shape, training.sequence)
        self._on_gpu = on_gpu(self._parts, gpu_share)
        self._units: dict[int, list[tuple[Part, bool]]] = {}
        for part, stays in zip(self._parts, self._on_gpu, strict=True):
            self._units.setdefault(part.unit, []).append((part, stays))
        self._in_flight = 0
        # gradients down, and weights up: streamed ones in forward and in backward
        copied = SLOT * (3 if stream_weights else 2)
        # copies take their share of the memory's rate
        self._adam_rate = machine.host_adam * UPDATE_BYTES / (UPDATE_BYTES + copied)

    def timeline(self) -> Timeline:
        """The last of STEPS steps."""
        state, ends = _State(), []
        for _ in range(STEPS):
            self._forward(state)
            self._update(state, self._backward(state))
            ends.append(state.gpu)
        kept = [part for part, stays in zip(self._parts, self._on_gpu, strict=True) if stays]
        count, root = (
            sum(part.count for part in some)
            for some in (kept, [part for part in kept if part.unit == ROOT])
        )
        return Timeline(ends[-1] - ends[-2], self._in_flight, count, root)

    def _forward(self, state: _State) -> None:
        compute, layers = self._machine.compute, self._training.shape.layers
        state.gpu = max(state.gpu, state.ready.get(ROOT, 0.0))
        if self._stream:
            state.gpu = max(state.gpu, self._fetch(state, ROOT, state.gpu))
        began = state.gpu
        for unit in range(1, layers + 1):
            there = self._fetch(state, unit, began) if self._stream else state.ready.get(unit, 0.0)
            began = state.gpu = max(state.gpu, there)
            state.gpu += compute.layer_forward_s
        state.gpu += compute.root_forward_s

    def _fetch(self, state: _State, unit: int, room_s: float) -> float:
        """Copy a unit's weights to the GPU, once there is room and they are updated.

        Returns the end.
        """
        count = sum(part.count for part, stays in self._units[unit] if not stays)
        if count:
            state.up = (
                max(state.up, room_s, state.updated.get(unit, 0.0))
                + SLOT * count / self._machine.up
            )
            return state.up
        return 0.0

    def _backward(self, state: _State) -> list[_Piece]:
        """The pieces of gradients in the order of their making."""
        training, compute, layers = (
            self._training,
            self._machine.compute,
            self._training.shape.layers,
        )
        made: list[_Piece] = []
        began = state.gpu
        state.gpu += compute.root_backward_s
        again = compute.layer_forward_s if training.recompute else 0.0
        for unit in range(layers, 0, -1):
            if self._stream and unit < layers:
                state.gpu = max(state.gpu, self._fetch(state, unit, began))
            began = state.gpu
            gradients_s = max(0.0, compute.layer_backward_s - again)
            made += self._made(unit, began + compute.layer_backward_s - gradients_s, gradients_s)
            state.gpu += compute.layer_backward_s + self._on_device_s(unit)
        made += self._made(ROOT, state.gpu, 0.0)
        state.gpu += self._on_device_s(ROOT)
        return made

    def _made(self, unit: int, begin_s: float, takes_s: float) -> list[_Piece]:
        down = sorted(
            (part for part, stays in self._units[unit] if not stays), key=lambda part: part.after
        )
        return [
            _Piece(unit, count, begin_s + part.after * takes_s)
            for part in down
            for count in pieces(part.count)
        ]

    def _on_device_s(self, unit: int) -> float:
        """The update of a unit's states on the GPU."""
        rate = self._machine.gpu_adam
        return sum(part.count for part, stays in self._units[unit] if stays) / rate if rate else 0.0

    def _update(self, state: _State, made: list[_Piece]) -> None:
        """Copy down, update and copy up."""
        machine = self._machine
        for piece in made:
            state.down = max(state.down, piece.made_s) + SLOT * piece.count / machine.down
            piece.came_s = state.down
        self._in_flight = max(self._in_flight, _most_waiting(made))
        here: list[tuple[int, int]] = []
        coming, at = 0, state.adam
        for _ in made:
            while coming < len(made) and (not here or self._came(made[coming], state) <= at):
                at = at if here else max(at, self._came(made[coming], state))
                heapq.heappush(here, (made[coming].unit, coming))
                coming += 1
            unit, number = heapq.heappop(here)
            at += made[number].count / self._adam_rate
            state.updated[unit] = at
            if not self._stream:
                state.up = max(state.up, at) + SLOT * made[number].count / machine.up
                state.ready[unit] = state.up
        state.adam = at
        if self._stream:
            state.ready[ROOT] = state.updated.get(ROOT, 0.0)

    def _came(self, piece: _Piece, state: _State) -> float:
        """When a piece may be updated: at once, but with clipping and streamed weights after the
        last gradient.
        """
        return (
            max(piece.came_s, state.gpu)
            if self._training.max_norm is not None and self._stream
            else piece.came_s
        )


def _most_waiting(made: list[_Piece]) -> int:
    """The most bytes of gradients that exist and have not been copied."""
    changes = sorted(
        [(piece.made_s, SLOT * piece.count) for piece in made]
        + [(piece.came_s, -SLOT * piece.count) for piece in made]
    )
    most = held = 0
    for _, change in changes:
        held += change
        most = max(most, held)
    return most
