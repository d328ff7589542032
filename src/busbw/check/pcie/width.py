"""The width of PCIe links."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, skipped, warned
from busbw.check.machine import Machine
from busbw.check.parts import NONE, with_cpu
from busbw.check.pcie.upstream import Step, no_link, upstream
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.pci import at

MOVE = "drain the host and power it off; then move {bdf} to a slot with {lanes} lanes"

ROW = CheckRow(
    id="BW040",
    name="pcie-width",
    layer=Layer.PCIE,
    title="width of the PCIe links of GPUs, network controllers and the switches above them",
    right="each link has all lanes that its device supports",
    why="Each step down, from 16 lanes to 8 or 4, halves what the link carries.",
    fix="drain the host; check the bifurcation of the slot of {bdf} in the BIOS; power it off and reseat the card and its riser",
    stays="permanent: hardware or a BIOS setting",
    reads=("/sys/bus/pci/devices/*/current_link_width", "/sys/bus/pci/devices/*/max_link_width"),
    sources=("Linux, Documentation/ABI/testing/sysfs-bus-pci",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The link of each slot, and of the switches above it."""
    none = True
    for part, steps in upstream(machine):
        none = False
        own = steps[0]
        if model := with_cpu(machine, part):
            yield skipped(f"{model} is connected to its CPU by NVLink-C2C, not by PCIe", part.name)
            continue
        if own.below.width is None or own.below.width_max is None:
            yield no_link(machine, part, "width")
            continue
        narrow = [(step, width) for step in steps if (width := step.below.width) is not None and width < wanted(step)]
        yield from (_narrow(step, width) for step, width in narrow)
        if not narrow:
            lanes = Evidence(f"{part.path}/current_link_width", str(own.below.width), str(own.below.width_max))
            yield passed(part.name, f"it has all of its {own.below.width_max} lanes", lanes)
    if none:
        yield skipped(NONE)


def wanted(step: Step) -> int:
    """Lanes that a link should have. A switch cannot be moved to another slot, so it needs only what both ends support."""
    width = step.below.width_max
    if width is None:
        return 0
    return min(width, (step.above.width_max if step.above else None) or width) if not step.last else width


def _narrow(step: Step, width: int) -> Found:
    best = wanted(step)
    slot = step.above.width_max if step.above else None
    reason = f"; the port above it ({step.upper}) has no more" if slot == width else ""
    fix = filled(ROW.fix, bdf=step.lower) if not reason else filled(MOVE, bdf=step.lower, lanes=best)
    evidence = Evidence(f"{at(step.lower)}/current_link_width", str(width), str(best))
    return warned(step.part.name, f"{step.name} has {width} of {best} PCIe lanes{reason}", evidence, fix=fix, weight=best - width)


CHECK = Check(ROW, look)
