"""Branches of the checks of network ports and RoCE: limits, bonds, virtual machines, containers, what cannot be read."""

import json
from pathlib import Path

import pytest
from cases_nic import BOND, NET, PORT, bonded, changed, counter, efa, erdma, one, one_network, run, statistic
from healthy import healthy
from healthy_gpu import logged
from healthy_pcie import port_bdf
from tree import Tree

from busbw.check.machine import Machine
from busbw.check.registry import CHECKS
from busbw.core.checking import CheckReport
from busbw.core.finding import Verdict
from busbw.host.recording import recorded
from busbw.views import rdma_qos_check

PASS, WARN, FAIL, SKIP, UNKNOWN = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.SKIP, Verdict.UNKNOWN
PCI = "/sys/bus/pci/devices/0000:62:00.0"  # of mlx5_3


# Cards and drivers


def without_rdma(tree):
    return tree.drop("/sys/class/infiniband/mlx5_3")


@pytest.mark.parametrize(
    ("change", "verdict", "message"),
    [
        (lambda tree: tree.drop(f"{PCI}/driver"), FAIL, "it has no driver"),
        (lambda tree: tree.file("/proc/modules", "mlx5_core 1 0 - Live 0x0"), FAIL, "mlx5_ib is not loaded"),
        (lambda tree: None, FAIL, "mlx5_ib is loaded, but created no RDMA device"),
        (lambda tree: tree.file("/.dockerenv", ""), UNKNOWN, "this container may not show its RDMA device"),
    ],
)
def test_card_without_rdma_device_is_explained(change, verdict, message):
    found = one("nic-present", changed(without_rdma, change), "0000:62:00.0")
    assert (found.verdict, found.message) == (verdict, message)


def test_functions_for_guests_need_no_rdma_device():
    for change in (
        lambda tree: tree.link(f"{PCI}/driver", "../drivers/vfio-pci"),
        lambda tree: tree.drop(f"{PCI}/driver").link(f"{PCI}/physfn", "../0000:62:00.1"),
    ):
        found = run("nic-present", changed(without_rdma, change))
        assert {one.verdict for one in found} == {PASS}
        assert "0000:62:00.0" not in {one.subject for one in found}


def test_second_port_of_a_bond_shares_the_rdma_device():
    tree = healthy(ports=1).link("/sys/class/infiniband/mlx5_bond_0/device", "../../../0000:43:01.0")
    tree.files("/sys/bus/pci/devices/0000:43:01.1", vendor="0x15b3", **{"class": "0x020000"})
    tree.link("/sys/bus/pci/devices/0000:43:01.1/driver", "../drivers/mlx5_core")
    assert one("nic-present", tree, "0000:43:01.1").message == "it is mlx5_bond_0"


@pytest.mark.parametrize(
    ("rdma", "model", "driver", "verdicts"),
    [
        (True, "0x16d8", "bnxt_en", {PASS}),  # for management
        (False, "0x16d8", "bnxt_en", {SKIP}),
        (False, "0x165f", "tg3", {SKIP}),  # on the board of many servers
        (False, "0x1750", "bnxt_en", {WARN}),
    ],
)
def test_broadcom_card_without_rdma_is_often_right(rdma, model, driver, verdicts):
    tree = healthy() if rdma else Tree().file("/proc/modules", "bnxt_en 1 0 - Live 0x0")
    tree.files("/sys/bus/pci/devices/0000:31:00.0", vendor="0x14e4", device=model, **{"class": "0x020000"})
    tree.link("/sys/bus/pci/devices/0000:31:00.0/driver", f"../drivers/{driver}")
    assert {found.verdict for found in run("nic-present", tree)} == verdicts


def test_modules_of_one_release_pass():
    tree = healthy().file("/sys/module/mlx5_core/version", "24.10-1.1.4").file("/sys/module/mlx5_ib/version", "24.10-1.1.4")
    assert {found.verdict for found in run("nic-driver", tree)} == {PASS}


# State


def test_no_active_port_fails():
    tree = healthy(ports=2)
    for index in range(2):
        tree.file(f"/sys/class/infiniband/mlx5_{index}/ports/1/state", "1: DOWN")
    assert {found.verdict for found in run("nic-state", tree)} == {FAIL}


