"""The frontend for torch's fully_shard (FSDP2), of the shards or of their replicas.

Of the shards: FSDP2 calls the worker for its reduce-scatters and all-gathers
(`busbw_accel.shards`).

Of replicas: FSDP2 reduces each group of parameters over its own mesh, the ranks of a host, and then
calls a hook, where an all-reduce over the replicas belongs. The worker exchanges there.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
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
from busbw_accel.settings import HOST, Settings
from busbw_accel.shards import (
    ShardedParameters,
    ShardedResidual,
    ShardedSum,
    ShardedUnit,
    group_of,
    padded_length,
    units,
)


class Sharded(Attachment):
    """A fully sharded model whose shards or replicas exchange by a communication worker."""

    def __init__(self, worker: CommWorker, divided: Sequence[ShardedUnit]) -> None:
        """`divided`: the units of the model."""
        super().__init__(worker)
        self._names = {unit.name for unit in divided}
        self._exchanged: set[str] = set()  # the units of this step

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._exchanged.clear()

    def _check_length(self, parameter: str, count: int) -> None:
        # The number of elements of a unit that are trained is checked when it is exchanged.
        if parameter not in self._names:
            raise UsageError(
                f"the state has {count} values for '{parameter}', which was not given to"
                " fully_shard here",
                "load the state of the same model, sharded in the same units",
            )

    def count(self, name: str) -> None:
        """Count the steps. A unit exchanges once in each; frozen or unused ones do not."""
        if not self._exchanged or name in self._exchanged:
            self.worker.step, self.steps = self.steps, self.steps + 1
            self._exchanged.clear()
        self._exchanged.add(name)

    def average(self, shard: torch.Tensor, residual: ShardedResidual) -> None:
        """Average over replicas instead of FSDP's all-reduce; on a GPU in the stream of that."""
        name, ranks = residual.unit.name, residual.unit.ranks
        self.count(name)
        if shard.is_cuda:
            # PyTorch 2.11 gives its memory to the next module while this stream still reads it,
            # where gradients accumulate and so nothing else holds it.
            shard.record_stream(torch.cuda.current_stream())
        with self.worker.explaining():
            fits = residual.fits(ranks * shard.numel(), ranks)
            self.worker.exchange(shard.view(-1), [name], [(shard.numel(),)], keep=fits)


def attach_fully_sharded(
    model: nn.Module,
    replicas: DeviceMesh | None = None,
    settings: Settings | None = None,
    *,
    timeout: timedelta | None = None,
) -> Sharded:
    """Exchange the shards of a fully sharded model, or the gradients between its replicas.

    Without `settings`, the LIGHT_* variables apply. Every rank must call it.

    Without `replicas`, the settings apply to the dimension over which `fully_shard` has divided the
    model: `method` and `wire` to the reduce-scatter of gradients, `gather` to the all-gather of
    parameters. With error feedback each rank keeps what it has not sent: 4 bytes for each element
    of the whole model's gradient. It needs PyTorch 2.9 or newer.

    With `replicas`, they apply between hosts, and FSDP itself exchanges inside: `model` is fully
    sharded over one dimension of a mesh, and `replicas` is the other dimension:
    `fully_shard(layer, mesh=mesh["inside"])` and `replicas=mesh["across"]` of `mesh =
    init_device_mesh(kind, (hosts, ranks), mesh_dim_names=("across", "inside"))`. To do both, call
    it twice.

    `two_d` has no effect here. `timeout`: the limit of each exchange between replicas, above zero;
    None for the default of PyTorch's process groups. Shards are exchanged in the process group of
    `fully_shard`, with its limit.

    Raises:
        UsageError: a variable is invalid, no module is sharded, a mesh has more than one dimension,
            the settings are not for what is exchanged, or there is a `timeout` without `replicas`.
    """
    _check_arguments(replicas, timeout)
    divided = units(model)
    settings, unknown = agree_on_settings(settings)
    refuse_local_steps(settings, "fully_shard")
    _check(settings, shards=replicas is None)
    if replicas is not None:
        ranks = dist.get_process_group_ranks(replicas.get_group())
        sharded = Sharded(CommWorker(settings, make(settings, timeout, ranks=ranks)), divided)
        for unit in divided:
            residual = ShardedResidual(sharded.worker, unit)
            unit.module.set_all_reduce_hook(functools.partial(sharded.average, residual=residual))
        announce(sharded.worker, unknown)
        return sharded
    if not hasattr(FSDPModule, "set_custom_reduce_scatter"):
        raise UsageError(
            f"PyTorch {torch.__version__} has no set_custom_reduce_scatter",
            "use PyTorch 2.9 or newer, or give replicas",
        )
    group = group_of(model, divided)
    flat = dataclasses.replace(settings, two_d=False)
    mesh = make(flat, timeout, group, dist.get_process_group_ranks(group))
    sharded = Sharded(CommWorker(settings, mesh), divided)
    try:
        for unit in divided:
            unit.module.set_custom_reduce_scatter(
                ShardedSum(sharded.worker, group, unit, sharded.count)
            )
            unit.module.set_custom_all_gather(ShardedParameters(sharded.worker, group))
    except ValueError as error:  # torch names its reason
        raise UsageError(
            f"{unit.name or type(model).__name__}: {error}", "shard a module over one mesh"
        ) from error
    announce(sharded.worker, unknown, _kept(settings, divided, mesh.world.size))
    return sharded


