"""Bonds, from /proc/net/bonding (drivers/net/bonding/bond_procfs.c), and the interfaces that
carry their traffic.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from busbw.host.interfaces import Interface
from busbw.host.source import Source

BONDING = "/proc/net/bonding"
LACP = "IEEE 802.3ad Dynamic link aggregation"
NO_PARTNER = "00:00:00:00:00:00"


@dataclass(frozen=True, slots=True)
class BondSlave:
    """One interface of a bond."""

    name: str
    up: bool
    mbits: int | None  # speed; None while it is unknown
    aggregator: str  # the bond's aggregator, if this link is in use


@dataclass(frozen=True, slots=True)
class Bond:
    """One bond.

    `aggregator` and `partner` (the switch's MAC address) are empty unless it is 802.3ad.
    """

    mode: str
    policy: str
    slaves: tuple[BondSlave, ...]
    aggregator: str = ""
    partner: str = ""


def read_bonds(source: Source) -> dict[str, Bond]:
    """All bonds by name; empty if there are none or the driver is not loaded."""
    texts = {name: source.read(f"{BONDING}/{name}").text for name in source.names(BONDING)}
    return {name: parse_bond(text) for name, text in texts.items() if text}


def parse_bond(text: str) -> Bond:
    """The bond that a file of /proc/net/bonding describes. What the text lacks is empty."""
    head, *slave_texts = re.split(r"^Slave Interface: ", text, flags=re.MULTILINE)
    return Bond(
        mode=_value(head, "Bonding Mode"),
        policy=_value(head, "Transmit Hash Policy").partition(" ")[0],
        slaves=tuple(map(_slave, slave_texts)),
        aggregator=_value(head, "Aggregator ID"),
        partner=_value(head, "Partner Mac Address"),
    )


def _slave(text: str) -> BondSlave:
    speed = _value(text, "Speed").partition(" ")[0]
    return BondSlave(
        name=text.partition("\n")[0].strip(),
        up=_value(text, "MII Status") == "up",
        mbits=int(speed) if speed.isascii() and speed.isdigit() else None,
        aggregator=_value(text, "Aggregator ID"),
    )


def _value(text: str, name: str) -> str:
    match = re.search(rf"^[ \t]*{name}:[ \t]*(.*)$", text, re.MULTILINE)
    return match.group(1).strip() if match else ""


def carriers(interfaces: Mapping[str, Interface], netdev: str) -> tuple[str, ...]:
    """The hardware interfaces that carry the traffic of `netdev`.

    They are the slaves of its bond, else `netdev` itself.
    """
    interface = interfaces.get(netdev)
    if interface is None:
        return (netdev,) if netdev else ()
    bond = interface if interface.slaves else interfaces.get(interface.master)
    return bond.slaves if bond and bond.slaves else (netdev,)
