"""The frontend for torch's fully_shard (FSDP2): FSDP shards gradients inside hosts, a communication
worker exchanges them across hosts.

FSDP2 reduces each group of parameters over its own mesh, the ranks of a host, and then calls a
hook, where an all-reduce over the replicas belongs. The worker exchanges there.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule

from busbw.core.errors import UsageError
from busbw_accel.attachment import Attachment, agree_on_settings, announce, refuse_local_steps
from busbw_accel.comm_worker import CommWorker
from busbw_accel.mesh import make
from busbw_accel.methods import BY_NAME, CODECS
from busbw_accel.settings import Settings


class Sharded(Attachment):
    """A fully sharded model whose replicas exchange gradients by a communication worker."""

    def __init__(self, model: nn.Module, worker: CommWorker) -> None:
        modules = [
            (name, module)
            for name, module in model.named_modules()
            if isinstance(module, FSDPModule)
        ]
        if not modules:
            raise UsageError(
                f"a {type(model).__name__} without fully_shard has no shards to exchange",
                "call fully_shard on it first",
            )
        super().__init__(worker)
        for name, module in modules:
            module.set_all_reduce_hook(lambda shard, name=name: self._exchange(shard, name))
        self._exchanged: set[str] = set()  # the modules of this step

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._exchanged.clear()

    def _exchange(self, shard: torch.Tensor, name: str) -> None:
        """Runs instead of FSDP's all-reduce; on a GPU in FSDP's all-reduce stream."""
        # A module exchanges once in a step; those that are frozen or unused do not.
        if not self._exchanged or name in self._exchanged:
            self.worker.step, self.steps = self.steps, self.steps + 1
            self._exchanged.clear()
        self._exchanged.add(name)
        if shard.is_cuda:
            # PyTorch 2.11 gives its memory to the next module while this stream still reads it,
            # where gradients accumulate and so nothing else holds it.
            shard.record_stream(torch.cuda.current_stream())
        with self.worker.explaining():
            self.worker.exchange(shard.view(-1), [name], [(shard.numel(),)])


def attach_fully_sharded(
    model: nn.Module,
    replicas: DeviceMesh,
    settings: Settings | None = None,
    *,
    timeout: timedelta | None = None,
) -> Sharded:
    """Exchange gradients between the replicas of a fully sharded model.

    Without `settings`, the LIGHT_* variables apply.

    `model` is fully sharded over one dimension of a mesh, and `replicas` is the other dimension:
    `fully_shard(layer, mesh=mesh["inside"])` and `replicas=mesh["across"]` of `mesh =
    init_device_mesh(kind, (hosts, ranks), mesh_dim_names=("across", "inside"))`. Every rank must
    call it. FSDP itself exchanges inside hosts, so `two_d` has no effect here.

    Raises:
        UsageError: a variable is invalid, no module is sharded, or `replicas` has more than one
            dimension.
    """
    if replicas.ndim != 1:
        raise UsageError(
            f"replicas has {replicas.ndim} dimensions, and the ranks with equal shards are one",
            'give that one: mesh["across"]',
        )
    settings, unknown = agree_on_settings(settings)
    refuse_local_steps(settings, "fully_shard")
    codec = BY_NAME[settings.method]
    if codec.needs_matrices:
        possible = ", ".join(other.name for other in CODECS if not other.needs_matrices)
        raise UsageError(
            f"{codec.title or codec.name} needs whole matrices, which fully_shard divides",
            f"use {possible}, or DistributedDataParallel",
        )
    if settings.last:
        raise UsageError(
            "a method for the last bucket is for DistributedDataParallel: fully_shard has no"
            " buckets",
            "leave out last",
        )
    ranks = dist.get_process_group_ranks(replicas.get_group())
    sharded = Sharded(model, CommWorker(settings, make(settings, timeout, ranks=ranks)))
    announce(sharded.worker, unknown)
    return sharded
