"""Checks of network cards, their drivers and which ports are there."""

import pytest
from cases_nic import NET, PORT, changed, finding_of, run
from healthy import healthy
from healthy_gpu import logged
from healthy_pcie import port_bdf
from tree import Tree

from busbw.core.finding import Verdict

PASS, WARN, FAIL, SKIP, UNKNOWN = (
    Verdict.PASS,
    Verdict.WARN,
    Verdict.FAIL,
    Verdict.SKIP,
    Verdict.UNKNOWN,
)


PCI = "/sys/bus/pci/devices/0000:62:00.0"  # of mlx5_3


def without_rdma(tree):
    return tree.drop("/sys/class/infiniband/mlx5_3")


@pytest.mark.parametrize(
    ("change", "verdict", "message"),
    [
        (lambda tree: tree.drop(f"{PCI}/driver"), FAIL, "it has no driver"),
        (
            lambda tree: tree.file("/proc/modules", "mlx5_core 1 0 - Live 0x0"),
            FAIL,
            "mlx5_ib is not loaded",
        ),
        (lambda tree: None, FAIL, "mlx5_ib is loaded, but created no RDMA device"),
        (
            lambda tree: tree.file("/.dockerenv", ""),
            UNKNOWN,
            "this container may not show its RDMA device",
        ),
    ],
)
def test_card_without_rdma_device_is_explained(change, verdict, message):
    finding = finding_of("nic-present", changed(without_rdma, change), "0000:62:00.0")
    assert (finding.verdict, finding.message) == (verdict, message)


def test_functions_for_guests_need_no_rdma_device():
    for change in (
        lambda tree: tree.link(f"{PCI}/driver", "../drivers/vfio-pci"),
        lambda tree: tree.drop(f"{PCI}/driver").link(f"{PCI}/physfn", "../0000:62:00.1"),
    ):
        findings = run("nic-present", changed(without_rdma, change))
        assert {finding.verdict for finding in findings} == {PASS}
        assert "0000:62:00.0" not in {finding.subject for finding in findings}


def test_second_port_of_a_bond_shares_the_rdma_device():
    tree = healthy(ports=1).link(
        "/sys/class/infiniband/mlx5_bond_0/device", "../../../0000:43:01.0"
    )
    tree.files("/sys/bus/pci/devices/0000:43:01.1", vendor="0x15b3", **{"class": "0x020000"})
    tree.link("/sys/bus/pci/devices/0000:43:01.1/driver", "../drivers/mlx5_core")
    assert finding_of("nic-present", tree, "0000:43:01.1").message == "it is mlx5_bond_0"


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
    tree.files(
        "/sys/bus/pci/devices/0000:31:00.0", vendor="0x14e4", device=model, **{"class": "0x020000"}
    )
    tree.link("/sys/bus/pci/devices/0000:31:00.0/driver", f"../drivers/{driver}")
    assert {finding.verdict for finding in run("nic-present", tree)} == verdicts


def test_modules_of_one_release_pass():
    tree = (
        healthy()
        .file("/sys/module/mlx5_core/version", "24.10-1.1.4")
        .file("/sys/module/mlx5_ib/version", "24.10-1.1.4")
    )
    assert {finding.verdict for finding in run("nic-driver", tree)} == {PASS}


# State


def test_no_active_port_fails():
    tree = healthy(ports=2)
    for index in range(2):
        tree.file(f"/sys/class/infiniband/mlx5_{index}/ports/1/state", "1: DOWN")
    assert {finding.verdict for finding in run("nic-state", tree)} == {FAIL}


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
    findings = run("nic-state", tree)
    assert {finding.subject for finding in findings if finding.verdict is FAIL} == failing
    assert {finding.subject for finding in findings if finding.verdict is WARN} == {
        f"mlx5_{index}" for index in down
    } - failing


def test_port_of_another_model_is_missed_only_if_it_had_a_link():
    tree = healthy(ports=9).file("/sys/class/infiniband/mlx5_8/board_id", "MT_0000000359")
    tree.files("/sys/class/infiniband/mlx5_8/ports/1", state="1: DOWN").file(
        "/sys/class/infiniband/mlx5_8/ports/1/counters/link_downed", "0"
    )
    assert {
        finding.verdict for finding in run("nic-state", tree) if finding.subject == "mlx5_8"
    } == {WARN}
    tree.file("/sys/class/net/eth8/carrier_up_count", "1")
    assert {
        finding.verdict for finding in run("nic-state", tree) if finding.subject == "mlx5_8"
    } == {FAIL}


