"""Ports beside the fabric: storage, management, spare ports, virtual functions, VLANs.

No check of the fabric fires on them.
"""

import json

import pytest
from cases_nic import BOND, NET, PORT, bonded, changed, finding_of, run
from healthy import healthy
from tree import Tree, environment

from busbw.check import rdma_qos_check
from busbw.check.machine import Machine
from busbw.check.registry import CHECKS
from busbw.check.types import CheckReport
from busbw.core.finding import Layer, Verdict

PASS, WARN, FAIL, SKIP, UNKNOWN = (
    Verdict.PASS,
    Verdict.WARN,
    Verdict.FAIL,
    Verdict.SKIP,
    Verdict.UNKNOWN,
)
DEVICE = "/sys/class/infiniband/mlx5_8"


def card(
    tree, *, rate="25 Gb/sec (1X EDR)", state="4: ACTIVE", netdev="eno2", board="MT_0000000359"
):
    """One more RoCE port as it comes from the factory: MTU 1500, no quality of service, no IP
    address.
    """
    port = f"{DEVICE}/ports/1"
    tree.files(DEVICE, fw_ver="26.36.1010", board_id=board, hca_type="MT4127").link(
        f"{DEVICE}/device", "../../../0000:31:00.1"
    )
    tree.link(f"{DEVICE}/device/driver", "../../../../bus/pci/drivers/mlx5_core").listing(
        f"{DEVICE}/device/net", netdev
    )
    up = state.endswith("ACTIVE")
    tree.files(
        port,
        link_layer="Ethernet",
        state=state,
        phys_state="5: LinkUp" if up else "3: Disabled",
        rate=rate,
    )
    tree.file(f"{port}/gid_attrs/ndevs/0", netdev).file(f"{port}/gids/0", "fe80::1").file(
        f"{port}/gid_attrs/types/0", "RoCE v2"
    )
    tree.files(
        f"/sys/class/net/{netdev}",
        mtu="1500",
        operstate="up" if up else "down",
        dev_port="0",
        flags="0x1003",
        speed="25000",
    )
    tree.link(f"/sys/class/net/{netdev}/device", "../../../0000:31:00.1").file(
        f"/sys/class/net/{netdev}/qos/trust", "pcp"
    )
    tree.call(f"dcb {netdev}", json.dumps({"pfc": [], "pfc_most": 8, "dscp": {}}))
    return tree


def findings(tree, *verdicts):
    """Names of the checks of ports with such a verdict on mlx5_8 or its interface."""
    machine = Machine(tree.source())
    layers = (Layer.NIC, Layer.ROCE, Layer.NCCL)
    all_findings = [
        finding for check in CHECKS if check.row.layer in layers for finding in check.run(machine)
    ]
    return {
        finding.name
        for finding in all_findings
        if finding.verdict in verdicts
        and ("mlx5_8" in finding.subject or "eno2" in finding.subject)
    }


@pytest.mark.parametrize("layer", ["Ethernet", "InfiniBand"])
def test_port_for_management_has_no_finding_of_the_fabric(layer):
    assert findings(card(healthy(layer=layer)), WARN, FAIL) == set()


def test_slow_port_is_left_out_with_a_reason():
    tree = card(healthy(layer="InfiniBand"))
    assert {finding.message for finding in run("nic-mtu", tree)} == {
        "mlx5_8: at most half the rate of other ports, so for storage or management"
    }


def test_port_that_lost_half_of_its_rate_is_still_of_the_fabric():
    tree = changed(
        lambda tree: tree.file(f"{PORT}/rate", "200 Gb/sec (2X NDR)").file(f"{NET}/mtu", "1500")
    )
    assert finding_of("nic-mtu", tree).verdict is WARN


def test_spare_port_is_named_by_its_state_alone():
    tree = card(healthy(), state="1: DOWN", rate="10 Gb/sec (1X SDR)")
    assert findings(tree, WARN, FAIL) == {"nic-state", "nic-physical-state"}


def test_link_of_a_spare_port_is_in_the_text_of_rdma_qos_check():
    tree = card(healthy(), state="1: DOWN", rate="10 Gb/sec (1X SDR)")
    text = rdma_qos_check.text(CheckReport(host="h", findings=run("nic-physical-state", tree)))
    lines = [line.split() for line in text.splitlines() if "link_up" in line]
    assert ["*", "link_up", "eno2:", "no", "fail"] in lines and [
        "*",
        "link_up",
        "eth3:",
        "yes",
        "ok",
    ] in lines


def test_virtual_functions_are_for_guests():
    tree = card(healthy(), rate="400 Gb/sec (4X NDR)", state="1: DOWN").link(
        f"{DEVICE}/device/physfn", "../0000:31:00.0"
    )
    assert findings(tree, WARN, FAIL, UNKNOWN) == set()


def test_pod_with_virtual_functions_alone_has_them_judged():
    tree = card(Tree(), rate="400 Gb/sec (4X NDR)").link(
        f"{DEVICE}/device/physfn", "../0000:31:00.0"
    )
    assert finding_of("nic-mtu", tree, "mlx5_8").verdict is WARN


def test_accelerated_networking_of_azure_is_not_a_fabric():
    tree = card(Tree(), rate="100 Gb/sec (4X EDR)").call(
        "addresses", json.dumps({"eth0": "10.0.0.4/24", "eno2": ""})
    )
    tree.link("/sys/class/net/eno2/master", "../../eth0").link(
        "/sys/class/net/eth0/device/driver", "../../bus/vmbus/drivers/hv_netvsc"
    )
    assert findings(tree, WARN, FAIL, UNKNOWN) == set()
    assert run("nccl-ib-disable", environment_of(tree, NCCL_IB_DISABLE="1"))[0].verdict is PASS


