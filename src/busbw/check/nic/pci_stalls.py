"""Whether ports wait for the host."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.machine import Machine, Port
from busbw.check.nic.links import Count, each_port, evidence, hours_up, total
from busbw.core.checking import CheckRow, Found, Layer

NOW = "outbound_pci_stalled_(rd|wr)"
EVENTS = "outbound_pci_stalled_(rd|wr)_events"
LOST = "outbound_pci_buffer_overflow"
PERCENT = 30  # the driver's own limit for an event
SECONDS, SHARE = 60, 1e-3  # allowed in total, and of the time since the host started

ROW = CheckRow(
    id="BW081",
    name="nic-pci-stalls",
    layer=Layer.NIC,
    title="ports that wait for PCIe",
    right=f"less than {SECONDS} s and {SHARE:.1%} of the host's uptime in which a port waited for more than {PERCENT} % of a second",
    why="The port has data for memory, but PCIe does not take it: width or speed of the slot, ACS, IOMMU, or small reads. "
        "It then pauses the switch, and with that other hosts.",
    fix="lspci -s {bdf} -vv: width and speed (LnkSta), MaxReadReq; busbw check names what is wrong on its PCIe path",
    stays="BIOS settings stay; setpci is lost at the next reboot",
    reads=("ethtool -S: outbound_pci_stalled_{rd,wr}, outbound_pci_stalled_{rd,wr}_events, outbound_pci_buffer_overflow", "/proc/uptime"),
    sources=("Linux Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst",),
)  # fmt: skip


def look(machine: Machine) -> Iterator[Found]:
    """Each port with a cable."""
    allowed = max(SECONDS, SHARE * 3600 * (hours_up(machine) or 0))
    yield from each_port(machine, (), f"{NOW}|{EVENTS}|{LOST}", lambda port, found: _judge(port, found, allowed))


def _judge(port: Port, found: list[Count], allowed: float) -> Found:
    now = max((count.value for count in found if not count.name.endswith("_events") and count.name != LOST), default=0)
    seconds, lost = total(found, EVENTS), total(found, LOST)
    message = f"it waited in {seconds} s since the driver was loaded, {now} % of the last second; {lost} packets lost for it"
    if now > PERCENT or seconds >= allowed or lost:
        return warned(port.name, message, *evidence(found), fix=ROW.fix.format(bdf=port.bdf or port.device))
    return passed(port.name, message, *evidence(found))


CHECK = Check(ROW, look)
