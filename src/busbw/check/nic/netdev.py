"""Whether the interfaces of RoCE ports are up and have an address."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, passed, skipped, unknown, unread, warned
from busbw.check.machine import Machine, Port
from busbw.check.nic.links import driver, hardware, holder
from busbw.core.checking import CheckRow, Evidence, Found, Layer
from busbw.host.ip_addresses import IPV4, Address, read_addresses

ROW = CheckRow(
    id="BW069",
    name="nic-netdev",
    layer=Layer.NIC,
    title="interfaces of RoCE ports",
    right="up, with an IP address that is not link-local; that of a bond is on the bond",
    why="RoCE v2 sends IP packets. Without an address of its interface a port has no GID that routers forward.",
    fix="ip link set dev {netdev} up; ip address add ADDRESS/PREFIX dev {netdev}",
    stays="lost at the next reboot; set both in netplan, NetworkManager or ifcfg",
    reads=("/sys/class/net/*/operstate", IPV4, "/proc/net/if_inet6"),
    sources=("InfiniBand Architecture Specification, annex A17 (RoCEv2)",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each RoCE port that is active, and each with an interface."""
    ports = [port for port in machine.roce_ports if port.active or port.netdev]
    if not ports:
        yield skipped("no RoCE port")
        return
    addresses = read_addresses(machine)
    for port in ports:
        yield _judge(machine, port, addresses)


def _judge(machine: Machine, port: Port, addresses: dict[str, list[Address]] | str) -> Found:
    netdev = holder(machine, port)
    if not netdev:
        return unknown(port.name, "its interface is not in this network namespace", fix="run busbw check on the host, or with --net=host")
    states = []
    for name in hardware(machine, port):
        reading = machine.read(f"/sys/class/net/{name}/operstate")
        if not reading.text:
            return unread(port.name, reading, f"the state of {name}")
        states.append(Evidence(f"/sys/class/net/{name}/operstate", reading.text, "up"))
    down = [evidence.where.split("/")[4] for evidence in states if evidence.seen != "up"]
    if down:
        message = f"{', '.join(down)} is not up" if len(down) == 1 else f"{', '.join(down)} are not up"
        return warned(port.name, message, *states, fix=f"ip link set dev {down[0]} up; ethtool {down[0]} shows whether it has a link")
    if isinstance(addresses, str):
        return unknown(port.name, f"addresses cannot be read: {addresses}", *states)
    if netdev not in addresses:
        return unknown(port.name, f"{netdev} is not in this network namespace", *states, fix="run busbw check on the host")
    return _addressed(machine, port, netdev, addresses[netdev], states)


def _addressed(machine: Machine, port: Port, netdev: str, own: list[Address], states: list[Evidence]) -> Found:
    usable = [address for address in own if not address.ip.is_link_local]
    seen = Evidence(f"{IPV4}: {netdev}", ", ".join(map(str, own)) or "none", "one that is not link-local")
    if usable:
        return passed(port.name, f"{netdev} is up and has {usable[0]}", *states, seen)
    fix = ROW.fix.format(netdev=netdev)
    if driver(machine, port) == "erdma" or not any(other.active for other in machine.ports if other != port):
        return failed(port.name, f"{netdev} has no address", *states, seen, fix=fix)
    return warned(port.name, f"{netdev} has no address: RDMA works in its own network at most", *states, seen, fix=fix)


CHECK = Check(ROW, look)