def test_a_second_storage_port_that_never_had_a_link_is_not_missed():
    tree = healthy(ports=10)
    for index in (8, 9):
        tree.file(f"/sys/class/infiniband/mlx5_{index}/board_id", "MT_0000000359")
        tree.file(f"/sys/class/infiniband/mlx5_{index}/ports/1/rate", "100 Gb/sec (4X EDR)")
    tree.files("/sys/class/infiniband/mlx5_9/ports/1", state="1: DOWN").file(
        "/sys/class/infiniband/mlx5_9/ports/1/counters/link_downed", "0"
    )
    assert {
        finding.subject: finding.verdict
        for finding in run("nic-state", tree)
        if finding.verdict is not PASS
    } == {"mlx5_9": WARN}


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("pci 0000:20:00.0: [15b3:1021] type 00 class 0x020700 PCIe Endpoint", FAIL),
        ("pci 0000:20:00.0: [15b3:1021] type 00 class 0x020000", FAIL),
        (
            "mlx5_core 0000:20:00.0: 63.008 Gb/s available PCIe bandwidth (8.0 GT/s PCIe x8 link)",
            FAIL,
        ),
        # a virtual function that was removed
        ("pci 0000:20:00.2: [15b3:101e] type 00 class 0x020000 PCIe Endpoint", PASS),
        ("mlx5_core 0000:20:00.2: firmware version: 28.39.1002", PASS),
        ("pci 0000:20:00.0: [15b3:a2dc] type 00 class 0x058000", PASS),  # a BlueField's memory
    ],
)
def test_card_of_the_kernel_log_that_pci_does_not_show(line, verdict):
    tree = healthy()
    logged(line)(tree)
    assert [finding.verdict for finding in run("nic-missing", tree)] == [verdict]


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (lambda tree: tree.file("/proc/modules", "mlx5_core 1 0 - Live 0x0"), SKIP),
        (lambda tree: tree.files("/sys/class/dmi/id", sys_vendor="QEMU"), SKIP),
        (lambda tree: tree, WARN),
    ],
)
def test_rdma_driver_without_a_card(change, verdict):
    tree = healthy(gpus=0, ports=0).files(
        "/sys/bus/pci/devices/0000:00:1f.0", vendor="0x8086", **{"class": "0x060100"}
    )
    for number in range(5, 9):
        tree.drop(f"/sys/bus/pci/devices/0000:0{number}:00.0")
    change(tree)
    assert [finding.verdict for finding in run("nic-missing", tree)] == [verdict]


def test_names_that_an_administrator_gave_have_no_gap():
    tree = healthy()
    for path in list(tree.paths):
        if path.startswith("/sys/class/infiniband/mlx5_3/"):
            tree.paths[path.replace("mlx5_3", "storage0")] = tree.paths.pop(path)
    (finding,) = run("nic-missing", tree)
    assert (finding.verdict, finding.optional) == (UNKNOWN, True)


@pytest.mark.parametrize("file", ["state", "phys_state"])
def test_port_whose_state_gives_an_error_fails(file):
    tree = healthy().error(f"{PORT}/{file}", "input/output error")
    name = {"state": "nic-state", "phys_state": "device-files"}[file]
    (bad,) = [finding for finding in run(name, tree) if finding.verdict is not PASS]
    assert (bad.subject, bad.verdict) == ("mlx5_3", FAIL)


def test_card_that_reads_as_ones_fails():
    tree = healthy()
    tree.data(f"/sys/bus/pci/devices/{port_bdf(3)}/config", b"\xff" * 64)
    assert {finding.subject for finding in run("nic-present", tree) if finding.verdict is FAIL} == {
        port_bdf(3)
    }


def test_switched_off_interface_is_distinguished_from_a_missing_cable():
    off = changed(
        lambda tree: tree.file(f"{PORT}/phys_state", "3: Disabled").file(f"{NET}/flags", "0x1002")
    )
    assert finding_of("nic-physical-state", off).fix == "ip link set dev eth3 up"
    cable = changed(lambda tree: tree.file(f"{PORT}/phys_state", "2: Polling"))
    assert (
        "nothing answers at the other end of the cable"
        in finding_of("nic-physical-state", cable).message
    )


def test_port_without_link_is_not_blamed_on_the_subnet_manager():
    tree = (
        healthy(layer="InfiniBand")
        .file(f"{PORT}/phys_state", "2: Polling")
        .file(f"{PORT}/sm_lid", "0x0")
    )
    assert "mlx5_3" not in {finding.subject for finding in run("nic-subnet-manager", tree)}


def test_partition_of_most_ports_is_the_right_one():
    tree = healthy(layer="InfiniBand").file(f"{PORT}/pkeys/0", "0x8001")
    finding = finding_of("nic-pkey", tree)
    assert (finding.verdict, finding.evidence[0].seen, finding.evidence[0].expected) == (
        WARN,
        "0: 0x8001",
        "0: 0xffff",
    )