def environment_of(tree, **variables):
    return tree.call("environment", json.dumps(variables)).file("/proc/sys/kernel/hostname", "vm")


def test_address_on_a_vlan_or_bridge_counts():
    bare = changed(lambda tree: tree.update("addresses", eth3=""))
    assert finding_of("nic-netdev", bare).verdict is WARN
    tree = bare.listing(NET, "upper_eth3.100").update("addresses", **{"eth3.100": "10.3.0.1/24"})
    assert finding_of("nic-netdev", tree).message == "eth3.100 is up and has 10.3.0.1/24"


def test_priority_of_a_vlan_is_not_assumed_to_be_0():
    tree = changed(lambda tree: tree.file(f"{NET}/qos/trust", "pcp").listing(NET, "upper_eth3.100"))
    assert {finding_of(name, tree).verdict for name in ("roce-trust", "roce-traffic-class")} == {
        WARN
    }
    tree.file("/sys/class/net/eth3.100/uevent", "DEVTYPE=vlan\nINTERFACE=eth3.100")
    assert {finding_of(name, tree).verdict for name in ("roce-trust", "roce-traffic-class")} == {
        UNKNOWN
    }


def test_global_pause_is_not_called_lossy():
    tree = changed(
        lambda tree: tree.update("dcb eth3", pfc=[]).update("ethtool -a eth3", rx=True, tx=True)
    )
    assert "global pause is on instead" in finding_of("roce-pfc", tree).message


# Bonds


def test_bond_is_judged_without_values_only_root_can_read():
    start, end = BOND.index("Active Aggregator"), BOND.index("Slave Interface: eth0")
    assert finding_of("nic-bond", bonded(BOND[:start] + BOND[end:]), "bond0").verdict is PASS
    other_aggregator = BOND[:start] + BOND[end:].replace(
        "eth1\nMII Status: up\nSpeed: 400000 Mbps\nAggregator ID: 1",
        "eth1\nMII Status: up\nAggregator ID: 2",
    )
    assert (
        finding_of("nic-bond", bonded(other_aggregator), "bond0").message
        == "eth1 is not in the bond's aggregator"
    )


def test_fix_of_a_bond_is_that_of_its_fault():
    down = finding_of(
        "nic-bond", bonded(BOND.replace("eth1\nMII Status: up", "eth1\nMII Status: down")), "bond0"
    )
    assert down.fix.startswith("ethtool eth1 ")
    silent = finding_of(
        "nic-bond", bonded(BOND.replace("00:1c:73:00:00:01", "00:00:00:00:00:00")), "bond0"
    )
    assert silent.fix.startswith("enable LACP on the switch ports")


def test_bond_for_management_may_have_one_active_port():
    text = (
        BOND.replace("IEEE 802.3ad Dynamic link aggregation", "fault-tolerance (active-backup)")
        .replace("eth0", "eno2")
        .replace("eth1", "eno3")
    )
    tree = card(healthy(layer="InfiniBand")).file("/proc/net/bonding/bond0", text)
    assert finding_of("nic-bond", tree, "bond0").verdict is PASS


# Cards and counters


def test_card_for_tcp_alone_warns_without_rdma():
    tree = (
        Tree()
        .file("/proc/modules", "mlx5_core 1 0 - Live 0x0")
        .files(
            "/sys/class/dmi/id", sys_vendor="Microsoft Corporation", product_name="Virtual Machine"
        )
    )
    tree.files(
        "/sys/bus/pci/devices/0000:31:00.0",
        vendor="0x15b3",
        device="0x101a",
        **{"class": "0x020000"},
    )
    tree.link("/sys/bus/pci/devices/0000:31:00.0/driver", "../drivers/mlx5_core")
    assert {run(name, tree)[0].verdict for name in ("nic-present", "rdma-modules")} == {WARN}
    tree.file("/sys/bus/pci/devices/0000:31:00.0/class", "0x020700")  # InfiniBand
    assert {run(name, tree)[0].verdict for name in ("nic-present", "rdma-modules")} == {FAIL}


def test_card_in_a_pod_is_not_a_fault():
    pci = "/sys/bus/pci/devices/0000:62:00.0"
    tree = changed(
        lambda tree: (
            tree.drop("/sys/class/infiniband/mlx5_3").listing(f"{pci}/net").listing(pci, "net")
        )
    )
    assert finding_of("nic-present", tree, "0000:62:00.0").verdict is UNKNOWN


def test_cards_with_a_port_of_each_layer_are_intended():
    tree = healthy(ports=2, layer="InfiniBand").file(
        "/sys/class/infiniband/mlx5_1/ports/1/link_layer", "Ethernet"
    )
    assert {finding.verdict for finding in run("nic-link-layer", tree)} == {PASS}


def test_killed_jobs_are_not_a_fault_of_a_port():
    tree = healthy()
    for index in range(8):
        tree.file(
            f"/sys/class/infiniband/mlx5_{index}/ports/1/hw_counters/req_transport_retries_exceeded",
            "64",
        )
    assert {finding.verdict for finding in run("nic-retransmissions", tree)} == {PASS}
    assert "64 connections gave up" in finding_of("nic-retransmissions", tree).message


def test_partition_of_nccl_is_that_of_its_variable():
    tree = healthy(layer="InfiniBand")
    for index in range(8):
        tree.file(f"/sys/class/infiniband/mlx5_{index}/ports/1/pkeys/0", "0x7fff")
        tree.file(f"/sys/class/infiniband/mlx5_{index}/ports/1/pkeys/1", "0x8005")
    assert finding_of("nic-pkey", tree).verdict is WARN
    environment(NCCL_IB_PKEY="1")(tree)
    assert finding_of("nic-pkey", tree).message == "it is a full member of 0x8005"
