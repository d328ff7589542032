"""Scenarios of what settings a worker gets, what it keeps, saves and refuses, and of how it
ends, on every rank of a job.
"""

import copy
import os
import threading
from typing import Any

import torch
import torch.distributed as dist
from exchanges import two_d
from torch import nn
from torch.distributed import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from trainings import FEW, batch, model, parameters, settings, step_of, steps_by_sgd, wrapped

import busbw_accel
from busbw.core.errors import UsageError
from busbw_accel.mesh import make


def on_a_part_of_the_ranks() -> dict[str, Any]:
    """Replicas on a part of the ranks, as beside tensor parallelism: each group by itself."""
    half = dist.get_world_size() // 2
    groups = [dist.new_group(range(half)), dist.new_group(range(half, dist.get_world_size()))]
    own = dist.get_rank() >= half
    net = wrapped(model(seed=own), process_group=groups[own])
    attached = busbw_accel.attach(net, settings(method="int8"))
    steps_by_sgd(net)
    states: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(states, attached.state_dict())
    try:
        attached.load_state_dict(states[dist.get_rank() - half])  # at the same place in its group
        refused = ""
    except UsageError as error:
        refused = error.message
    ranks = attached.worker.mesh.world.size
    return {"digest": parameters(net), "ranks": ranks, "refused": refused}


def borrowed() -> float:
    """A borrowed communicator still works after the mesh over it is closed."""
    make(settings(), borrowed=dist.group.WORLD).close()
    ranks = torch.ones(1)
    dist.all_reduce(ranks)
    return float(ranks)


def other_settings() -> list[str]:
    """Ranks with different settings, and one whose variable is invalid."""
    messages, rank = [], dist.get_rank()
    for attempt in range(2):
        try:
            if attempt:
                os.environ["LIGHT_TOPK_RATIO"] = "2" if rank == 1 else "0.5"
                busbw_accel.attach(wrapped(model()))
            else:
                busbw_accel.attach(
                    wrapped(model()),
                    settings(method="topk", values="fp16" if rank == 1 else "fp32"),
                )
        except UsageError as error:
            messages.append(error.message)
    del os.environ["LIGHT_TOPK_RATIO"]
    return messages


def an_overflow() -> dict[str, Any]:
    """A scale that is too high once: the step is skipped, and residuals stay."""
    net = wrapped(model())
    attached = busbw_accel.attach(net, settings(method="topk", ratio=0.05))
    optimizer = steps_by_sgd(net)
    before = attached.state_dict()["kept"]
    inputs, labels = batch(FEW)
    optimizer.zero_grad()
    (nn.functional.cross_entropy(net(inputs), labels) * float("inf")).backward()
    finite = all(bool(torch.isfinite(parameter.grad).all()) for parameter in net.parameters())
    after = attached.state_dict()["kept"]
    same = all(
        torch.equal(after[parameter_name][name], tensor)
        for parameter_name, tensors in before.items()
        for name, tensor in tensors.items()
    )
    return {"finite": finite, "same": same, "kept": len(before)}


def one_rank_alone() -> bool:
    """One rank has nobody to exchange with: gradients do not change."""
    chosen = settings(method="topk")
    worker = busbw_accel.CommWorker(chosen, make(chosen, ranks=[dist.get_rank()]))
    flat = torch.randn(1000)
    return torch.equal(worker.average(flat.clone(), ["x"], [1000]).wait(), flat)


def resumed() -> dict[str, Any]:
    """Trainings that are saved, and resumed in another model, and ones that are not interrupted."""
    same, kept = {}, {}
    methods: list[dict[str, Any]] = [
        {"method": "int4", "last": "powersgd", "matrix_rank": 2},
        {"method": "topk", "ratio": 0.05, "warmup_steps": 8},
    ]
    if not two_d():
        methods += [{"method": "int8"}, {"method": "powersgd", "matrix_rank": 2}]
    for words in methods:
        ended, saved = _interrupted(words)
        again = wrapped(model(1))
        attached = busbw_accel.attach(again, settings(**words))
        again.module.load_state_dict(saved[0])
        optimizer = torch.optim.SGD(again.parameters(), lr=0.1, momentum=0.9)
        optimizer.load_state_dict(saved[1])
        attached.load_state_dict(saved[2])
        attached.load_state_dict(attached.state_dict())  # saved again before a step
        for number in range(FEW, FEW + 3):
            step_of(again, optimizer, number)
        name = attached.settings.method
        same[name], kept[name] = parameters(again) == ended, len(saved[2]["kept"])
    return {"digest": ended, "same": same, "kept": kept}


def _interrupted(words: dict[str, Any]) -> tuple[str, list[Any]]:
    """A training, its parameters at the end, and its states before the last three steps."""
    net = wrapped(model())
    attached = busbw_accel.attach(net, settings(**words))
    optimizer = steps_by_sgd(net, momentum=0.9)
    states = [net.module.state_dict(), optimizer.state_dict(), attached.state_dict()]
    saved = copy.deepcopy(states)
    for number in range(FEW, FEW + 3):
        step_of(net, optimizer, number)
    return parameters(net), saved


