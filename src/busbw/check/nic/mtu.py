"""The MTU of RoCE interfaces."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, skipped, unread
from busbw.check.machine import Machine
from busbw.check.nic.links import fabric, holder, no_fabric
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

LEAST = 4200  # a RoCE payload of 4096 bytes and its headers

ROW = CheckRow(
    id="BW070",
    name="nic-mtu",
    layer=Layer.NIC,
    title="MTU of RoCE interfaces",
    right=f"{LEAST} bytes or more, so that RDMA packets carry 4096 bytes",
    why="An MTU of 1500 limits RDMA packets to 1024 bytes of data. 7.4 % of each packet is then headers: 92.6 % of the line rate instead "
    "of 98.",
    fix="drain the host, as the link may go down for a moment; once the switch and the other hosts accept such packets: ip link set "
    "dev {netdev} mtu 9000",
    stays="lost at the next reboot; set it in netplan, NetworkManager (802-3-ethernet.mtu) or ifcfg (MTU=), and on the switch",
    reads=("/sys/class/net/*/mtu",),
    sources=("InfiniBand Architecture Specification, annex A17 (RoCEv2)",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The interface of each port that collectives use. Virtual networks of clouds have their own MTU rules."""
    used = fabric(machine)
    ports = [port for port in used if port.netdev]
    if not ports:
        yield skipped("no RoCE port with an interface here" if used else no_fabric(machine))
    for port in ports:
        path = f"/sys/class/net/{port.netdev}/mtu"
        reading = machine.read(path)
        if not (reading.text or "").isdecimal():
            yield unread(port.name, reading, "the MTU")
            continue
        mtu = int(reading.text or 0)
        yield judged(
            right=mtu >= LEAST,
            subject=port.name,
            good=f"{port.netdev} has MTU {mtu}",
            bad=f"{port.netdev} has MTU {mtu}: RDMA packets carry {1024 if mtu < 2200 else 2048} bytes, not 4096",
            evidence=(Evidence(path, str(mtu), f"{LEAST} or more"),),
            fix=filled(ROW.fix, netdev=holder(machine, port)),
        )


CHECK = Check(ROW, look)
