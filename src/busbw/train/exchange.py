"""How a wrapped model's gradients are exchanged by each method, and how many bytes of a step leave a host by its own account."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from busbw.accel.attachment import Attachment
from busbw.accel.codecs.base import ring_bytes
from busbw.accel.ddp import attach
from busbw.train.methods import Method

# The part of a gradient's bytes that torch's hooks send of fp32.
SHARE = {"": 1.0, "bf16": 0.5, "fp16": 0.5}
POWERSGD_RANK, POWERSGD_START = 1, 2  # steps before it begins: the least that it takes


@dataclass(slots=True)
class Wrapped:
    """A model under DistributedDataParallel with a method."""

    net: nn.Module
    attached: Attachment | None
    method: Method

    def sent(self, gradients: int, steps: int, before: int, hosts: int) -> float | None:
        """This rank's share of the bytes a step that left its host, over `steps` since `before` (see `mark`).

        None where nobody counts: torch's PowerSGD.
        """
        if self.attached is not None:
            return (self.attached.traffic.across - before) / steps
        share, ranks = SHARE.get(self.method.hook), dist.get_world_size()
        if share is None:
            return None
        # A ring leaves each host once: each of its ranks has a share of that.
        return ring_bytes(int(gradients * share), ranks) * hosts / ranks if hosts > 1 else 0.0

    def mark(self) -> int:
        """What has been counted so far."""
        return self.attached.traffic.across if self.attached is not None else 0

    def close(self) -> None:
        """End what the method has begun."""
        if self.attached is not None:
            self.attached.close()


def wrap(net: nn.Module, method: Method, device: torch.device, bucket_mb: float, scaler: torch.amp.GradScaler) -> Wrapped:
    """`net` under DistributedDataParallel with the method's hook; `scaler` is the loop's."""
    places = [device.index] if device.type == "cuda" else None
    # Gradients that are views of buckets are not copied into and out of them.
    made = DistributedDataParallel(net, device_ids=places, bucket_cap_mb=bucket_mb, gradient_as_bucket_view=True)
    if method.settings is not None:
        return Wrapped(made, attach(made, method.settings, scaler=scaler), method)
    if method.hook == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=POWERSGD_RANK, start_powerSGD_iter=POWERSGD_START)
        made.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif method.hook:
        made.register_comm_hook(None, getattr(default_hooks, f"{method.hook}_compress_hook"))
    return Wrapped(made, None, method)