def mixed_states() -> list[str]:
    """A state with tensors of another rank, and one that lacks them, as a distributed checkpoint
    loads them.
    """
    net = wrapped(model())
    attached = busbw_accel.attach(net, settings(method="topk", ratio=0.05))
    steps_by_sgd(net)
    state, errors = attached.state_dict(), []
    others = copy.deepcopy(state["kept"])
    for tensors in others.values():
        dist.broadcast(tensors["residual"], dist.get_world_size() - 1)
    for change in ({}, {"kept": others}, {"kept": {}}, {"buckets": []}):
        try:
            attached.load_state_dict(state | change)
            errors.append("loaded")
        except UsageError as error:
            errors.append(error.message)
    return errors


def saved_each_step() -> dict[str, Any]:
    """Reading the state in each step does not change the training."""
    digests = []
    for saves in (False, True):
        net = wrapped(model())
        attached = busbw_accel.attach(net, settings(method="topk", ratio=0.05))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        for number in range(FEW):
            step_of(net, optimizer, number)
            if saves:
                attached.state_dict()
        digests.append(parameters(net))
    return {"digest": digests[0], "saved": digests[1]}


def closed() -> dict[str, Any]:
    """close() leaves no thread, and a gradient submitted after it is an error that names it."""
    before = set(threading.enumerate())
    net = wrapped(model())
    attached = busbw_accel.attach(net, settings(method="topk", ratio=0.1))
    optimizer = steps_by_sgd(net)
    own, digest_ = set(threading.enumerate()) - before, parameters(net)
    attached.close()
    attached.close()
    for thread in own:
        thread.join(10)
    try:
        step_of(net, optimizer, FEW)
        output = ""
    except (RuntimeError, UsageError) as error:
        output = str(error)
    return {
        "digest": digest_,
        "own": len(own),
        "left": sum(thread.is_alive() for thread in own),
        "said": output,
    }


def wrong_states() -> list[str]:
    """States of another rank, and of another number of ranks."""
    net = wrapped(model())
    attached = busbw_accel.attach(net, settings(method="topk"))
    state, errors = attached.state_dict(), []
    for change in (
        {"rank": state["rank"] + 1},
        {"ranks": 64},
        {"kept": {"0.weight": {"residual": torch.zeros(3)}}},
        {"kept": {"x": {"residual": torch.zeros(3)}}},
    ):
        try:
            attached.load_state_dict(state | change)
        except UsageError as error:
            errors.append(error.render())
    attached.reset_residual()
    return errors


def switched() -> dict[str, Any]:
    """A training that only LIGHT_* variables configure."""
    net = wrapped(model())
    attached = busbw_accel.attach(net)
    steps_by_sgd(net)
    return {
        "digest": parameters(net),
        "settings": attached.settings.describe(),
        "two_d": attached.worker.mesh.two_d,
    }


def lost() -> str:
    """The last rank goes away in the middle; the others say who, also those that talk with it
    through others alone.
    """
    net = wrapped(model())
    busbw_accel.attach(net, busbw_accel.Settings(method="topk", compress_least=0))
    return _until_lost(net)


def lost_sparse() -> str:
    """The same where all gradients are sparse."""
    table = DistributedDataParallel(nn.EmbeddingBag(20, 3, sparse=True))
    busbw_accel.attach(table, busbw_accel.Settings())
    return _until_lost(nn.Sequential(Ids(), table))


class Ids(nn.Module):
    """Turns the samples of `batch` into ids of 20 rows."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.argsort(1)[:, :4]


def lost_sharded() -> str:
    """The same with FSDP2, each rank as if on a host of its own."""
    net = model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("across", "inside"))
    for layer in (net[0], net[3], net):
        fully_shard(layer, mesh=mesh["inside"])
    busbw_accel.attach_fully_sharded(
        net, mesh["across"], busbw_accel.Settings(method="int8", compress_least=0)
    )
    return _until_lost(net)


def lost_shards() -> str:
    """The same where shards are exchanged."""
    net = model()
    for layer in (net[0], net[3], net):
        fully_shard(layer)
    settings = busbw_accel.Settings(method="int8", gather="int8", compress_least=0)
    busbw_accel.attach_fully_sharded(net, settings=settings)
    return _until_lost(net)


def _until_lost(net: nn.Module) -> str:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for number in range(FEW):
        if number == 3 and dist.get_rank() == dist.get_world_size() - 1:
            os._exit(7)
        try:
            step_of(net, optimizer, number)
        except RuntimeError as error:
            print(f'{{"lost": "{str(error).splitlines()[0][:200]}"}}', flush=True)
            os._exit(0)
    return "nothing happened"
