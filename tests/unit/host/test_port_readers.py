"""Readers of GIDs, bonds, addresses, global pause and traffic classes."""

import struct
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tree import Tree

from busbw.host import ethtool
from busbw.host.bonding import Bond, BondSlave, carriers, parse_bond, read_bonds
from busbw.host.dcb import Dcb
from busbw.host.ethtool import Pause, read_pause
from busbw.host.interfaces import read_interfaces
from busbw.host.ip_addresses import parse_inet6, read_addresses
from busbw.host.nic import read_gids
from busbw.host.roce_qos import Qos, decoded, parse_traffic_class, read_qos
from busbw.host.source import LiveMachine

PORT = "/sys/class/infiniband/mlx5_0/ports/1"
ZERO = "0000:0000:0000:0000:0000:0000:0000:0000"
BOND = """Ethernet Channel Bonding Driver: v3.7.1 (April 27, 2011)

Bonding Mode: IEEE 802.3ad Dynamic link aggregation
Transmit Hash Policy: layer2+3 (2)
MII Status: up

802.3ad info
LACP rate: slow
Active Aggregator Info:
\tAggregator ID: 3
\tNumber of ports: 1
\tPartner Mac Address: 00:1c:73:00:00:01

Slave Interface: eth1
MII Status: up
Speed: 100000 Mbps
Aggregator ID: 3

Slave Interface: eth2
MII Status: down
Speed: Unknown
Aggregator ID: 4
details partner lacp pdu:
    system mac address: 00:00:00:00:00:00
"""


def gids(**addresses):
    tree = Tree()
    for index in range(32):
        tree.file(f"{PORT}/gids/{index}", addresses.get(f"at{index}", ZERO))
    return tree


def test_gids_with_gaps_are_found():
    tree = gids(
        at1="fe80:0000:0000:0000:0e42:a1ff:fe00:0001", at9="0000:0000:0000:0000:0000:ffff:0a01:0203"
    )
    tree.file(f"{PORT}/gid_attrs/types/9", "RoCE v2").file(f"{PORT}/gid_attrs/ndevs/9", "eth0")
    local, routed = read_gids(tree.source(), PORT)
    assert (local.index, local.kind, local.ipv4, local.routable) == (1, "", None, False)
    assert (routed.index, routed.kind, routed.netdev, routed.ipv4) == (
        9,
        "RoCE v2",
        "eth0",
        IPv4Address("10.1.2.3"),
    )
    assert routed.routable and routed.address == IPv6Address("::ffff:10.1.2.3")


def test_ipv4_link_local_gid_is_not_routable():
    (gid,) = read_gids(gids(at0="0000:0000:0000:0000:0000:ffff:a9fe:0001").source(), PORT)
    assert not gid.routable


def test_table_without_gids_is_empty():
    assert read_gids(Tree().source(), PORT) == ()
    assert read_gids(gids().source(), PORT) == ()


def test_bond_with_a_slave_that_is_down():
    slaves = (BondSlave("eth1", True, 100000, "3"), BondSlave("eth2", False, None, "4"))
    mode = "IEEE 802.3ad Dynamic link aggregation"
    assert parse_bond(BOND) == Bond(
        mode, "layer2+3", slaves, aggregator="3", partner="00:1c:73:00:00:01"
    )


def test_all_bonds_of_a_machine():
    tree = (
        Tree()
        .file("/proc/net/bonding/bond0", BOND)
        .file("/proc/net/bonding/bond1", "Bonding Mode: load balancing (xor)")
    )
    bonds = read_bonds(tree.source())
    assert bonds["bond1"] == Bond("load balancing (xor)", "", ())
    assert list(bonds) == ["bond0", "bond1"]
    assert read_bonds(Tree().source()) == {}


@given(st.text())
def test_any_text_is_a_bond_at_worst_an_empty_one(text):
    assert isinstance(parse_bond(text), Bond)


def test_traffic_of_a_bond_is_carried_by_its_slaves():
    tree = (
        Tree()
        .file("/sys/class/net/bond0/bonding/slaves", "eth1 eth2")
        .file("/sys/class/net/eth1/mtu", "1500")
    )
    tree.file("/sys/class/net/eth2/mtu", "1500").file("/sys/class/net/eth3/mtu", "1500")
    interfaces = read_interfaces(tree.source())
    assert carriers(interfaces, "bond0") == carriers(interfaces, "eth2") == ("eth1", "eth2")
    assert carriers(interfaces, "eth3") == ("eth3",)
    assert carriers(interfaces, "elsewhere") == ("elsewhere",)
    assert carriers(interfaces, "") == ()


