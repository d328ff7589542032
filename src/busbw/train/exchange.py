"""Wraps a model in DDP with one exchange method, and counts the bytes that leave a host."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from busbw.accel.attachment import Attachment
from busbw.accel.codecs.base import ring_bytes
from busbw.accel.ddp import attach
from busbw.train.methods import Method
from busbw.train.replay import Hook, unchanged
from busbw.train.types import DEFAULT_BUCKET_MB

# The share of an fp32 gradient's bytes that torch's hooks send.
SHARE = {"": 1.0, "bf16": 0.5, "fp16": 0.5}
POWERSGD_RANK, POWERSGD_START = 1, 2  # start: steps before it begins, at least 2
ONE_BUCKET_MB = 1e6


@dataclass(slots=True)
class Wrapped:
    """A model under DistributedDataParallel with a method.

    `hook` exchanges a bucket; it may be DDP's own all-reduce.
    """

    net: DistributedDataParallel
    attached: Attachment | None
    method: Method
    hook: Hook

    def sent(self, gradients: int, steps: int, before: int, hosts: int) -> float | None:
        """This rank's share of the bytes per step that left its host, over `steps` steps since
        `before` (see `mark`).

        None if the method does not count bytes: torch's PowerSGD.
        """
        if self.attached is not None:
            return (self.attached.traffic.across - before) / steps
        share, ranks = SHARE.get(self.method.hook), dist.get_world_size()
        if share is None:
            return None
        # A ring leaves each host once; its ranks share those bytes.
        return ring_bytes(int(gradients * share), ranks) * hosts / ranks if hosts > 1 else 0.0

    def mark(self) -> int:
        """Bytes counted so far."""
        return self.attached.traffic.across if self.attached is not None else 0

    @contextmanager
    def silent(self) -> Iterator[bool]:
        """Exchange without a network.

        Yields whether the method supports that; torch's hooks do not.
        """
        if self.attached is None:
            yield False
            return
        before, self.net.broadcast_buffers = self.net.broadcast_buffers, False
        with self.attached.worker.silent():
            yield True
        self.net.broadcast_buffers = before

    def close(self) -> None:
        """Stop the method's worker."""
        if self.attached is not None:
            self.attached.close()


def under_ddp(net: nn.Module, device: torch.device, bucket_mb: float) -> DistributedDataParallel:
    """`net` under DistributedDataParallel. Gradients are views of buckets, which saves copies.

    With DDP's default the first bucket is smaller than the others, as in a script that does not set
    bucket_cap_mb.
    """
    devices = [device.index] if device.type == "cuda" else None
    limit = None if bucket_mb == DEFAULT_BUCKET_MB else bucket_mb
    return DistributedDataParallel(
        net, device_ids=devices, bucket_cap_mb=limit, gradient_as_bucket_view=True
    )


def still(net: nn.Module, device: torch.device, bucket_mb: float) -> DistributedDataParallel:
    """`net` under DistributedDataParallel without an exchange."""
    made = under_ddp(net, device, bucket_mb)
    made.broadcast_buffers = False
    made.register_comm_hook(None, unchanged)
    return made


def wrap(
    net: nn.Module,
    method: Method,
    device: torch.device,
    bucket_mb: float,
    scaler: torch.amp.GradScaler,
) -> Wrapped:
    """`net` under DistributedDataParallel with the hook of a method. `scaler` is that of the loop.

    Torch's PowerSGD gets one bucket on CPUs: Gloo's threads call it in any order, and several
    buckets then wait for each other forever.
    """
    single = method.hook == "powersgd" and device.type == "cpu"
    made = under_ddp(net, device, ONE_BUCKET_MB if single else bucket_mb)
    if method.settings is not None:
        attached = attach(made, method.settings, scaler=scaler)
        return Wrapped(made, attached, method, attached.exchange)
    if not method.hook:
        return Wrapped(made, None, method, partial(default_hooks.allreduce_hook, None))
    state, hook = _of_torch(method.hook)
    made.register_comm_hook(state, hook)
    return Wrapped(made, None, method, partial(hook, state))


def _of_torch(name: str) -> tuple[Any, Callable[[Any, Any], torch.futures.Future[torch.Tensor]]]:
    """The arguments of register_comm_hook for one of torch's own hooks."""
    if name == "powersgd":
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=POWERSGD_RANK, start_powerSGD_iter=POWERSGD_START
        )
        return state, powerSGD_hook.powerSGD_hook
    return None, getattr(default_hooks, f"{name}_compress_hook")
