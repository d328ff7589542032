"""Scenarios of trainings with local steps, on every rank of a job."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from exchanges import digest, two_d
from local_faults import error_of, refused
from local_models import EVERY, NESTEROV, attached_to, flat, sgd, start
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from trainings import DEVICE, batch, model, parameters, settings, step_of, wrapped

import busbw_accel

ROUNDS = 4
# the parameters of each of three fragments of the model, by the beginning of their names
FRAGMENTS = [("0.", "1."), ("3.weight",), ("3.bias", "5.")]
CASES: dict[str, dict[str, Any]] = {
    "at once": {},
    "late": {"delay": 2, "mix": 0.4},
    "in turn": {"fragments": 3},
    "in turn, late": {"fragments": 3, "delay": 1},
}


def alone_is_plain() -> bool:
    """A rank alone with an outer rate of 1: the training without local steps, bit for bit.

    Its parameters stay within half and twice of what they were, so that differences are exact.
    """
    groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    group = groups[dist.get_rank()]
    nets = []
    for local in (False, True):
        made = torch.Generator().manual_seed(1)
        inner = model()
        for part in inner.parameters():
            part.data = torch.rand(part.shape, generator=made).add_(1.0).to(DEVICE)
        net = DistributedDataParallel(inner, process_group=group)
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
        if local:
            busbw_accel.attach(net, busbw_accel.Settings(every=EVERY), optimizer=optimizer)
        for number in range(2 * EVERY):
            step_of(net, optimizer, number)
        nets.append(flat(net))
    return torch.equal(*nets)


def same_data() -> dict[str, Any]:
    """All ranks with the data of rank 0 have what one rank has."""
    alone = _reference(lambda number, rank: _batch(number, 0), 1, {})[0]
    net, optimizer, _ = start()
    for number in range(EVERY * ROUNDS):
        _step(net, optimizer, _batch(number, 0))
    return {"apart": _apart(flat(net), flat(alone)), "digest": parameters(net)}


def like_reference() -> dict[str, Any]:
    """Ranks with different data: as local copies whose average goes through torch's SGD."""
    results = {}
    for name, words in CASES.items():
        rows = dist.get_world_size() if not two_d() else 2
        expected = _reference(_batch_of_row, rows, words)
        net, optimizer, attached = start(**words)
        digests = []
        for number in range(EVERY * ROUNDS):
            step_of(net, optimizer, number)
            digests.append(_outer(attached))
        row = dist.get_rank() * rows // dist.get_world_size()
        results[name] = {
            "apart": _apart(flat(net), flat(expected[row])),
            "moved": _apart(flat(net), flat(model())),
            "outer": digests,
            "traffic": [attached.traffic.inside, attached.traffic.across],
        }
        attached.close()
    return results


def _outer(attached: busbw_accel.LocalSteps) -> str:
    """The bits of the outer parameters, by the state that a checkpoint has."""
    outer = attached.state_dict()["outer"]
    return digest(torch.cat([outer[name]["outer"] for name in sorted(outer)]))


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


def _batch(number: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(10_000 * number + rank)
    inputs = torch.randn(256, 20, generator=made)
    return inputs.to(DEVICE), inputs[:, :3].argmax(1).to(DEVICE)


def _batch_of_row(number: int, row: int) -> tuple[torch.Tensor, torch.Tensor]:
    """In two dimensions a row has the batches of its ranks, whose gradients are averaged."""
    if not two_d():
        return _batch(number, row)
    inputs, labels = zip(_batch(number, 2 * row), _batch(number, 2 * row + 1), strict=True)
    return torch.cat(inputs), torch.cat(labels)


def _step(net: nn.Module, optimizer: Any, samples: tuple[torch.Tensor, torch.Tensor]) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(samples[0]), samples[1]).backward()
    optimizer.step()


