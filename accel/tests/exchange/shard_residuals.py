"""Scenarios of what codecs keep of shards of fully_shard, on every rank of a job."""

import copy
from typing import Any

import torch
from sharded_models import Two, apart, attached, backward, sharded
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from trainings import batch, model

from busbw.core.errors import UsageError
from busbw_accel import Settings, attach_fully_sharded


def unused() -> dict[str, Any]:
    """A step in which a part of a unit has no gradient leaves its residual as it is."""
    net = Two()
    fully_shard(net)
    exchange = attached(net, method="int8")
    kept = []
    for both in (True, False, True):
        net.zero_grad()
        net(batch(0)[0], both).square().mean().backward()
        kept.append(exchange.state_dict()["kept"][""]["residual"])
    return {"kept": torch.equal(kept[0], kept[1]), "goes_on": not torch.equal(kept[1], kept[2])}


def frozen() -> dict[str, Any]:
    """A unit without gradients is not exchanged; one that is trained in part keeps its residual
    until all of it is trained. A checkpoint is of the parameters that were trained.
    """
    net = model()
    net[3].requires_grad_(False)
    net[0].bias.requires_grad_(False)
    sharded(net)
    exchange = attached(net, method="int8")
    lengths = []
    for number in range(3):
        if number == 2:
            net[0].bias.requires_grad_(True)
        inputs, labels = batch(number)
        nn.functional.cross_entropy(net(inputs), labels).backward()
        kept = exchange.state_dict()["kept"]
        lengths.append(len(kept["0"]["residual"]))
    found = {"buckets": exchange.traffic.buckets, "kept": sorted(kept), "lengths": lengths}
    net[0].bias.requires_grad_(False)
    again = attached(net, method="int8")
    again.load_state_dict(exchange.state_dict())
    try:
        nn.functional.cross_entropy(net(inputs), labels).backward()
    except UsageError as error:
        return found | {"refused": f"{error.message} | {error.hint}"}
    return found


def swapped() -> dict[str, Any]:
    """One of two layers of the same size is trained, then the other: what is kept of the first is
    not sent as that of the second. Then other parameters take the place of these.
    """
    inputs, residuals = batch(0)[0], []
    for steps in (2, 1):
        net = Two()
        fully_shard(net)
        exchange = attached(net, method="int8")
        for step in range(2 - steps, 2):
            net.first.requires_grad_(step == 0)
            net.second.requires_grad_(step == 1)
            net(inputs, True).square().mean().backward()
        residuals.append(exchange.state_dict()["kept"][""]["residual"])
    net.load_state_dict(copy.deepcopy(net.state_dict()), assign=True)
    net.requires_grad_(True)
    net.first.bias.requires_grad_(False)
    net(inputs, True).square().mean().backward()
    length = len(exchange.state_dict()["kept"][""]["residual"])
    return {"fresh": torch.equal(*residuals), "assigned": length}


def of_replicas() -> dict[str, Any]:
    """As `unused` and `frozen`, of replicas of shards."""
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("across", "inside"))
    net = Two()
    fully_shard(net, mesh=mesh["inside"])
    settings = Settings(method="int8", compress_least=0)
    exchange = attach_fully_sharded(net, mesh["across"], settings)
    kept = []
    for both in (True, False, True, True):
        net.second.requires_grad_(len(kept) < 3)
        net.zero_grad()
        net(batch(0)[0], both).square().mean().backward()
        kept.append(exchange.state_dict()["kept"][""]["residual"])
    return {"kept": torch.equal(kept[0], kept[1]), "lengths": [len(each) for each in kept]}


def fed_back() -> dict[str, float]:
    """Gradients of the same batch, summed over steps: how far with and without what is kept."""
    exact = backward(sharded(model()))
    found = {}
    for feedback in (True, False):
        net = sharded(model())
        attached(net, method="int4", feedback=feedback)
        sums = [torch.zeros_like(gradient) for gradient in exact]
        for _ in range(20):
            torch._foreach_add_(sums, backward(net))
        found[str(feedback)] = apart([total / 20 for total in sums], exact)
    return found
