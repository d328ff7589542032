"""The interfaces of RoCE ports: whether they are up, and their networks."""

import re
from collections.abc import Iterator
from ipaddress import IPv4Interface

from busbw.check.base import check, failed, not_offered, passed, skipped, unanswered, unread, warned
from busbw.check.machine import Machine, RdmaPort
from busbw.check.nic.links import driver, fabric, hardware, holder, no_fabric, uppers
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.host.ip_addresses import IPV4, Address, read_addresses

UP_STATES = ("up", "unknown")  # some drivers do not report a state
SET_UP = "ip link set dev {netdev} up; ethtool {netdev} shows whether it has a link"

NETDEV = CheckRow(
    id="BW069",
    name="nic-netdev",
    layer=Layer.NIC,
    title="interfaces of RoCE ports",
    right=(
        "up, with an IP address that is not link-local, on the interface or on its bond, bridge or"
        " VLAN"
    ),
    why="RoCE v2 sends IP packets. Without an IP address a port has no GID that routers forward.",
    fix="ip link set dev {netdev} up; ip address add ADDRESS/PREFIX dev {netdev}",
    stays="after reboot: lost; set both in netplan, NetworkManager or ifcfg",
    reads=("/sys/class/net/*/operstate", IPV4, "/proc/net/if_inet6"),
    sources=("InfiniBand Architecture Specification, annex A17 (RoCEv2)",),
)
CONF = "/proc/sys/net/ipv4/conf"
STRICT_RP_FILTER = 1  # rp_filter
# The lowest value that keeps ARP replies and sources on the interface that has the address.
MIN_ARP_SETTINGS = {"arp_ignore": 1, "arp_announce": 2}


@check(NETDEV)
def check_netdev(machine: Machine) -> Iterator[Finding]:
    """Each active RoCE port that collectives use. nic-state reports ports that are down."""
    ports = (
        *fabric(machine),
        *(port for port in machine.ports if driver(machine, port) == "erdma"),
    )
    if not ports:
        yield skipped(no_fabric(machine))
        return
    addresses = read_addresses(machine)
    for port in ports:
        yield _judge_netdev(machine, port, addresses)


def _judge_netdev(
    machine: Machine, port: RdmaPort, addresses: dict[str, list[Address]] | str
) -> Finding:
    netdev = holder(machine, port)
    if not netdev:
        return not_offered(
            port.name,
            "its interface is not in this network namespace",
            fix="run busbw check on the host, or with --net=host",
        )
    states = []
    for name in hardware(machine, port):
        reading = machine.read(f"/sys/class/net/{name}/operstate")
        if not reading.text:
            return unread(port.name, reading, f"the state of {name}")
        states.append(Evidence(f"/sys/class/net/{name}/operstate", reading.text, "up"))
    down = [evidence.where.split("/")[4] for evidence in states if evidence.seen not in UP_STATES]
    if down:
        message = (
            f"{', '.join(down)} is not up" if len(down) == 1 else f"{', '.join(down)} are not up"
        )
        return warned(port.name, message, *states, fix=filled(SET_UP, netdev=down[0]))
    if isinstance(addresses, str):
        return unanswered(port.name, f"addresses cannot be read: {addresses}", addresses, *states)
    if netdev not in addresses:
        return not_offered(
            port.name,
            f"{netdev} is not in this network namespace",
            *states,
            fix="run busbw check on the host",
        )
    holders = dict.fromkeys((netdev, port.netdev, *uppers(machine, port.netdev)))
    addresses_of_port = [(name, address) for name in holders for address in addresses.get(name, [])]
    return _judge_address(machine, port, netdev, addresses_of_port, states)


def _judge_address(
    machine: Machine,
    port: RdmaPort,
    netdev: str,
    addresses: list[tuple[str, Address]],
    states: list[Evidence],
) -> Finding:
    usable = [(name, address) for name, address in addresses if not address.ip.is_link_local]
    evidence = Evidence(
        f"{IPV4}: {netdev}",
        ", ".join(str(address) for _, address in addresses) or "none",
        "one that is not link-local",
    )
    if usable:
        name, address = usable[0]
        return passed(port.name, f"{name} is up and has {address}", *states, evidence)
    fix = filled(NETDEV.fix, netdev=netdev)
    if driver(machine, port) == "erdma":
        return failed(port.name, f"{netdev} has no address", *states, evidence, fix=fix)
    return warned(
        port.name,
        f"{netdev} has no address: RDMA works only within its own network",
        *states,
        evidence,
        fix=fix,
    )


