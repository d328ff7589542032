"""Branches of the checks of network ports and RoCE: limits, bonds, virtual machines, containers."""

import json
from pathlib import Path

import pytest
from cases_nic import (
    BOND,
    NET,
    PORT,
    bonded,
    changed,
    counter,
    efa,
    erdma,
    finding_of,
    one_network,
    run,
    statistic,
)
from healthy import healthy

from busbw.check import rdma_qos_check
from busbw.check.machine import Machine
from busbw.check.registry import CHECKS
from busbw.check.types import CheckReport
from busbw.core.finding import Verdict
from busbw.host.snapshot import recorded

PASS, WARN, FAIL, SKIP, UNKNOWN = (
    Verdict.PASS,
    Verdict.WARN,
    Verdict.FAIL,
    Verdict.SKIP,
    Verdict.UNKNOWN,
)


def rate(text, ports=8, layer="Ethernet", board="MT_0000000838"):
    tree = healthy(ports=ports, layer=layer)
    for index in range(ports):
        device = f"/sys/class/infiniband/mlx5_{index}"
        tree.file(f"{device}/ports/1/rate", text).file(f"{device}/board_id", board)
    return {finding.verdict for finding in run("nic-rate", tree)}


def test_two_lanes_on_all_ports_of_ethernet_are_split_cables():
    assert rate("200 Gb/sec (2X NDR)") == {PASS}


@pytest.mark.parametrize(
    ("board", "verdict"),
    [("MT_0000000838", WARN), ("MT_0000000844", PASS), ("a card that no table has", UNKNOWN)],
)
def test_two_lanes_on_all_ports_of_infiniband_are_judged_by_the_card(board, verdict):
    assert rate("200 Gb/sec (2X NDR)", layer="InfiniBand", board=board) == {verdict}
    assert rate("400 Gb/sec (4X NDR)", layer="InfiniBand", board=board) == {PASS}


def test_two_lanes_on_the_only_port_are_unknown():
    assert rate("200 Gb/sec (2X NDR)", ports=1) == {UNKNOWN}
    assert rate("400 Gb/sec (4X NDR)", ports=1) == {PASS}


def test_storage_port_of_another_card_may_be_slower():
    tree = changed(
        lambda tree: tree.file(f"{PORT}/rate", "100 Gb/sec (4X EDR)").file(
            "/sys/class/infiniband/mlx5_3/board_id", "MT_1"
        )
    )
    assert finding_of("nic-rate", tree).verdict is PASS


def test_bond_has_the_address_of_its_slaves():
    tree = bonded()
    tree.call("addresses", json.dumps({"bond0": "10.0.0.1/24", "eth0": "", "eth1": ""}))
    assert finding_of("nic-netdev", tree, "mlx5_0").message == "bond0 is up and has 10.0.0.1/24"


def test_interface_without_an_address_warns():
    tree = changed(lambda tree: tree.update("addresses", eth3="169.254.1.1/16"))
    finding = finding_of("nic-netdev", tree)
    assert (finding.verdict, finding.evidence[-1].seen) == (WARN, "169.254.1.1/16")


def test_interface_in_another_namespace_is_unknown():
    tree = healthy().call("addresses", json.dumps({"lo": "127.0.0.1/8"}))
    assert {finding.verdict for finding in run("nic-netdev", tree)} == {UNKNOWN}


def test_gids_hidden_in_a_container_are_unknown():
    tree = (
        healthy(ports=1)
        .file("/.dockerenv", "")
        .drop("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types")
    )
    (finding,) = run("nic-gid", tree)
    assert (finding.verdict, "other network namespaces" in finding.message) == (UNKNOWN, True)


def test_port_with_roce_v1_alone_fails():
    tree = healthy()
    for index in range(4):
        tree.file(f"{PORT}/gid_attrs/types/{index}", "IB/RoCE v1")
    assert finding_of("nic-gid", tree).verdict is FAIL


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "layer3+4 (1)",
            "layer2 (0)",
            "its hash is layer2: all connections between two hosts use one slave",
        ),
        (
            "IEEE 802.3ad Dynamic link aggregation",
            "fault-tolerance (active-backup)",
            "its mode is fault-tolerance (active-backup)",
        ),
        ("00:1c:73:00:00:01", "00:00:00:00:00:00", "the switch does not answer LACP"),
        (
            "eth1\nMII Status: up\nSpeed: 400000",
            "eth1\nMII Status: up\nSpeed: 200000",
            "its slaves differ in speed",
        ),
        (
            "400000 Mbps\nAggregator ID: 1\n\nSlave",
            "400000 Mbps\nAggregator ID: 2\n\nSlave",
            "eth0 is not in the bond's aggregator",
        ),
    ],
)
def test_bond_is_warned_about(old, new, message):
    assert old in BOND
    finding = finding_of("nic-bond", bonded(BOND.replace(old, new)), "bond0")
    assert (finding.verdict, finding.message) == (WARN, message)


