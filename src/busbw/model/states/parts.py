"""The parameters of a gpt in the order of its definition, and which of their states stay on the
GPU.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from busbw.core.gpt_shape import GptShape
from busbw.core.offloading import PIECE

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
