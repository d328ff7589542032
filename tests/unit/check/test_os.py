"""Branches of the checks of the kernel: values at the limits, containers, what cannot be read."""

import json

import pytest
from cases_os import CLOSED, container, no_rdma_devices, proprietary, without
from healthy import healthy
from healthy_pcie import DEVICES
from one_check import changed, only, run
from tree import environment

from busbw.core.finding import Verdict

PASS, WARN, FAIL, SKIP, UNKNOWN = (
    Verdict.PASS,
    Verdict.WARN,
    Verdict.FAIL,
    Verdict.SKIP,
    Verdict.UNKNOWN,
)


class TestGpuDirect:
    @pytest.mark.parametrize(
        "kernel, verdict",
        [("5.12.0", PASS), ("5.11.0-27-generic", WARN), ("6.8", PASS), ("", UNKNOWN)],
    )
    def test_open_driver_needs_a_recent_kernel(self, kernel, verdict):
        tree = changed(without("nvidia_peermem")).file("/proc/sys/kernel/osrelease", kernel)
        assert only("gpudirect-path", tree).verdict is verdict

    def test_proprietary_driver_needs_the_module(self):
        finding = only("gpudirect-path", changed(proprietary))
        assert (finding.verdict, finding.fix) == (WARN, "modprobe nvidia_peermem")
        assert finding.message.endswith("the driver is the proprietary one")

    def test_version_that_is_not_readable(self):
        tree = changed(without("nvidia_peermem")).drop("/proc/driver/nvidia/version")
        assert only("gpudirect-path", tree).verdict is UNKNOWN

    def test_efa_alone_is_skipped(self):
        tree = healthy(ports=0).link("/sys/class/infiniband/rdmap0/device", "../../../0000:a0:00.0")
        tree.files("/sys/class/infiniband/rdmap0/ports/1", state="4: ACTIVE")
        tree.files(f"{DEVICES}/0000:a0:00.0", vendor="0x1d0f", **{"class": "0x020000"})
        assert only("gpudirect-path", tree).message == "EFA has its own mechanism"


class TestRdma:
    def test_missing_modules_are_loaded_by_one_command(self):
        finding = only(
            "rdma-modules", changed(without("ib_uverbs", "rdma_ucm")).drop("/dev/infiniband")
        )
        assert (finding.verdict, finding.fix) == (FAIL, "modprobe -a ib_uverbs rdma_ucm")

    def test_connection_manager_alone_warns(self):
        assert (
            only("rdma-modules", changed(without("rdma_ucm")).drop("/dev/infiniband")).verdict
            is WARN
        )

    def test_devices_show_that_modules_are_built_in(self):
        assert (
            only("rdma-modules", changed(without("ib_uverbs", "rdma_cm", "rdma_ucm"))).verdict
            is PASS
        )

    def test_card_without_any_module(self):
        tree = changed(no_rdma_devices).drop("/sys/class/infiniband")
        assert only("rdma-modules", tree).verdict is FAIL

    def test_container_without_the_device_files(self):
        finding = only("rdma-access", healthy().call("access /dev/infiniband", "{}"))
        assert finding.verdict is FAIL and "--device=/dev/infiniband" in finding.fix

    def test_snapshot_without_the_answer(self):
        tree = healthy()
        del tree.calls["access /dev/infiniband"]
        assert only("rdma-access", tree).verdict is UNKNOWN


def test_gdrcopy_that_nccl_is_set_to_use():
    tree = changed(without("gdrdrv")).listing("/dev", "infiniband")
    assert only("gdrcopy", tree).verdict is SKIP
    assert only("gdrcopy", changed(environment(NCCL_GDRCOPY_ENABLE="1"), tree)).verdict is WARN


class TestRemoveIpc:
    def test_drop_in_overrides_the_file(self):
        tree = healthy().file("/etc/systemd/logind.conf.d/ipc.conf", "[Login]\nRemoveIPC=yes")
        assert only("kernel-removeipc", tree).verdict is WARN

    def test_default_of_the_distribution_is_not_known(self):
        assert (
            only("kernel-removeipc", healthy().file("/etc/systemd/logind.conf", "[Login]")).verdict
            is UNKNOWN
        )

    def test_container_is_skipped(self):
        assert only("kernel-removeipc", container()).verdict is SKIP


def test_processes_of_the_host_are_unknown_in_a_container():
    assert only("stuck-processes", container()).verdict is UNKNOWN
    assert only("stuck-processes", container().file("/proc/2/comm", "kthreadd\n")).verdict is PASS


def test_numa_balancing_of_one_node_is_skipped():
    assert (
        only(
            "kernel-numa-balancing", healthy().file("/sys/devices/system/node/online", "0")
        ).verdict
        is SKIP
    )


@pytest.mark.parametrize(
    "maximum, verdict", [("6291456", PASS), ("6291455", WARN), ("none", UNKNOWN)]
)
def test_tcp_buffers_at_the_default(maximum, verdict):
    findings = run(
        "kernel-tcp-memory", healthy().file("/proc/sys/net/ipv4/tcp_rmem", f"4096 131072 {maximum}")
    )
    assert [finding.verdict for finding in findings if finding.subject == "tcp_rmem"] == [verdict]


