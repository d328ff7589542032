"""The MTU of Alibaba's eRDMA."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, not_offered, skipped, unread
from busbw.check.machine import Machine
from busbw.check.nic.links import driver
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

RIGHT = ("8500", "1400")  # with jumbo frames, without

ROW = CheckRow(
    id="BW085",
    name="nic-erdma-mtu",
    layer=Layer.NIC,
    title="MTU of eRDMA interfaces",
    right="8500 with jumbo frames, otherwise 1400",
    why="According to Alibaba Cloud, NCCL's LL128 protocol gives wrong data over eRDMA at any other MTU.",
    fix="drain the host, as the link may go down for a moment; ip link set dev {netdev} mtu 8500 (1400 if jumbo frames are off for the "
    "instance)",
    stays="lost at the next reboot; set it in netplan, NetworkManager (802-3-ethernet.mtu) or ifcfg (MTU=)",
    reads=("/sys/class/net/*/mtu", "/sys/class/infiniband/*/device/driver"),
    sources=("Alibaba Cloud, Configure eRDMA on a GPU-accelerated instance",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each eRDMA device."""
    ports = [port for port in machine.ports if driver(machine, port) == "erdma"]
    if not ports:
        yield skipped("no eRDMA device")
    for port in ports:
        path = f"/sys/class/net/{port.netdev}/mtu"
        reading = machine.read(path)
        if not port.netdev:
            yield not_offered(port.name, "its interface is not in this network namespace")
        elif not reading.text:
            yield unread(port.name, reading, "the MTU")
        else:
            yield judged(
                right=reading.text in RIGHT,
                subject=port.name,
                good=f"{port.netdev} has MTU {reading.text}",
                bad=f"{port.netdev} has MTU {reading.text}: NCCL may give wrong data",
                evidence=(Evidence(path, reading.text, " or ".join(RIGHT)),),
                fix=filled(ROW.fix, netdev=port.netdev),
                fails=True,
            )


CHECK = Check(ROW, look)
