"""Whether a network card's PCIe link carries the rate of its ports."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, skipped
from busbw.check.machine import Machine
from busbw.check.parts import Part, nics, slots
from busbw.check.pcie.upstream import no_link
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.gpu import pcie_rate
from busbw.host.pci import read_link

GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
GBIT = 1e9 / 8

ROW = CheckRow(
    id="BW042",
    name="pcie-nic-bandwidth",
    layer=Layer.PCIE,
    title="PCIe rate of network cards, compared with their ports",
    right="the PCIe link carries at least what the active ports send",
    why="A 400 Gbit/s port needs 16 lanes of generation 5. On a narrower or slower link it can never send at line rate.",
    fix="drain the host and power it off; then move {bdf} to a slot with more lanes or a later PCIe generation",
    stays="permanent: hardware",
    reads=("/sys/bus/pci/devices/*/current_link_*", "/sys/class/infiniband/*/ports/*/rate", "/sys/class/net/*/speed"),
    sources=("PCI Express Base Specification, rates and encoding of each generation",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each card with a port that is up."""
    none = True
    for part in slots(nics(machine)):
        ports = _rate(machine, part)
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
            fix=filled(ROW.fix, bdf=part.device.bdf),
        )
    if none:
        yield skipped("no network card with a port that is up")


def _rate(machine: Machine, part: Part) -> float:
    """Bytes per second of all ports of the card that are up."""
    card = {nic.name for nic in nics(machine) if nic.device.slot == part.device.slot}
    ports = (nic for nic in machine.host.nics if nic.up and (nic.name.partition(":")[0] in card or nic.netdev in card))
    return sum(nic.rate or 0 for nic in ports)


CHECK = Check(ROW, look)