def test_tcp_buffer_command_keeps_the_other_values():
    findings = run(
        "kernel-tcp-memory", healthy().file("/proc/sys/net/ipv4/tcp_rmem", "4096 131072 262144")
    )
    assert findings[0].fix == "sysctl -w net.ipv4.tcp_rmem='4096 131072 6291456'"


class TestFirewall:
    def test_rule_goes_into_the_chain_that_drops(self):
        finding = only(
            "firewall", healthy().call("nft ruleset", json.dumps({"nftables": [CLOSED]}))
        )
        assert (finding.verdict, finding.subject) == (WARN, "inet filter input")
        assert "nft insert rule inet filter input ip saddr" in finding.fix

    def test_network_that_is_accepted_may_not_be_the_cluster(self):
        match = {
            "op": "==",
            "left": {"payload": {"protocol": "ip", "field": "saddr"}},
            "right": {"prefix": {"addr": "10.0.0.0", "len": 8}},
        }
        rule = {
            "family": "inet",
            "table": "filter",
            "chain": "input",
            "expr": [{"match": match}, {"accept": None}],
        }
        finding = only(
            "firewall",
            healthy().call("nft ruleset", json.dumps({"nftables": [CLOSED, {"rule": rule}]})),
        )
        assert finding.verdict is UNKNOWN and "10.0.0.0/8" in finding.message

    def test_wide_range_of_open_ports_is_named(self):
        def ruleset(first):
            match = {
                "op": "==",
                "left": {"payload": {"protocol": "tcp", "field": "dport"}},
                "right": {"range": [first, 60999]},
            }
            rule = {
                "family": "inet",
                "table": "filter",
                "chain": "input",
                "expr": [{"match": match}, {"accept": None}],
            }
            return json.dumps({"nftables": [CLOSED, {"rule": rule}]})

        finding = only("firewall", healthy().call("nft ruleset", ruleset(32768)))
        assert (
            finding.verdict is UNKNOWN
            and "it accepts ports 32768 to 60999 and drops the rest" in finding.message
        )
        assert only("firewall", healthy().call("nft ruleset", ruleset(60000))).verdict is WARN

    def test_filters_of_arp_and_bridges_are_passed_over(self):
        chain = {"chain": CLOSED["chain"] | {"family": "arp"}}
        assert (
            only(
                "firewall", healthy().call("nft ruleset", json.dumps({"nftables": [chain]}))
            ).verdict
            is PASS
        )

    def test_rules_need_root(self):
        finding = only(
            "firewall",
            healthy().failing("nft ruleset", "nft --json list ruleset: Operation not permitted"),
        )
        assert (finding.verdict, finding.fix) == (UNKNOWN, "sudo busbw check")

    def test_legacy_tables_are_not_read(self):
        tree = healthy().file("/proc/modules", "iptable_filter 1 0 - Live 0x0")
        assert only("firewall", tree).verdict is UNKNOWN

    def test_nothing_loaded(self):
        assert only("firewall", changed(without("nf_tables"))).verdict is PASS

    def test_kernel_without_modules_may_have_it_built_in(self):
        tree = (
            healthy()
            .file("/proc/modules", "")
            .call("nft ruleset", json.dumps({"nftables": [CLOSED]}))
        )
        assert only("firewall", tree).verdict is WARN

    def test_other_output_is_unknown(self):
        assert only("firewall", healthy().call("nft ruleset", "no rules")).verdict is UNKNOWN


def test_clock_of_a_container_is_its_hosts():
    tree = container().update("clock", synchronized=False)
    assert only("kernel-time-sync", tree).fix.startswith("on the host of the container: ")


@pytest.mark.parametrize("value, verdict", [("0", PASS), ("1", PASS), ("2", WARN), ("3", WARN)])
def test_scopes_of_ptrace(value, verdict):
    assert (
        only("yama-ptrace", healthy().file("/proc/sys/kernel/yama/ptrace_scope", value)).verdict
        is verdict
    )


@pytest.mark.parametrize(
    ("waits", "verdict", "message"),
    [
        ([[7, "find", "folio_wait_bit_common"]], PASS, "1 process waited for a disk"),
        ([[7, "dd", "io_schedule"], [9, "python3", "nv_drm_wait"]], WARN, "python3 (9)"),
        # a file server that does not answer
        ([[9, "cp", "rpc_wait_bit_killable"]], WARN, "cp (9)"),
        ([[9, "python3", ""]], WARN, "python3 (9)"),
    ],
)
def test_process_that_waits_for_a_disk_is_not_stuck(waits, verdict, message):
    finding = only("stuck-processes", healthy().call("stuck processes", json.dumps(waits)))
    assert (
        finding.verdict is verdict
        and message in finding.message
        and "find" not in finding.message
        and "dd" not in finding.message
    )


def test_many_stuck_processes_are_counted():
    finding = only(
        "stuck-processes",
        healthy().call(
            "stuck processes", json.dumps([[pid, "nvidia-smi"] for pid in range(10, 17)])
        ),
    )
    assert "nvidia-smi (10)" in finding.message and finding.message.endswith("and 2 more")
    assert "cat /proc/10/stack;" in finding.fix
