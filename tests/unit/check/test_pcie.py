"""Branches of the checks of PCIe: which part is named, what is not judged, what cannot be read."""

import pytest
from cases_pcie import virtual
from healthy import healthy
from healthy_gpu import all_changed
from healthy_pcie import DEVICES, bridges, config, device, gpu_bdf, port_bdf

from busbw.check.machine import Machine
from busbw.check.registry import find
from busbw.core.finding import Verdict

GPU, PORT = f"{DEVICES}/{gpu_bdf(2)}", f"{DEVICES}/{port_bdf(3)}"
ROOT, UP, DOWN = bridges(2, gpu=True)


def run(name, tree):
    return find(name).run(Machine(tree.source()))


def bad(name, tree):
    return [
        finding for finding in run(name, tree) if finding.verdict in (Verdict.WARN, Verdict.FAIL)
    ]


def only(findings):
    (finding,) = findings
    return finding


def unprivileged(tree, *devices):
    for base in devices:
        tree.data(f"{base}/config", config()[:64])
    return tree.call("euid", "1000")


class TestWidth:
    def test_names_the_gpu_and_its_lanes(self):
        finding = only(bad("pcie-width", healthy().file(f"{GPU}/current_link_width", "8")))
        assert (finding.subject, finding.message) == ("GPU 2", "it has 8 of 16 PCIe lanes")
        assert f"the slot of {gpu_bdf(2)} in the BIOS; power it off and reseat" in finding.fix

    def test_slot_with_fewer_lanes_is_named(self):
        tree = (
            healthy()
            .file(f"{GPU}/current_link_width", "8")
            .file(f"{DEVICES}/{DOWN}/max_link_width", "8")
        )
        assert only(bad("pcie-width", tree)).message.endswith(
            f"the port above it ({DOWN}) has no more"
        )

    def test_switch_with_fewer_lanes_is_found_once(self):
        finding = only(bad("pcie-width", healthy().file(f"{DEVICES}/{UP}/current_link_width", "8")))
        assert finding.message == f"the switch above it ({UP}) has 8 of 16 PCIe lanes"

    def test_switch_needs_no_more_than_its_root_port_has(self):
        tree = (
            healthy()
            .file(f"{DEVICES}/{UP}/current_link_width", "8")
            .file(f"{DEVICES}/{ROOT}/max_link_width", "8")
        )
        assert bad("pcie-width", tree) == []

    def test_link_that_a_hypervisor_hides_is_skipped(self):
        tree = virtual().file(f"{GPU}/current_link_width", "0")
        assert [
            finding.verdict for finding in run("pcie-width", tree) if finding.subject == "GPU 2"
        ] == [Verdict.SKIP]

    def test_link_without_a_width_is_unknown(self):
        findings = run("pcie-width", healthy().file(f"{GPU}/current_link_width", "255"))
        assert [finding.verdict for finding in findings if finding.subject == "GPU 2"] == [
            Verdict.UNKNOWN
        ]

    def test_device_without_pci_express_is_skipped(self):
        tree = healthy().file(f"{PORT}/current_link_width", "").data(f"{PORT}/config", bytes(256))
        for name in ("pcie-width", "pcie-max-payload"):
            assert [
                finding.message for finding in run(name, tree) if finding.subject == "mlx5_3"
            ] == ["it is not a PCI Express device"]

    def test_lost_device_is_unknown(self):
        tree = (
            healthy().file(f"{GPU}/current_link_width", "255").data(f"{GPU}/config", b"\xff" * 4096)
        )
        for name in ("pcie-width", "pcie-max-payload"):
            assert [
                finding.verdict for finding in run(name, tree) if finding.subject == "GPU 2"
            ] == [Verdict.UNKNOWN]


