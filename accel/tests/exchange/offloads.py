"""Scenarios of an offloaded AdamW under DistributedDataParallel and with fully_shard, on every
rank of a job.
"""

import math
import os
import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from exchanges import DEVICE, digest
from offload_pair import LateLane
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import busbw_accel
from busbw.core.errors import BusbwError
from busbw_accel.offloading import optimizer as optimizers
from busbw_accel.offloading import schedule
from busbw_accel.offloading.state_memory import OffloadedParameter

WIDTH, TOKENS, STEPS = 24, 31, 4


class Net(nn.Module):
    """Tied weights and blocks, in bf16, the same on every rank."""

    def __init__(self) -> None:
        torch.manual_seed(5)
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(3)
        )
        self.to(DEVICE, torch.bfloat16)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(tokens)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return hidden @ self.tokens.weight.T


def loss(net: nn.Module, step: int) -> torch.Tensor:
    """The loss of a rank's batch."""
    tokens = torch.randint(
        TOKENS, (4, 9), generator=torch.Generator().manual_seed(100 * step + dist.get_rank())
    ).to(DEVICE)
    return nn.functional.cross_entropy(
        net(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten()
    )


def local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def adamw(net: nn.Module) -> torch.optim.AdamW:
    return torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.1)


class Reference:
    """A plain AdamW over fp32 copies of this rank's weights, with the gradients that the model's
    parameters get.
    """

    def __init__(self, net: nn.Module) -> None:
        self.gradients: dict[str, torch.Tensor] = {}
        self.plain = {
            name: nn.Parameter(local(parameter).detach().float().clone())
            for name, parameter in net.named_parameters()
        }
        self.optimizer = torch.optim.AdamW(self.plain.values(), lr=1e-2, weight_decay=0.1)

    def watch(self, net: nn.Module) -> None:
        """Copy gradients in a hook, for models whose optimizer frees them."""
        for name, parameter in net.named_parameters():
            parameter.register_post_accumulate_grad_hook(
                lambda parameter, name=name: self.see(name, parameter.grad)
            )

    def see(self, name: str, gradient: torch.Tensor) -> None:
        self.gradients[name] = local(gradient).detach().clone()

    def step(self, max_norm: float | None, *, sharded: bool) -> None:
        for name, parameter in self.plain.items():
            parameter.grad = self.gradients[name].float()
        if max_norm:
            square = sum(
                parameter.grad.double().square().sum() for parameter in self.plain.values()
            )
            if sharded:
                dist.all_reduce(square)
            scale = min(1.0, max_norm / (float(square.sqrt()) + 1e-6))
            for parameter in self.plain.values():
                parameter.grad *= scale
        self.optimizer.step()

    def worst(self, optimizer: busbw_accel.OffloadedAdamW) -> float:
        """The largest difference of a parameter's weights, relative to their norm."""
        weights = optimizer.weights()
        return max(
            float(
                (weights[name].to(DEVICE) - parameter.detach()).norm() / parameter.detach().norm()
            )
            for name, parameter in self.plain.items()
            if parameter.numel()
        )


def under_ddp(max_norm: float | None, **options: Any) -> dict[str, Any]:
    net = DistributedDataParallel(Net(), bucket_cap_mb=0.002, gradient_as_bucket_view=True)
    reference = Reference(net.module)
    optimizer = busbw_accel.offload(net, adamw(net), max_norm=max_norm, threads=1, **options)
    for step in range(STEPS):
        with net.no_sync():
            loss(net, 50 + step).backward()
        loss(net, step).backward()
        for name, parameter in net.module.named_parameters():
            reference.see(name, parameter.grad)
        optimizer.step()
        reference.step(max_norm, sharded=False)
        optimizer.zero_grad(set_to_none=step % 2 == 1)  # else it writes to the buckets
    optimizer.ready()
    return {
        "worst": reference.worst(optimizer),
        "steps": optimizer.times().steps,
        "digest": digest(
            torch.cat([parameter.detach().flatten() for parameter in net.parameters()])
        ),
        "norm": optimizer.norm,
    }


def ddp() -> dict[str, Any]:
    return under_ddp(None)


def ddp_clipped() -> dict[str, Any]:
    return under_ddp(0.1, gpu_share=0.5)


def ddp_int8() -> dict[str, Any]:
    """Gradients are compressed on their way between ranks."""
    return under_ddp(None, exchange=busbw_accel.Settings("int8", compress_least=0))


def ddp_late() -> dict[str, Any]:
    """Copies of gradients end later, as on a GPU, and the next backward writes to the same
    buckets.
    """
    before = optimizers.Lane
    if DEVICE.type == "cpu":
        optimizers.Lane = LateLane  # type: ignore[misc]
    try:
        return under_ddp(None)
    finally:
        optimizers.Lane = before  # type: ignore[misc]


def ddp_replaced() -> dict[str, Any]:
    """Updates begin before the norm is known, and are replaced in every step."""
    schedule.MIN_UNCLIPPED_STEPS = 0
    return under_ddp(0.1)