def two_ports_each(tree, down):
    """Eight cards with two ports; those in `down` have no link."""
    for index in range(8):
        first, second = f"mlx5_{index}", f"mlx5_{index + 8}"
        bdf = tree.paths[f"/sys/class/infiniband/{first}/device"]["link"].rpartition("/")[2]
        tree.link(f"/sys/class/infiniband/{first}/device", f"../../../{bdf}")
        for path, entry in list(tree.paths.items()):
            if path.startswith(f"/sys/class/infiniband/{first}/"):
                tree.paths[path.replace(first, second)] = dict(entry)
        tree.link(f"/sys/class/infiniband/{second}/device", f"../../../{bdf.removesuffix('0')}1")
    for index in down:
        port = f"/sys/class/infiniband/mlx5_{index}/ports/1"
        tree.files(port, state="1: DOWN").file(f"{port}/counters/link_downed", "0")


@pytest.mark.parametrize(
    ("down", "failing"),
    [
        (range(8, 16), set()),  # no card has a cable in its second port
        ([3], {"mlx5_3"}),
        ([*range(8, 16), 3], {"mlx5_3"}),
        ([11], {"mlx5_11"}),  # all other second ports are in use
    ],
)
def test_port_is_missed_if_its_like_is_active(down, failing):
    tree = healthy()
    two_ports_each(tree, down)
    seen = run("nic-state", tree)
    assert {one.subject for one in seen if one.verdict is FAIL} == failing
    assert {one.subject for one in seen if one.verdict is WARN} == {f"mlx5_{index}" for index in down} - failing


def test_port_of_another_model_is_missed_only_if_it_had_a_link():
    tree = healthy(ports=9).file("/sys/class/infiniband/mlx5_8/board_id", "MT_0000000359")
    tree.files("/sys/class/infiniband/mlx5_8/ports/1", state="1: DOWN").file(
        "/sys/class/infiniband/mlx5_8/ports/1/counters/link_downed", "0"
    )
    assert {found.verdict for found in run("nic-state", tree) if found.subject == "mlx5_8"} == {WARN}
    tree.file("/sys/class/net/eth8/carrier_up_count", "1")
    assert {found.verdict for found in run("nic-state", tree) if found.subject == "mlx5_8"} == {FAIL}


def test_a_second_storage_port_that_never_had_a_link_is_not_missed():
    tree = healthy(ports=10)
    for index in (8, 9):
        tree.file(f"/sys/class/infiniband/mlx5_{index}/board_id", "MT_0000000359")
        tree.file(f"/sys/class/infiniband/mlx5_{index}/ports/1/rate", "100 Gb/sec (4X EDR)")
    tree.files("/sys/class/infiniband/mlx5_9/ports/1", state="1: DOWN").file(
        "/sys/class/infiniband/mlx5_9/ports/1/counters/link_downed", "0"
    )
    assert {found.subject: found.verdict for found in run("nic-state", tree) if found.verdict is not PASS} == {"mlx5_9": WARN}


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("pci 0000:20:00.0: [15b3:1021] type 00 class 0x020700 PCIe Endpoint", FAIL),
        ("pci 0000:20:00.0: [15b3:1021] type 00 class 0x020000", FAIL),
        ("mlx5_core 0000:20:00.0: 63.008 Gb/s available PCIe bandwidth (8.0 GT/s PCIe x8 link)", FAIL),
        ("pci 0000:20:00.2: [15b3:101e] type 00 class 0x020000 PCIe Endpoint", PASS),  # a virtual function that was removed
        ("mlx5_core 0000:20:00.2: firmware version: 28.39.1002", PASS),
        ("pci 0000:20:00.0: [15b3:a2dc] type 00 class 0x058000", PASS),  # a BlueField's memory
    ],
)
def test_card_of_the_kernel_log_that_pci_does_not_show(line, verdict):
    tree = healthy()
    logged(line)(tree)
    assert [one.verdict for one in run("nic-missing", tree)] == [verdict]


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (lambda tree: tree.file("/proc/modules", "mlx5_core 1 0 - Live 0x0"), SKIP),
        (lambda tree: tree.files("/sys/class/dmi/id", sys_vendor="QEMU"), SKIP),
        (lambda tree: tree, WARN),
    ],
)
def test_rdma_driver_without_a_card(change, verdict):
    tree = healthy(gpus=0, ports=0).files("/sys/bus/pci/devices/0000:00:1f.0", vendor="0x8086", **{"class": "0x060100"})
    for number in range(5, 9):
        tree.drop(f"/sys/bus/pci/devices/0000:0{number}:00.0")
    change(tree)
    assert [one.verdict for one in run("nic-missing", tree)] == [verdict]


