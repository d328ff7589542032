"""Branches of the checks of kernel, limits, CPUs and memory: values at the limits, containers,
what cannot be read.
"""

import json

import pytest
from cases_os import CLOSED, GROUP, container, efa, limit, no_rdma_devices, proprietary, without
from healthy import healthy
from healthy_os import LIMITS, MEMORY
from healthy_pcie import DEVICES, port_bdf
from tree import Tree, environment

from busbw.check.machine import Machine
from busbw.check.registry import find
from busbw.core.finding import Verdict

PASS, WARN, FAIL, SKIP, UNKNOWN = (
    Verdict.PASS,
    Verdict.WARN,
    Verdict.FAIL,
    Verdict.SKIP,
    Verdict.UNKNOWN,
)


def run(name, tree):
    return find(name).run(Machine(tree.source()))


def only(name, tree):
    (one,) = run(name, tree)
    return one


def changed(change, tree=None):
    tree = tree or healthy()
    change(tree)
    return tree


class TestGpuDirect:
    @pytest.mark.parametrize(
        "kernel, verdict",
        [("5.12.0", PASS), ("5.11.0-27-generic", WARN), ("6.8", PASS), ("", UNKNOWN)],
    )
    def test_open_driver_needs_a_recent_kernel(self, kernel, verdict):
        tree = changed(without("nvidia_peermem")).file("/proc/sys/kernel/osrelease", kernel)
        assert only("gpudirect-path", tree).verdict is verdict

    def test_proprietary_driver_needs_the_module(self):
        one = only("gpudirect-path", changed(proprietary))
        assert (one.verdict, one.fix) == (WARN, "modprobe nvidia_peermem")
        assert one.message.endswith("the driver is the proprietary one")

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
        one = only(
            "rdma-modules", changed(without("ib_uverbs", "rdma_ucm")).drop("/dev/infiniband")
        )
        assert (one.verdict, one.fix) == (FAIL, "modprobe -a ib_uverbs rdma_ucm")

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
        one = only("rdma-access", healthy().call("access /dev/infiniband", "{}"))
        assert one.verdict is FAIL and "--device=/dev/infiniband" in one.fix

    def test_snapshot_without_the_answer(self):
        tree = healthy()
        del tree.calls["access /dev/infiniband"]
        assert only("rdma-access", tree).verdict is UNKNOWN


def test_gdrcopy_that_nccl_is_told_to_use():
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


@pytest.mark.parametrize("most, verdict", [("6291456", PASS), ("6291455", WARN), ("none", UNKNOWN)])
def test_tcp_buffers_at_the_default(most, verdict):
    found = run(
        "kernel-tcp-memory", healthy().file("/proc/sys/net/ipv4/tcp_rmem", f"4096 131072 {most}")
    )
    assert [one.verdict for one in found if one.subject == "tcp_rmem"] == [verdict]


def test_tcp_buffer_command_keeps_the_other_values():
    found = run(
        "kernel-tcp-memory", healthy().file("/proc/sys/net/ipv4/tcp_rmem", "4096 131072 262144")
    )
    assert found[0].fix == "sysctl -w net.ipv4.tcp_rmem='4096 131072 6291456'"