def sharded(max_norm: float | None, **options: Any) -> dict[str, Any]:
    net = Net()
    for block in net.blocks:
        fully_shard(block)
    fully_shard(net)
    reference = Reference(net)
    reference.watch(net)
    optimizer = busbw_accel.offload(net, adamw(net), max_norm=max_norm, threads=1, **options)
    for step in range(STEPS):
        net.set_requires_gradient_sync(False)
        loss(net, 50 + step).backward()
        net.set_requires_gradient_sync(True)
        loss(net, step).backward()
        optimizer.step()
        reference.step(max_norm, sharded=True)
    state = net.state_dict()
    weights = optimizer.weights()
    same = all(
        torch.equal(local(state[name]), weights[name].to(DEVICE).bfloat16()) for name in weights
    )
    full_weights = [parameter.full_tensor() for parameter in net.parameters()]
    return {
        "worst": reference.worst(optimizer),
        "same": same,
        "norm": optimizer.norm,
        "loss": float(loss(net, 0)),
        "digest": digest(torch.cat([parameter.detach().flatten() for parameter in full_weights])),
    }


def fsdp() -> dict[str, Any]:
    return sharded(None)


def fsdp_clipped() -> dict[str, Any]:
    return sharded(0.1, gpu_share=0.5)


def not_finite_elsewhere() -> dict[str, Any]:
    """Gradients of the first rank's shard are not finite; all ranks leave out the step."""
    net = Net()
    for block in net.blocks:
        fully_shard(block)
    fully_shard(net)
    if dist.get_rank() == 0:
        net.blocks[0][1].weight.register_post_accumulate_grad_hook(
            lambda parameter: local(parameter.grad).fill_(math.inf)
        )
    optimizer = busbw_accel.offload(net, adamw(net), max_norm=1.0, threads=1)
    before = {name: parameter.clone() for name, parameter in optimizer.weights().items()}
    loss(net, 0).backward()
    try:
        optimizer.step()
    except BusbwError as error:
        return {
            "said": str(error),
            "same": all(
                torch.equal(parameter, before[name])
                for name, parameter in optimizer.weights().items()
            ),
        }
    return {"said": "nothing"}


class Headed(Net):
    """A norm and a head that are sharded together."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = (
            module.to(DEVICE, torch.bfloat16)
            for module in (nn.LayerNorm(WIDTH), nn.Linear(WIDTH, TOKENS))
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(tokens)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return self.head(self.norm(hidden))


def gathered_early() -> dict[str, Any]:
    """fully_shard gathers weights before their module runs: with those of another one, or ahead.

    Their updates are slow.
    """
    net = Headed()
    for block in net.blocks:
        fully_shard(block)
    fully_shard([net.norm, net.head])
    fully_shard(net)
    net.blocks[0].set_modules_to_forward_prefetch([net.blocks[1], net.blocks[2]])
    optimizer = busbw_accel.offload(net, adamw(net), max_norm=None, threads=1)
    update = optimizer.worker.adam.update

    def slow(*arguments: Any) -> None:
        time.sleep(0.02)
        update(*arguments)

    optimizer.worker.adam.update = slow  # type: ignore[method-assign]
    loss(net, 0).backward()
    optimizer.step()
    wait, waited = optimizer.worker.wait, []

    def record_wait(parameters: Sequence[OffloadedParameter]) -> None:
        waited.append(sorted({parameter.unit.order for parameter in parameters}))
        wait(parameters)

    optimizer.worker.wait = record_wait  # type: ignore[method-assign]
    with torch.no_grad():
        at_once, units = float(loss(net, 1)), list(waited)
        optimizer.ready()
        return {"losses": (at_once, float(loss(net, 1))), "units": units}


def refusal(net: nn.Module, **options: Any) -> dict[str, Any]:
    """The error for a model that cannot be offloaded."""
    try:
        busbw_accel.offload(net, adamw(net), max_norm=None, **options).close()
    except Exception as error:
        return {"said": f"{type(error).__name__}: {error}"}
    return {"said": "taken"}


def wide_shards() -> dict[str, Any]:
    """fully_shard of fp32 parameters is refused."""
    return refusal(fully_shard(Net().float()))


def wide_replicas() -> dict[str, Any]:
    """DistributedDataParallel would not see the gradients of fp32 parameters that become bf16."""
    net = Net()
    net.tokens.float()
    return refusal(DistributedDataParallel(net))


def frozen_replicas() -> dict[str, Any]:
    """Frozen parameters have no gradients, and may be fp32."""
    net = Net()
    net.tokens.float().requires_grad_(False)
    return refusal(DistributedDataParallel(net))


def streamed_replicas() -> dict[str, Any]:
    """DistributedDataParallel reads weights that are on the host."""
    return refusal(DistributedDataParallel(Net()), stream_weights=True)


def dies() -> dict[str, Any]:
    """The last rank exits during a backward; the others write their error and exit."""
    net = DistributedDataParallel(Net(), bucket_cap_mb=0.002)
    optimizer = busbw_accel.offload(net, adamw(net), max_norm=None, threads=1)
    if dist.get_rank() == dist.get_world_size() - 1:
        net.module.blocks[0][1].weight.register_hook(lambda _: os._exit(0))
    loss(net, 0).backward()
    optimizer.step()
    return {}
