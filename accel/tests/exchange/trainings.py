"""Scenarios of small trainings by each method and with each feature of DistributedDataParallel,
on every rank of a job.
"""

import contextlib
from typing import Any

import torch
import torch.distributed as dist
from exchanges import DEVICE, digest, scenario, two_d
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import busbw_accel

STEPS = 28
FEW = 6
BATCH = 256


def model(seed: int = 0) -> nn.Sequential:
    """The same on every rank; some buckets, with norms and biases."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(20, 64),
        nn.LayerNorm(64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 3),
    ).to(DEVICE)


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A rank's batch of a task that can be learned."""
    generator = torch.Generator().manual_seed(10_000 * step + dist.get_rank())
    inputs = torch.randn(BATCH, 20, generator=generator)
    return inputs.to(DEVICE), inputs[:, :3].argmax(1).to(DEVICE)


def settings(**words: Any) -> busbw_accel.Settings:
    return busbw_accel.Settings(
        compress_least=0,
        two_d=two_d() and words.get("method") != "powersgd",
        chunk=1 << 16,
        **words,
    )


def wrapped(net: nn.Module, **words: Any) -> DistributedDataParallel:
    """The model under DistributedDataParallel, with several buckets."""
    return DistributedDataParallel(net, bucket_cap_mb=0.01, **words)


def step_of(net: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> float:
    inputs, labels = batch(number)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(inputs), labels)
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def steps_by_sgd(net: nn.Module, **words: Any) -> torch.optim.Optimizer:
    """Train for FEW steps, and return the optimizer."""
    optimizer = torch.optim.SGD(net.parameters(), **{"lr": 0.1, **words})
    for number in range(FEW):
        step_of(net, optimizer, number)
    return optimizer


def trained(
    steps: int = STEPS, *, plain: bool = False, first: int = 0, **words: Any
) -> dict[str, Any]:
    net = wrapped(model())
    attached = None if plain else busbw_accel.attach(net, settings(**words))
    lr, momentum = (0.2, 0.0) if words.get("momentum") else (0.1, 0.9)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=momentum)
    losses = [step_of(net, optimizer, number) for number in range(first, first + steps)]
    states = list(attached.worker.memory.lists()) if attached else []
    return {
        "digest": parameters(net),
        "kept": [["basis" in state for state in codec_state.states] for codec_state in states],
        "loss": sum(losses[-10:]) / 10,
        "first": losses[0],
        "early": losses[:FEW],
        "sent": attached.traffic.across if attached else 0,
    }


def parameters(net: nn.Module) -> str:
    return digest(torch.cat([parameter.detach().flatten() for parameter in net.parameters()]).cpu())


plain = scenario(trained, plain=True)
dense = scenario(trained)
bf16 = scenario(trained, wire="bf16")
int8 = scenario(trained, method="int8")
exact = scenario(trained, method="exact")
int4 = scenario(trained, method="int4")
int4_and_factors_last = scenario(
    trained, method="int4", last="powersgd", matrix_rank=2, factors="bf16"
)
powersgd = scenario(trained, method="powersgd", matrix_rank=2)
topk = scenario(trained, method="topk", ratio=0.05)
topk_everything = scenario(
    trained, method="topk", ratio=0.05, values="fp16", warmup_steps=20, dense_below_2d=False
)
topk_momentum = scenario(trained, 40, method="topk", ratio=0.05, momentum=0.9, dense_below_2d=False)
EXCHANGES = ("all_reduce", "all_gather_into_tensor", "all_to_all_single", "reduce_scatter_tensor")


def silenced() -> dict[str, Any]:
    """Steps over a perfect network do everything but exchange."""
    methods = [{}, {"method": "int8"}, {"method": "topk"}]
    if not two_d():
        methods += [
            {"wire": "bf16"},
            {"method": "int4", "last": "powersgd"},
            {"method": "powersgd"},
            {"method": "topk", "momentum": 0.9, "dense_below_2d": False},
        ]
    counts: dict[str, Any] = {"methods": len(methods), "steps": 0, "exchanges": 0}

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("an exchange over a perfect network")

    def counted(exchange: Any) -> Any:
        def called(*words: Any, **more: Any) -> Any:
            counts["exchanges"] += 1
            return exchange(*words, **more)

        return called

    before = {name: getattr(dist, name) for name in EXCHANGES}
    for words in methods:
        net = wrapped(model(), broadcast_buffers=False)
        attached = busbw_accel.attach(net, settings(**words))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
        for silent in (True, False, True):
            for name, exchange in before.items():
                setattr(dist, name, refused if silent else counted(exchange))
            try:
                with attached.worker.silent() if silent else contextlib.nullcontext():
                    for number in range(2):
                        step_of(net, optimizer, number)
                        counts["steps"] += all(
                            bool(torch.isfinite(parameter.grad).all())
                            for parameter in net.parameters()
                            if parameter.grad is not None
                        )
            finally:
                for name, exchange in before.items():
                    setattr(dist, name, exchange)
        attached.close()
    return counts


