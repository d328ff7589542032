"""Several RoCE interfaces in one IP network."""

import re
from collections.abc import Iterator
from ipaddress import IPv4Interface

from busbw.check.base import Check, not_offered, passed, skipped, unanswered, warned
from busbw.check.machine import Machine
from busbw.check.nic.links import fabric, holder, no_fabric
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.ip_addresses import IPV4, read_addresses

CONF = "/proc/sys/net/ipv4/conf"
STRICT = 1  # rp_filter
# Lowest value that keeps ARP replies and sources on the interface that has the address.
LEAST = {"arp_ignore": 1, "arp_announce": 2}

ROW = CheckRow(
    id="BW075",
    name="nic-multirail",
    layer=Layer.NIC,
    title="several RoCE interfaces in one network",
    right="each rail has its own network; or arp_ignore is 1, arp_announce 2 and rp_filter 0 or 2",
    why="Otherwise any interface may answer ARP for another's address, and replies leave on a different interface: rdma_cm and ping may "
    "fail.",
    fix="sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2 net/ipv4/conf/{netdev}/rp_filter=2",
    stays="lost at the next reboot; write them to /etc/sysctl.d/90-rails.conf, and policy routes to netplan or NetworkManager",
    reads=(IPV4, f"{CONF}/*/{{arp_ignore,arp_announce,rp_filter}}"),
    sources=("Linux Documentation/networking/ip-sysctl.rst",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each IPv4 network with several RoCE interfaces."""
    names = dict.fromkeys(name for port in fabric(machine) if (name := holder(machine, port)))
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
        yield passed("", f"{len(networks)} networks, one for each interface", Evidence(IPV4, ", ".join(networks)))
    for network, members in shared.items():
        yield from (_judge(machine, network, name, len(members)) for name in members)


def _judge(machine: Machine, network: str, name: str, members: int) -> Found:
    seen = {setting: _value(machine, setting, name) for setting in (*LEAST, "rp_filter")}
    if None in seen.values():
        return not_offered(name, f"{members} RoCE interfaces are in {network}, but {CONF}/{name} cannot be read")
    wrong = [setting for setting, least in LEAST.items() if (seen[setting] or 0) < least]
    wrong += ["rp_filter"] if seen["rp_filter"] == STRICT else []
    expected = {"arp_ignore": "1", "arp_announce": "2", "rp_filter": "0 or 2"}
    evidence = [Evidence(f"{CONF}/{{all,{name}}}/{setting}", str(seen[setting]), expected[setting]) for setting in wrong or seen]
    if not wrong:
        return passed(name, f"{members} RoCE interfaces are in {network}, and the kernel keeps them apart", *evidence)
    return warned(
        name, f"{members} RoCE interfaces are in {network}, with single-interface values of {', '.join(wrong)}", *evidence,
        fix=filled(ROW.fix, netdev=name),
    )  # fmt: skip


def _value(machine: Machine, setting: str, name: str) -> int | None:
    """The effective value: the larger of the interface's own and that for all."""
    texts = [machine.text(f"{CONF}/{where}/{setting}") or "" for where in ("all", name)]
    return max(map(int, texts)) if all(re.fullmatch(r"\d+", text) for text in texts) else None


CHECK = Check(ROW, look)
