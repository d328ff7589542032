"""AdamW whose states are in host memory, as a torch.optim.Optimizer."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from busbw.accel import checkpoint
from busbw.accel.host_adam import HostAdam, Rule
from busbw.accel.offloading import device_states, saving
from busbw.accel.offloading.lanes import Lane
from busbw.accel.offloading.norms import EPSILON, Norms
from busbw.accel.offloading.placement import Placement
from busbw.accel.offloading.settings import OffloadSettings
from busbw.accel.offloading.units import Offloaded, Unit
from busbw.accel.offloading.worker import Piece, Worker
from busbw.core.errors import BusbwError, UsageError

KIND = "busbw.accel.offload"


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Where the time went, summed over `steps`. Copies and updates overlap with the GPU's work; the program waited `waited_s` for them."""

    steps: int
    down_bytes: int
    up_bytes: int
    down_s: float
    update_s: float
    up_s: float
    waited_s: float


class OffloadedAdamW(torch.optim.Optimizer):
    """AdamW with fp32 weights and moments in host memory, made by `offload`.

    After a step `norm` is the norm of all its gradients before clipping. `skipped` counts steps left out by skip_nonfinite.
    """

    def __init__(
        self, groups: list[dict[str, Any]], parameters: list[Offloaded], root: Unit, device: torch.device, settings: OffloadSettings
    ) -> None:
        super().__init__(groups, {})
        self.settings, self.parameters, self._root = settings, parameters, root
        self.placement = Placement(parameters, device)
        self._norms = Norms(parameters, device)
        self.down, self.up = Lane(device), Lane(device)
        self.worker = Worker(
            HostAdam(settings.threads), device, self.down, None if settings.stream_weights else self.up, self._norms.finite
        )
        self._came: dict[int, Offloaded] = {}
        self._kept: dict[int, torch.Tensor] = {}  # gradients that wait on the device for step()
        self._held: list[Piece] = []
        self._borrowed = self._accumulates = False
        self.waited_s, self.steps, self.skipped, self.norm = 0.0, 0, 0, 0.0
        self._at_end: list[Callable[[], object]] = []

    # From here on the autograd threads call.

    @torch.no_grad()
    def collect(self, one: Offloaded, gradient: torch.Tensor, *, borrowed: bool = False) -> None:
        """Take the gradient of a parameter, flat and complete. `borrowed`: its memory is used again by the next backward."""
        if one.index in self._came:
            raise UsageError(
                f"{one.name} got a second gradient before optimizer.step()",
                "call step() after each backward, or accumulate: `with optimizer.accumulate():` around all but the last backward",
            )
        if not one.unit.called:  # it is used outside of its unit: from now on it is needed as early as the root
            one.unit = self._root
        self._came[one.index] = one
        self._borrowed |= borrowed
        norm, rule = self._norms.measure(one, gradient), self._rule(one)
        if one.on_device and self.settings.max_norm is None:
            device_states.update(one, gradient, rule, (~norm.isfinite()).float())
        elif one.on_device:
            self._kept[one.index] = gradient
        else:
            self._send(one, gradient, rule)

    def _send(self, one: Offloaded, gradient: torch.Tensor, rule: Rule) -> None:
        self.ready([one])  # its slot is free
        assert one.slot is not None
        self.down.throttle()
        self.down.after_current()
        self._norms.send(one, self.down)
        pieces = [
            Piece((one.unit.order, one.index, part.start), one, part, rule, self.down.copy(one.slot[part], gradient[part]))
            for part in one.pieces()
        ]
        if self.settings.max_norm is None:
            self.worker.submit(pieces)
        else:
            self._held += pieces

    def _rule(self, one: Offloaded, scale: float = 1.0) -> Rule:
        group = self.param_groups[one.group]
        return Rule(one.step + 1, float(group["lr"]), tuple(map(float, group["betas"])), group["eps"], group["weight_decay"], scale)  # type: ignore[arg-type]

    # From here on the program calls.

    @property
    def unfinished(self) -> bool:
        """Whether gradients wait for step()."""
        return bool(self._held)

    @property
    def accumulates(self) -> bool:
        """Whether gradients are added up on the device for now."""
        return self._accumulates

    @contextlib.contextmanager
    def accumulate(self) -> Iterator[None]:
        """Add gradients up on the device, in their own type, instead of updating: for every backward of a step but the last.

        Under DistributedDataParallel use its no_sync() instead, with fully_shard its set_requires_gradient_sync(False).
        """
        self._accumulates = True
        try:
            yield
        finally:
            self._accumulates = False

    def ready(self, parameters: Sequence[Offloaded] | None = None) -> None:
        """Wait until these parameters, or all, have their new weights."""
        begun = time.perf_counter()
        self.worker.wait(self.parameters if parameters is None else parameters)
        self.waited_s += time.perf_counter() - begun

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        """End a step. Updates may go on until the modules that need them run.

        Raises:
            BusbwError: a gradient is not finite, or updates failed. With max_norm nothing has been updated then; without it all other
                parameters have been.
        """
        if closure is not None:
            raise UsageError("an offloaded AdamW takes no closure", "call it after backward, without arguments")
        came, self._came = list(self._came.values()), {}
        held, self._held = self._held, []
        kept, self._kept = self._kept, {}
        if self._borrowed:
            self.down.hold_current()
            self._borrowed = False
        if not came:
            return
        self.down.rest()
        self.norm, wrong = self._norms.total(came)
        self.steps += 1
        finite = self.norm < float("inf") and not wrong  # not wrong here, but on another rank: the norm is not finite
        if self.settings.max_norm is not None:
            if finite:
                self._release(came, held, kept, min(1.0, self.settings.max_norm / (self.norm + EPSILON)))
            else:
                self._restore(held)
        if finite or self.settings.max_norm is None:
            for one in came:
                one.step += one.name not in wrong
        if not finite:
            self._report(wrong, len(came))

    def _release(self, came: list[Offloaded], held: list[Piece], kept: Mapping[int, torch.Tensor], scale: float) -> None:
        """Begin the updates of a step by all its gradients, scaled."""
        rules = {one.index: self._rule(one, scale) for one in came}
        for piece in held:
            piece.rule = rules[piece.one.index]
        self.worker.submit(held)
        never = torch.zeros((), device=self.down.device)
        for one in came:
            if one.index in kept:
                device_states.update(one, kept[one.index], rules[one.index], never)

    def _restore(self, held: list[Piece]) -> None:
        """Put the weights back into slots whose gradients are dropped."""
        for piece in held:
            piece.came.wait()
            assert piece.one.slot is not None
            assert piece.one.states is not None
            piece.one.slot[piece.part].copy_(piece.one.states.weight[piece.part])

    def _report(self, wrong: list[str], came: int) -> None:
        if self.settings.skip_nonfinite:
            self.skipped += 1
            return
        names = ", ".join(wrong[:3]) + (f" and {len(wrong) - 3} more" if len(wrong) > 3 else "") if wrong else "some of another rank"
        done = "nothing was updated" if self.settings.max_norm is not None else f"the other {came - len(wrong)} parameters were updated"
        raise BusbwError(
            f"gradients are not finite in step {self.steps}: {names}; {done}",
            "load the last checkpoint, lower the learning rate, or use max_norm with skip_nonfinite=True",
        )

    def times(self) -> StepTimes:
        """Where the time went so far."""
        down, up = self.down.traffic, self.up.traffic
        return StepTimes(self.steps, down.bytes, up.bytes, down.seconds, self.worker.update_s, up.seconds, self.waited_s)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Only `offload` adds groups."""
        if getattr(self, "placement", None) is not None:
            raise UsageError("an offloaded AdamW takes no more parameters", "give all to AdamW before offload")
        super().add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """As that of torch.optim.AdamW, which can load it; of a sharded model this rank's part. Tensors share memory with the states."""
        self.ready()
        return saving.state_dict(self.parameters, self.param_groups)

    @torch.no_grad()
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load what this or torch.optim.AdamW has saved. Weights are not part of it: see load_weights.

        Raises:
            UsageError: it is of another model.
        """
        self.ready()
        saving.load_state_dict(self.parameters, self.param_groups, state_dict)

    def weights(self) -> dict[str, torch.Tensor]:
        """The fp32 weights by name; of a sharded model this rank's part. They share memory with the states."""
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
    def adopt(self) -> None:
        """Take the weights that the model has now, for example after its load_state_dict."""
        self.ready()
        for one in self.parameters:
            assert one.states is not None
            one.states.weight.copy_(one.local)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write states and weights in one file; of a sharded model this rank's part. See busbw.accel.checkpoint.save."""
        checkpoint.save({"optimizer": self.state_dict(), "weights": self.weights()}, path, KIND)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Continue from a file that `save` wrote. See busbw.accel.checkpoint.load."""
        found = checkpoint.load(path, KIND)
        self.load_state_dict(found["optimizer"])
        self.load_weights(found["weights"])

    def close(self) -> None:
        """End the updates, and let go of the model, which keeps its bf16 weights on the device, and of pinned memory."""
        try:
            self.ready()
        finally:
            self.worker.close()
            for finish in self._at_end:
                finish()
            self.placement.close()

    def at_end(self, calls: Sequence[Callable[[], object]]) -> None:
        """What `close` calls after the updates."""
        self._at_end += calls
