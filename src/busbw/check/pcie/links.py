"""Width and speed of PCIe links."""

from collections.abc import Iterator

from busbw.check.base import check, judged, not_offered, passed, skipped, warned
from busbw.check.machine import NONE, Machine, Part, nics, slots, with_cpu
from busbw.check.pcie.upstream import UpstreamLink, no_link, upstream
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.host.gpu import load, pcie_rate
from busbw.host.pci import device_directory, read_link

MOVE_CARD = "drain the host and power it off; then move {bdf} to a slot with {lanes} lanes"

WIDTH = CheckRow(
    id="BW040",
    name="pcie-width",
    layer=Layer.PCIE,
    title="width of the PCIe links of GPUs, network controllers and the switches above them",
    right="each link has all lanes that its device supports",
    why="Each step down, from 16 lanes to 8 or 4, halves what the link carries.",
    fix=(
        "drain the host; check the bifurcation of the slot of {bdf} in the BIOS; power it off and"
        " reseat the card and its riser"
    ),
    stays="permanent: hardware or a BIOS setting",
    reads=("/sys/bus/pci/devices/*/current_link_width", "/sys/bus/pci/devices/*/max_link_width"),
    sources=("Linux, Documentation/ABI/testing/sysfs-bus-pci",),
)
BUSY_PERCENT = 50  # percent of NVML's sample period
GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
GBIT = 1e9 / 8


@check(WIDTH)
def check_width(machine: Machine) -> Iterator[Finding]:
    """A finding for each slot, on its link and those of the switches above it."""
    none = True
    for part, steps in upstream(machine):
        none = False
        own_link = steps[0]
        model = with_cpu(machine, part)
        if model:
            yield skipped(f"{model} is connected to its CPU by NVLink-C2C, not by PCIe", part.name)
            continue
        if own_link.below.width is None or own_link.below.width_max is None:
            yield no_link(machine, part, "width")
            continue
        narrow = False
        for step in steps:
            width = step.below.width
            if width is not None and width < _expected_lanes(step):
                narrow = True
                yield _judge_narrow(step, width)
        if not narrow:
            lanes = Evidence(
                f"{part.path}/current_link_width",
                str(own_link.below.width),
                str(own_link.below.width_max),
            )
            yield passed(part.name, f"it has all of its {own_link.below.width_max} lanes", lanes)
    if none:
        yield skipped(NONE)


def _expected_lanes(step: UpstreamLink) -> int:
    """Lanes that a link should have.

    A switch cannot be moved to another slot, so it needs only what both ends support.
    """
    width = step.below.width_max
    if width is None:
        return 0
    if step.last:
        return width
    return min(width, (step.above.width_max if step.above else None) or width)


def _judge_narrow(step: UpstreamLink, width: int) -> Finding:
    best = _expected_lanes(step)
    slot = step.above.width_max if step.above else None
    reason = f"; the port above it ({step.upper}) has no more" if slot == width else ""
    fix = filled(WIDTH.fix, bdf=step.lower)
    if reason:
        fix = filled(MOVE_CARD, bdf=step.lower, lanes=best)
    evidence = Evidence(f"{device_directory(step.lower)}/current_link_width", str(width), str(best))
    return warned(
        step.part.name,
        f"{step.name} has {width} of {best} PCIe lanes{reason}",
        evidence,
        fix=fix,
        weight=best - width,
    )


SPEED = CheckRow(
    id="BW041",
    name="pcie-speed",
    layer=Layer.PCIE,
    title="speed of the PCIe links of GPUs, network controllers and the switches above them",
    right=(
        "each link runs at the highest speed that both ends support; an idle GPU's link may be"
        " slower"
    ),
    why=(
        "Each generation down halves what the link carries. A BIOS setting, a riser or a bad"
        " contact can down-train a link."
    ),
    fix=(
        "drain the host; set the link speed of the slot of {bdf} to Auto in the BIOS; if that "
        "does not help, power it off and reseat the card and its riser"
    ),
    stays="permanent: hardware or a BIOS setting",
    reads=(
        "/sys/bus/pci/devices/*/current_link_speed",
        "/sys/bus/pci/devices/*/max_link_speed",
        "NVML utilization",
    ),
    sources=("Linux, Documentation/ABI/testing/sysfs-bus-pci",),
)


