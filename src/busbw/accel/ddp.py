"""The face for torch's DistributedDataParallel: a communication hook, and what belongs to a checkpoint."""

import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from busbw.accel import light
from busbw.accel.lane import Lane, Traffic
from busbw.accel.settings import DENSE, Settings
from busbw.core.errors import UsageError

# DDP builds its buckets anew after the first step; what is kept between steps begins after that.
FIRST_STEP = 1


class Attached:
    """A DDP model whose gradients go through a lane."""

    def __init__(self, model: DistributedDataParallel, settings: Settings, scaler: Any, timeout: timedelta | None) -> None:
        """See `attach`."""
        self.lane = Lane(settings, timeout)
        self.steps = 0
        self._names = {id(parameter): name for name, parameter in model.module.named_parameters()}
        self._scaler = scaler
        self._scale: torch.Tensor | float | None = None

    @property
    def settings(self) -> Settings:
        """What the lane does."""
        return self.lane.settings

    @property
    def traffic(self) -> Traffic:
        """Bytes that this rank has sent so far."""
        return self.lane.traffic

    def exchange(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """A bucket's average."""
        flat, parameters = bucket.buffer(), bucket.parameters()
        if flat.is_sparse:
            return self.lane.run(flat, lambda: self._densely(flat))
        lengths = [parameter.numel() for parameter in parameters]
        names = [self._names.get(id(parameter), f"?{bucket.index()}.{number}") for number, parameter in enumerate(parameters)]
        first = self.steps < FIRST_STEP
        if bucket.index() == 0 and not first:
            step = self.steps - FIRST_STEP
            self.lane.run(flat, lambda: self._begin(step))
        self.steps += bucket.is_last()
        if first:
            return self.lane.run(flat, lambda: self._densely(flat))
        apart = [number for number, parameter in enumerate(parameters) if parameter.dim() < 2]
        if self.settings.method == DENSE or not self.settings.dense_below_2d or not apart:
            return self.lane.average(flat, names, lengths)
        return self.lane.run(flat, lambda: self._in_two(flat, names, lengths, set(apart)))

    def _densely(self, flat: torch.Tensor) -> None:
        """As DDP does without a hook."""
        dist.all_reduce(flat.div_(self.lane.mesh.world.size), group=self.lane.mesh.world.group)

    def _in_two(self, flat: torch.Tensor, names: list[str], lengths: list[int], apart: set[int]) -> None:
        """Biases and norms are few and matter: they go densely beside the rest."""
        parts = flat.split(lengths)
        for dense in (False, True):
            chosen = [number for number in range(len(parts)) if (number in apart) == dense]
            if not chosen:
                continue
            joined = torch.cat([parts[number] for number in chosen])
            if dense:
                self._densely(joined)
            else:
                self.lane.exchange(joined, [names[number] for number in chosen], [lengths[number] for number in chosen])
            for number, part in zip(chosen, joined.split([lengths[number] for number in chosen]), strict=True):
                parts[number].copy_(part)

    def _begin(self, step: int) -> None:
        """A step, in the lane, before its buckets: what is kept is in units of the scaled loss."""
        self.lane.step = step
        if self._scaler is None or not self._scaler.is_enabled():
            return
        scale = getattr(self._scaler, "_scale", None)  # a tensor on the device: get_scale() would wait for it
        scale = self._scaler.get_scale() if scale is None else scale
        if self._scale is not None:
            self.lane.memory.scale(scale / self._scale)
        self._scale = scale.clone() if isinstance(scale, torch.Tensor) else scale

    def reset_residual(self) -> None:
        """Forget what was not sent: after a jump of the learning rate, or when parameters were loaded from elsewhere."""
        self.lane.memory.clear()

    def state_dict(self) -> dict[str, Any]:
        """What is kept, by parameters. Every rank has to call it, and to save its own: what was not sent differs by rank."""
        device = next(iter(self._devices()), torch.device("cpu"))
        self.lane.memory.take_apart(device)
        kept: dict[str, dict[str, torch.Tensor]] = {}
        for one, name, tensor in self.lane.memory.single():
            kept.setdefault(one, {})[name] = tensor.clone()
        world = self.lane.mesh.world
        scale = self._scale.clone() if isinstance(self._scale, torch.Tensor) else self._scale
        return {"ranks": world.size, "rank": world.place, "steps": self.steps, "scale": scale, "kept": kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state of this rank.

        Raises:
            UsageError: it is another rank's, or of another number of ranks.
        """
        world = self.lane.mesh.world
        if (state["ranks"], state["rank"]) != (world.size, world.place):
            raise UsageError(
                f"the state is of rank {state['rank']} of {state['ranks']}, and this is rank {world.place} of {world.size}",
                "save and load it on every rank; with another number of ranks leave it out: what was not sent is lost, once",
            )
        self.lane.memory.clear()
        self.steps, self._scale = state["steps"], state["scale"]
        for one, found in state["kept"].items():
            for name, tensor in found.items():
                self.lane.memory.put_single(one, name, tensor)

    def _devices(self) -> set[torch.device]:
        return {tensor.device for _, _, tensor in self.lane.memory.single()} | {
            tensor.device for kept in self.lane.memory.lists() for state in kept.states for tensor in state.values()
        }


def _hook(attached: Attached, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    return attached.exchange(bucket)


def attach(
    model: DistributedDataParallel, settings: Settings | None = None, *, scaler: Any = None, timeout: timedelta | None = None
) -> Attached:
    """Have a DDP model's gradients exchanged by a lane; without `settings`, as the LIGHT_* variables say.

    Every rank has to call it, before the first backward. `scaler` is the loop's GradScaler, where there is one: what is kept between steps
    follows its scale. `timeout` bounds each exchange.

    Raises:
        UsageError: a variable that cannot be meant, or no DDP model.
    """
    if not isinstance(model, DistributedDataParallel):
        raise UsageError(
            f"attach takes a DistributedDataParallel model, not a {type(model).__name__}", "wrap it: DistributedDataParallel(model)"
        )
    strange: list[str] = []
    if settings is None:
        settings, strange = light.from_env(os.environ), light.unknown(os.environ)
    attached = Attached(model, settings, scaler, timeout)
    model.register_comm_hook(attached, _hook)
    if attached.lane.mesh.world.place == 0:
        _announce(attached, strange)
    return attached


def _announce(attached: Attached, strange: list[str]) -> None:
    mesh, known = attached.lane.mesh, ", ".join(switch.name for switch in light.SWITCHES)
    shape = f"{mesh.across.size} x {mesh.inside.size}" if mesh.inside and mesh.across else f"{mesh.world.size}"
    lines = [f"{attached.settings.describe()} over {shape} ranks"]
    lines += [f"one dimension alone: {mesh.why_flat}"] if mesh.why_flat else []
    lines += [f"{name} is no switch (there are {known})" for name in strange]
    sys.stderr.write("".join(f"busbw accel: {line}\n" for line in lines))
