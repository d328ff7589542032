"""Opening backends on all ranks: one that fails on any rank is left out on all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from busbw.core.errors import NoMeasurement
from busbw.launch.control import Control
from busbw.measure.events import EnterPhase
from busbw.moe.registry import BACKENDS, OpenedBackend, backend
from busbw.moe.types import MoeSpec

FAILURES = (RuntimeError, AssertionError, ValueError, TypeError)
T = TypeVar("T")


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
        why_not = _agreed(control, why_not)
        if not why_not:
            enter_phase("init", name)
            opened, why_not = attempt(control, partial(row.open, spec, len(hosts)))
        if opened is None:
            found.left_out[name] = why_not
        else:
            found.opened[name] = opened
    if not found.opened:
        raise found.nothing()
    return found


def attempt(control: Control, make: Callable[[], T]) -> tuple[T | None, str]:
    """What `make` gives, or None and why it failed on a rank. Collective."""
    made, failed = None, ""
    try:
        made = make()
    except FAILURES as error:
        failed = (str(error).strip() or type(error).__name__).splitlines()[0]
    failed = _agreed(control, failed)
    return (None if failed else made), failed


def _agreed(control: Control, reason: str) -> str:
    """The first reason of any rank, with the rank if not all have one. Collective."""
    reasons = control.allgather(reason)
    first: str = next(filter(None, reasons), "")
    return first if not first or all(reasons) else f"rank {reasons.index(first)}: {first}"
