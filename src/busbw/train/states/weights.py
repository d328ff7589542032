"""Builds a gpt with random weights that are the same for every method, in the type and place
that the method needs.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from busbw.train.gpt import Gpt
from busbw.train.types import TrainSpec

SEED = 7
SPREAD = 0.02  # standard deviation of matrices, as GPT-2's


def described(spec: TrainSpec, dtype: torch.dtype) -> Gpt:
    """The model without memory."""
    assert spec.states is not None
    shape = spec.states.shape
    with torch.device("meta"):
        net = Gpt(
            shape.layers,
            shape.width,
            shape.heads,
            shape.vocabulary,
            spec.sequence,
            recompute=spec.states.recompute,
        )
    net.to(dtype)
    return net


def built(spec: TrainSpec, device: torch.device) -> Gpt:
    """The model in bf16 on a device; with several ranks sharded over them."""
    net = described(spec, torch.bfloat16)
    if dist.get_world_size() > 1:
        shard(net, device)
    net.to_empty(device=device)
    fill(net, device)
    return net


def shard(net: Gpt, device: torch.device, **options: object) -> None:
    """Apply fully_shard to each block and to the model, over all ranks."""
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for block in net.blocks:
        fully_shard(block, mesh=mesh, **options)
    fully_shard(net, mesh=mesh, **options)


@torch.no_grad()
def fill(net: nn.Module, device: torch.device) -> None:
    """Draw the weights in bf16 on `device`, one parameter at a time, and copy them to where the
    parameters are.
    """
    made = torch.Generator(device).manual_seed(SEED)
    for name, parameter in net.named_parameters():
        drawn = torch.empty(parameter.shape, dtype=torch.bfloat16, device=device)
        if parameter.dim() > 1:
            drawn.normal_(0, SPREAD, generator=made)
        else:
            # norms begin as the identity, and biases at 0
            drawn.fill_(float(name.endswith("weight")))
        if isinstance(parameter, DTensor):
            mine = distribute_tensor(
                drawn, parameter.device_mesh, parameter.placements, src_data_rank=None
            )
            parameter.to_local().copy_(mine.to_local())
        else:
            parameter.copy_(drawn)
