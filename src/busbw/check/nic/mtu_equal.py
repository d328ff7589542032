"""Whether RoCE interfaces have one MTU."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, skipped, unread, warned
from busbw.check.machine import Machine
from busbw.check.nic.links import fabric, hardware, holder, no_fabric
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

ROW = CheckRow(
    id="BW071",
    name="nic-mtu-equal",
    layer=Layer.NIC,
    title="equal MTU on RoCE interfaces",
    right="the same on all rails, and on a bond and its slaves",
    why="A sender with the larger MTU sends packets that the other end drops (rx_oversize_pkts_phy), and connections stall.",
    fix="drain the host, as the link may go down for a moment; ip link set dev {netdev} mtu {mtu}",
    stays="lost at the next reboot; set it in netplan, NetworkManager (802-3-ethernet.mtu) or ifcfg (MTU=), and on the switch",
    reads=("/sys/class/net/*/mtu",),
    sources=("Linux Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst, rx_oversize_pkts_phy",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each interface, compared with most of them."""
    ports = [port for port in fabric(machine) if port.netdev]
    names = dict.fromkeys(name for port in ports for name in (holder(machine, port), *hardware(machine, port)))
    if len(names) < 2:
        yield skipped("fewer than two RoCE interfaces" if names else no_fabric(machine))
        return
    read = {name: machine.text(f"/sys/class/net/{name}/mtu") for name in names}
    values = [mtu for mtu in read.values() if mtu]
    usual = max(values, key=values.count, default="")
    for name, mtu in read.items():
        path = f"/sys/class/net/{name}/mtu"
        if not mtu:
            yield unread(name, machine.read(path), "the MTU")
        elif mtu != usual:
            fix = filled(ROW.fix, netdev=name, mtu=usual)
            yield warned(name, f"MTU {mtu}, while most RoCE interfaces have {usual}", Evidence(path, mtu, usual), fix=fix)
    if values and set(values) == {usual} and len(values) == len(read):
        yield passed("", f"MTU {usual} on all {len(read)} RoCE interfaces", Evidence("/sys/class/net/*/mtu", usual))


CHECK = Check(ROW, look)