@check(SPEED)
def check_speed(machine: Machine) -> Iterator[Finding]:
    """A finding for each slot, on its link and those of the switches above it."""
    none = True
    busy = {bdf for bdf, percent in load(machine).items() if percent >= BUSY_PERCENT}
    for part, steps in upstream(machine):
        none = False
        model = with_cpu(machine, part)
        if model:
            yield skipped(f"{model} is connected to its CPU by NVLink-C2C, not by PCIe", part.name)
            continue
        if steps[0].below.speed is None or steps[0].below.speed_max is None:
            yield no_link(machine, part, "speed")
            continue
        idle = part.device.gpu and part.device.bdf not in busy
        slow = False
        for step in steps:
            speed = step.below.speed
            if speed is not None and speed < _expected_speed(step):
                slow = True
                yield _judge_slow(step, speed, idle=idle and step.last)
        if not slow:
            yield _judge_full(part, steps[0])
    if none:
        yield skipped(NONE)


def _expected_speed(step: UpstreamLink) -> float:
    """GT/s that both ends support; 0 if unknown."""
    speed = step.below.speed_max
    if speed is None:
        return 0
    return min(speed, (step.above.speed_max if step.above else None) or speed)


def _judge_full(part: Part, step: UpstreamLink) -> Finding:
    evidence = Evidence(
        f"{part.path}/current_link_speed",
        f"{step.below.speed:g} GT/s",
        f"{_expected_speed(step):g} GT/s",
    )
    return passed(
        part.name,
        f"its link runs at {step.below.speed:g} GT/s, the most that both ends support",
        evidence,
    )


def _judge_slow(step: UpstreamLink, speed: float, *, idle: bool) -> Finding:
    evidence = Evidence(
        f"{device_directory(step.lower)}/current_link_speed",
        f"{speed:g} GT/s",
        f"{_expected_speed(step):g} GT/s",
    )
    text = f"{step.name} runs at {speed:g} of {_expected_speed(step):g} GT/s"
    if idle:
        fix = "busbw check --load 10"
        return not_offered(
            step.part.name, f"{text}; an idle GPU lowers its link speed", evidence, fix=fix
        )
    return warned(
        step.part.name,
        text,
        evidence,
        fix=filled(SPEED.fix, bdf=step.lower),
        weight=_expected_speed(step) - speed,
    )


NIC_BANDWIDTH = CheckRow(
    id="BW042",
    name="pcie-nic-bandwidth",
    layer=Layer.PCIE,
    title="PCIe rate of network cards, compared with their ports",
    right="the PCIe link carries at least what the active ports send",
    why=(
        "A 400 Gbit/s port needs 16 lanes of generation 5. On a narrower or slower link it can"
        " never send at line rate."
    ),
    fix=(
        "busbw check --only pcie-width --only pcie-speed, and mend what they name; if they name"
        " nothing, drain the host, power it off and move {bdf} to a slot with more lanes or a later"
        " PCIe generation"
    ),
    stays="permanent: hardware",
    reads=(
        "/sys/bus/pci/devices/*/current_link_*",
        "/sys/class/infiniband/*/ports/*/rate",
        "/sys/class/net/*/speed",
    ),
    sources=("PCI Express Base Specification, rates and encoding of each generation",),
)


@check(NIC_BANDWIDTH)
def check_nic_bandwidth(machine: Machine) -> Iterator[Finding]:
    """A finding for each card with a port that is up."""
    none = True
    for part in slots(nics(machine)):
        ports = _rate_of_ports(machine, part)
        if not ports:
            continue
        none = False
        link = read_link(machine, part.device.bdf)
        rate = pcie_rate(GENERATIONS.get(link.speed or 0), link.width)
        if rate is None:
            yield no_link(machine, part, "speed and width")
            continue
        text = f"{rate / GBIT:.0f} Gbit/s for ports of {ports / GBIT:.0f} Gbit/s"
        yield judged(
            right=rate >= ports,
            subject=part.name,
            good=f"PCIe carries {text}",
            bad=f"PCIe carries only {text}",
            evidence=(
                Evidence(f"{part.path}/current_link_speed", f"{link.speed:g} GT/s"),
                Evidence(f"{part.path}/current_link_width", str(link.width)),
            ),
            fix=filled(NIC_BANDWIDTH.fix, bdf=part.device.bdf),
        )
    if none:
        yield skipped("no network card with a port that is up")


def _rate_of_ports(machine: Machine, part: Part) -> float:
    """Bytes per second of all ports of the card that are up."""
    card = {nic.name for nic in nics(machine) if nic.device.slot == part.device.slot}
    ports = (
        nic
        for nic in machine.host.nics
        if nic.up and (nic.name.partition(":")[0] in card or nic.netdev in card)
    )
    return sum(nic.rate or 0 for nic in ports)