def test_names_that_an_administrator_gave_have_no_gap():
    tree = healthy()
    for path in list(tree.paths):
        if path.startswith("/sys/class/infiniband/mlx5_3/"):
            tree.paths[path.replace("mlx5_3", "storage0")] = tree.paths.pop(path)
    (one,) = run("nic-missing", tree)
    assert (one.verdict, one.optional) == (UNKNOWN, True)


@pytest.mark.parametrize("file", ["state", "phys_state"])
def test_port_whose_state_gives_an_error_fails(file):
    tree = healthy().error(f"{PORT}/{file}", "input/output error")
    name = {"state": "nic-state", "phys_state": "device-files"}[file]
    (bad,) = [one for one in run(name, tree) if one.verdict is not PASS]
    assert (bad.subject, bad.verdict) == ("mlx5_3", FAIL)


def test_card_that_reads_as_ones_fails():
    tree = healthy()
    tree.data(f"/sys/bus/pci/devices/{port_bdf(3)}/config", b"\xff" * 64)
    assert {found.subject for found in run("nic-present", tree) if found.verdict is FAIL} == {port_bdf(3)}


def test_switched_off_interface_is_told_from_a_cable():
    off = changed(lambda tree: tree.file(f"{PORT}/phys_state", "3: Disabled").file(f"{NET}/flags", "0x1002"))
    assert one("nic-physical-state", off).fix == "ip link set dev eth3 up"
    cable = changed(lambda tree: tree.file(f"{PORT}/phys_state", "2: Polling"))
    assert "nothing answers at the other end of the cable" in one("nic-physical-state", cable).message


def test_port_without_link_is_not_blamed_on_the_subnet_manager():
    tree = healthy(layer="InfiniBand").file(f"{PORT}/phys_state", "2: Polling").file(f"{PORT}/sm_lid", "0x0")
    assert "mlx5_3" not in {found.subject for found in run("nic-subnet-manager", tree)}


def test_partition_of_most_ports_is_the_right_one():
    tree = healthy(layer="InfiniBand").file(f"{PORT}/pkeys/0", "0x8001")
    found = one("nic-pkey", tree)
    assert (found.verdict, found.evidence[0].seen, found.evidence[0].expected) == (WARN, "0: 0x8001", "0: 0xffff")


def rate(text, ports=8):
    tree = healthy(ports=ports)
    for index in range(ports):
        tree.file(f"/sys/class/infiniband/mlx5_{index}/ports/1/rate", text)
    return {found.verdict for found in run("nic-rate", tree)}


def test_two_lanes_on_all_ports_are_split_cables():
    assert rate("200 Gb/sec (2X NDR)") == {PASS}


def test_two_lanes_on_the_only_port_are_unknown():
    assert rate("200 Gb/sec (2X NDR)", ports=1) == {UNKNOWN}
    assert rate("400 Gb/sec (4X NDR)", ports=1) == {PASS}


def test_storage_port_of_another_card_may_be_slower():
    tree = changed(lambda tree: tree.file(f"{PORT}/rate", "100 Gb/sec (4X EDR)").file("/sys/class/infiniband/mlx5_3/board_id", "MT_1"))
    assert one("nic-rate", tree).verdict is PASS


# Interfaces and addresses


def test_bond_has_the_address_of_its_slaves():
    tree = bonded()
    tree.call("addresses", json.dumps({"bond0": "10.0.0.1/24", "eth0": "", "eth1": ""}))
    assert one("nic-netdev", tree, "mlx5_0").message == "bond0 is up and has 10.0.0.1/24"


