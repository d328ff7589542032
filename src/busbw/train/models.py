"""Builds the models of busbw.train.names, and synthetic samples for them."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from busbw.core.errors import NoMeasurement
from busbw.train.gpt import Gpt
from busbw.train.types import TrainSpec

IMAGE, CLASSES = 224, 1000
WIDTH = 1024  # of the input of an MLP


@dataclass(frozen=True, slots=True)
class Model:
    """One model. `samples` makes a batch on the CPU: inputs and targets."""

    name: str
    unit: str
    build: Callable[[TrainSpec], nn.Module]
    samples: Callable[[TrainSpec, torch.Generator], tuple[torch.Tensor, torch.Tensor]]


def _vision(name: str) -> Callable[[TrainSpec], nn.Module]:
    def build(spec: TrainSpec) -> nn.Module:
        try:
            models = importlib.import_module("torchvision.models")
        except ImportError as error:
            raise NoMeasurement(
                f"{name} needs torchvision, which is not installed ({error})",
                "pip install 'busbw[train]'",
            ) from error
        made: nn.Module = getattr(models, name)()
        return made

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

    def samples(spec: TrainSpec, made: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = torch.randint(vocabulary, (spec.batch_size, spec.sequence + 1), generator=made)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    return build, samples


def _images(spec: TrainSpec, made: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(spec.batch_size, 3, IMAGE, IMAGE, generator=made), torch.randint(
        CLASSES, (spec.batch_size,), generator=made
    )


def _vectors(spec: TrainSpec, made: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(spec.batch_size, WIDTH, generator=made), torch.randint(
        CLASSES, (spec.batch_size,), generator=made
    )


MODELS = (
    Model("vgg16", "img", _vision("vgg16"), _images),
    Model("resnet50", "img", _vision("resnet50"), _images),
    Model("gpt2", "seq", *gpt(12, 768, 12, 50257)),
    Model("gpt-small", "seq", *gpt(4, 256, 4, 4096)),
    Model("mlp", "img", _mlp(4096), _vectors),
    Model("mlp-small", "img", _mlp(512), _vectors),
)
BY_NAME = {model.name: model for model in MODELS}
