"""When updates begin: at once, or when the norm of all gradients is known.

With clipping, an update depends on the norm of all gradients, which is known only after backward.
After MIN_UNCLIPPED_STEPS steps that clipped nothing, updates begin during backward, as if this step
clipped nothing either. If it clips, they are replaced: each update is undone, which restores
weights and moments to within fp32 rounding, and made again with scaled gradients. A gradient waits
if it alone is above the limit, or if it is far above the last one of its parameter: it would leave
too few digits of the moments to restore them. Each of these decisions depends on values that all
replicas have, so the replicas keep the same bits.

`Norms` has the norm of each gradient as it arrives, and that of all of them together.
`UpdateSchedule` decides.
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard

from busbw.core.errors import BusbwError, UsageError
from busbw_accel.host_adam import Rule
from busbw_accel.offloading import device_states
from busbw_accel.offloading.copy_streams import Lane
from busbw_accel.offloading.settings import OffloadSettings
from busbw_accel.offloading.state_memory import OffloadedParameter
from busbw_accel.offloading.worker import GradientPiece, UpdateWorker

EPSILON = 1e-6  # of clip_grad_norm_
MIN_UNCLIPPED_STEPS = 8  # steps
# A gradient of up to MAX_NORM_RATIO times the last norm of its parameter does not wait: squared and
# times 1 - beta2 = 0.001, it adds no more than a tenth to the second moment.
MAX_NORM_RATIO = 10


class Norms:
    """The norm of each gradient: on the device and, for updates on the CPU, on the host.

    It does not refer to parameters: the thread of the updates refers to it, and would keep the
    model and its optimizer for ever.
    """

    def __init__(self, parameters: Sequence[OffloadedParameter], device: torch.device) -> None:
        self._on_device = torch.zeros(len(parameters), device=device)
        self._host = torch.zeros(len(parameters), pin_memory=device.type == "cuda")
        self.last = [0.0] * len(parameters)  # norms of the last step
        self._groups = {offloaded.index: _groups(offloaded.parameter) for offloaded in parameters}

    def measure(self, offloaded: OffloadedParameter, gradient: torch.Tensor) -> torch.Tensor:
        """The norm of a gradient, on the device."""
        norm = self._on_device[offloaded.index]
        norm.copy_(torch.linalg.vector_norm(gradient, dtype=torch.float32))
        return norm

    def send(self, offloaded: OffloadedParameter, lane: Lane) -> None:
        """Copy the norm of a gradient to the host, ahead of the gradient."""
        part = slice(offloaded.index, offloaded.index + 1)
        lane.copy(self._host[part], self._on_device[part])

    def arrived(self, offloaded: OffloadedParameter) -> float:
        """The norm of a gradient that has arrived on the host."""
        return float(self._host[offloaded.index])

    def total(self, received: Sequence[OffloadedParameter]) -> tuple[float, list[str]]:
        """The norm of these gradients over all ranks that share the model.

        Also returns the names of the parameters whose gradient is not finite on this rank. Waits
        for the device.
        """
        self.last = norms = self._on_device.tolist()
        unsharded = [item.index for item in received if not self._groups[item.index]]
        sharded = sorted(item.index for item in received if self._groups[item.index])
        square = sum(norms[index] ** 2 for index in unsharded)
        for groups in dict.fromkeys(self._groups[index] for index in sharded):
            members = [index for index in sharded if self._groups[index] == groups]
            own_square = sum(norms[index] ** 2 for index in members)
            part = torch.full((), own_square, dtype=torch.float64, device=self._on_device.device)
            for group in groups:
                dist.all_reduce(part, group=group)
            square += float(part)
        not_finite = [item.name for item in received if not math.isfinite(norms[item.index])]
        return math.sqrt(square), not_finite


def _groups(parameter: torch.Tensor) -> tuple[dist.ProcessGroup, ...]:
    """The process groups over which a parameter is divided."""
    if not isinstance(parameter, DTensor):
        return ()
    mesh = parameter.device_mesh
    return tuple(
        mesh.get_group(dim)
        for dim, placement in enumerate(parameter.placements)
        if isinstance(placement, Shard)
    )


RuleOf = Callable[[OffloadedParameter, float], Rule]  # parameter, factor of its gradient


class UpdateSchedule:
    """Takes the gradients of each step, and decides when they update the states."""

    def __init__(
        self, settings: OffloadSettings, norms: Norms, down: Lane, rule_of: RuleOf
    ) -> None:
        """`rule_of`: returns the next rule of a parameter, for a factor of its gradient."""
        self.settings, self._norms, self._down, self._rule_of = settings, norms, down, rule_of
        self.worker: UpdateWorker | None = None
        self.steps, self.skipped, self.norm = 0, 0, 0.0
        self._unclipped = 0
        self._received: dict[int, OffloadedParameter] = {}
        # Gradients that wait on the device for the norm of all.
        self._kept_gradients: dict[int, torch.Tensor] = {}
        self._pieces: list[GradientPiece] = []
        self._begun: dict[int, Rule] = {}  # of updates that began in this step

    @property
    def begins_early(self) -> bool:
        """Whether updates of this step begin before its norm is known."""
        return self.settings.max_norm is None or (
            self._unclipped >= MIN_UNCLIPPED_STEPS and not self.settings.stream_weights
        )

    @property
    def unfinished(self) -> bool:
        """Whether gradients on the host wait for the end of the step."""
        return bool(self._pieces) and not self.begins_early

    def collect(self, offloaded: OffloadedParameter, gradient: torch.Tensor) -> None:
        """Take a gradient, flat and complete."""
        if offloaded.index in self._received:
            raise UsageError(
                f"{offloaded.name} got a second gradient before optimizer.step()",
                "call step() after each backward, or accumulate: `with optimizer.accumulate():`"
                " around all but the last backward; with max_norm, zero_grad() leaves out the"
                " gradients of a backward that failed",
            )
        self._received[offloaded.index] = offloaded
        norm = self._norms.measure(offloaded, gradient)
        if offloaded.on_device and self.settings.max_norm is None:
            rule, found_inf = self._begin_early(offloaded), (~norm.isfinite()).float()
            device_states.update(offloaded, gradient, rule, found_inf)
        elif offloaded.on_device:
            self._kept_gradients[offloaded.index] = gradient
        else:
            self._send(offloaded, gradient)

    def _begin_early(self, offloaded: OffloadedParameter) -> Rule:
        """The rule of an update that begins before the end of the step."""
        rule = self._begun[offloaded.index] = self._rule_of(offloaded, 1.0)
        return rule

    def _send(self, offloaded: OffloadedParameter, gradient: torch.Tensor) -> None:
        assert offloaded.slot is not None
        assert self.worker is not None
        self.worker.wait([offloaded])  # its slot is free
        self._down.throttle()
        self._down.after_current()
        self._norms.send(offloaded, self._down)
        rules = [self._begin_early(offloaded)] if self.begins_early else []
        limit = math.inf
        if self.begins_early and self.settings.max_norm is not None:
            limit = min(self.settings.max_norm, MAX_NORM_RATIO * self._norms.last[offloaded.index])
        pieces = [
            GradientPiece(
                (offloaded.unit.order, offloaded.index, part.start),
                offloaded,
                part,
                self._down.copy(offloaded.slot[part], gradient[part]),
                list(rules),
                limit,
            )
            for part in offloaded.pieces()
        ]
        if rules:
            self.worker.submit(pieces)
        self._pieces += pieces

    def has_taken(self, parameter: torch.Tensor) -> bool:
        """Whether the parameter's gradient came since the last step."""
        return any(item.parameter is parameter for item in self._received.values())

    def end(self) -> None:
        """End a step: make, confirm or replace its updates.

        Raises:
            BusbwError: a gradient is not finite.
            UsageError: without max_norm, a learning rate changed after the updates began.
        """
        received, self._received = list(self._received.values()), {}
        pieces, self._pieces = self._pieces, []
        kept_gradients, self._kept_gradients = self._kept_gradients, {}
        begun, self._begun = self._begun, {}
        if not received:
            return
        self._down.wait_for_current()
        self.norm, not_finite = self._norms.total(received)
        self.steps += 1
        # A gradient that is not finite on another rank makes the norm so.
        finite = self.norm < math.inf and not not_finite
        limit = self.settings.max_norm
        if limit is None:
            changed = [
                item.name for item in received if begun[item.index] != self._rule_of(item, 1.0)
            ]
            self._count(received, not_finite)
            if changed:
                raise UsageError(
                    f"the learning rate or another number of {changed[0]}'s group changed between"
                    " backward and step()",
                    "change it before backward: without max_norm updates begin then",
                )
        elif finite:
            scale = min(1.0, limit / (self.norm + EPSILON))
            self._make(pieces, kept_gradients, received, begun, scale)
            self._count(received, [])
        else:
            self._drop(pieces)
        if not finite:
            self._report(not_finite, len(received))

    def forget(self) -> None:
        """With max_norm, drop the gradients that came since the last step.

        Without max_norm, their updates have begun and are not undone.
        """
        if self._received and self.settings.max_norm is not None:
            pieces, self._pieces = self._pieces, []
            self._received, self._kept_gradients, self._begun = {}, {}, {}
            self._drop(pieces)

    def _make(
        self,
        pieces: list[GradientPiece],
        kept_gradients: dict[int, torch.Tensor],
        received: list[OffloadedParameter],
        begun: dict[int, Rule],
        scale: float,
    ) -> None:
        """Make the updates of a step with its gradients scaled, unless they have been made so.

        `begun`: the rules of the updates that began before, by the index of the parameter.
        """
        assert self.worker is not None
        early = self.begins_early
        rules = {item.index: self._rule_of(item, scale) for item in received}
        found_inf = torch.zeros((), device=self._down.device)
        for offloaded in received:
            if offloaded.index in kept_gradients:
                gradient = kept_gradients[offloaded.index]
                device_states.update(offloaded, gradient, rules[offloaded.index], found_inf)
        if not early:
            for piece in pieces:
                piece.rules.append(rules[piece.offloaded.index])
            self.worker.submit(pieces)
        else:
            for piece in pieces:
                index = piece.offloaded.index
                waits = not self._norms.last[index] <= piece.limit
                if waits or begun[index] != rules[index]:
                    self.worker.revise(piece, rules[index])
        self._unclipped = self._unclipped + 1 if scale == 1 else 0

    def _drop(self, pieces: list[GradientPiece]) -> None:
        """Leave everything as it was before the step."""
        assert self.worker is not None
        if self.begins_early:
            for piece in pieces:
                self.worker.revise(piece, None)
        elif self.settings.stream_weights:  # slots have to get the weights back
            for piece in pieces:
                piece.rules.append(None)
            self.worker.submit(pieces)
        self._unclipped = 0

    def _count(self, received: list[OffloadedParameter], not_finite: list[str]) -> None:
        for offloaded in received:
            offloaded.step += offloaded.name not in not_finite

    def _report(self, not_finite: list[str], count: int) -> None:
        if self.settings.skip_nonfinite:
            self.skipped += 1
            return
        names = ", ".join(not_finite[:3]) if not_finite else "some of another rank"
        if len(not_finite) > 3:
            names += f" and {len(not_finite) - 3} more"
        consequence = "nothing was updated"
        if self.settings.max_norm is None:
            consequence = f"the other {count - len(not_finite)} parameters were updated"
        raise BusbwError(
            f"gradients are not finite in step {self.steps}: {names}; {consequence}",
            "load the last checkpoint, lower the learning rate, or use max_norm with"
            " skip_nonfinite=True",
        )
