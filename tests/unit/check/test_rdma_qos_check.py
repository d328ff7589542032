"""A check report as rdma_qos_check prints it."""

import msgspec

from busbw.check import rdma_qos_check
from busbw.check.types import CheckReport, Evidence, ReportedFinding
from busbw.core.finding import Verdict

CM = "/sys/kernel/config/rdma_cm/mlx5_bond_1/ports/1"


def checked(name, verdict, subject, *evidence, layer="NIC"):
    return ReportedFinding(
        id="BW000",
        name=name,
        layer=layer,
        verdict=verdict,
        subject=subject,
        message="",
        evidence=evidence,
    )


def driver(netdev, bus, verdict=Verdict.PASS):
    values = {
        "driver": "mlx5_core",
        "version": "5.2-2.2.3",
        "firmware": "22.29.1016 (MT_0000000359)",
        "bus": bus,
    }
    evidence = [Evidence(f"ethtool -i {netdev}: {name}", value) for name, value in values.items()]
    return checked("nic-driver", verdict, "mlx5_bond_1", *evidence)


def report():
    """The values that the page on sccgn instances shows, of one bond."""
    return CheckReport(
        host="sccgn",
        findings=[
            checked("nic-firmware", Verdict.WARN, "mlx5_bond_1"),
            driver("eth1", "0000:c5:00.0"),
            driver("eth2", "0000:c5:00.1"),
            checked(
                "nic-physical-state",
                Verdict.WARN,
                "mlx5_bond_1",
                Evidence("/sys/class/net/eth1/operstate", "up"),
                Evidence("/sys/class/net/eth2/operstate", "down"),
            ),
            checked(
                "roce-trust",
                Verdict.WARN,
                "mlx5_bond_1 eth1",
                Evidence("/sys/class/net/eth1/qos/trust", "pcp", "dscp"),
            ),
            checked(
                "roce-trust", Verdict.PASS, "mlx5_bond_1 eth2", Evidence("dcb eth2", "dscp", "dscp")
            ),
            checked(
                "roce-cm-mode",
                Verdict.PASS,
                "mlx5_bond_1",
                Evidence(f"{CM}/default_roce_mode", "RoCE v2", "RoCE v2"),
            ),
            checked(
                "roce-cm-tos", Verdict.WARN, "mlx5_bond_1", Evidence(f"{CM}/default_roce_tos", "0")
            ),
            *[
                checked(
                    "roce-traffic-class",
                    Verdict.PASS,
                    f"mlx5_bond_1 {netdev}",
                    Evidence(
                        "/sys/class/infiniband/mlx5_bond_1/tc/1/traffic_class",
                        "106 (DSCP 26, ECT(0))",
                    ),
                    Evidence("dcb eth1", "dscp: priority 3"),
                )
                for netdev in ("eth1", "eth2")
            ],
            checked("pcie-width", Verdict.PASS, "mlx5_bond_1", layer="PCIe"),
            checked("pcie-speed", Verdict.SKIP, "mlx5_bond_1", layer="PCIe"),
        ],
    )


def test_the_whole_text(golden):
    golden("rdma_qos_check.txt", rdma_qos_check.text(report()))


def test_columns_are_those_of_the_original():
    lines = rdma_qos_check.text(report()).splitlines()
    assert "* ITEM          DETAIL                               RESULT" in lines
    assert "* link_up       eth1: yes                                ok" in lines
    assert "* pci           0000:c5:00.1                             ok" in lines


def test_items_not_offered_are_left_out():
    silent = checked("roce-trust", Verdict.UNKNOWN, "mlx5_0", Evidence("dcb eth0", "?"))
    findings = [
        msgspec.structs.replace(silent, optional=True),
        checked("roce-cm-mode", Verdict.SKIP, ""),
    ]
    assert rdma_qos_check.text(CheckReport(host="h", findings=findings)) == rdma_qos_check.text(
        CheckReport(host="h")
    )


def test_checks_without_an_answer_fail():
    findings = [checked("nic-physical-state", Verdict.UNKNOWN, "mlx5_3")]
    lines = rdma_qos_check.text(CheckReport(host="h", findings=findings)).splitlines()
    assert "* link_up       mlx5_3: unknown                        fail" in lines


def test_fault_on_pcie_fails_all_functions_of_the_device():
    findings = [
        driver("eth1", "0000:c5:00.0"),
        checked("pcie-width", Verdict.WARN, "mlx5_bond_1", layer="PCIe"),
    ]
    assert "* pci           0000:c5:00.0                           fail" in rdma_qos_check.text(
        CheckReport(host="h", findings=findings)
    )