def accumulated() -> dict[str, Any]:
    """no_sync: two backwards a step, one exchange."""
    net = wrapped(model())
    attached = busbw_accel.attach(net, settings(method="topk", ratio=0.1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for number in range(FEW):
        optimizer.zero_grad()
        for half in range(2):
            inputs, labels = batch(2 * number + half)
            with net.no_sync() if half == 0 else contextlib.nullcontext():
                nn.functional.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
    return {"digest": parameters(net), "steps": attached.steps}


def static_graph() -> dict[str, Any]:
    net = wrapped(model(), static_graph=True)
    busbw_accel.attach(net, settings(method="topk", ratio=0.1))
    steps_by_sgd(net)
    return {"digest": parameters(net)}


class Branches(nn.Module):
    """One of two layers is unused in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.both, self.left, self.right, self.number = (
            nn.Linear(20, 20),
            nn.Linear(20, 3),
            nn.Linear(20, 3),
            0,
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.number += 1
        return (self.left if self.number % 2 else self.right)(self.both(inputs))


def unused_parameters() -> dict[str, Any]:
    torch.manual_seed(0)
    net = wrapped(Branches().to(DEVICE), find_unused_parameters=True)
    busbw_accel.attach(net, settings(method="topk", ratio=0.1))
    steps_by_sgd(net)
    return {"digest": parameters(net)}


def uneven_inputs() -> dict[str, Any]:
    """Join: a rank with fewer batches sends zeros, and its residual."""
    net = wrapped(model())
    busbw_accel.attach(net, settings(method="topk", ratio=0.1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with Join([net]):
        for number in range(FEW + dist.get_rank()):
            step_of(net, optimizer, number)
    return {"digest": parameters(net)}


def sparse_gradients() -> dict[str, Any]:
    """A sparse gradient beside a codec; its bucket may be the first or the last of a step."""
    torch.manual_seed(0)
    net = wrapped(nn.Sequential(nn.Embedding(50, 8, sparse=True), nn.Flatten(), nn.Linear(32, 3)))
    attached = busbw_accel.attach(net, settings(method="topk", ratio=0.1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for number in range(FEW):
        generator = torch.Generator().manual_seed(100 * number + dist.get_rank())
        optimizer.zero_grad()
        net(torch.randint(50, (16, 4), generator=generator)).sum().backward()  # a part of the rows
        optimizer.step()
    return {"digest": parameters(net), "steps": attached.steps, "comm_worker": attached.worker.step}


def mixed_precision() -> dict[str, Any]:
    """AMP's scale halves and doubles: residuals follow it, so that the training equals one
    without a scale.
    """
    nets = []
    for scaled in (False, True):
        net = wrapped(model())
        scaler = torch.amp.GradScaler("cpu", enabled=scaled, init_scale=256.0, growth_interval=2)
        busbw_accel.attach(net, settings(method="topk", ratio=0.1), scaler=scaler)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for number in range(FEW):
            inputs, labels = batch(number)
            optimizer.zero_grad()
            scaler.scale(nn.functional.cross_entropy(net(inputs), labels)).backward()
            scaler.step(optimizer)
            scaler.update()
        nets.append(torch.cat([parameter.detach().flatten() for parameter in net.parameters()]))
    return {"digest": digest(nets[1]), "apart": float((nets[0] - nets[1]).abs().max())}


def compiled() -> dict[str, Any]:
    """torch.compile over DDP; the eager backend keeps all of it but code generation."""
    # its compiler expects the first bucket to be the smallest
    net = DistributedDataParallel(model())
    fast = torch.compile(net, backend="eager")
    busbw_accel.attach(fast, settings(method="topk", ratio=0.1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for number in range(FEW):
        step_of(fast, optimizer, number)
    return {"digest": parameters(net)}


class Unusual(nn.Module):
    """Parameters of many kinds, whose gradients are given."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        tensors = {
            "complex": torch.randn(64, 48, dtype=torch.complex64),
            "complex_bias": torch.randn(64, dtype=torch.complex64),
            "complex_number": torch.randn((), dtype=torch.complex64),
            "complex_turned": torch.randn(40, 30, dtype=torch.complex64).t(),
            "complex_wide": torch.randn(9, 7, dtype=torch.complex128),
            "turned": torch.randn(50, 60).t(),
            "empty": torch.zeros(0, 4),
            "wide": torch.randn(33, 44, dtype=torch.float64),
            "channels_last": torch.randn(32, 16, 3, 3).to(memory_format=torch.channels_last),
        }
        for name, tensor in tensors.items():
            self.register_parameter(name, nn.Parameter(tensor))
        self.tied = self.turned

    def forward(self, step: int) -> torch.Tensor:
        torch.manual_seed(100 * step + dist.get_rank())
        products = [parameter * torch.randn_like(parameter) for parameter in self.parameters()]
        return sum((torch.view_as_real(p) if p.is_complex() else p).sum() for p in products)


def _unusual_gradients(
    chosen: busbw_accel.Settings | None,
) -> tuple[busbw_accel.Attached | None, dict[str, torch.Tensor]]:
    """The gradients of two backwards, which add up; without settings, by DDP itself."""
    net = wrapped(Unusual())
    attached = busbw_accel.attach(net, chosen) if chosen else None
    for step in range(2):
        net(step).backward()
    return attached, {name: p.grad for name, p in net.module.named_parameters()}


def unusual_parameters() -> dict[str, Any]:
    """Gradients and what is kept are together those of plain DDP, whatever the parameters."""
    apart, bits = {}, []
    _, plain = _unusual_gradients(None)
    for method in ("dense", "int8", "int4", "powersgd", "topk"):
        attached, own = _unusual_gradients(settings(method=method))
        bits += [torch.view_as_real(own["complex"]).contiguous()]
        errors = []
        for name, tensors in attached.state_dict()["kept"].items():
            dist.all_reduce(tensors["residual"])
            in_memory = own[name].as_strided((own[name].numel(),), (1,))
            if in_memory.is_complex():
                in_memory = torch.view_as_real(in_memory)
            in_memory.view(-1).add_(tensors["residual"])
        for name, expected in plain.items():
            error = (own[name] - expected).abs().sum() / expected.abs().sum().clamp(min=1)
            errors.append(float(error))
        apart[method] = max(errors)
    return {"digest": digest(torch.stack(bits)), "apart": apart}


def fully_sharded() -> dict[str, Any]:
    """FSDP2 inside what stands for hosts, the worker across: dense as FSDP's own hybrid
    sharding, compressed with equal replicas.
    """
    hosts = 2 if two_d() else dist.get_world_size()
    mesh = init_device_mesh(
        "cpu", (hosts, dist.get_world_size() // hosts), mesh_dim_names=("across", "inside")
    )
    weights = {}
    for name, words in (
        ("own", None),
        ("dense", {}),
        ("int8", {"method": "int8"}),
        ("topk", {"method": "topk", "ratio": 0.1}),
    ):
        net = model()
        net[3].requires_grad_(False)  # the module whose gradients would come first
        for layer in (net[0], net[3], net):
            fully_shard(layer, mesh=mesh if words is None else mesh["inside"])
        attached = (
            None
            if words is None
            else busbw_accel.attach_fully_sharded(
                net, mesh["across"], busbw_accel.Settings(compress_least=0, **words)
            )
        )
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for number in range(FEW // 2):
            step_of(net, optimizer, number)
        weights[name] = torch.cat(
            [parameter.full_tensor().detach().flatten() for parameter in net.parameters()]
        )
        assert attached is None or attached.steps == FEW // 2
    state_count = len(attached.state_dict()["kept"]) if attached else 0
    apart = {
        name: float((weights[name] - weights["own"]).norm() / weights["own"].norm())
        for name in weights
    }
    return {
        "digest": digest(torch.cat(list(weights.values()))),
        "apart": apart,
        "kept": state_count,
    }