def _reference(
    batch_of: Callable[[int, int], tuple[torch.Tensor, torch.Tensor]],
    ranks: int,
    words: dict[str, Any],
) -> list[nn.Module]:
    """DiLoCo and Streaming DiLoCo in one process: the model of each rank after all steps."""
    nets = [model() for _ in range(ranks)]
    optimizers = [sgd(net) for net in nets]
    outer = {name: nn.Parameter(part.detach().clone()) for name, part in model().named_parameters()}
    parts = FRAGMENTS if words.get("fragments") else [("",)]
    fragments = [[name for name in outer if name.startswith(prefixes)] for prefixes in parts]
    outers = [
        torch.optim.SGD(
            [outer[name] for name in names],
            lr=NESTEROV["outer_lr"],
            momentum=NESTEROV["outer_momentum"],
            nesterov=True,
        )
        for names in fragments
    ]
    period, delay = EVERY // len(fragments), words.get("delay", 0)
    share, due = words.get("mix", 0.5) if delay else 1.0, {}
    for step in range(1, EVERY * ROUNDS + 1):
        for rank, net in enumerate(nets):
            _step(net, optimizers[rank], batch_of(step - 1, rank))
        models = [dict(net.named_parameters()) for net in nets]
        if step % period == 0:
            number = (step // period - 1) % len(fragments)
            for name in fragments[number]:
                mean = torch.stack([parts[name].detach() for parts in models]).mean(0)
                outer[name].grad = outer[name].detach() - mean
            due[step + delay] = number
        if step in due:
            outers[due[step]].step()
            for name in fragments[due[step]]:
                for local in models:
                    mixed = (1 - share) * local[name].detach() + share * outer[name].detach()
                    local[name].data.copy_(mixed)
    return nets


def codecs_learn() -> dict[str, Any]:
    """The loss at the end by codec, and the change that error feedback keeps."""
    results = {}
    for method in ("dense", "int8", "int4", "topk"):
        # the largest rate that is still stable for so small a model
        net, optimizer, attached = start(method=method, ratio=0.3, outer_lr=0.5)
        losses = [step_of(net, optimizer, number) for number in range(60)]
        results[method] = {
            "first": losses[0],
            "loss": sum(losses[-10:]) / 10,
            "digest": parameters(net),
            "kept": len(attached.state_dict()["kept"]),
        }
        attached.close()
    return results


def resumed() -> dict[str, Any]:
    """Saved in the middle of an exchange and of the steps between two, and resumed by another
    model; reading the state changes nothing.
    """
    same = {}
    for name, (words, saved_after) in {
        "between exchanges": ({"method": "int4"}, EVERY + 2),
        "in an exchange": ({"fragments": 3, "delay": 1, "method": "int8"}, EVERY + 2),
    }.items():
        ended, digests = None, []
        for saves in (True, False):
            net, optimizer, attached = start(**words)
            for number in range(saved_after):
                step_of(net, optimizer, number)
            if saves:
                parts = (net.module, optimizer, attached)
                saved = copy.deepcopy([part.state_dict() for part in parts])
            for number in range(saved_after, 3 * EVERY):
                step_of(net, optimizer, number)
            ended, _ = parameters(net), attached.close()
            digests.append(ended)
        net = wrapped(model(1))
        optimizer = sgd(net)
        attached = attached_to(net, optimizer, **words)
        for part, state in zip((net.module, optimizer, attached), saved, strict=True):
            part.load_state_dict(state)
        for number in range(saved_after, 3 * EVERY):
            step_of(net, optimizer, number)
        running = saved[2]["running"] is not None
        same[name] = [parameters(net) == ended, digests[0] == digests[1], running]
        attached.close()
    return same


def received() -> dict[str, Any]:
    """The last rank has lost its state, and gets the outer one; the others go on with theirs."""
    net, optimizer, attached = start(method="int8", fragments=2, delay=1)
    for number in range(EVERY + 3):
        step_of(net, optimizer, number)
    own, local = attached.state_dict(), copy.deepcopy(net.module.state_dict())
    before = _outer(attached)
    attached.close()
    lost = dist.get_rank() == dist.get_world_size() - 1
    net = wrapped(model(2))
    if not lost:
        net.module.load_state_dict(local)
    optimizer = sgd(net)
    attached = attached_to(net, optimizer, method="int8", fragments=2, delay=1)
    attached.load_or_receive(None)  # nobody has one: nothing happens
    attached.load_or_receive(None if lost else own)
    result = {"same": _outer(attached) == before, "steps": attached.steps}
    for number in range(EVERY + 3, 3 * EVERY):
        step_of(net, optimizer, number)
    attached.exchange_now()
    result |= {"digest": parameters(net), "outer": _outer(attached)}
    attached.load_or_receive(own | {"ranks": 64})  # as if there had been more of them
    result |= {"again": parameters(net), "same": result["same"] and _outer(attached) == before}
    attached.close()
    return result


def other_kinds() -> dict[str, Any]:
    """Parameters of other types, sparse gradients, buffers, and frozen ones."""
    torch.manual_seed(0)
    inner = nn.Sequential(
        nn.Embedding(50, 8, sparse=True), nn.Flatten(), nn.BatchNorm1d(32), nn.Linear(32, 3)
    )
    inner.register_buffer("mask", torch.full((3,), float("-inf")))
    inner.register_parameter("rough", nn.Parameter(torch.ones(40, dtype=torch.bfloat16)))
    inner.register_parameter("fine", nn.Parameter(torch.ones(40, dtype=torch.float64)))
    inner.register_parameter("pairs", nn.Parameter(torch.ones(4, 5, dtype=torch.complex64)))
    inner.register_parameter("still", nn.Parameter(torch.ones(4), requires_grad=False))
    net = DistributedDataParallel(inner.to(DEVICE), bucket_cap_mb=0.01)
    optimizer = torch.optim.SGD(inner.parameters(), lr=0.1)
    attached = busbw_accel.attach(
        net, settings(method="int8", every=3, delay=1), optimizer=optimizer
    )
    for number in range(8):
        made = torch.Generator().manual_seed(number)
        ids = torch.randint(40, (16, 4), generator=made).to(DEVICE)
        optimizer.zero_grad()
        extra = inner.rough.float().sum() + inner.fine.sum() + inner.pairs.real.sum()
        scale = 1 + dist.get_rank()
        (net(ids + dist.get_rank()).sum() * scale + extra * scale).backward()
        optimizer.step()
    local = digest(inner[2].running_mean.cpu())
    attached.exchange_now()
    parts = [
        torch.view_as_real(part) if part.is_complex() else part
        for part in inner.state_dict().values()
    ]
    attached.close()
    return {
        "digest": digest(torch.cat([part.double().flatten() for part in parts]).cpu()),
        "mask": bool(torch.isneginf(inner.mask).all()),
        "still": bool((inner.still == 1).all()),
        "moved": float((inner.rough.detach() - 1).abs().max()),
        "broadcast": net.broadcast_buffers,
        "local": local,
    }


def faults() -> dict[str, str]:
    """What each rank says of a fault of one rank, and what it applied before that."""
    rank, last = dist.get_rank(), dist.get_rank() == dist.get_world_size() - 1
    said = {}
    # another `every`
    net = wrapped(model())
    optimizer = sgd(net)
    said["other every"] = error_of(lambda: attached_to(net, optimizer, every=EVERY + last))
    said["no optimizer"] = error_of(lambda: busbw_accel.attach(wrapped(model()), settings(every=2)))
    said["strange optimizer"] = error_of(
        lambda: busbw_accel.attach(wrapped(model()), settings(every=2), optimizer=sgd(model()))
    )
    said |= refused()
    said["fully_shard"] = error_of(_sharded)
    said["offload"] = error_of(
        lambda: busbw_accel.offload(
            net, torch.optim.AdamW(net.parameters()), max_norm=None, exchange=settings(every=2)
        )
    )
    said["fragments"] = error_of(lambda: start(every=90, fragments=9))

    def steps(number: int, harm: Callable[[nn.Module], object], **words: Any) -> str:
        net, optimizer, attached = start(**words)
        for at in range(EVERY - 1):
            step_of(net, optimizer, at)
        if last:
            harm(net.module)
        before = _outer(attached)

        def act() -> None:
            for at in range(number):
                step_of(net, optimizer, EVERY + at)
                if at == 0 and words.get("delay"):
                    assert error_of(attached.state_dict) != "nothing happened", "a save fails too"

        text = error_of(act)
        assert _outer(attached) == before, "nothing is applied"
        assert error_of(attached.exchange_now) != "nothing happened", "the fault is still there"
        attached.close()
        return text

    def poison(net: nn.Module) -> None:
        net[3].weight.data[5, 5] = float("nan")

    said["nan"] = steps(1, poison, method="int8")
    said["late nan"] = steps(3, poison, delay=2)
    said["frozen"] = steps(1, lambda net: net[0].weight.requires_grad_(False))
    said["added"] = steps(1, lambda net: net.append(nn.Linear(3, 3).to(DEVICE)))
    said["other parameters"] = _other_outer()
    said["uneven"] = _uneven(rank)
    return said


def _sharded() -> None:
    mesh = init_device_mesh(
        DEVICE.type, (dist.get_world_size(), 1), mesh_dim_names=("across", "inside")
    )
    net = fully_shard(model(), mesh=mesh["inside"])
    busbw_accel.attach_fully_sharded(net, mesh["across"], settings(every=2))


def _other_outer() -> str:
    """One rank begins with parameters of its own, as of another checkpoint."""
    net, optimizer, attached = start()
    if dist.get_rank() == 1:
        net.module[0].weight.data.add_(1.0)

    def act() -> None:
        for number in range(EVERY):
            step_of(net, optimizer, number)

    text = error_of(act)
    attached.close()
    return text


def _uneven(rank: int) -> str:
    """One rank makes a step less and exchanges. In the second forward all ranks agree on buckets."""
    net, optimizer, attached = start()
    for number in range(3 - (rank == 0)):
        step_of(net, optimizer, number)
    text = error_of(attached.exchange_now)
    attached.close()
    return text


def skipped() -> dict[str, Any]:
    """A GradScaler skips a step on one rank: it counts the steps that it made, and exchanges with
    the others after as many.
    """
    net = wrapped(model())
    optimizer = sgd(net)
    attached = attached_to(net, optimizer)
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=4.0)
    number = 0
    while attached.steps < EVERY:
        inputs, labels = batch(number)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(inputs), labels)
        if dist.get_rank() == 1 and number == 2:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        number += 1
    result = {"batches": number, "steps": attached.steps, "digest": parameters(net)}
    attached.close()
    return result