class TestSpeed:
    def test_idle_gpu_is_unknown(self):
        tree = healthy().file(f"{GPU}/current_link_speed", "2.5 GT/s PCIe")
        finding = only(
            finding for finding in run("pcie-speed", tree) if finding.verdict is not Verdict.PASS
        )
        assert (finding.verdict, finding.subject) == (Verdict.UNKNOWN, "GPU 2")
        assert finding.message == "it runs at 2.5 of 32 GT/s; an idle GPU lowers its link speed"

    @pytest.mark.parametrize("percent, verdict", [(49, Verdict.UNKNOWN), (50, Verdict.WARN)])
    def test_busy_gpu_is_judged(self, percent, verdict):
        tree = (
            healthy()
            .file(f"{GPU}/current_link_speed", "16.0 GT/s PCIe")
            .update("nvml_load", **{gpu_bdf(2): percent})
        )
        assert (
            only(
                finding.verdict
                for finding in run("pcie-speed", tree)
                if finding.verdict is not Verdict.PASS
            )
            is verdict
        )

    def test_card_in_an_older_slot_is_right(self):
        tree = healthy().file(f"{PORT}/current_link_speed", "16.0 GT/s PCIe")
        tree.file(f"{DEVICES}/{bridges(3, gpu=False)[2]}/max_link_speed", "16.0 GT/s PCIe")
        assert bad("pcie-speed", tree) == []
        assert (
            "PCIe carries only 252 Gbit/s for ports of 400 Gbit/s"
            in only(bad("pcie-nic-bandwidth", tree)).message
        )

    def test_slow_switch_is_judged_though_the_gpu_is_idle(self):
        finding = only(
            bad("pcie-speed", healthy().file(f"{DEVICES}/{UP}/current_link_speed", "8.0 GT/s PCIe"))
        )
        assert UP in finding.message and UP in finding.fix


def test_ports_of_one_card_share_its_link():
    tree = healthy(ports=1)
    second = port_bdf(0).replace(".0", ".1")
    device(tree, (*bridges(0, gpu=False), second), "0x15b3", "0x020000", 0, config())
    tree.files(
        "/sys/class/infiniband/mlx5_1/ports/1",
        link_layer="Ethernet",
        state="4: ACTIVE",
        rate="400 Gb/sec (4X NDR)",
    )
    tree.link("/sys/class/infiniband/mlx5_1/device", f"../../../{second}")
    finding = only(bad("pcie-nic-bandwidth", tree))
    assert finding.message == "PCIe carries only 504 Gbit/s for ports of 800 Gbit/s"


class TestPath:
    def test_fix_names_the_card_and_the_gpu(self):
        tree = healthy(gpus=1, ports=1)
        tree.link(f"{DEVICES}/{gpu_bdf(0)}", f"../../../devices/pci0000:70/70:01.0/{gpu_bdf(0)}")
        assert (
            only(bad("pcie-path", tree)).fix
            == f"drain the host and power it off; then move mlx5_0 ({port_bdf(0)}) to a slot under"
            f" the switch of the GPU at {gpu_bdf(0)}"
        )

    def test_no_card_that_another_gpu_uses_is_moved(self):
        finding = only(bad("pcie-path", healthy(ports=7)))
        assert "no RDMA device is under its PCIe switch" in finding.message
        assert "move" not in finding.fix and "nic-missing" in finding.fix

    def test_place_that_is_not_known(self):
        tree = healthy()
        del tree.paths[GPU]
        findings = [finding for finding in run("pcie-path", tree) if finding.subject == "GPU 2"]
        assert [finding.verdict for finding in findings] == [Verdict.UNKNOWN]

    def test_virtual_machine_is_skipped(self):
        assert only(run("pcie-path", virtual())).verdict is Verdict.SKIP


class TestNuma:
    def test_gpu_and_its_card_on_two_nodes(self):
        finding = only(bad("pcie-numa", healthy().file(f"{DEVICES}/{port_bdf(1)}/numa_node", "1")))
        assert finding.message == "it is on NUMA node 0, its nearest RDMA device mlx5_1 on node 1"

    def test_machine_with_one_node_is_skipped(self):
        tree = healthy().file("/sys/devices/system/node/online", "0").file(f"{GPU}/numa_node", "-1")
        assert only(run("pcie-numa", tree)).verdict is Verdict.SKIP