def _check_arguments(replicas: DeviceMesh | None, timeout: timedelta | None) -> None:
    if isinstance(replicas, Settings):
        raise UsageError(
            "the second argument is the mesh of replicas, and these are settings",
            "attach_fully_sharded(model, settings=Settings(...))",
        )
    if replicas is None and timeout is not None:
        raise UsageError(
            f"timeout={timeout.total_seconds():g} s has no effect on shards, which are exchanged in"
            " the process group of fully_shard",
            "give it to init_process_group, or leave it out",
        )
    if replicas is not None and replicas.ndim != 1:
        raise UsageError(
            f"replicas has {replicas.ndim} dimensions, and the ranks with equal shards are one",
            'give that one: mesh["across"]',
        )


def _check(settings: Settings, *, shards: bool) -> None:
    """Check settings for the exchange of `shards`, or of replicas of shards."""
    codec = BY_NAME[settings.method]
    possible = ", ".join(
        other.name for other in CODECS if (other.shards if shards else not other.needs_matrices)
    )
    if codec.needs_matrices:
        raise UsageError(
            f"{codec.title or codec.name} needs whole matrices, which fully_shard divides",
            f"use {possible}, or DistributedDataParallel",
        )
    if shards and not codec.shards:
        raise UsageError(
            f"{codec.title or codec.name} cannot exchange the shards of fully_shard",
            f"use {possible}; between replicas of shards: attach_fully_sharded(model, replicas)",
        )
    if settings.last:
        raise UsageError(
            "a method for the last bucket is for DistributedDataParallel: fully_shard has no"
            " buckets",
            "leave out last",
        )
    if shards and settings.staging == HOST:
        raise UsageError(
            "staging=host does one exchange at a time, and fully_shard gathers while it reduces",
            "leave out staging",
        )
    if settings.gather != "same" and not shards:
        raise UsageError(
            f"gather={settings.gather} is for shards, and replicas have the same ones",
            "leave out gather; for shards: attach_fully_sharded(model, settings=...)",
        )


def _kept(settings: Settings, divided: Sequence[ShardedUnit], ranks: int) -> str:
    """A line on the memory of residuals, which is not divided between ranks."""
    if not BY_NAME[settings.method].loss or not settings.feedback:
        return ""
    elements = sum(padded_length(unit.trained(), ranks) for unit in divided)
    return (
        f"error feedback keeps {4e-9 * elements:.2f} GB on each rank, 4 bytes for each element of"
        " the whole gradient; Settings(feedback=False) keeps none"
    )
