"""A small model with local steps, and its optimizer."""

from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from trainings import model, settings, wrapped

import busbw_accel

EVERY = 6
NESTEROV = {"outer_lr": 0.7, "outer_momentum": 0.9}  # as in DiLoCo's paper


def attached_to(
    net: DistributedDataParallel, optimizer: torch.optim.Optimizer, **words: Any
) -> busbw_accel.LocalSteps:
    chosen = settings(**{"every": EVERY, **NESTEROV, **words})
    attached = busbw_accel.attach(net, chosen, optimizer=optimizer)
    assert isinstance(attached, busbw_accel.LocalSteps)
    return attached


def sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)


def start(**words: Any) -> tuple[DistributedDataParallel, Any, busbw_accel.LocalSteps]:
    net = wrapped(model())
    optimizer = sgd(net)
    return net, optimizer, attached_to(net, optimizer, **words)


def flat(net: nn.Module) -> torch.Tensor:
    return torch.cat([part.detach().flatten() for part in net.parameters()]).cpu()
