"""Opening backends on all ranks: one that fails on any rank is left out on all."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from busbw.core.errors import NoMeasurement
from busbw.launch.agreement import attempt, first_reason
from busbw.launch.control import Control
from busbw.measure.events import EnterPhase
from busbw.moe.registry import BACKENDS, OpenedBackend, backend
from busbw.moe.types import MoeSpec


@dataclass(slots=True)
class Backends:
    """The backends that run, by name, and why others do not."""

    opened: dict[str, OpenedBackend] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def nothing(self) -> NoMeasurement:
        """The error if nothing can be measured."""
        reasons = "; ".join(f"{name}: {why}" for name, why in self.left_out.items())
        return NoMeasurement(f"no backend can run: {reasons}", "name others with --backends")


def open_backends(
    spec: MoeSpec, control: Control, hosts: Sequence[str], enter_phase: EnterPhase, *, on_gpus: bool
) -> Backends:
    """Open those that were asked for, or all for this hardware. Collective.

    `hosts` has the host of each rank. NoMeasurement if none can run.
    """
    found = Backends()
    of_hardware = [row.name for row in BACKENDS if on_gpus or not row.of_gpus]
    for name in spec.backends or of_hardware:
        row, opened = backend(name), None
        why_not = "it needs GPUs" if row.of_gpus and not on_gpus else row.why_not(spec, hosts)
        why_not = first_reason(control, why_not)
        if not why_not:
            enter_phase("init", name)
            opened, why_not = attempt(control, partial(row.open, spec, len(hosts)))
        if opened is None or why_not:
            found.left_out[name] = why_not
        else:
            found.opened[name] = opened
    if not found.opened:
        raise found.nothing()
    return found
