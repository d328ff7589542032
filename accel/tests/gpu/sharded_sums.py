"""A scenario of fully sharded gradients, on every rank of a job."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import busbw_accel

LAYERS, WIDTH = 8, 256
BACKWARD_PASSES = 4


def sums_of_gradients() -> dict[str, Any]:
    """Gradients of several backward passes, which are all exchanged and add up: by how much those
    of a communication worker are apart from those of FSDP's own hybrid sharding.
    """
    mesh = init_device_mesh("cuda", (dist.get_world_size(), 1), mesh_dim_names=("across", "inside"))
    sums = []
    for is_own in (True, False):
        torch.manual_seed(0)
        net = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))).cuda()
        for layer in (*net, net):
            fully_shard(layer, mesh=mesh if is_own else mesh["inside"])
        if not is_own:
            settings = busbw_accel.Settings(method="dense", compress_least=0)
            busbw_accel.attach_fully_sharded(net, mesh["across"], settings)
        generator = torch.Generator("cuda").manual_seed(dist.get_rank())
        for _ in range(BACKWARD_PASSES):
            inputs = torch.randn(64, WIDTH, device="cuda", generator=generator)
            net(inputs).square().mean().backward()
        gradients = [parameter.grad.full_tensor() for parameter in net.parameters()]
        sums.append(torch.cat([gradient.flatten() for gradient in gradients]))
    own, exchanged = sums
    return {"apart": float((exchanged - own).norm() / own.norm())}