class TestFirewall:
    def test_rule_goes_into_the_chain_that_drops(self):
        one = only("firewall", healthy().call("nft ruleset", json.dumps({"nftables": [CLOSED]})))
        assert (one.verdict, one.subject) == (WARN, "inet filter input")
        assert "nft insert rule inet filter input ip saddr" in one.fix

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
        one = only(
            "firewall",
            healthy().call("nft ruleset", json.dumps({"nftables": [CLOSED, {"rule": rule}]})),
        )
        assert one.verdict is UNKNOWN and "10.0.0.0/8" in one.message

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

        one = only("firewall", healthy().call("nft ruleset", ruleset(32768)))
        assert (
            one.verdict is UNKNOWN
            and "it accepts ports 32768 to 60999 and drops the rest" in one.message
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
        one = only(
            "firewall",
            healthy().failing("nft ruleset", "nft --json list ruleset: Operation not permitted"),
        )
        assert (one.verdict, one.fix) == (UNKNOWN, "sudo busbw check")

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
    ("waits", "verdict", "named"),
    [
        ([[7, "find", "folio_wait_bit_common"]], PASS, "1 process waited for a disk"),
        ([[7, "dd", "io_schedule"], [9, "python3", "nv_drm_wait"]], WARN, "python3 (9)"),
        # a file server that does not answer
        ([[9, "cp", "rpc_wait_bit_killable"]], WARN, "cp (9)"),
        ([[9, "python3", ""]], WARN, "python3 (9)"),
    ],
)
def test_process_that_waits_for_a_disk_is_not_stuck(waits, verdict, named):
    one = only("stuck-processes", healthy().call("stuck processes", json.dumps(waits)))
    assert (
        one.verdict is verdict
        and named in one.message
        and "find" not in one.message
        and "dd" not in one.message
    )


def test_many_stuck_processes_are_counted():
    one = only(
        "stuck-processes",
        healthy().call(
            "stuck processes", json.dumps([[pid, "nvidia-smi"] for pid in range(10, 17)])
        ),
    )
    assert "nvidia-smi (10)" in one.message and one.message.endswith("and 2 more")
    assert "cat /proc/10/stack;" in one.fix


@pytest.mark.parametrize(
    "name, kind, value, verdict",
    [
        ("open-files", "Max open files", "131072", PASS),
        ("open-files", "Max open files", "131071", WARN),
        ("open-files", "Max open files", "unlimited", PASS),
        ("stack", "Max stack size", "67108864", PASS),
        ("stack", "Max stack size", "4194304", WARN),
        ("process-count", "Max processes", "4096", PASS),
        ("process-count", "Max processes", "4095", WARN),
    ],
)
def test_limits_of_processes(name, kind, value, verdict):
    assert only(name, changed(limit(kind, value))).verdict is verdict


def test_limit_that_the_kernel_does_not_list():
    tree = healthy().file("/proc/self/limits", "\n".join(LIMITS.splitlines()[:2]))
    assert only("open-files", tree).verdict is UNKNOWN


class TestShm:
    @pytest.mark.parametrize(
        "free, verdict",
        [(1 << 30, PASS), ((1 << 30) - 1, WARN), ((64 << 20) + 1, WARN), (64 << 20, FAIL)],
    )
    def test_free_space(self, free, verdict):
        tree = healthy().call("space /dev/shm", json.dumps({"total": 2 << 30, "free": free}))
        assert only("shm-size", tree).verdict is verdict

    def test_container_needs_another_start(self):
        tree = container().call("space /dev/shm", json.dumps({"total": 64 << 20, "free": 64 << 20}))
        assert "--shm-size=1g" in only("shm-size", tree).fix

    def test_files_of_ended_jobs(self):
        tree = (
            healthy()
            .call("space /dev/shm", json.dumps({"total": 2 << 30, "free": 0}))
            .listing("/dev/shm", "nccl-a1B2c3")
        )
        assert only("shm-size", tree).fix == "drain the host; then rm /dev/shm/nccl-*"


class TestControlGroup:
    @pytest.mark.parametrize("used, verdict", [(900, PASS), (901, WARN)])
    def test_memory_at_nine_tenths(self, used, verdict):
        tree = healthy().files(GROUP, **{"memory.max": "1000", "memory.current": str(used)})
        assert only("cgroup-memory", tree).verdict is verdict

    def test_limit_above_the_own_group_counts(self):
        tree = healthy().files(
            "/sys/fs/cgroup/system.slice", **{"pids.max": "5000", "pids.current": "1000"}
        )
        assert "system.slice/pids.max" in only("cgroup-pids", tree).fix

    @pytest.mark.parametrize("name", ["cgroup-memory", "cgroup-pids", "cpu-quota"])
    def test_groups_that_are_not_mounted(self, name):
        assert only(name, healthy().drop("/sys/fs/cgroup")).verdict is UNKNOWN

    def test_quota_that_was_never_reached(self):
        assert (
            only("cpu-quota", healthy().file(f"{GROUP}/cpu.max", "800000 100000")).verdict is PASS
        )


