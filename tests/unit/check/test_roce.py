"""Branches of the checks of RoCE: which class is lossless, drivers and vendors, virtual
machines, reboots.
"""

import json

import pytest
from cases_nic import NET, bonded, changed, finding_of, run, statistic
from healthy import healthy
from tree import environment

from busbw.core.finding import Verdict
from busbw.host.roce_qos import Qos

PASS, WARN, SKIP, UNKNOWN = Verdict.PASS, Verdict.WARN, Verdict.SKIP, Verdict.UNKNOWN


def test_slaves_with_their_own_rdma_devices_are_distinguished():
    assert finding_of("roce-trust", bonded(), "mlx5_1").message == "eth1 trusts DSCP"


def test_the_first_selector_of_dcb_counts():
    tree = healthy().drop(f"{NET}/qos").update("dcb eth3", trust=["dscp", "pcp"])
    assert finding_of("roce-trust", tree).message == "eth3 trusts DSCP"


def test_the_priority_of_packets_where_the_tag_is_trusted():
    without_tag, tagged = (
        Qos("eth3", "pcp", "", "no DCB", None, None, None, tagged=is_tagged)
        for is_tagged in (False, True)
    )
    assert (without_tag.priority(106), tagged.priority(106)) == (0, None)


def test_device_of_a_whole_bond_has_each_slave_checked():
    tree = (
        bonded().drop("/sys/class/infiniband/mlx5_1").file("/sys/class/net/eth1/qos/trust", "pcp")
    )
    assert finding_of("roce-trust", tree, "mlx5_0 eth0").verdict is PASS
    assert finding_of("roce-trust", tree, "mlx5_0 eth1").verdict is WARN


def test_lossless_class_is_compared_with_the_class_of_nccl():
    tree = healthy().drop("/sys/class/infiniband/mlx5_3/tc")
    assert (
        finding_of("roce-traffic-class", tree).message
        == "traffic class 0 (DSCP 0, no ECN) has priority 0, which has no flow control"
    )
    assert (
        finding_of("roce-traffic-class", tree).evidence[0].where == "$NCCL_IB_TC, which is not set"
    )
    assert (
        "echo 98 >" in finding_of("roce-traffic-class", tree).fix
    )  # DSCP 24, the first of priority 3
    environment(NCCL_IB_TC="106")(tree)
    assert finding_of("roce-traffic-class", tree).verdict is PASS
    assert finding_of("roce-traffic-class", tree.call("environment", "")).verdict is UNKNOWN


def test_traffic_class_is_read_as_nccl_reads_its_files():
    tree = (
        healthy()
        .drop("/sys/class/infiniband/mlx5_3/tc")
        .file("/etc/nccl.conf", "NCCL_DEBUG=WARN\nNCCL_IB_TC=0x6a\nNCCL_IB_TC=2")
    )
    assert finding_of("roce-traffic-class", tree).evidence[0].where == "/etc/nccl.conf: NCCL_IB_TC"
    assert (
        "traffic class 106 " in finding_of("roce-traffic-class", tree).message
    )  # the first line counts
    environment(NCCL_CONF_FILE="/job/nccl.conf")(tree.file("/job/nccl.conf", "NCCL_IB_TC=98"))
    assert "traffic class 98 " in finding_of("roce-traffic-class", tree).message
    environment(NCCL_IB_TC="300")(tree)
    assert finding_of("roce-traffic-class", tree).verdict is UNKNOWN


@pytest.mark.parametrize(
    ("pfc", "verdict"),
    [([], WARN), ([3], PASS), ([3, 4], PASS), (list(range(8)), WARN), (None, UNKNOWN)],
)
def test_flow_control_is_for_some_priorities(pfc, verdict):
    assert finding_of("roce-pfc", healthy().update("dcb eth3", pfc=pfc)).verdict is verdict


def test_lossy_fabric_is_not_asked_for_a_lossless_class():
    tree = healthy()
    for index in range(8):
        tree.update(f"dcb eth{index}", pfc=[])
    for name in ("roce-traffic-class", "roce-priority-traffic"):
        assert {finding.verdict for finding in run(name, tree)} == {SKIP}
    assert {finding.verdict for finding in run("roce-ecn", tree)} == {PASS}


def test_congestion_control_is_for_lossless_priorities_alone():
    tree = changed(lambda tree: tree.file(f"{NET}/ecn/roce_np/enable/0", "0"))
    assert finding_of("roce-ecn", tree).verdict is PASS
    assert finding_of("roce-ecn", tree.drop(f"{NET}/ecn")).verdict is UNKNOWN


def test_virtual_machine_names_the_host_that_sets_its_ports():
    tree = (
        healthy()
        .file("/sys/class/dmi/id/sys_vendor", "QEMU")
        .failing("dcb eth3", "eth3: its driver has no DCB")
        .drop(f"{NET}/qos")
    )
    finding = finding_of("roce-trust", tree)
    assert finding.verdict is UNKNOWN
    assert finding.message.endswith("the host of this virtual machine sets it")


def test_other_vendors_are_set_by_iproute2():
    tree = (
        healthy()
        .link("/sys/class/infiniband/mlx5_3/device/driver", "../drivers/bnxt_en")
        .update("dcb eth3", pfc=[])
    )
    assert finding_of("roce-pfc", tree).fix.startswith("dcb pfc set dev eth3 prio-pfc all:off 3:on")
    assert finding_of("roce-pfc", healthy().update("dcb eth3", pfc=[])).fix.startswith(
        "mlnx_qos -i eth3 --pfc 0,0,0,1,0,0,0,0"
    )


