"""Builds the models of busbw_accel.train.names, and synthetic samples for them.

`Gpt` is a transformer like GPT-2 (Radford et al. 2019): pre-norm, learned positions, and output
weights tied to the input.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from busbw.core.errors import NoMeasurement
from busbw_accel.train.types import TrainSpec

GROWTH = 4  # width of the feed-forward part relative to the model
IMAGE, CLASSES = 224, 1000
WIDTH = 1024  # of the input of an MLP


class Block(nn.Module):
    """Causal attention, then a feed-forward part."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.mix = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.between = nn.LayerNorm(width)
        self.up = nn.Linear(width, GROWTH * width)
        self.down = nn.Linear(GROWTH * width, width)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[batch, sequence, width] -> the same shape."""
        batch, sequence, width = inputs.shape
        mixed = self.mix(self.before(inputs))
        heads = mixed.view(batch, sequence, 3, self.heads, width // self.heads)
        parts = heads.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(
            parts[0], parts[1], parts[2], is_causal=True
        )
        inputs = inputs + self.out(attended.transpose(1, 2).reshape(batch, sequence, width))
        grown = functional.gelu(self.up(self.between(inputs)), approximate="tanh")
        result: torch.Tensor = inputs + self.down(grown)
        return result


class Gpt(nn.Module):
    """A transformer of `layers` blocks over a vocabulary.

    `recompute`: only the inputs of blocks are kept for backward, which runs each block again.
    """

    def __init__(
        self,
        layers: int,
        width: int,
        heads: int,
        vocabulary: int,
        sequence: int,
        *,
        recompute: bool = False,
    ) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(sequence, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.last = nn.LayerNorm(width)
        self._recompute = recompute
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        """Tokens [batch, sequence] -> scores [batch, sequence, vocabulary].

        With the tokens `targets` [batch, sequence] -> the mean loss, in fp32. The loss is computed
        sample by sample, and again in backward, so that the scores of only one sample are in memory
        at a time.
        """
        positions = torch.arange(inputs.shape[1], device=inputs.device)
        hidden = self.tokens(inputs) + self.positions(positions)
        for block in self.blocks:
            hidden = _recomputed(block, hidden) if self._recompute else block(hidden)
        hidden = self.last(hidden)
        if targets is None:
            return functional.linear(hidden, self.tokens.weight)
        losses = [
            _recomputed(self._loss, sample, sample_targets)
            for sample, sample_targets in zip(hidden, targets, strict=True)
        ]
        return torch.stack(losses).mean()

    def _loss(self, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        scores = functional.linear(hidden, self.tokens.weight).float()
        return functional.cross_entropy(scores, targets)


def _recomputed(part: object, *inputs: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = checkpoint(part, *inputs, use_reentrant=False, preserve_rng_state=False)
    return result


@dataclass(frozen=True, slots=True)
class Model:
    """One model. `samples` makes a batch on the CPU: inputs and targets; None if the model cannot
    compute.
    """

    name: str
    unit: str
    build: Callable[[TrainSpec], nn.Module]
    samples: Callable[[TrainSpec, torch.Generator], tuple[torch.Tensor, torch.Tensor]] | None = None


def _vision(name: str) -> Callable[[TrainSpec], nn.Module]:
    def build(spec: TrainSpec) -> nn.Module:
        try:
            models = importlib.import_module("torchvision.models")
        except ImportError as error:
            raise NoMeasurement(
                f"{name} needs torchvision, which is not installed ({error})",
                "pip install 'busbw-accel[train]'",
            ) from error
        net: nn.Module = getattr(models, name)()
        return net

    return build


def _mlp(width: int) -> Callable[[TrainSpec], nn.Module]:
    def build(spec: TrainSpec) -> nn.Module:
        layers = [
            nn.Linear(WIDTH, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, CLASSES),
        ]
        return nn.Sequential(*layers)

    return build


def gpt(
    layers: int, width: int, heads: int, vocabulary: int
) -> tuple[Callable[[TrainSpec], nn.Module], Callable[..., tuple[torch.Tensor, torch.Tensor]]]:
    """Builders of a transformer and of samples for it."""

    def build(spec: TrainSpec) -> nn.Module:
        return Gpt(layers, width, heads, vocabulary, spec.sequence)

    def samples(spec: TrainSpec, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = torch.randint(
            vocabulary, (spec.batch_size, spec.sequence + 1), generator=generator
        )
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    return build, samples


def _images(spec: TrainSpec, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.randn(spec.batch_size, 3, IMAGE, IMAGE, generator=generator)
    return images, torch.randint(CLASSES, (spec.batch_size,), generator=generator)


def _vectors(spec: TrainSpec, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    vectors = torch.randn(spec.batch_size, WIDTH, generator=generator)
    return vectors, torch.randint(CLASSES, (spec.batch_size,), generator=generator)


MODELS = (
    Model("vgg16", "img", _vision("vgg16"), _images),
    Model("resnet50", "img", _vision("resnet50"), _images),
    Model("gpt2", "seq", *gpt(12, 768, 12, 50257)),
    Model("gpt-small", "seq", *gpt(4, 256, 4, 4096)),
    Model("mlp", "img", _mlp(4096), _vectors),
    Model("mlp-small", "img", _mlp(512), _vectors),
)
BY_NAME = {model.name: model for model in MODELS}