def test_addresses_of_both_families():
    tree = Tree().call("addresses", '{"eth0": "10.0.0.1/24", "eth1": ""}')
    tree.file("/proc/net/if_inet6", "fe800000000000000e42a1fffe000001 03 40 20 80     eth1")
    addresses = read_addresses(tree.source())
    assert addresses == {
        "eth0": [IPv4Interface("10.0.0.1/24")],
        "eth1": [IPv6Interface("fe80::e42:a1ff:fe00:1/64")],
    }


def test_addresses_of_this_machine_include_loopback():
    addresses = read_addresses(LiveMachine())
    assert isinstance(addresses, dict)
    assert IPv4Interface("127.0.0.1/8") in addresses["lo"]


@pytest.mark.parametrize(
    "line",
    [
        "fe80 02 40 20 80 eth0",
        "0" * 32 + " 02 40 20 80",
        "x" * 32 + " 02 40 20 80 eth0",
        "0" * 32 + " 02 fff 20 80 eth0",
    ],
)
def test_other_forms_of_an_ipv6_address_are_ignored(line):
    good = "fe80000000000000000000000000000a 02 40 20 80 eth0"
    assert parse_inet6(f"{line}\n{good}\n") == [("eth0", IPv6Interface("fe80::a/64"))]


@given(st.text())
def test_lines_that_are_not_ipv6_addresses_are_ignored(text):
    assert all(isinstance(address, IPv6Interface) for _, address in parse_inet6(text))


def test_unknown_addresses_have_a_reason():
    assert read_addresses(Tree().failing("addresses", "no sockets").source()) == "no sockets"


def test_interface_without_global_pause_gives_a_reason():
    assert read_pause(LiveMachine(), "lo") == "lo: operation not supported"
    assert read_pause(LiveMachine(), "not-there") == "not-there: no such interface"


@pytest.mark.parametrize(("rx", "tx"), [(1, 0), (0, 1)])
def test_global_pause_in_each_direction(monkeypatch, rx, tx):
    def answer_query(_socket, interface, buffer):  # an interface with pause frames is hardware
        assert (interface, struct.unpack("=IIII", buffer.tobytes())) == ("eth7", (0x12, 0, 0, 0)), (
            "ETHTOOL_GPAUSEPARAM of linux/ethtool.h"
        )
        struct.pack_into("=III", buffer, 4, 1, rx, tx)

    monkeypatch.setattr(ethtool, "ask", answer_query)
    assert read_pause(LiveMachine(), "eth7") == Pause(rx=bool(rx), tx=bool(tx))


def test_recorded_global_pause():
    assert read_pause(
        Tree().call("ethtool -a eth0", '{"rx": true, "tx": false}').source(), "eth0"
    ) == Pause(rx=True, tx=False)


@pytest.mark.parametrize(
    ("text", "value"),
    [("Global tclass=106\n", 106), ("", None), ("tclass=24 src_ip=10.0.0.1", None)],
)
def test_traffic_class_of_all_packets(text, value):
    assert parse_traffic_class(text) == value


def test_traffic_class_is_decoded():
    assert decoded(106) == "106 (DSCP 26, ECT(0))"
    assert decoded(0) == "0 (DSCP 0, no ECN)"


def test_kernel_driver_trusts_dscp_once_it_has_an_entry():
    tree = (
        Tree()
        .call("dcb eth0", '{"pfc": [3], "dscp": {"26": 3}}')
        .call("dcb eth1", '{"pfc": [], "dscp": {}}')
    )
    assert (read_qos(tree.source(), "eth0").trust, read_qos(tree.source(), "eth1").trust) == (
        "dscp",
        "pcp",
    )
    assert read_qos(tree.source(), "eth0").priority(106) == 3
    assert read_qos(tree.source(), "eth0").priority(0) is None
    assert read_qos(tree.source(), "eth1").priority(106) == 0


def test_settings_that_cannot_be_read_are_not_guessed():
    qos = read_qos(Tree().source(), "eth0")
    assert qos == Qos(
        "eth0",
        "",
        "/sys/class/net/eth0/qos/trust",
        "the recording has no 'dcb eth0'",
        None,
        None,
        None,
    )
    assert qos.lossless is None and qos.priority(106) is None
    assert not isinstance(qos.dcb, Dcb)