def test_interface_without_an_address_warns():
    tree = changed(lambda tree: tree.update("addresses", eth3="169.254.1.1/16"))
    found = one("nic-netdev", tree)
    assert (found.verdict, found.evidence[-1].seen) == (WARN, "169.254.1.1/16")


def test_interface_in_another_namespace_is_unknown():
    tree = healthy().call("addresses", json.dumps({"lo": "127.0.0.1/8"}))
    assert {found.verdict for found in run("nic-netdev", tree)} == {UNKNOWN}


def test_gids_hidden_in_a_container_are_unknown():
    tree = healthy(ports=1).file("/.dockerenv", "").drop("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types")
    (found,) = run("nic-gid", tree)
    assert (found.verdict, "other network namespaces" in found.message) == (UNKNOWN, True)


def test_port_with_roce_v1_alone_fails():
    tree = healthy()
    for index in range(4):
        tree.file(f"{PORT}/gid_attrs/types/{index}", "IB/RoCE v1")
    assert one("nic-gid", tree).verdict is FAIL


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("layer3+4 (1)", "layer2 (0)", "its hash is layer2: all connections between two hosts use one slave"),
        ("IEEE 802.3ad Dynamic link aggregation", "fault-tolerance (active-backup)", "its mode is fault-tolerance (active-backup)"),
        ("00:1c:73:00:00:01", "00:00:00:00:00:00", "the switch does not answer LACP"),
        ("eth1\nMII Status: up\nSpeed: 400000", "eth1\nMII Status: up\nSpeed: 200000", "its slaves differ in speed"),
        ("400000 Mbps\nAggregator ID: 1\n\nSlave", "400000 Mbps\nAggregator ID: 2\n\nSlave", "eth0 is not in the bond's aggregator"),
    ],
)
def test_bond_is_warned_about(old, new, message):
    assert old in BOND
    found = one("nic-bond", bonded(BOND.replace(old, new)), "bond0")
    assert (found.verdict, found.message) == (WARN, message)


def test_bond_for_management_may_be_active_backup():
    text = BOND.replace("IEEE 802.3ad Dynamic link aggregation", "fault-tolerance (active-backup)").replace("eth", "eno")
    tree = healthy().file("/proc/net/bonding/bond0", text)
    assert one("nic-bond", tree, "bond0").verdict is PASS


def test_bond_that_cannot_be_read_is_unknown():
    assert one("nic-bond", bonded().drop("/proc/net/bonding"), "bond0").verdict is UNKNOWN


@pytest.mark.parametrize(
    ("values", "verdict"), [((1, 2, 2), PASS), ((1, 2, 0), PASS), ((1, 2, 1), WARN), ((0, 2, 2), WARN), ((1, 1, 0), WARN)]
)
def test_one_network_needs_three_settings(values, verdict):
    tree = changed(one_network)
    tree.files("/proc/sys/net/ipv4/conf/eth3", **dict(zip(("arp_ignore", "arp_announce", "rp_filter"), map(str, values), strict=True)))
    tree.file("/proc/sys/net/ipv4/conf/all/rp_filter", "0")
    assert one("nic-multirail", tree, "eth3").verdict is verdict


# Counters


