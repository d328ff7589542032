"""Fully sharded models, their gradients, and references to compare these with."""

from typing import Any

import torch
import torch.distributed as dist
from exchanges import digest
from torch import nn
from torch.distributed.fsdp import fully_shard
from trainings import batch, model, step_of

import busbw_accel
from busbw_accel.fsdp import Sharded

STEPS = 28


class Two(nn.Module):
    """Two layers, of which a step uses one or both."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = nn.Linear(20, 3), nn.Linear(20, 3)

    def forward(self, inputs: torch.Tensor, both: bool) -> torch.Tensor:
        outputs = self.first(inputs)
        return outputs + self.second(inputs) if both else outputs


def sharded(net: nn.Sequential, **words: Any) -> nn.Sequential:
    """The model in three units, one of which has parameters that ranks do not divide evenly."""
    for layer in (net[0], net[3], net):
        fully_shard(layer, **words)
    return net


def attached(net: nn.Module, **words: Any) -> Sharded:
    settings = busbw_accel.Settings(**{"compress_least": 0, **words})
    return busbw_accel.attach_fully_sharded(net, settings=settings)


def weights(net: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.full_tensor().detach().flatten() for parameter in net.parameters()])


def gradients(net: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad.full_tensor() for parameter in net.parameters()]


def backward(net: nn.Module, number: int = 0) -> list[torch.Tensor]:
    """The gradients of a batch, of the whole parameters."""
    net.zero_grad()
    inputs, labels = batch(number)
    nn.functional.cross_entropy(net(inputs).float(), labels).backward()
    return gradients(net)


def own_gradients(net: nn.Module) -> list[torch.Tensor]:
    """The gradients of this rank's batch, without any exchange."""
    inputs, labels = batch(0)
    nn.functional.cross_entropy(net(inputs), labels).backward()
    return [parameter.grad for parameter in net.parameters()]


def summed(own: list[torch.Tensor], wire: torch.dtype) -> list[torch.Tensor]:
    """The average over ranks: rounded to `wire`, summed in fp32 in the order of ranks."""
    ranks, averages = dist.get_world_size(), []
    for gradient in own:
        rows = gradient.new_empty(ranks, *gradient.shape)
        dist.all_gather_into_tensor(rows.view(-1), gradient.contiguous().view(-1))
        total = torch.zeros_like(gradient)
        for row in rows:
            total += (row / ranks).to(wire).float()
        averages.append(total)
    return averages


def apart(some: list[torch.Tensor], others: list[torch.Tensor]) -> float:
    """The relative distance between two lists of gradients."""
    one, other = (torch.cat([part.float().flatten() for part in parts]) for parts in (some, others))
    return float((one - other).norm() / other.norm())


def same_bits(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


def trained(plain: bool = False, **words: Any) -> dict[str, Any]:
    net = sharded(model())
    exchange = None if plain else attached(net, **words)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    losses = [step_of(net, optimizer, number) for number in range(STEPS)]
    return {
        "digest": digest(weights(net).cpu()),
        "first": losses[0],
        "loss": sum(losses[-10:]) / 10,
        "sent": exchange.traffic.across if exchange else 0,
        "buckets": exchange.traffic.buckets if exchange else 0,
    }
