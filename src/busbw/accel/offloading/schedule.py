"""When updates begin: at once, or when the norm of all gradients is known.

With clipping an update depends on the norm of all gradients, which is known after backward only.
After CERTAIN steps that clipped nothing, updates begin during backward as if this one did not
either. If it does, they are replaced: the update is undone, which restores weights and moments to
within fp32 rounding, and made again with scaled gradients. A gradient that is above the limit by
itself, or far above the last one of its parameter, waits: it would leave too few digits of the
moments to restore them. Each of these decisions depends on values that all replicas have, so that
they stay the same bits.

The norms of the gradients: of each parameter as it arrives, and of all of them together.
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard

from busbw.accel.host_adam import Rule
from busbw.accel.offloading import device_states
from busbw.accel.offloading.copy_streams import Lane
from busbw.accel.offloading.placement import Offloaded
from busbw.accel.offloading.settings import OffloadSettings
from busbw.accel.offloading.worker import Piece, Worker
from busbw.core.errors import BusbwError, UsageError

EPSILON = 1e-6  # of clip_grad_norm_


class Norms:
    """One number for each parameter, on the device and, for updates on the CPU, on the host.

    It keeps no parameter: the thread of the updates has it, and would keep the model and its
    optimizer for ever.
    """

    def __init__(self, parameters: Sequence[Offloaded], device: torch.device) -> None:
        self._on_device = torch.zeros(len(parameters), device=device)
        self._host = torch.zeros(len(parameters), pin_memory=device.type == "cuda")
        self.last = [0.0] * len(parameters)  # on the host, of the last step
        self._groups = {offloaded.index: _groups(offloaded.parameter) for offloaded in parameters}

    def measure(self, offloaded: Offloaded, gradient: torch.Tensor) -> torch.Tensor:
        """The norm of a gradient, on the device."""
        place = self._on_device[offloaded.index]
        place.copy_(torch.linalg.vector_norm(gradient, dtype=torch.float32))
        return place

    def send(self, offloaded: Offloaded, lane: Lane) -> None:
        """Copy it to the host ahead of the gradient."""
        lane.copy(
            self._host[offloaded.index : offloaded.index + 1],
            self._on_device[offloaded.index : offloaded.index + 1],
        )

    def arrived(self, offloaded: Offloaded) -> float:
        """The norm of a gradient that has arrived on the host."""
        return float(self._host[offloaded.index])

    def total(self, received: Sequence[Offloaded]) -> tuple[float, list[str]]:
        """The norm of these gradients over all ranks that share the model, and which of them are
        not finite here.

        Waits for the device.
        """
        self.last = values = self._on_device.tolist()
        square = sum(
            values[offloaded.index] ** 2
            for offloaded in received
            if not self._groups[offloaded.index]
        )
        sharded = sorted(
            (offloaded for offloaded in received if self._groups[offloaded.index]),
            key=lambda offloaded: offloaded.index,
        )
        for groups in dict.fromkeys(self._groups[offloaded.index] for offloaded in sharded):
            own_square = sum(
                values[offloaded.index] ** 2
                for offloaded in sharded
                if self._groups[offloaded.index] == groups
            )
            part = torch.full((), own_square, dtype=torch.float64, device=self._on_device.device)
            for group in groups:
                dist.all_reduce(part, group=group)
            square += float(part)
        return math.sqrt(square), [
            offloaded.name for offloaded in received if not math.isfinite(values[offloaded.index])
        ]


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


CERTAIN = 8  # steps
# times the last norm of a parameter: squared and times 1 - beta2 = 0.001, this adds no more than a
# tenth to the second moment
SPIKE = 10
RuleOf = Callable[[Offloaded, float], Rule]


class Schedule:
    """The gradients of one step after the other."""

    def __init__(
        self, settings: OffloadSettings, norms: Norms, down: Lane, rule_of: RuleOf
    ) -> None:
        """`rule_of`: the next update of a parameter, by gradients that are scaled by a factor."""
        self.settings, self._norms, self._down, self._rule_of = settings, norms, down, rule_of
        self.worker: Worker | None = None
        self.steps, self.skipped, self.norm = 0, 0, 0.0
        self._unclipped = 0
        self._received: dict[int, Offloaded] = {}
        self._kept_gradients: dict[
            int, torch.Tensor
        ] = {}  # gradients that wait on the device for the norm
        self._pieces: list[Piece] = []
        self._begun: dict[int, Rule] = {}  # of updates that began in this step

    @property
    def begins_early(self) -> bool:
        """Whether updates of this step begin before its norm is known."""
        return self.settings.max_norm is None or (
            self._unclipped >= CERTAIN and not self.settings.stream_weights
        )

    @property
    def unfinished(self) -> bool:
        """Whether gradients on the host wait for the end of the step."""
        return bool(self._pieces) and not self.begins_early

    def collect(self, offloaded: Offloaded, gradient: torch.Tensor) -> None:
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
            device_states.update(
                offloaded, gradient, self._begin_early(offloaded), (~norm.isfinite()).float()
            )
        elif offloaded.on_device:
            self._kept_gradients[offloaded.index] = gradient
        else:
            self._send(offloaded, gradient)

    def _begin_early(self, offloaded: Offloaded) -> Rule:
        """The rule of an update that begins before the end of the step."""
        rule = self._begun[offloaded.index] = self._rule_of(offloaded, 1.0)
        return rule

    def _send(self, offloaded: Offloaded, gradient: torch.Tensor) -> None:
        assert offloaded.slot is not None
        assert self.worker is not None
        self.worker.wait([offloaded])  # its slot is free
        self._down.throttle()
        self._down.after_current()
        self._norms.send(offloaded, self._down)
        rules = [self._begin_early(offloaded)] if self.begins_early else []
        limit = math.inf
        if self.begins_early and self.settings.max_norm is not None:
            limit = min(self.settings.max_norm, SPIKE * self._norms.last[offloaded.index])
        pieces = [
            Piece(
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
        self._down.rest()
        self.norm, wrong = self._norms.total(received)
        self.steps += 1
        # if not wrong here, but on another rank, the norm is not finite
        finite = self.norm < math.inf and not wrong
        limit = self.settings.max_norm
        if limit is None:
            changed = [
                offloaded.name
                for offloaded in received
                if begun[offloaded.index] != self._rule_of(offloaded, 1.0)
            ]
            self._count(received, wrong)
            if changed:
                raise UsageError(
                    f"the learning rate or another number of {changed[0]}'s group changed between"
                    " backward and step()",
                    "change it before backward: without max_norm updates begin then",
                )
        elif finite:
            self._make(
                pieces, kept_gradients, received, begun, min(1.0, limit / (self.norm + EPSILON))
            )
            self._count(received, [])
        else:
            self._drop(pieces)
        if not finite:
            self._report(wrong, len(received))

    def forget(self) -> None:
        """With max_norm, leave out the gradients that came since the last step.

        Without it, their updates have begun for good.
        """
        if self._received and self.settings.max_norm is not None:
            pieces, self._pieces = self._pieces, []
            self._received, self._kept_gradients, self._begun = {}, {}, {}
            self._drop(pieces)

    def _make(
        self,
        pieces: list[Piece],
        kept_gradients: dict[int, torch.Tensor],
        received: list[Offloaded],
        begun: dict[int, Rule],
        scale: float,
    ) -> None:
        """Make the updates of a step with all its gradients scaled, if they have not been made
        so.
        """
        assert self.worker is not None
        early, rules = (
            self.begins_early,
            {offloaded.index: self._rule_of(offloaded, scale) for offloaded in received},
        )
        never = torch.zeros((), device=self._down.device)
        for offloaded in received:
            if offloaded.index in kept_gradients:
                device_states.update(
                    offloaded, kept_gradients[offloaded.index], rules[offloaded.index], never
                )
        if not early:
            for piece in pieces:
                piece.rules.append(rules[piece.offloaded.index])
            self.worker.submit(pieces)
        else:
            for piece in pieces:
                offloaded = piece.offloaded
                # else it has this update
                if (
                    begun[offloaded.index] != rules[offloaded.index]
                    or not self._norms.last[offloaded.index] <= piece.limit
                ):
                    self.worker.revise(piece, rules[offloaded.index])
        self._unclipped = self._unclipped + 1 if scale == 1 else 0

    def _drop(self, pieces: list[Piece]) -> None:
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

    def _count(self, received: list[Offloaded], wrong: list[str]) -> None:
        for offloaded in received:
            offloaded.step += offloaded.name not in wrong

    def _report(self, wrong: list[str], count: int) -> None:
        if self.settings.skip_nonfinite:
            self.skipped += 1
            return
        names = (
            ", ".join(wrong[:3]) + (f" and {len(wrong) - 3} more" if len(wrong) > 3 else "")
            if wrong
            else "some of another rank"
        )
        consequence = (
            "nothing was updated"
            if self.settings.max_norm is not None
            else f"the other {count - len(wrong)} parameters were updated"
        )
        raise BusbwError(
            f"gradients are not finite in step {self.steps}: {names}; {consequence}",
            "load the last checkpoint, lower the learning rate, or use max_norm with"
            " skip_nonfinite=True",
        )