@pytest.mark.parametrize(
    ("name", "change", "verdict"),
    [
        ("nic-flap", counter("link_downed", 5, "counters"), PASS),  # the median is 1
        ("nic-flap", counter("link_downed", 6, "counters"), WARN),
        ("nic-symbol-errors", counter("symbol_error", 120, "counters"), PASS),  # all in one hour would be right
        ("nic-symbol-errors", counter("symbol_error", 121, "counters"), WARN),
        ("nic-ber", statistic(rx_corrected_bits_phy=10**10), PASS),
        ("nic-ber", statistic(rx_corrected_bits_phy=10**10 + 10**9), WARN),
        ("nic-ber", statistic(rx_bits_phy=1000, rx_corrected_bits_phy=0), UNKNOWN),
        ("nic-discards", statistic(tx_discards_phy=20_000), PASS),
        ("nic-discards", statistic(tx_discards_phy=20_001), WARN),
        ("nic-discards", statistic(rx_oversize_pkts_phy=1), WARN),
        ("nic-pci-stalls", statistic(outbound_pci_stalled_wr=30, outbound_pci_stalled_wr_events=59), PASS),
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
    assert one(name, changed(change)).verdict is verdict


def test_ports_that_all_went_down_together_have_no_fault():
    tree = healthy()
    for index in range(8):
        tree.file(f"/sys/class/infiniband/mlx5_{index}/ports/1/counters/link_downed", "20")
    assert {found.verdict for found in run("nic-flap", tree)} == {PASS}


def test_module_is_judged_by_its_own_maximum():
    sensors = f"{NET}/device/hwmon/hwmon4"
    warm = changed(lambda tree: tree.files(sensors, temp2_input="71000", temp2_max="75000", temp2_crit="80000"))
    assert (one("nic-module", warm).verdict, one("nic-module", warm).message) == (PASS, "no event since the driver was loaded, 71 °C")
    hot = changed(lambda tree: tree.files(sensors, temp2_input="75000", temp2_max="75000", temp2_crit="80000"))
    assert one("nic-module", hot).verdict is WARN


@pytest.mark.parametrize(
    "name", ["nic-flap", "nic-ber", "nic-discards", "nic-module", "nic-pci-stalls", "nic-retransmissions", "roce-storm"]
)
def test_counters_that_cannot_be_read_are_unknown(name):
    tree = healthy().failing("ethtool -S eth3", "eth3: operation not supported")
    tree.drop(f"{PORT}/counters").drop(f"{PORT}/hw_counters").drop(f"{NET}/carrier_down_count")
    assert one(name, tree).verdict is UNKNOWN


# Clouds


def test_efa_without_the_plugin_of_nccl_warns():
    assert one("nic-efa", efa().drop("/opt/amazon"), "").verdict is WARN
    assert one("nic-efa", efa().drop("/opt/amazon").listing("/var/lib/kubelet", "pods"), "").verdict is UNKNOWN
    plugin = (
        efa().drop("/opt/amazon").listing("/home/me/lib", "libnccl-net.so").call("environment", '{"LD_LIBRARY_PATH": "lib:/home/me/lib"}')
    )
    assert one("nic-efa", plugin, "").message == "NCCL's plugin is /home/me/lib/libnccl-net.so"


def test_efa_drops_are_judged_by_packets():
    path = "/sys/class/infiniband/rdmap0/ports/1/hw_counters/rx_drops"
    assert one("nic-efa", efa().file(path, "1"), "rdmap0").verdict is PASS
    assert one("nic-efa", efa().file(path, "2"), "rdmap0").verdict is WARN


def test_erdma_is_not_asked_for_jumbo_frames_of_roce():
    assert [found.verdict for found in run("nic-mtu", erdma("1400"))] == [SKIP]
    assert one("nic-erdma-mtu", erdma("1400"), "rdmap0").verdict is PASS


# All of them


@pytest.mark.parametrize("name", ["roce-bond", "no-nic", "vm-veth", "h200x2-recorded", "h100x8-ib"])
def test_recorded_machines_have_no_false_alarm(name):
    machine = Machine(recorded(Path(__file__).parents[2] / "hosts" / f"{name}.jsonl"))
    checks = [check for check in CHECKS if check.row.layer.value in ("NIC", "RoCE")]
    bad = [found for check in checks for found in check.run(machine) if found.verdict in (WARN, FAIL)]
    assert [(found.name, found.evidence[0].seen) for found in bad] == ([("nic-mtu", "1500")] if name == "roce-bond" else [])


def test_report_answers_the_items_of_rdma_qos_check():
    machine = Machine(changed(lambda tree: tree.file(f"{NET}/qos/trust", "pcp")).source())
    text = rdma_qos_check.text(CheckReport(host="gpu-1", findings=[found for check in CHECKS for found in check.run(machine)]))
    rows = {tuple(line.split()[1:]) for line in text.splitlines() if line.startswith("* ")}
    assert rows >= {
        ("link_up", "eth3:", "yes", "ok"), ("mlnx_device", "eth3:", "1", "ok"), ("drv_ver", "eth3:", "6.8.0-60-generic", "ok"),
        ("drv_fw_ver", "eth3:", "6.8.0-60-generic/28.41.1000", "ok"), ("roce_ver", "mlx5_3:", "1", "ok"),
        ("cm_tos", "mlx5_3:", "106", "ok"), ("trust_mod", "eth3:", "pcp", "fail"), ("trust_mod", "eth2:", "dscp", "ok"),
        ("roce_tos", "mlx5_2:", "106", "ok"),
    }  # fmt: skip


# Which port is named


def named(name, *changes, ports=8):
    """The subjects that a check complains of, after changes of the healthy server."""
    tree = healthy(ports=ports)
    for change in changes:
        change(tree)
    return {found.subject: found.verdict for found in run(name, tree) if found.verdict not in (PASS, SKIP)}


@pytest.mark.parametrize("mtu", ["1500", "4200", "9200"])
def test_interface_with_another_mtu_than_most_is_named(mtu):
    assert named("nic-mtu-equal", lambda tree: tree.file(f"{NET}/mtu", mtu)) == {"eth3": WARN}
    assert "ip link set dev eth3 mtu 9000" in one("nic-mtu-equal", changed(lambda tree: tree.file(f"{NET}/mtu", mtu)), "eth3").fix


def test_interface_without_a_readable_mtu_is_named_and_does_not_count():
    def silent(tree):
        for index in (0, 1, 2, 4, 5):
            tree.drop(f"/sys/class/net/eth{index}/mtu")
        tree.file(f"{NET}/mtu", "1500")

    assert named("nic-mtu-equal", silent) == {f"eth{index}": UNKNOWN for index in (0, 1, 2, 4, 5)} | {"eth3": WARN}


def test_port_whose_gids_are_in_another_order_is_named():
    from cases_nic import gids_in_another_order

    assert named("nic-gid-order", gids_in_another_order) == {"mlx5_3": WARN}
    assert one("nic-gid-order", changed(gids_in_another_order)).message == "its RoCE v2 GID has index 7, on most ports 3"


def test_the_gid_with_an_ipv4_address_counts_else_the_first():
    wide = "2001:0db8:0000:0000:0000:0000:0000:0003"

    def both(tree):
        own = tree.paths[f"{PORT}/gids/3"]["text"].strip()
        tree.file(f"{PORT}/gids/3", wide).file(f"{PORT}/gids/5", own).file(f"{PORT}/gid_attrs/types/5", "RoCE v2")

    def only_wide(tree):
        port = PORT.replace("mlx5_3", "mlx5_4")
        tree.file(f"{port}/gids/3", wide).file(f"{port}/gids/5", wide).file(f"{port}/gid_attrs/types/5", "RoCE v2")

    assert named("nic-gid-order", both, only_wide) == {"mlx5_3": WARN}
    assert one("nic-gid-order", changed(both)).message == "its RoCE v2 GID has index 5, on most ports 3"


def test_port_without_a_gid_is_named_and_does_not_count():
    def without(tree):
        for index in (0, 1, 2, 4, 5):
            port = f"/sys/class/infiniband/mlx5_{index}/ports/1"
            tree.drop(f"{port}/gids/2").drop(f"{port}/gids/3")

    assert named("nic-gid-order", without) == {f"mlx5_{index}": UNKNOWN for index in (0, 1, 2, 4, 5)}


def test_port_with_more_corrected_bits_is_named():
    assert named("nic-ber", statistic(rx_corrected_bits_phy=10**11)) == {"mlx5_3": WARN}


@pytest.mark.parametrize(
    ("mtu", "verdict", "carried"),
    [(4200, PASS, ""), (4199, WARN, "carry 2048 bytes"), (2200, WARN, "carry 2048 bytes"), (2199, WARN, "carry 1024 bytes")],
)
def test_the_least_mtu_of_each_size_of_packets(mtu, verdict, carried):
    found = one("nic-mtu", changed(lambda tree: tree.file(f"{NET}/mtu", str(mtu))))
    assert (found.verdict, carried in found.message) == (verdict, True)


@pytest.mark.parametrize("name", ["nic-gid-order", "nic-mtu-equal", "nic-multirail", "nic-link-layer"])
@pytest.mark.parametrize(("ports", "verdict"), [(1, SKIP), (2, PASS)])
def test_two_ports_can_be_compared_and_one_cannot(name, ports, verdict):
    assert {found.verdict for found in run(name, healthy(ports=ports))} == {verdict}
