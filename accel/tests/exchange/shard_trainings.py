"""Scenarios of fully sharded models whose shards are exchanged by codecs, on every rank of a job."""

import copy
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from exchanges import digest, scenario
from shard_residuals import fed_back as fed_back  # a job of ranks finds its scenarios here
from shard_residuals import frozen as frozen
from shard_residuals import of_replicas as of_replicas
from shard_residuals import swapped as swapped
from shard_residuals import unused as unused
from sharded_models import (
    Two,
    apart,
    attached,
    backward,
    gradients,
    own_gradients,
    same_bits,
    sharded,
    summed,
    trained,
    weights,
)
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from trainings import batch, model, step_of

import busbw_accel
from busbw.core.errors import UsageError
from busbw_accel.codecs.base import row_bytes

FEW = 4
GRAIN = 1024  # elements by which rows of integers are padded


def references() -> dict[str, bool]:
    """Gradients that equal those computed here, bit for bit."""
    rounded = model()
    with torch.no_grad():
        for parameter in rounded.parameters():
            parameter.copy_(parameter.bfloat16())
    cases: dict[str, tuple[dict[str, Any], nn.Module, torch.dtype]] = {
        "fp32": ({"wire": "fp32"}, model(), torch.float32),
        "bf16": ({"wire": "bf16"}, model(), torch.bfloat16),
        "gather": ({"wire": "fp32", "gather": "bf16"}, rounded, torch.float32),
        "exact": ({"method": "exact", "gather": "exact"}, model(), torch.float32),
    }
    equal = {}
    for name, (words, whole, wire) in cases.items():
        net = sharded(model())
        attached(net, **words)
        equal[name] = same_bits(backward(net), summed(own_gradients(whole), wire))
    return equal


def coded() -> dict[str, Any]:
    """Gradients of bf16 parameters, summed in fp32: plain and coded, and the bytes of both."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    found, sent = [], []
    for words in ({"wire": "fp32"}, {"method": "exact"}, {"method": "exact", "gather": "exact"}):
        net = sharded(model(), mp_policy=policy)
        exchange = attached(net, **words)
        found.append(backward(net))
        sent.append(exchange.traffic.across)
    return {"same": all(same_bits(found[0], other) for other in found[1:]), "sent": sent}


def gathered_by_fewer() -> bool:
    """Gathers of backward among half of the ranks have the same bits as those among all."""
    found = []
    for reshard in (True, dist.get_world_size() // 2):
        net = sharded(model(), reshard_after_forward=reshard)
        attached(net, wire="fp32", gather="bf16")
        found.append(backward(net))
    return same_bits(*found)


def gathered() -> dict[str, Any]:
    """Parameters gathered as int8: on every rank the same, also the own shard."""
    net = sharded(model())
    before = [parameter.full_tensor().clone() for parameter in net.parameters()]
    attached(net, gather="int8")
    for unit in (net[0], net[3], net):
        unit.unshard()
    whole = [parameter.detach().clone() for parameter in net.parameters()]
    for unit in (net[0], net[3], net):
        unit.reshard()
    after = [parameter.full_tensor() for parameter in net.parameters()]
    # each block of 256 may have the largest value of its unit
    most = max(float(parameter.abs().max()) for parameter in before) / 254
    errors = [(one - other).abs().max() for one, other in zip(whole, before, strict=True)]
    return {
        "digest": digest(torch.cat([parameter.flatten() for parameter in whole]).cpu()),
        "error": float(max(errors)),
        "most": most * 1.01,
        "rounded_rows": int((whole[0] != before[0]).any(1).sum()),
        "owned_rows": len(before[0]),
        "masters": same_bits(after, before),
    }


def unsharded_early() -> bool:
    """A gather that was started with async_op, which FSDP waits for."""
    net = sharded(model())
    attached(net, gather="bf16")
    handle = net[0].unshard(async_op=True)
    handle.wait()
    return bool(torch.equal(net[0].weight, model()[0].weight.bfloat16().float()))


def bytes_sent() -> dict[str, list[int]]:
    """Bytes that were counted in a step, and those that they should be, each rank on a host."""
    ranks = dist.get_world_size()
    units = [64 * 20 + 64, 64 * 64 + 64, 64 + 64 + -(-3 // ranks) * ranks * (64 + 1)]
    rows = [unit // ranks for unit in units]
    int8 = [row_bytes(-(-row // GRAIN) * GRAIN, 8) for row in rows]
    counted = {}
    # The outer unit stays gathered for backward; the other two are gathered twice.
    gathers = [2, 2, 1]
    for name, words, summed_bytes, gathered_bytes in (
        ("same", {}, [4 * row for row in rows], [4 * row for row in rows]),
        ("bf16", {"wire": "bf16", "gather": "bf16"}, *[[2 * row for row in rows]] * 2),
        ("int8", {"method": "int8", "gather": "int8"}, int8, int8),
    ):
        net = sharded(model())
        exchange = attached(net, **words)
        backward(net)
        expected = sum(summed_bytes) + sum(
            times * size for times, size in zip(gathers, gathered_bytes, strict=True)
        )
        counted[name] = [exchange.traffic.across, (ranks - 1) * expected]
    return counted


def accumulated() -> dict[str, Any]:
    """Batches whose gradients add up before they are exchanged once, and exchanged each."""
    distances, buckets = {}, {}
    for name, every in (("once", False), ("each", True)):
        sums, exchange = [], None
        for plain in (True, False):
            net = sharded(model())
            exchange = None if plain else attached(net, method="int8")
            for number in range(FEW):
                net.set_requires_gradient_sync(every or number == FEW - 1)
                inputs, labels = batch(number)
                nn.functional.cross_entropy(net(inputs), labels).backward()
            sums.append(gradients(net))
        distances[name] = apart(sums[1], sums[0])
        buckets[name] = exchange.traffic.buckets if exchange else 0
    return {"apart": distances, "buckets": buckets}


def policies() -> dict[str, float]:
    """How far gradients are from FSDP's own with each policy of mixed precision."""
    found = {}
    for reduce_dtype in (torch.float32, torch.bfloat16, torch.float16):
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduce_dtype)
        own = backward(sharded(model(), mp_policy=policy))
        for method in ({"method": "int8"}, {"wire": "bf16"}, {"gather": "int8"}):
            net = sharded(model(), mp_policy=policy)
            attached(net, **method)
            found[f"{reduce_dtype} {method}"] = apart(backward(net), own)
    return found