class TestAcs:
    def test_command_has_the_bridges(self):
        tree = healthy()
        for bdf in (UP, DOWN):
            tree.data(f"{DEVICES}/{bdf}/config", config(acs=0x04))
        finding = only(bad("pcie-acs", tree))
        assert finding.fix.startswith("drain the host") and "VFIO" in finding.fix
        assert finding.fix.endswith(
            f"for b in {UP} {DOWN}; do setpci -s $b ECAP_ACS+0x6.w=0000:001d; done"
        )
        assert [evidence.seen for evidence in finding.evidence] == ["ReqRedir+", "ReqRedir+"]

    def test_root_port_is_not_judged(self):
        assert bad("pcie-acs", healthy().data(f"{DEVICES}/{ROOT}/config", config(acs=0x1D))) == []

    def test_translation_blocking_alone_does_not_redirect(self):
        assert bad("pcie-acs", healthy().data(f"{DEVICES}/{DOWN}/config", config(acs=0x02))) == []

    def test_needs_root(self):
        ports = [
            f"{DEVICES}/{bdf}"
            for index in range(8)
            for gpu in (True, False)
            for bdf in bridges(index, gpu=gpu)
        ]
        finding = only(run("pcie-acs", unprivileged(healthy(), *ports)))
        assert finding.verdict is Verdict.UNKNOWN
        assert "needs root" in finding.message and finding.fix == "sudo busbw check"

    def test_readable_ports_are_judged_beside_unreadable_ones(self):
        tree = unprivileged(healthy(), f"{DEVICES}/{UP}").data(
            f"{DEVICES}/{DOWN}/config", config(acs=0x1D)
        )
        assert [finding.verdict for finding in run("pcie-acs", tree)] == [
            Verdict.UNKNOWN,
            Verdict.WARN,
        ]

    def test_virtual_machine_keeps_it_on(self):
        finding = only(
            run("pcie-acs", virtual().data(f"{DEVICES}/{DOWN}/config", config(acs=0x1D)))
        )
        assert finding.verdict is Verdict.SKIP


class TestIommu:
    def test_unreadable_type_with_passthrough_on_the_command_line(self):
        tree = healthy().drop("/sys/kernel/iommu_groups")
        assert only(run("pcie-iommu", tree)).verdict is Verdict.PASS
        assert (
            only(run("pcie-iommu", tree.file("/proc/cmdline", "ro intel_iommu=on"))).verdict
            is Verdict.UNKNOWN
        )

    def test_no_group_means_no_iommu_only_where_something_was_read(self):
        tree = healthy()
        for path in [path for path in tree.paths if path.endswith("/iommu_group")]:
            tree.drop(path)
        assert only(run("pcie-iommu", tree)).verdict is Verdict.PASS
        assert only(run("pcie-iommu", tree.drop("/proc/cmdline"))).verdict is Verdict.UNKNOWN


def test_ats_needs_the_extended_capabilities():
    findings = run("pcie-ats", virtual().data(f"{PORT}/config", config()[:256]))
    assert [finding.verdict for finding in findings if finding.subject == "mlx5_3"] == [
        Verdict.UNKNOWN
    ]


def test_read_request_command_keeps_the_other_bits():
    finding = only(
        bad(
            "pcie-max-read-request",
            healthy().data(f"{PORT}/config", config(read_request=512, payload=512)),
        )
    )
    assert finding.fix == f"drain the host; setpci -s {port_bdf(3)} CAP_EXP+8.w=5000:7000"


def test_payload_that_is_small_all_the_way():
    tree = healthy(gpus=1, ports=0)
    for bdf in (*bridges(0, gpu=True), gpu_bdf(0)):
        tree.data(f"{DEVICES}/{bdf}/config", config(payload=128))
    assert (
        only(bad("pcie-max-payload", tree)).message == "packets on its path carry up to 128 bytes"
    )


