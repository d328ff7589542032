"""Whether ports stall on PCIe."""

import re
from collections.abc import Iterator

from busbw.check.base import Check, not_offered, passed, warned
from busbw.check.machine import Machine, Port
from busbw.check.nic.links import each_port, evidence, total
from busbw.check.rates import HOUR_S, NOT_KNOWN, Count, too_fast, window
from busbw.check.shell_words import filled
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer

NOW = "outbound_pci_stalled_(rd|wr)"
EVENTS = "outbound_pci_stalled_(rd|wr)_events"
LOST = "outbound_pci_buffer_overflow"
PERCENT = 30  # the driver's own limit for an event
SECONDS, SHARE = 60, 1e-3  # allowed in total, and of the time between two readings
WATCH = "while a job runs: busbw check --only nic-pci-stalls --watch-for 60"

ROW = CheckRow(
    id="BW081",
    name="nic-pci-stalls",
    layer=Layer.NIC,
    title="ports that stall on PCIe",
    right=f"a port stalls for more than {PERCENT} % of a second in at most {SHARE:.1%} of the time between two readings (--watch-for, "
    f"--since); not judged with one reading from {SECONDS} s on",
    why="The port has data for memory, but PCIe does not take it: slot width or speed, ACS, IOMMU, or small reads. The port then pauses "
    "the switch, and so other hosts.",
    fix="lspci -s {bdf} -vv: width and speed (LnkSta), MaxReadReq; busbw check shows faults on its PCIe path",
    stays="BIOS settings stay; setpci is lost at the next reboot",
    reads=("ethtool -S: outbound_pci_stalled_{rd,wr}, outbound_pci_stalled_{rd,wr}_events, outbound_pci_buffer_overflow",),
    sources=("Linux Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst",),
)  # fmt: skip


def look(machine: Machine) -> Iterator[Found]:
    """Each port with a cable."""
    yield from each_port(machine, (), f"{NOW}|{EVENTS}|{LOST}", lambda port, found: _judge(machine, port, found))


def _judge(machine: Machine, port: Port, found: list[Count]) -> Found:
    now = max((count.value for count in found if re.fullmatch(NOW, count.name)), default=0)
    over = window(machine, [count for count in found if not re.fullmatch(NOW, count.name)])
    stalled, lost = total(over.counts, EVENTS), total(over.counts, LOST)
    message = f"it stalled in {stalled} s {over.since}, and for {now} % of the last second; {lost} packets lost to this"
    fix = filled(ROW.fix, bdf=port.bdf or port.device)
    often = too_fast(stalled, over.seconds, SHARE * HOUR_S) if over.seconds else False
    if now > PERCENT or lost or often:
        return warned(port.name, message, *evidence(found), fix=fix, weight=stalled + lost)
    if over.seconds is None and stalled >= SECONDS:
        return not_offered(port.name, f"{message}; {NOT_KNOWN}", *evidence(found), fix=WATCH)
    return passed(port.name, message, *evidence(found))


CHECK = Check(ROW, look)
