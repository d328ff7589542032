"""The speed of PCIe links."""

from collections.abc import Iterator

from busbw.check.base import Check, not_offered, passed, skipped, warned
from busbw.check.machine import Machine
from busbw.check.parts import NONE, Part, with_cpu
from busbw.check.pcie.upstream import Step, no_link, upstream
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.nvml_load import load
from busbw.host.pci import at

BUSY = 50  # percent of NVML's sample period

ROW = CheckRow(
    id="BW041",
    name="pcie-speed",
    layer=Layer.PCIE,
    title="speed of the PCIe links of GPUs, network controllers and the switches above them",
    right="each link runs at the highest speed that both ends support; an idle GPU's link may be slower",
    why="Each generation down halves what the link carries. A BIOS setting, a riser or a bad contact can down-train a link.",
    fix="drain the host; set the link speed of the slot of {bdf} to Auto in the BIOS; if that does not help, power it off and reseat "
    "the card and its riser",
    stays="permanent: hardware or a BIOS setting",
    reads=("/sys/bus/pci/devices/*/current_link_speed", "/sys/bus/pci/devices/*/max_link_speed", "NVML utilization"),
    sources=("Linux, Documentation/ABI/testing/sysfs-bus-pci",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The link of each slot, and of the switches above it."""
    none, busy = True, {bdf: percent for bdf, percent in load(machine).items() if percent >= BUSY}
    for part, steps in upstream(machine):
        none = False
        if model := with_cpu(machine, part):
            yield skipped(f"{model} is connected to its CPU by NVLink-C2C, not by PCIe", part.name)
            continue
        if steps[0].below.speed is None or steps[0].below.speed_max is None:
            yield no_link(machine, part, "speed")
            continue
        slow = [(step, speed) for step in steps if (speed := step.below.speed) is not None and speed < wanted(step)]
        yield from (_slow(step, speed, idle=step.last and part.device.gpu and part.device.bdf not in busy) for step, speed in slow)
        if not slow:
            yield _full(part, steps[0])
    if none:
        yield skipped(NONE)


def wanted(step: Step) -> float:
    """GT/s that both ends support; 0 if unknown."""
    speed = step.below.speed_max
    if speed is None:
        return 0
    return min(speed, (step.above.speed_max if step.above else None) or speed)


def _full(part: Part, own: Step) -> Found:
    evidence = Evidence(f"{part.path}/current_link_speed", f"{own.below.speed:g} GT/s", f"{wanted(own):g} GT/s")
    return passed(part.name, f"its link runs at {own.below.speed:g} GT/s, the most that both ends support", evidence)


def _slow(step: Step, speed: float, *, idle: bool) -> Found:
    evidence = Evidence(f"{at(step.lower)}/current_link_speed", f"{speed:g} GT/s", f"{wanted(step):g} GT/s")
    text = f"{step.name} runs at {speed:g} of {wanted(step):g} GT/s"
    if idle:
        fix = "busbw check --load 10"
        return not_offered(step.part.name, f"{text}; an idle GPU lowers its link speed", evidence, fix=fix)
    return warned(step.part.name, text, evidence, fix=filled(ROW.fix, bdf=step.lower), weight=wanted(step) - speed)


CHECK = Check(ROW, look)