def divided() -> dict[str, float]:
    """How far gradients are from a multiple of the average, as the program sets it."""
    own = summed(own_gradients(model()), torch.float32)
    ranks = dist.get_world_size()
    programs: dict[str, tuple[Callable[[Any], None], float]] = {
        "factor": (lambda unit: unit.set_gradient_divide_factor(3 * ranks), 1 / 3),
        "its size": (lambda unit: unit.set_gradient_divide_factor(ranks), 1),
        "sum": (lambda unit: unit.set_force_sum_reduction_for_comms(True), 1),
    }
    found = {}
    for name, (program, factor) in programs.items():
        net = sharded(model())
        attached(net, method="int8")
        for unit in (net[0], net[3], net):
            program(unit)
        found[name] = apart(backward(net), [factor * gradient for gradient in own])
    return found


def features() -> dict[str, float]:
    """How far gradients are from FSDP's own, with each feature beside the codec."""
    own, found = backward(sharded(model())), {}

    def checkpointed() -> nn.Sequential:
        net = model()
        net[3] = checkpoint_wrapper(net[3])
        return sharded(net)

    def compiled() -> nn.Sequential:
        net = sharded(model())
        net[3].compile(backend="eager")
        return net

    def together() -> nn.Sequential:
        net = model()
        fully_shard([net[0], net[3]])
        fully_shard(net)
        return net

    offload = CPUOffloadPolicy(pin_memory=False)
    for name, make in (
        ("checkpointed", checkpointed),
        ("compiled", compiled),
        ("together", together),
        ("offloaded", lambda: sharded(model(), offload_policy=offload)),
        ("kept whole", lambda: sharded(model(), reshard_after_forward=False)),
    ):
        net = make()
        attached(net, method="int8", gather="bf16")
        found[name] = apart(backward(net), own)
    return found


def resumed() -> dict[str, Any]:
    """Interrupted and continued, in a model that is compiled too: the same bits as without. The
    state is not for other units.
    """
    net = sharded(model())
    exchange = attached(net, method="int8")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for number in range(FEW):
        step_of(net, optimizer, number)
    saved, state = copy.deepcopy(net.state_dict()), exchange.state_dict()
    for number in range(FEW, 2 * FEW):
        step_of(net, optimizer, number)
    found = {}
    for name in ("with", "compiled", "without"):
        again = sharded(model(1))
        again.load_state_dict(saved)
        compiled = torch.compile(again, backend="eager") if name == "compiled" else again
        other = attached(compiled, method="int8")
        if name != "without":
            other.load_state_dict(state)
        optimizer = torch.optim.SGD(again.parameters(), lr=0.1)
        for number in range(FEW, 2 * FEW):
            step_of(again, optimizer, number)
        found[name] = torch.equal(weights(again), weights(net))
    another = Two()
    fully_shard(another)
    try:
        attached(another, method="int8").load_state_dict(state)
    except UsageError as error:
        found["refused"] = error.message
    return found | {"kept": len(state["kept"]), "steps": [exchange.steps, state["steps"]]}


