"""Pause storms."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.machine import Machine, Port
from busbw.check.nic.links import Count, each_port, evidence, total
from busbw.core.checking import CheckRow, Found, Layer
from busbw.core.shell_words import filled

ERROR, WARNING = "tx_pause_storm_error_events", "tx_pause_storm_warning_events"

ROW = CheckRow(
    id="BW100",
    name="roce-storm",
    layer=Layer.ROCE,
    title="pause storms",
    right="none since the driver was loaded",
    why="The port paused its switch for so long that the driver counted it. In an error event the NIC stops pausing, and packets may be "
    "lost. Hosts behind the switch stall meanwhile.",
    fix="find what stops the receiver: PCIe of {device} (nic-pci-stalls, lspci -vv), or a hung GPU or host (dmesg -T)",
    stays="depends on the cause; the counters restart when the driver is loaded",
    reads=(f"ethtool -S: {ERROR}, {WARNING}",),
    sources=("Linux Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst",),
)  # fmt: skip


def look(machine: Machine) -> Iterator[Found]:
    """Each RoCE port."""
    yield from each_port(machine, (), f"{ERROR}|{WARNING}", _judge, ethernet=True)


def _judge(port: Port, found: list[Count]) -> Found:
    errors, warnings = total(found, ERROR), total(found, WARNING)
    if errors or warnings:
        message = f"{errors} pause storms that the NIC ended, {warnings} long pauses since the driver was loaded"
        return warned(port.name, message, *evidence(found), fix=filled(ROW.fix, device=port.device))
    return passed(port.name, "no pause storm since the driver was loaded", *evidence(found))


CHECK = Check(ROW, look)
