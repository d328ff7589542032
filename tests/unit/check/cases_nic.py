"""Cases of the layers NIC and RoCE, and what their tests share."""

import json

from healthy import healthy
from healthy_pcie import port_bdf
from tree import Tree

from busbw.check.machine import Machine
from busbw.check.registry import find

PORT, NET = "/sys/class/infiniband/mlx5_3/ports/1", "/sys/class/net/eth3"
BOND = """Ethernet Channel Bonding Driver: v6.8.0-60-generic

Bonding Mode: IEEE 802.3ad Dynamic link aggregation
Transmit Hash Policy: layer3+4 (1)
MII Status: up

802.3ad info
LACP active: on
Active Aggregator Info:
\tAggregator ID: 1
\tNumber of ports: 2
\tPartner Mac Address: 00:1c:73:00:00:01

Slave Interface: eth0
MII Status: up
Speed: 400000 Mbps
Aggregator ID: 1

Slave Interface: eth1
MII Status: up
Speed: 400000 Mbps
Aggregator ID: 1
"""


def run(name, tree):
    return find(name).run(Machine(tree.source()))


def finding_of(name, tree, subject="mlx5_3"):
    """The finding about a subject."""
    (finding,) = [finding for finding in run(name, tree) if finding.subject == subject]
    return finding


def changed(*changes):
    tree = healthy()
    for change in changes:
        change(tree)
    return tree


def counter(name, value, folder="hw_counters"):
    """A counter of mlx5_3."""
    return lambda tree: tree.file(f"{PORT}/{folder}/{name}", str(value))


def statistic(**values):
    """Statistics of eth3."""
    return lambda tree: tree.update("ethtool -S eth3", **values)


def infiniband(path, text):
    """A file of a port of the InfiniBand server."""
    return healthy(layer="InfiniBand"), lambda tree: tree.file(f"{PORT}/{path}", text)


def bonded(text=BOND):
    """The server with its first two ports in a bond."""
    tree = healthy().file("/proc/net/bonding/bond0", text)
    tree.files("/sys/class/net/bond0", operstate="up", mtu="9000").files(
        "/sys/class/net/bond0/bonding", slaves="eth0 eth1", mode="802.3ad 4"
    )
    return tree


def cloud(driver, **files):
    """A server with one device of a cloud's virtual network."""
    base = "/sys/class/infiniband/rdmap0"
    tree = (
        Tree()
        .link(f"{base}/device", "../../../0000:00:05.0")
        .link(f"{base}/device/driver", f"../../drivers/{driver}")
    )
    tree.files(
        f"{base}/ports/1",
        state="4: ACTIVE",
        phys_state="5: LinkUp",
        link_layer="Ethernet" if driver == "erdma" else "Unknown",
    )
    tree.files(
        f"{base}/ports/1/hw_counters",
        unresponsive_remote_events="0",
        rx_drops="0",
        rx_pkts="1000000",
    )
    for path, text in files.items():
        tree.file(path, text)
    return tree


def efa():
    """A server with EFA and NCCL's plugin for it."""
    tree = cloud("efa").listing("/opt/amazon/ofi-nccl/lib", "libnccl-net-ofi.so")
    return tree.files("/sys/bus/pci/devices/0000:1b:00.0", vendor="0x10de", **{"class": "0x030200"})


def erdma(mtu="8500"):
    """A server with eRDMA."""
    tree = cloud("erdma").file("/sys/class/infiniband/rdmap0/ports/1/gid_attrs/ndevs/0", "eth0")
    return tree.files("/sys/class/net/eth0", mtu=mtu, operstate="up").call(
        "addresses", json.dumps({"eth0": "172.16.0.5/24"})
    )


def gids_in_another_order(tree):
    """The addresses of mlx5_3 came first."""
    for index in range(4):
        tree.file(f"{PORT}/gids/{index + 4}", tree.paths[f"{PORT}/gids/{index}"]["text"].strip())
        tree.file(
            f"{PORT}/gid_attrs/types/{index + 4}",
            tree.paths[f"{PORT}/gid_attrs/types/{index}"]["text"].strip(),
        )
    for index in (2, 3):
        tree.drop(f"{PORT}/gids/{index}")