def test_bond_for_management_may_be_active_backup():
    text = BOND.replace(
        "IEEE 802.3ad Dynamic link aggregation", "fault-tolerance (active-backup)"
    ).replace("eth", "eno")
    tree = healthy().file("/proc/net/bonding/bond0", text)
    assert finding_of("nic-bond", tree, "bond0").verdict is PASS


def test_bond_that_cannot_be_read_is_unknown():
    assert finding_of("nic-bond", bonded().drop("/proc/net/bonding"), "bond0").verdict is UNKNOWN


@pytest.mark.parametrize(
    ("values", "verdict"),
    [((1, 2, 2), PASS), ((1, 2, 0), PASS), ((1, 2, 1), WARN), ((0, 2, 2), WARN), ((1, 1, 0), WARN)],
)
def test_one_network_needs_three_settings(values, verdict):
    tree = changed(one_network)
    tree.files(
        "/proc/sys/net/ipv4/conf/eth3",
        **dict(zip(("arp_ignore", "arp_announce", "rp_filter"), map(str, values), strict=True)),
    )
    tree.file("/proc/sys/net/ipv4/conf/all/rp_filter", "0")
    assert finding_of("nic-multirail", tree, "eth3").verdict is verdict


@pytest.mark.parametrize(
    ("name", "change", "verdict"),
    [
        ("nic-flap", counter("link_downed", 5, "counters"), PASS),  # the median is 1
        ("nic-flap", counter("link_downed", 6, "counters"), WARN),
        # all in one hour would be right
        ("nic-symbol-errors", counter("symbol_error", 120, "counters"), PASS),
        ("nic-symbol-errors", counter("symbol_error", 121, "counters"), WARN),
        ("nic-ber", statistic(rx_corrected_bits_phy=10**10), PASS),
        ("nic-ber", statistic(rx_corrected_bits_phy=10**10 + 10**9), WARN),
        ("nic-ber", statistic(rx_bits_phy=1000, rx_corrected_bits_phy=0), UNKNOWN),
        ("nic-discards", statistic(tx_discards_phy=20_000), PASS),
        ("nic-discards", statistic(tx_discards_phy=20_001), WARN),
        ("nic-discards", statistic(rx_oversize_pkts_phy=1), WARN),
        (
            "nic-pci-stalls",
            statistic(outbound_pci_stalled_wr=30, outbound_pci_stalled_wr_events=59),
            PASS,
        ),
        ("nic-pci-stalls", statistic(outbound_pci_stalled_wr_events=60), UNKNOWN),
        ("nic-pci-stalls", statistic(outbound_pci_stalled_wr=31), WARN),
        ("nic-pci-stalls", statistic(outbound_pci_buffer_overflow=1), WARN),
        ("nic-retransmissions", counter("packet_seq_err", 20_000), PASS),
        ("nic-retransmissions", counter("packet_seq_err", 20_001), WARN),
        ("nic-retransmissions", counter("out_of_sequence", 10**9), PASS),
        ("nic-retransmissions", counter("req_transport_retries_exceeded", 9), PASS),
        ("nic-retransmissions", counter("req_transport_retries_exceeded", 10), WARN),
        ("roce-cnp", counter("rp_cnp_ignored", 46), PASS),  # of 4632 that were handled
        ("roce-cnp", counter("rp_cnp_ignored", 47), WARN),
    ],
)
def test_counter_is_judged_at_its_limit(name, change, verdict):
    assert finding_of(name, changed(change)).verdict is verdict


def test_ports_that_all_went_down_together_have_no_fault():
    tree = healthy()
    for index in range(8):
        tree.file(f"/sys/class/infiniband/mlx5_{index}/ports/1/counters/link_downed", "20")
    assert {finding.verdict for finding in run("nic-flap", tree)} == {PASS}


