"""Whether the interfaces of RoCE ports are up and have an address."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, not_offered, passed, skipped, unanswered, unread, warned
from busbw.check.machine import Machine, Port
from busbw.check.nic.links import driver, fabric, hardware, holder, no_fabric, uppers
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.ip_addresses import IPV4, Address, read_addresses

UP = ("up", "unknown")  # some drivers do not report a state

SET_UP = "ip link set dev {netdev} up; ethtool {netdev} shows whether it has a link"

ROW = CheckRow(
    id="BW069",
    name="nic-netdev",
    layer=Layer.NIC,
    title="interfaces of RoCE ports",
    right="up, with an IP address that is not link-local, on the interface or on its bond, bridge or VLAN",
    why="RoCE v2 sends IP packets. Without an IP address a port has no GID that routers forward.",
    fix="ip link set dev {netdev} up; ip address add ADDRESS/PREFIX dev {netdev}",
    stays="lost at the next reboot; set both in netplan, NetworkManager or ifcfg",
    reads=("/sys/class/net/*/operstate", IPV4, "/proc/net/if_inet6"),
    sources=("InfiniBand Architecture Specification, annex A17 (RoCEv2)",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each active RoCE port that collectives use. nic-state reports ports that are down."""
    ports = (*fabric(machine), *(port for port in machine.ports if driver(machine, port) == "erdma"))
    if not ports:
        yield skipped(no_fabric(machine))
        return
    addresses = read_addresses(machine)
    for port in ports:
        yield _judge(machine, port, addresses)


def _judge(machine: Machine, port: Port, addresses: dict[str, list[Address]] | str) -> Found:
    netdev = holder(machine, port)
    if not netdev:
        return not_offered(
            port.name, "its interface is not in this network namespace", fix="run busbw check on the host, or with --net=host"
        )
    states = []
    for name in hardware(machine, port):
        reading = machine.read(f"/sys/class/net/{name}/operstate")
        if not reading.text:
            return unread(port.name, reading, f"the state of {name}")
        states.append(Evidence(f"/sys/class/net/{name}/operstate", reading.text, "up"))
    down = [evidence.where.split("/")[4] for evidence in states if evidence.seen not in UP]
    if down:
        message = f"{', '.join(down)} is not up" if len(down) == 1 else f"{', '.join(down)} are not up"
        return warned(port.name, message, *states, fix=filled(SET_UP, netdev=down[0]))
    if isinstance(addresses, str):
        return unanswered(port.name, f"addresses cannot be read: {addresses}", addresses, *states)
    if netdev not in addresses:
        return not_offered(port.name, f"{netdev} is not in this network namespace", *states, fix="run busbw check on the host")
    holders = dict.fromkeys((netdev, port.netdev, *uppers(machine, port.netdev)))
    own = [(name, address) for name in holders for address in addresses.get(name, [])]
    return _addressed(machine, port, netdev, own, states)


def _addressed(machine: Machine, port: Port, netdev: str, own: list[tuple[str, Address]], states: list[Evidence]) -> Found:
    usable = [(name, address) for name, address in own if not address.ip.is_link_local]
    seen = Evidence(f"{IPV4}: {netdev}", ", ".join(str(address) for _, address in own) or "none", "one that is not link-local")
    if usable:
        name, address = usable[0]
        return passed(port.name, f"{name} is up and has {address}", *states, seen)
    fix = filled(ROW.fix, netdev=netdev)
    if driver(machine, port) == "erdma":
        return failed(port.name, f"{netdev} has no address", *states, seen, fix=fix)
    return warned(port.name, f"{netdev} has no address: RDMA works only within its own network", *states, seen, fix=fix)


CHECK = Check(ROW, look)