def one_network(tree):
    """All rails in one network, as interfaces are by default."""
    addresses = {f"eth{index}": f"10.0.0.{index + 1}/24" for index in range(8)}
    tree.call("addresses", json.dumps(addresses))
    for name in ("all", *addresses):
        tree.files(
            f"/proc/sys/net/ipv4/conf/{name}", arp_ignore="0", arp_announce="0", rp_filter="2"
        )


NIC = {
    "nic-present": lambda tree: tree.drop("/sys/class/infiniband/mlx5_3"),
    "nic-missing": (
        lambda tree: tree.drop("/sys/class/infiniband/mlx5_3").drop(
            f"/sys/bus/pci/devices/{port_bdf(3)}"
        )
    ),
    "nic-state": lambda tree: tree.file(f"{PORT}/state", "1: DOWN"),
    "nic-physical-state": lambda tree: tree.file(f"{PORT}/phys_state", "2: Polling"),
    "nic-subnet-manager": infiniband("sm_lid", "0x0"),
    "nic-pkey": infiniband("pkeys/0", "0x7fff"),
    "nic-link-layer": infiniband("link_layer", "Ethernet"),
    "nic-rate": lambda tree: tree.file(f"{PORT}/rate", "200 Gb/sec (2X NDR)"),
    "nic-firmware": lambda tree: tree.file("/sys/class/infiniband/mlx5_3/fw_ver", "28.39.1002"),
    "nic-driver": lambda tree: tree.file("/sys/module/mlx5_core/version", "24.10-1.1.4"),
    "nic-netdev": lambda tree: tree.file(f"{NET}/operstate", "down"),
    "nic-mtu": lambda tree: tree.file(f"{NET}/mtu", "1500"),
    "nic-mtu-equal": lambda tree: tree.file(f"{NET}/mtu", "4200"),
    "nic-gid": lambda tree: tree.drop(f"{PORT}/gids/2").drop(f"{PORT}/gids/3"),
    "nic-gid-order": gids_in_another_order,
    "nic-bond": (
        bonded(),
        lambda tree: tree.file(
            "/proc/net/bonding/bond0",
            BOND.replace("eth1\nMII Status: up", "eth1\nMII Status: down"),
        ),
    ),
    "nic-multirail": one_network,
    "nic-flap": counter("link_downed", 7, "counters"),
    "nic-symbol-errors": counter("local_link_integrity_errors", 1, "counters"),
    "nic-ber": statistic(rx_corrected_bits_phy=2 * 10**10),
    "nic-discards": statistic(rx_discards_phy=10**6),
    "nic-module": statistic(module_high_temp=1),
    "nic-pci-stalls": statistic(outbound_pci_stalled_wr=40),
    "nic-retransmissions": counter("packet_seq_err", 10**6),
    "nic-efa": (
        efa(),
        lambda tree: tree.file("/sys/class/infiniband/rdmap0/ports/1/hw_counters/rx_drops", "3"),
    ),
    "nic-erdma-mtu": (erdma(), lambda tree: tree.file("/sys/class/net/eth0/mtu", "1500")),
    "roce-trust": lambda tree: tree.file(f"{NET}/qos/trust", "pcp"),
    "roce-pfc": lambda tree: tree.update("dcb eth3", pfc=[]),
    "roce-ecn": lambda tree: tree.file(f"{NET}/ecn/roce_rp/enable/3", "0"),
    "roce-cm-mode": lambda tree: tree.file(
        "/sys/kernel/config/rdma_cm/mlx5_3/ports/1/default_roce_mode", "IB/RoCE v1"
    ),
    "roce-cm-tos": lambda tree: tree.file(
        "/sys/kernel/config/rdma_cm/mlx5_3/ports/1/default_roce_tos", "0"
    ),
    "roce-traffic-class": lambda tree: tree.file(
        "/sys/class/infiniband/mlx5_3/tc/1/traffic_class", "Global tclass=162"
    ),
    "roce-priority-traffic": statistic(tx_prio0_bytes=4 * 10**13, tx_prio3_bytes=0),
    "roce-alike": lambda tree: tree.file(f"{NET}/ecn/roce_np/cnp_dscp", "4"),
    "roce-pause-global": lambda tree: tree.update("ethtool -a eth3", rx=True),
    "roce-cnp": counter("rp_cnp_ignored", 1000),
    "roce-at-start": lambda tree: tree.call("files that set RoCE at the start", "[]"),
    "roce-storm": statistic(tx_pause_storm_error_events=1),
}