def test_payload_is_unknown_where_a_bridge_needs_root():
    findings = run(
        "pcie-max-payload",
        unprivileged(healthy(gpus=1, ports=0), f"{DEVICES}/{bridges(0, gpu=True)[1]}"),
    )
    assert only(findings).verdict is Verdict.UNKNOWN


def test_relaxed_ordering_is_not_judged_on_other_hosts():
    findings = run("pcie-relaxed-ordering", healthy().data(f"{PORT}/config", config(relaxed=False)))
    assert [finding.verdict for finding in findings if finding.subject == "mlx5_3"] == [
        Verdict.SKIP
    ]


class TestErrors:
    def test_nonfatal_errors_warn_and_fatal_ones_fail(self):
        tree = healthy().file(f"{GPU}/aer_dev_nonfatal", "Timeout 1\nTOTAL_ERR_NONFATAL 1")
        tree.file(f"{DEVICES}/{DOWN}/aer_dev_fatal", "DLP 2\nTOTAL_ERR_FATAL 2")
        assert [(finding.verdict, finding.message) for finding in bad("pcie-aer-fatal", tree)] == [
            (Verdict.FAIL, f"2 fatal errors since boot in the bridge above it ({DOWN})"),
            (Verdict.WARN, "1 nonfatal error since boot"),
        ]

    @pytest.mark.parametrize("count, verdict", [(1843, Verdict.PASS), (1844, Verdict.WARN)])
    def test_correctable_errors_up_to_the_bit_error_rate(self, count, verdict):
        """16 lanes of 32 GT/s for an hour at 10^-12 are 1843 errors."""
        findings = run(
            "pcie-aer-correctable", healthy().file(f"{GPU}/aer_dev_correctable", f"BadTLP {count}")
        )
        assert only(findings).verdict is verdict

    @pytest.mark.parametrize("name", ["pcie-aer-fatal", "pcie-aer-correctable"])
    def test_kernel_without_counts_is_unknown(self, name):
        tree = healthy()
        for path in [path for path in tree.paths if "/aer_dev_" in path]:
            tree.drop(path)
        assert only(run(name, tree)).verdict is Verdict.UNKNOWN


def test_acs_stays_on_where_guests_have_devices():
    tree = (
        healthy()
        .data(f"{DEVICES}/{DOWN}/config", config(acs=0x1D))
        .link(f"{GPU}/driver", "../drivers/vfio-pci")
    )
    assert only(run("pcie-acs", tree)).verdict is Verdict.SKIP


def test_passthrough_of_arm_on_the_command_line():
    tree = (
        healthy().drop("/sys/kernel/iommu_groups").file("/proc/cmdline", "ro iommu.passthrough=1")
    )
    assert only(run("pcie-iommu", tree)).verdict is Verdict.PASS


@pytest.mark.parametrize(
    "name, file, text", [("pcie-width", "width", "1"), ("pcie-speed", "speed", "2.5 GT/s PCIe")]
)
def test_link_of_a_gpu_that_is_joined_to_its_cpu_is_not_judged(name, file, text):
    tree = healthy().file(f"{GPU}/current_link_{file}", text)
    all_changed(name="NVIDIA GB200")(tree)
    assert [finding.verdict for finding in run(name, tree) if finding.subject == "GPU 2"] == [
        Verdict.SKIP
    ]


def test_network_device_of_a_hypervisor_needs_no_node():
    tree = virtual()
    device(tree, ("0000:00:03.0",), "0x1af4", "0x020000", -1, config())
    for index in range(8):
        tree.drop(f"/sys/class/infiniband/mlx5_{index}").drop(f"{DEVICES}/{port_bdf(index)}")
    assert only(run("pcie-numa", tree)).verdict is Verdict.PASS
