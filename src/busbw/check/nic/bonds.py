"""Bonds of network ports: their slaves, mode and hash."""

from collections.abc import Iterator

from busbw.check.base import check, not_offered, passed, skipped, unread, warned
from busbw.check.machine import Machine
from busbw.check.nic.links import fabric
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.host.bonding import BONDING, LACP, NO_PARTNER, Bond, read_bonds

POLICY = "layer3+4"
HASHES = (POLICY, "encap3+4")  # both hash the ports of a packet
RESEAT_SLAVE = (
    "ethtool {slave} shows whether it has a link; drain the host, reseat its cable, and check the"
    " switch port"
)
SWITCH_FIX = "enable LACP on the switch ports of {bond}, all in one group"

BOND = CheckRow(
    id="BW074",
    name="nic-bond",
    layer=Layer.NIC,
    title="bonds",
    right=(
        "all slaves up, at the same speed and aggregated by the switch; for RDMA also 802.3ad with"
        f" {POLICY}"
    ),
    why=(
        "A bond with one slave down has half its rate. Without ports in the hash, all connections"
        " between two hosts use one slave."
    ),
    fix=(
        "drain the host and do it from its console, as the bond is down until both ends agree: "
        "LACP on the switch, and "
        "nmcli connection modify {bond} +bond.options "
        f"mode=802.3ad,xmit_hash_policy={POLICY},miimon=100; nmcli connection up {{bond}}"
    ),
    stays=(
        "in NetworkManager, netplan (parameters: mode, transmit-hash-policy) or ifcfg"
        " (BONDING_OPTS); ip link alone is lost at a reboot"
    ),
    reads=(f"{BONDING}/*", "/sys/class/net/*/bonding/slaves"),
    sources=("Linux Documentation/networking/bonding.rst",),
)


@check(BOND)
def check_bond(machine: Machine) -> Iterator[Finding]:
    bonds = read_bonds(machine)
    named = {name for name, interface in machine.interfaces.items() if interface.slaves}
    named |= set(bonds)
    if not named:
        yield skipped("no bond")
    for name in sorted(named):
        if name not in bonds:
            yield unread(name, machine.read(f"{BONDING}/{name}"), "its state")
            continue
        yield from _judge_bond(name, bonds[name], rdma=_carries_rdma(machine, name, bonds[name]))


def _carries_rdma(machine: Machine, name: str, bond: Bond) -> bool:
    members = {name, *(slave.name for slave in bond.slaves)}
    return any(port.netdev in members for port in fabric(machine))


def _judge_bond(name: str, bond: Bond, *, rdma: bool) -> Iterator[Finding]:
    faults = list(_find_faults(bond, rdma=rdma))
    for message, value, expected, fix in faults:
        yield warned(
            name,
            message,
            Evidence(f"{BONDING}/{name}", value, expected),
            fix=filled(fix, bond=name),
        )
    if not bond.slaves:
        yield not_offered(name, "it has no slaves", Evidence(f"{BONDING}/{name}", "no slave"))
    elif not faults:
        yield passed(
            name,
            f"{len(bond.slaves)} slaves are up",
            Evidence(f"{BONDING}/{name}", f"{bond.mode}, {bond.policy}"),
        )


def _find_faults(bond: Bond, *, rdma: bool) -> Iterator[tuple[str, str, str, str]]:
    """The faults of a bond, each as message, value, expected value and fix."""
    down = [slave.name for slave in bond.slaves if not slave.up]
    if down:
        yield (
            f"{', '.join(down)} is down: the bond carries less",
            f"MII Status of {', '.join(down)}: down",
            "up",
            filled(RESEAT_SLAVE, slave=down[0]),
        )
    speeds = {
        slave.name: slave.mbits for slave in bond.slaves if slave.up and slave.mbits is not None
    }
    if len(set(speeds.values())) > 1:
        text = ", ".join(f"{name} {speed} Mbps" for name, speed in speeds.items())
        yield (
            "its slaves differ in speed",
            f"Speed: {text}",
            "equal",
            filled(RESEAT_SLAVE, slave=min(speeds, key=speeds.__getitem__)),
        )
    if bond.mode == LACP:
        # Only root sees the active aggregator. Without it, slaves must at least share one.
        up = [slave for slave in bond.slaves if slave.up]
        used = bond.aggregator or (up[0].aggregator if up else "")
        apart = [slave.name for slave in up if slave.aggregator != used]
        if bond.partner == NO_PARTNER:
            yield (
                "the switch does not answer LACP",
                f"Partner Mac Address: {bond.partner}",
                "the switch's",
                SWITCH_FIX,
            )
        elif apart:
            yield (
                f"{', '.join(apart)} is not in the bond's aggregator",
                f"Aggregator ID of {apart[0]} differs",
                used,
                SWITCH_FIX,
            )
    elif rdma:
        yield f"its mode is {bond.mode}", f"Bonding Mode: {bond.mode}", LACP, BOND.fix
    if rdma and bond.mode == LACP and bond.policy not in HASHES:
        yield (
            f"its hash is {bond.policy}: all connections between two hosts use one slave",
            f"Transmit Hash Policy: {bond.policy}",
            POLICY,
            BOND.fix,
        )