class TestAllowedCpus:
    def test_two_for_each_gpu_on_both_nodes(self):
        tree = healthy().call("allowed cpus", json.dumps([*range(8), *range(48, 56)]))
        assert only("allowed-cpus", tree).verdict is PASS

    def test_node_without_a_cpu_names_its_gpus(self):
        one = only("allowed-cpus", healthy().call("allowed cpus", json.dumps(list(range(48)))))
        assert (
            one.message
            == "none of the allowed CPUs is on the NUMA node of GPU 4, GPU 5, GPU 6, GPU 7"
        )

    def test_machine_without_gpus_needs_one(self):
        assert only("allowed-cpus", healthy(gpus=0).call("allowed cpus", "[3]")).verdict is PASS


class TestGovernor:
    @pytest.mark.parametrize(
        "preference, verdict", [("performance", PASS), ("balance_performance", WARN)]
    )
    def test_preference_of_a_driver_that_drives_itself(self, preference, verdict):
        base = "/sys/devices/system/cpu/cpu7/cpufreq"
        tree = healthy().files(
            base,
            scaling_governor="powersave",
            scaling_driver="intel_pstate",
            energy_performance_preference=preference,
        )
        assert only("cpu-governor", tree).verdict is verdict

    def test_counts_cpus_by_governor(self):
        tree = healthy()
        for cpu in range(3):
            tree.file(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor", "schedutil")
        assert only("cpu-governor", tree).message == "of 192 CPUs: schedutil on 3"

    def test_frequency_that_the_bios_sets(self):
        tree = healthy().file("/sys/devices/system/cpu/online", "500")
        assert only("cpu-governor", tree).verdict is SKIP


def test_clock_source_without_a_better_one():
    base = "/sys/devices/system/clocksource/clocksource0"
    one = only(
        "cpu-clocksource",
        healthy().files(base, current_clocksource="hpet", available_clocksource="hpet acpi_pm"),
    )
    assert one.verdict is WARN and "dmesg" in one.fix


class TestInterrupts:
    def test_half_of_them_may_be_far(self):
        tree = (
            healthy()
            .file("/proc/irq/100/effective_affinity_list", "60")
            .file("/proc/irq/101/effective_affinity_list", "61")
        )
        assert {one.verdict for one in run("cpu-irq-affinity", tree)} == {PASS}

    def test_command_has_cpus_and_files(self):
        tree = healthy(ports=1)
        for number in (100, 101, 102):
            tree.file(f"/proc/irq/{number}/effective_affinity_list", "60")
        files = " ".join(f"/proc/irq/{number}/smp_affinity_list" for number in (100, 101, 102))
        assert only("cpu-irq-affinity", tree).fix == f"echo 0-47,96-143 | tee {files}"

    def test_older_kernel_has_the_requested_cpus_alone(self):
        tree = healthy(ports=1)
        for number in range(100, 104):
            tree.drop(f"/proc/irq/{number}/effective_affinity_list").file(
                f"/proc/irq/{number}/smp_affinity_list", "48-95"
            )
        assert only("cpu-irq-affinity", tree).verdict is WARN

    def test_card_without_a_node_is_unknown(self):
        tree = healthy(ports=1).file(f"{DEVICES}/{port_bdf(0)}/numa_node", "-1")
        assert only("cpu-irq-affinity", tree).verdict is UNKNOWN


@pytest.mark.parametrize("control, verdict", [("off", PASS), ("forceoff", PASS), ("on", WARN)])
def test_offline_cpus_are_right_where_smt_is_off(control, verdict):
    tree = (
        healthy()
        .file("/sys/devices/system/cpu/online", "0-95")
        .file("/sys/devices/system/cpu/smt/control", control)
    )
    assert only("cpu-online", tree).verdict is verdict


class TestNumaMemory:
    def test_node_of_a_gpu_has_no_cpus(self):
        tree = (
            healthy()
            .file("/sys/devices/system/node/online", "0-2")
            .file("/sys/devices/system/node/node2/cpulist", "")
        )
        assert only("mem-numa-nodes", tree).verdict is PASS

    def test_node_with_half_the_memory(self):
        tree = healthy().file(
            "/sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 528347535 kB"
        )
        assert only("mem-numa-nodes", tree).subject == "node 1"


class TestNumaPolicy:
    def test_setting_makes_it_unnecessary(self):
        tree = changed(environment(NCCL_CUMEM_HOST_ENABLE="0"), container()).file(
            "/proc/self/status", "CapEff:\t0"
        )
        assert only("mem-numa-policy", tree).verdict is SKIP

    def test_capabilities_that_are_not_readable(self):
        assert (
            only("mem-numa-policy", container().file("/proc/self/status", "Name: busbw")).verdict
            is UNKNOWN
        )


def test_huge_pages_that_are_all_in_use():
    tree = efa().file(
        "/proc/meminfo", MEMORY.replace("HugePages_Free:     5128", "HugePages_Free:     0")
    )
    assert only("mem-hugepages", tree).message == "0 of 5128 huge pages are free"


class TestMemoryErrors:
    @pytest.mark.parametrize("count, verdict", [("10", PASS), ("11", WARN)])
    def test_correctable_errors_of_one_reading(self, count, verdict):
        tree = healthy().file("/sys/devices/system/edac/mc/mc0/ce_count", count)
        assert only("mem-errors", tree).verdict is verdict

    def test_machine_without_the_driver(self):
        assert only("mem-errors", healthy().drop("/sys/devices/system/edac")).verdict is UNKNOWN
        assert (
            only("mem-errors", Tree().files("/sys/class/dmi/id", sys_vendor="QEMU")).verdict is SKIP
        )


@pytest.mark.parametrize(
    "in_container, capabilities, verdict",
    [
        (True, 1 << 14, PASS),
        (True, 0xA80425FB & ~(1 << 14), FAIL),
        (False, 1 << 14, WARN),
        (False, 0, FAIL),
    ],
)
def test_capability_lifts_the_limit_of_locked_memory(in_container, capabilities, verdict):
    tree = changed(limit("Max locked memory", "65536"), container() if in_container else healthy())
    assert (
        only("memlock", tree.file("/proc/self/status", f"CapEff:\t{capabilities:016x}")).verdict
        is verdict
    )


@pytest.mark.parametrize(
    "limited, verdict",
    [(1 << 30, WARN), ((1 << 30) - 1, FAIL), (2113390140 * 1024, PASS), (2**64 - 2**20, PASS)],
)
def test_limit_of_locked_memory_without_the_capability(limited, verdict):
    tree = changed(limit("Max locked memory", str(limited)))
    assert only("memlock", tree.file("/proc/self/status", "CapEff:\t0")).verdict is verdict


def test_files_that_the_kernel_may_drop_do_not_fill_a_group():
    tree = healthy().files(
        GROUP,
        **{
            "memory.max": "1000",
            "memory.current": "990",
            "memory.stat": "anon 200\ninactive_file 700",
        },
    )
    assert only("cgroup-memory", tree).verdict is PASS


def test_cpus_for_the_gpus_of_a_container():
    tree = container().call("allowed cpus", json.dumps([0, 1]))
    tree.update("nvml", gpus=json.loads(tree.calls["nvml"]["text"])["gpus"][:1])
    assert only("allowed-cpus", tree).verdict is PASS


def test_container_without_a_seccomp_filter_may_choose_numa_nodes():
    assert (
        only(
            "mem-numa-policy", container().file("/proc/self/status", "CapEff:\t0\nSeccomp:\t0")
        ).verdict
        is PASS
    )
