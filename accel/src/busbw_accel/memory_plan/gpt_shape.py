"""The shape of a transformer of a given number of parameters: layers, width, heads, vocabulary."""

import math
import re

import msgspec

from busbw.core.errors import UsageError

WIDTH_STEP = 128  # a width is a multiple of it
HEAD_ELEMENTS = 128  # elements of a head; HEAD_ELEMENTS // 2 below MIN_FULL_HEAD_WIDTH
MIN_FULL_HEAD_WIDTH = 2048
# The aim for width over layers, which GPT-3 has with 6.7e9 parameters and more (Brown et al. 2020,
# table 2.1).
WIDTH_PER_LAYER = 128
LARGEST_WIDTH = 32_768
# GPT-2's 50,257 rounded up to a multiple of 128; for models below LARGE_PARAMETERS
VOCABULARY, SMALL_VOCABULARY = 50_304, 4096
LARGE_PARAMETERS, SMALL_PARAMETERS = 100_000_000, 10_000_000
TOLERANCE, SMALL_TOLERANCE = (
    0.02,
    0.05,
)  # below SMALL_PARAMETERS a layer is a large part of the model
# From this number of parameters on, activations are recomputed by default.
RECOMPUTE_FROM = 1_000_000_000
_COUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([kmbt]?)", re.IGNORECASE | re.ASCII)
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}


class GptShape(msgspec.Struct, frozen=True):
    """Layers, width, heads and vocabulary of busbw_accel.train.models.Gpt."""

    layers: int
    width: int
    heads: int
    vocabulary: int

    @property
    def block(self) -> int:
        """Parameters of a layer: four matrices with biases, and two norms."""
        return 12 * self.width**2 + 13 * self.width

    def root(self, sequence: int) -> int:
        """Parameters outside the layers: tokens, positions and the last norm.

        The output's weights are those of the tokens.
        """
        return (self.vocabulary + sequence + 2) * self.width

    def parameters(self, sequence: int) -> int:
        """All parameters."""
        return self.layers * self.block + self.root(sequence)


def parse_count(text: str) -> int:
    """The number in `124M`, `1.5B` or `8e9`. K, M, B and T are powers of 1000.

    Raises:
        UsageError: any other text.
    """
    match = _COUNT.fullmatch(text.strip())
    try:
        count = float(match.group(1)) * _FACTORS[match.group(2).lower()] if match else float(text)
    except ValueError:
        count = math.nan
    if not 1 <= count < 1e15:
        hint = "write a number with M or B, like --params 1.5B"
        raise UsageError(f"--params {text}: not a number of parameters", hint)
    return round(count)


def shape_of(parameters: int, sequence: int) -> GptShape:
    """The shape with this number of parameters to 2 % (to 5 % below 10 million), with a width near
    128 times its layers.

    Raises:
        UsageError: there is none.
    """
    vocabulary = VOCABULARY if parameters >= LARGE_PARAMETERS else SMALL_VOCABULARY
    tolerance = TOLERANCE if parameters >= SMALL_PARAMETERS else SMALL_TOLERANCE
    shapes = [
        _at_width(width, parameters, vocabulary, sequence)
        for width in range(WIDTH_STEP, LARGEST_WIDTH + 1, WIDTH_STEP)
    ]
    close = [
        shape for shape in shapes if abs(shape.parameters(sequence) / parameters - 1) <= tolerance
    ]
    if not close:
        counts = [shape.parameters(sequence) for shape in shapes]
        nearest = min(counts, key=lambda count: abs(count - parameters))
        raise UsageError(
            f"--params {parameters}: no gpt has this number of parameters",
            f"the nearest has {nearest / 1e6:.1f} million",
        )
    return min(close, key=lambda shape: abs(math.log(shape.width / shape.layers / WIDTH_PER_LAYER)))


def _at_width(width: int, parameters: int, vocabulary: int, sequence: int) -> GptShape:
    """The shape of this width whose number of layers comes nearest to the parameters."""
    head = HEAD_ELEMENTS if width >= MIN_FULL_HEAD_WIDTH else HEAD_ELEMENTS // 2
    empty = GptShape(0, width, width // head, vocabulary)
    layers = max(1, round((parameters - empty.root(sequence)) / empty.block))
    return msgspec.structs.replace(empty, layers=layers)