def test_module_is_judged_by_its_own_maximum():
    sensors = f"{NET}/device/hwmon/hwmon4"
    warm = changed(
        lambda tree: tree.files(sensors, temp2_input="71000", temp2_max="75000", temp2_crit="80000")
    )
    assert (finding_of("nic-module", warm).verdict, finding_of("nic-module", warm).message) == (
        PASS,
        "no event since the driver was loaded, 71 °C",
    )
    hot = changed(
        lambda tree: tree.files(sensors, temp2_input="75000", temp2_max="75000", temp2_crit="80000")
    )
    assert finding_of("nic-module", hot).verdict is WARN


@pytest.mark.parametrize(
    "name",
    [
        "nic-flap",
        "nic-ber",
        "nic-discards",
        "nic-module",
        "nic-pci-stalls",
        "nic-retransmissions",
        "roce-storm",
    ],
)
def test_counters_that_cannot_be_read_are_unknown(name):
    tree = healthy().failing("ethtool -S eth3", "eth3: operation not supported")
    tree.drop(f"{PORT}/counters").drop(f"{PORT}/hw_counters").drop(f"{NET}/carrier_down_count")
    assert finding_of(name, tree).verdict is UNKNOWN


def test_efa_without_the_plugin_of_nccl_warns():
    assert finding_of("nic-efa", efa().drop("/opt/amazon"), "").verdict is WARN
    assert (
        finding_of(
            "nic-efa", efa().drop("/opt/amazon").listing("/var/lib/kubelet", "pods"), ""
        ).verdict
        is UNKNOWN
    )
    plugin = (
        efa()
        .drop("/opt/amazon")
        .listing("/home/me/lib", "libnccl-net.so")
        .call("environment", '{"LD_LIBRARY_PATH": "lib:/home/me/lib"}')
    )
    assert (
        finding_of("nic-efa", plugin, "").message == "NCCL's plugin is /home/me/lib/libnccl-net.so"
    )


def test_efa_drops_are_judged_by_packets():
    path = "/sys/class/infiniband/rdmap0/ports/1/hw_counters/rx_drops"
    assert finding_of("nic-efa", efa().file(path, "1"), "rdmap0").verdict is PASS
    assert finding_of("nic-efa", efa().file(path, "2"), "rdmap0").verdict is WARN


def test_erdma_is_not_asked_for_jumbo_frames_of_roce():
    assert [finding.verdict for finding in run("nic-mtu", erdma("1400"))] == [SKIP]
    assert finding_of("nic-erdma-mtu", erdma("1400"), "rdmap0").verdict is PASS


@pytest.mark.parametrize("name", ["roce-bond", "no-nic", "vm-veth", "h200x2-recorded", "h100x8-ib"])
def test_recorded_machines_have_no_false_alarm(name):
    machine = Machine(recorded(Path(__file__).parents[2] / "hosts" / f"{name}.jsonl"))
    checks = [check for check in CHECKS if check.row.layer.value in ("NIC", "RoCE")]
    bad = [
        finding
        for check in checks
        for finding in check.run(machine)
        if finding.verdict in (WARN, FAIL)
    ]
    assert [(finding.name, finding.evidence[0].seen) for finding in bad] == (
        [("nic-mtu", "1500")] if name == "roce-bond" else []
    )


def test_report_answers_the_items_of_rdma_qos_check():
    machine = Machine(changed(lambda tree: tree.file(f"{NET}/qos/trust", "pcp")).source())
    text = rdma_qos_check.text(
        CheckReport(
            host="gpu-1", findings=[finding for check in CHECKS for finding in check.run(machine)]
        )
    )
    rows = {tuple(line.split()[1:]) for line in text.splitlines() if line.startswith("* ")}
    assert rows >= {
        ("link_up", "eth3:", "yes", "ok"),
        ("mlnx_device", "eth3:", "1", "ok"),
        ("drv_ver", "eth3:", "6.8.0-60-generic", "ok"),
        ("drv_fw_ver", "eth3:", "6.8.0-60-generic/28.41.1000", "ok"),
        ("roce_ver", "mlx5_3:", "1", "ok"),
        ("cm_tos", "mlx5_3:", "106", "ok"),
        ("trust_mod", "eth3:", "pcp", "fail"),
        ("trust_mod", "eth2:", "dscp", "ok"),
        ("roce_tos", "mlx5_2:", "106", "ok"),
    }