MULTIRAIL = CheckRow(
    id="BW075",
    name="nic-multirail",
    layer=Layer.NIC,
    title="several RoCE interfaces in one network",
    right="each rail has its own network; or arp_ignore is 1, arp_announce 2 and rp_filter 0 or 2",
    why=(
        "Otherwise any interface may answer ARP for another's address, and replies leave on a "
        "different interface: rdma_cm and ping may fail."
    ),
    fix=(
        "sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2"
        " net/ipv4/conf/{netdev}/rp_filter=2"
    ),
    stays=(
        "after reboot: lost; write them to /etc/sysctl.d/90-rails.conf, and policy routes to"
        " netplan or NetworkManager"
    ),
    reads=(IPV4, f"{CONF}/*/{{arp_ignore,arp_announce,rp_filter}}"),
    sources=("Linux Documentation/networking/ip-sysctl.rst",),
)


@check(MULTIRAIL)
def check_multirail(machine: Machine) -> Iterator[Finding]:
    """A finding for each RoCE interface that shares its network with another."""
    holders = [holder(machine, port) for port in fabric(machine)]
    names = dict.fromkeys(name for name in holders if name)
    if len(names) < 2:
        yield skipped("fewer than two RoCE interfaces" if names else no_fabric(machine))
        return
    addresses = read_addresses(machine)
    if isinstance(addresses, str):
        yield unanswered("", f"addresses cannot be read: {addresses}", addresses)
        return
    networks: dict[str, list[str]] = {}
    for name in names:
        for address in addresses.get(name, []):
            if isinstance(address, IPv4Interface):
                networks.setdefault(str(address.network), []).append(name)
    shared = {network: members for network, members in networks.items() if len(members) > 1}
    if not networks:
        yield not_offered("", "the RoCE interfaces have no IPv4 address here")
    elif not shared:
        yield passed(
            "",
            f"{len(networks)} networks, one for each interface",
            Evidence(IPV4, ", ".join(networks)),
        )
    for network, members in shared.items():
        yield from (_judge_shared_network(machine, network, name, len(members)) for name in members)


def _judge_shared_network(machine: Machine, network: str, name: str, members: int) -> Finding:
    values = {
        setting: _effective_value(machine, setting, name)
        for setting in (*MIN_ARP_SETTINGS, "rp_filter")
    }
    if None in values.values():
        return not_offered(
            name, f"{members} RoCE interfaces are in {network}, but {CONF}/{name} cannot be read"
        )
    wrong = [
        setting for setting, least in MIN_ARP_SETTINGS.items() if (values[setting] or 0) < least
    ]
    wrong += ["rp_filter"] if values["rp_filter"] == STRICT_RP_FILTER else []
    expected = {"arp_ignore": "1", "arp_announce": "2", "rp_filter": "0 or 2"}
    evidence = [
        Evidence(f"{CONF}/{{all,{name}}}/{setting}", str(values[setting]), expected[setting])
        for setting in wrong or values
    ]
    if not wrong:
        return passed(
            name,
            f"{members} RoCE interfaces are in {network}, and the kernel keeps them apart",
            *evidence,
        )
    return warned(
        name,
        f"{members} RoCE interfaces are in {network}, with single-interface values of"
        f" {', '.join(wrong)}",
        *evidence,
        fix=filled(MULTIRAIL.fix, netdev=name),
    )


def _effective_value(machine: Machine, setting: str, name: str) -> int | None:
    """The effective value: the larger of the interface's own and that for all."""
    texts = [machine.text(f"{CONF}/{where}/{setting}") or "" for where in ("all", name)]
    return max(map(int, texts)) if all(re.fullmatch(r"\d+", text) for text in texts) else None