def test_type_of_service_may_differ_within_the_lossless_class():
    path = "/sys/kernel/config/rdma_cm/mlx5_3/ports/1/default_roce_tos"
    assert (
        finding_of("roce-cm-tos", healthy().file(path, "98")).verdict is PASS
    )  # DSCP 24, priority 3 too
    assert finding_of("roce-cm-tos", healthy().file(path, "64")).verdict is WARN


def test_rdma_cm_without_a_directory_is_unknown_once():
    tree = healthy().drop("/sys/kernel/config")
    for name in ("roce-cm-mode", "roce-cm-tos"):
        assert [finding.verdict for finding in run(name, tree)] == [UNKNOWN]


def test_little_traffic_gives_no_verdict_on_priorities():
    tree = changed(
        statistic(
            tx_vport_rdma_unicast_bytes=10**9 + 10**8, vport_loopback_bytes=10**9, tx_prio3_bytes=0
        )
    )
    assert finding_of("roce-priority-traffic", tree).verdict is SKIP


def test_global_pause_alone_is_allowed():
    tree = healthy().update("ethtool -a eth3", rx=True).update("dcb eth3", pfc=[])
    assert finding_of("roce-pause-global", tree).verdict is PASS
    assert finding_of("roce-pause-global", tree.update("dcb eth3", pfc=None)).verdict is UNKNOWN


def test_port_that_was_left_out_is_named():
    tree = healthy().update("dcb eth3", pfc=[4], dscp={"26": 4})
    finding = [finding for finding in run("roce-alike", tree) if finding.verdict is WARN]
    assert {finding.subject for finding in finding} == {"mlx5_3"}
    assert [finding.message for finding in finding] == [
        f"its {setting} differs from most ports of this host"
        for setting in ("flow control", "DSCP map")
    ]


@pytest.mark.parametrize(
    ("files", "change", "verdict", "fix"),
    [
        (
            [{"path": "/etc/systemd/system/qos.service", "words": ["mlnx_qos"], "enabled": False}],
            None,
            WARN,
            "systemctl enable qos.service",
        ),
        ([], lambda tree: tree.listing("/var/lib/kubelet", "pods"), UNKNOWN, ""),
        (
            [],
            lambda tree: [tree.update(f"dcb eth{index}", host=False) for index in range(8)],
            PASS,
            "",
        ),
    ],
)
def test_settings_after_a_reboot(files, change, verdict, fix):
    tree = healthy().call("files that set RoCE at the start", json.dumps(files))
    if change:
        change(tree)
    (finding,) = run("roce-at-start", tree)
    assert (finding.verdict, finding.fix) == (verdict, fix)


def test_host_without_settings_has_none_to_keep():
    tree = healthy(ports=2)
    for index in range(2):
        tree.file(f"/sys/class/net/eth{index}/qos/trust", "pcp").update(f"dcb eth{index}", pfc=[])
    assert [finding.verdict for finding in run("roce-at-start", tree)] == [SKIP]
    tree.update("dcb eth1", pfc=[3])
    assert [finding.verdict for finding in run("roce-at-start", tree)] == [PASS]


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("roce-priority-traffic", lambda tree: tree.update("dcb eth3", pfc=None), "flow control"),
        (
            "roce-priority-traffic",
            lambda tree: tree.call("ethtool -S eth3", "{}"),
            "its driver does not count them",
        ),
        (
            "roce-traffic-class",
            lambda tree: tree.update("dcb eth3", pfc=None),
            "flow control cannot be read",
        ),
        (
            "roce-traffic-class",
            lambda tree: tree.update("dcb eth3", dscp={}),
            "the priority of DSCP 26 cannot be read",
        ),
    ],
)
def test_unknown_names_what_is_missing(name, change, reason):
    finding = finding_of(name, changed(change))
    assert (finding.verdict, finding.message.endswith(reason)) == (UNKNOWN, True)


def test_both_points_of_congestion_control_are_compared():
    tree = changed(
        lambda tree: [
            tree.file(f"{NET}/ecn/{part}/enable/5", "0") for part in ("roce_np", "roce_rp")
        ]
    )
    messages = [finding.message for finding in run("roce-alike", tree)]
    assert messages == [
        f"its {part} point differs from most ports of this host"
        for part in ("notification", "reaction")
    ]
    assert (
        finding_of("roce-ecn", tree).message
        == "eth3 has congestion control on priority 0, 1, 2, 3, 4, 6, 7"
    )


@pytest.mark.parametrize(
    ("path", "fix"),
    [
        ("/etc/systemd/system/qos@.service", "systemctl enable qos@INTERFACE.service"),
        ("/etc/network/if-up.d/qos", "chmod +x /etc/network/if-up.d/qos"),
    ],
)
def test_file_that_does_not_run_at_the_start_is_named(path, fix):
    setter = json.dumps([{"path": path, "words": ["mlnx_qos"], "enabled": False}])
    assert (
        run("roce-at-start", healthy().call("files that set RoCE at the start", setter))[0].fix
        == fix
    )


def test_settings_at_start_of_the_host_are_unknown_in_a_container():
    tree = healthy().call("files that set RoCE at the start", "[]").file("/.dockerenv", "")
    assert run("roce-at-start", tree)[0].verdict is UNKNOWN
