"""Whether ports stall on PCIe."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.machine import Machine, Port
from busbw.check.nic.links import Count, each_port, evidence, hours_up, total
from busbw.core.checking import CheckRow, Found, Layer
from busbw.core.shell_words import filled

NOW = "outbound_pci_stalled_(rd|wr)"
EVENTS = "outbound_pci_stalled_(rd|wr)_events"
LOST = "outbound_pci_buffer_overflow"
PERCENT = 30  # the driver's own limit for an event
SECONDS, SHARE = 60, 1e-3  # allowed in total, and of the time since the host started

ROW = CheckRow(
    id="BW081",
    name="nic-pci-stalls",
    layer=Layer.NIC,
    title="ports that stall on PCIe",
    right=f"a port stalls for more than {PERCENT} % of a second during less than {SECONDS} s and {SHARE:.1%} of the host's uptime",
    why="The port has data for memory, but PCIe does not take it: slot width or speed, ACS, IOMMU, or small reads. The port then pauses "
    "the switch, and so other hosts.",
    fix="lspci -s {bdf} -vv: width and speed (LnkSta), MaxReadReq; busbw check shows faults on its PCIe path",
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
    message = f"it stalled in {seconds} s since the driver was loaded, and for {now} % of the last second; {lost} packets lost to this"
    if now > PERCENT or seconds >= allowed or lost:
        return warned(port.name, message, *evidence(found), fix=filled(ROW.fix, bdf=port.bdf or port.device))
    return passed(port.name, message, *evidence(found))


CHECK = Check(ROW, look)
