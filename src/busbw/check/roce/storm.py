"""Pause storms."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.machine import Machine, Port
from busbw.check.nic.links import each_port, evidence, total
from busbw.check.rates import Window, window
from busbw.check.shell_words import filled
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer

ERROR, WARNING = "tx_pause_storm_error_events", "tx_pause_storm_warning_events"

ROW = CheckRow(
    id="BW100",
    name="roce-storm",
    layer=Layer.ROCE,
    title="pause storms",
    right="none between two readings (--watch-for, --since), else none since the driver was loaded",
    why="The port paused its switch for so long that the driver counted it. In an error event the NIC stops pausing, and packets may be "
    "lost. Hosts behind the switch stall meanwhile.",
    fix="find what stops the receiver: PCIe of {device} (nic-pci-stalls, lspci -vv), or a hung GPU or host (dmesg -T)",
    stays="depends on the cause; the counters restart when the driver is loaded",
    reads=(f"ethtool -S: {ERROR}, {WARNING}",),
    sources=("Linux Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst",),
)  # fmt: skip


def look(machine: Machine) -> Iterator[Found]:
    """Each RoCE port."""
    yield from each_port(machine, (), f"{ERROR}|{WARNING}", lambda port, found: _judge(port, window(machine, found)), ethernet=True)


def _judge(port: Port, over: Window) -> Found:
    found = over.counts
    errors, warnings = total(found, ERROR), total(found, WARNING)
    if errors or warnings:
        message = f"{errors} pause storms that the NIC ended, {warnings} long pauses {over.since}"
        return warned(port.name, message, *evidence(found), fix=filled(ROW.fix, device=port.device), weight=errors + warnings)
    return passed(port.name, f"no pause storm {over.since}", *evidence(found))


CHECK = Check(ROW, look)
