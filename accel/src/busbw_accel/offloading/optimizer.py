"""AdamW whose states are in host memory, as a torch.optim.Optimizer."""

import contextlib
import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from busbw.core.errors import UsageError
from busbw_accel import checkpoint
from busbw_accel.host_adam import HostAdam, Rule
from busbw_accel.offloading import clipping, saving
from busbw_accel.offloading.copy_streams import Lane
from busbw_accel.offloading.schedule import Norms, UpdateSchedule
from busbw_accel.offloading.settings import OffloadSettings
from busbw_accel.offloading.state_memory import (
    OffloadedParameter,
    Staging,
    StateMemory,
    Unit,
    local_part,
)
from busbw_accel.offloading.worker import UpdateWorker

KIND = "busbw_accel.offload"


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Bytes and seconds of copies and updates, summed over `steps`. They overlap with the GPU's
    work.
    """

    steps: int
    down_bytes: int
    up_bytes: int
    down_s: float
    update_s: float
    up_s: float
    waited_s: float  # how long the program waited for them


class OffloadedAdamW(torch.optim.Optimizer):
    """AdamW with fp32 weights and moments in host memory, made by `offload`, and used as
    torch.optim.AdamW is.
    """

    def __init__(
        self,
        groups: list[dict[str, Any]],
        parameters: list[OffloadedParameter],
        root: Unit,
        device: torch.device,
        settings: OffloadSettings,
    ) -> None:
        super().__init__(groups, {})
        self.settings, self.parameters, self._root = settings, parameters, root
        self.state_memory = StateMemory(parameters, device)
        self.down, self.up = Lane(device), Lane(device)
        norms = Norms(parameters, device)
        self._staging = None if settings.stream_weights else Staging(parameters, self.up)
        self.schedule = UpdateSchedule(settings, norms, self.down, self._rule)
        self.worker = self.schedule.worker = UpdateWorker(
            HostAdam(settings.threads), device, self.down, self._staging, norms.arrived
        )
        self._borrowed = self._accumulates = False
        self._accumulated: dict[int, OffloadedParameter] = {}
        self.waited_s = 0.0
        offloaded_ids = {id(offloaded.parameter) for offloaded in parameters}
        listed = [parameter for group in groups for parameter in group["params"]]
        self._frozen = [parameter for parameter in listed if id(parameter) not in offloaded_ids]
        self._at_end: list[Callable[[], object]] = []
        clipping.refuse(self.schedule)
        # Also at the end of the program, which must not end while the thread runs.
        weakref.finalize(self, self.worker.close)

    @torch.no_grad()
    def collect(
        self, offloaded: OffloadedParameter, gradient: torch.Tensor, *, borrowed: bool = False
    ) -> None:
        """Take the gradient of a parameter, flat and complete. Threads of autograd call it.

        `borrowed`: the next backward uses its memory again.
        """
        # The unit did not run, but its parameter is used: the root needs it from now on.
        if not offloaded.unit.called:
            offloaded.unit.parameters.remove(offloaded)
            self._root.parameters.append(offloaded)
            offloaded.unit = self._root
        self._accumulated.pop(offloaded.index, None)
        self._borrowed |= borrowed
        self.schedule.collect(offloaded, gradient)

    def _rule(self, offloaded: OffloadedParameter, scale: float) -> Rule:
        group = self.param_groups[offloaded.group]
        first, second = map(float, group["betas"])
        return Rule(
            offloaded.step + 1,
            float(group["lr"]),
            (first, second),
            group["eps"],
            group["weight_decay"],
            scale,
        )

    @property
    def norm(self) -> float:
        """The norm of all gradients of the last step, before clipping."""
        return self.schedule.norm

    @property
    def skipped(self) -> int:
        """Steps that skip_nonfinite left out."""
        return self.schedule.skipped

    @property
    def accumulates(self) -> bool:
        """Whether gradients are added up on the device for now."""
        return self._accumulates

    @contextlib.contextmanager
    def accumulate(self) -> Iterator[None]:
        """Add gradients up on the device, in their own type, instead of updating: for every
        backward of a step but the last.

        Under DistributedDataParallel use its no_sync() instead, with fully_shard its
        set_requires_gradient_sync(False).
        """
        self._accumulates = True
        try:
            yield
        finally:
            self._accumulates = False

    def ready(self, parameters: Sequence[OffloadedParameter] | None = None) -> None:
        """Wait until these parameters, or all, have their new weights."""
        begun = time.perf_counter()
        self.worker.wait(self.parameters if parameters is None else parameters)
        self.waited_s += time.perf_counter() - begun

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        """End a step. Updates may continue until the modules that need them run.

        Raises:
            BusbwError: a gradient is not finite, or updates failed. With max_norm nothing has been
                updated then; without it all other parameters have been.
        """
        if closure is not None:
            raise UsageError(
                "an offloaded AdamW takes no closure", "call it after backward, without arguments"
            )
        if any(parameter.requires_grad for parameter in self._frozen):
            raise UsageError(
                "a parameter that was frozen when offload was called requires a gradient",
                "unfreeze parameters before offload",
            )
        self._collect_accumulated()
        self._return_borrowed()
        self.schedule.end()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop accumulated gradients and, with max_norm, those that came since the last step.

        For example, a backward that failed may have left some.
        """
        self._return_borrowed()
        self._accumulated.clear()
        self.schedule.forget()
        super().zero_grad(set_to_none)

    def accumulated(self, offloaded: OffloadedParameter) -> None:
        """Note that a gradient was added up on the device.

        It stays there until another backward or the end of the step.
        """
        self._accumulated[offloaded.index] = offloaded

    def _collect_accumulated(self) -> None:
        """Take the gradients of parameters that the last backward did not use."""
        for offloaded in self._accumulated.values():
            gradient, offloaded.parameter.grad = offloaded.parameter.grad, None
            if gradient is not None:
                self.schedule.collect(offloaded, local_part(gradient))
        self._accumulated.clear()

    def _return_borrowed(self) -> None:
        """Allow later work of the current stream to use the memory of borrowed gradients again."""
        if self._borrowed:
            self.down.hold_current()
            self._borrowed = False

    def times(self) -> StepTimes:
        """Bytes and seconds of copies and updates so far."""
        down, up = self.down.traffic, self.up.traffic
        return StepTimes(
            self.schedule.steps,
            down.bytes,
            up.bytes,
            down.seconds,
            self.worker.update_s,
            up.seconds,
            self.waited_s,
        )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Only `offload` adds groups."""
        if getattr(self, "state_memory", None) is not None:
            raise UsageError(
                "an offloaded AdamW takes no more parameters", "give all to AdamW before offload"
            )
        super().add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """The steps and moments, in the form of torch.optim.AdamW, which can load them.

        Of a sharded model it is this rank's part. Tensors share memory with the states.
        """
        self.ready()
        return saving.state_dict(self.parameters, self.param_groups)

    @torch.no_grad()
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state_dict of an offloaded AdamW or of torch.optim.AdamW.

        Weights are not part of it: see load_weights.

        Raises:
            UsageError: the state is of another model.
        """
        self.ready()
        saving.load_state_dict(self.parameters, self.param_groups, state_dict)

    def weights(self) -> dict[str, torch.Tensor]:
        """The fp32 weights by name, of a sharded model this rank's part.

        They share memory with the states.
        """
        self.ready()
        return saving.weights(self.parameters)

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Set the fp32 weights, and those of the model.

        Raises:
            UsageError: a parameter is missing or has another shape.
        """
        self.ready()
        saving.load_weights(self.parameters, weights)

    @torch.no_grad()
    def adopt(self, parameters: Sequence[OffloadedParameter] | None = None) -> None:
        """Continue from the weights that the model, or these parameters of it, have now.

        The load_state_dict of the model calls it.
        """
        self.ready(parameters)
        for offloaded in self.parameters if parameters is None else parameters:
            assert offloaded.states is not None
            offloaded.states.weight.copy_(offloaded.local)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write states and weights in one file, of a sharded model this rank's part.

        See busbw_accel.checkpoint.save.
        """
        checkpoint.save({"optimizer": self.state_dict(), "weights": self.weights()}, path, KIND)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Continue from a file that `save` wrote. See busbw_accel.checkpoint.load."""
        content = checkpoint.load(path, KIND)
        self.load_state_dict(content["optimizer"])
        self.load_weights(content["weights"])

    def close(self) -> None:
        """End the updates, and release the model and pinned memory.

        The model keeps its bf16 weights on the device.
        """
        try:
            self.schedule.forget()  # streamed weights replace their gradients in the slots again
            self.ready()
        finally:
            self.worker.close()
            for finish in self._at_end:
                finish()
            if self._staging is not None:
                self._staging.close()
            self.state_memory.close()

    def at_end(self, calls: Sequence[Callable[[], object]]) -> None:
        """Add functions that `close` calls after the updates."""
        self._at_end += calls