def not_finite() -> dict[str, Any]:
    """Values of one rank that are not finite: where they arrive, and what is kept."""
    found: dict[str, Any] = {}
    for name, words in (("bf16", {"wire": "bf16"}), ("int8", {"method": "int8"})):
        net = sharded(model())
        exchange = attached(net, **words)
        backward(net)
        before = exchange.state_dict()["kept"]
        net.zero_grad()
        inputs, labels = batch(1)
        loss = nn.functional.cross_entropy(net(inputs), labels)
        # the bias of the last layer gets it, and so does all before
        (loss * (float("nan") if dist.get_rank() == 1 else 1)).backward()
        after = exchange.state_dict()["kept"]
        found[name] = {
            "nan": all(bool(gradient.isnan().all()) for gradient in gradients(net)),
            "kept": all(
                torch.equal(before[unit]["residual"], after[unit]["residual"]) for unit in after
            ),
            "finite": all(bool(kept["residual"].isfinite().all()) for kept in after.values()),
        }
    return found


def replicas() -> dict[str, Any]:
    """Shards between the ranks of a host, replicas of them across: each with settings of its own,
    compared with FSDP's own hybrid sharding.
    """
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("across", "inside"))
    own = backward(sharded(model(), mesh=mesh))
    net = sharded(model(), mesh=mesh["inside"])
    inside = attached(net, wire="bf16")
    settings = busbw_accel.Settings(method="int8", compress_least=0)
    across = busbw_accel.attach_fully_sharded(net, mesh["across"], settings)
    return {
        "apart": apart(backward(net), own),
        "buckets": [inside.traffic.buckets, across.traffic.buckets],
        "kept": [len(each.state_dict()["kept"]) for each in (inside, across)],
    }


def closed() -> dict[str, Any]:
    """A model is evaluated, which leaves parameters whole, and attached. After close it can be
    evaluated, with its parameters as they are, but not trained.
    """
    net = sharded(model(), reshard_after_forward=False)
    inputs, labels = batch(0)
    with torch.no_grad():
        net(inputs)
    exchange = attached(net, method="int8", gather="int8")
    backward(net)
    kept = sorted(exchange.state_dict()["kept"])
    exchange.close()
    outputs = net(inputs)
    with torch.no_grad():
        equal = torch.equal(outputs, model()(inputs))
    try:
        nn.functional.cross_entropy(outputs, labels).backward()
    except UsageError as error:
        return {"equal": equal, "refused": str(error), "kept": kept}
    return {"equal": equal, "refused": "", "kept": kept}


def refused() -> dict[str, str]:
    """What attach says of what it cannot do."""
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("across", "inside"))
    plain, flat = model(), sharded(model())
    settings = busbw_accel.Settings
    mixed = model()
    fully_shard(mixed[0], mesh=mesh["inside"])
    fully_shard(mixed)

    def other_settings() -> None:
        attached(flat, method="int8" if dist.get_rank() else "int4")

    found = {}
    cases: dict[str, Callable[[], object]] = {
        "no shards": lambda: attached(plain),
        "hybrid": lambda: attached(sharded(model(), mesh=mesh)),
        "two meshes": lambda: attached(mixed),
        "replicated": lambda: attached(replicate(model(), mesh=mesh["across"])),
        "top-k": lambda: attached(flat, method="topk"),
        "PowerSGD": lambda: attached(flat, method="powersgd"),
        "last": lambda: attached(flat, method="int4", last="int8"),
        "staging": lambda: attached(flat, method="int8", staging="host"),
        "gather of replicas": lambda: busbw_accel.attach_fully_sharded(
            sharded(model(), mesh=mesh["inside"]), mesh["across"], settings(gather="bf16")
        ),
        "gather of DDP": lambda: busbw_accel.attach(
            nn.parallel.DistributedDataParallel(model()), settings(gather="exact")
        ),
        "second argument": lambda: busbw_accel.attach_fully_sharded(
            flat,
            settings(method="int8"),  # type: ignore[arg-type]
        ),
        "timeout": lambda: busbw_accel.attach_fully_sharded(flat, timeout=timedelta(seconds=9)),
        "other settings": other_settings,
    }
    for name, case in cases.items():
        try:
            case()
        except UsageError as error:
            found[name] = f"{error.message} | {error.hint}"
        else:
            found[name] = "accepted"
    return found


plain = scenario(trained, plain=True)
same = scenario(trained)
bf16 = scenario(trained, wire="bf16", gather="bf16")
int8 = scenario(trained, method="int8")
int8_gathered = scenario(trained, method="int8", gather="int8")
int4 = scenario(trained, method="int4")
fp32 = scenario(trained, wire="fp32")
exact = scenario(trained, method="exact", gather="exact")
