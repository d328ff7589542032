"""Branches of the checks of CPUs and memory: values at the limits, what cannot be read."""

import pytest
from cases_os import container, efa
from healthy import healthy
from healthy_os import MEMORY
from healthy_pcie import DEVICES, port_bdf
from one_check import changed, only, run
from tree import Tree, environment

from busbw.core.finding import Verdict

PASS, WARN, FAIL, SKIP, UNKNOWN = (
    Verdict.PASS,
    Verdict.WARN,
    Verdict.FAIL,
    Verdict.SKIP,
    Verdict.UNKNOWN,
)


class TestReservedHugePages:
    @pytest.mark.parametrize(
        ("asked", "pages", "verdict"),
        [("", "0", SKIP), (" hugepages=64", "0", WARN), (" hugepages=64", "64", PASS)],
    )
    def test_pages_that_the_command_line_asks_for(self, asked, pages, verdict):
        tree = healthy().file("/proc/cmdline", f"root=/dev/sda1{asked}")
        tree.file("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", pages)
        assert only("mem-hugepages", tree).verdict is verdict


@pytest.mark.parametrize(
    ("modules", "gib", "verdict"),
    [(7 / 8, 0, WARN), (15 / 16, 0, WARN), (23 / 24, 0, WARN), (1, 4, PASS), (0.98, 0, PASS)],
)
def test_a_numa_node_with_less_memory(modules, gib, verdict):
    kib = int(1024 * 2**20 * modules) - gib * 2**20
    tree = healthy().file("/sys/devices/system/node/node0/meminfo", f"Node 0 MemTotal: {kib} kB")
    tree.file("/sys/devices/system/node/node1/meminfo", f"Node 1 MemTotal: {1024 * 2**20} kB")
    assert only("mem-numa-nodes", tree).verdict is verdict


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
    finding = only(
        "cpu-clocksource",
        healthy().files(base, current_clocksource="hpet", available_clocksource="hpet acpi_pm"),
    )
    assert finding.verdict is WARN and "dmesg" in finding.fix


class TestInterrupts:
    def test_half_of_them_may_be_far(self):
        tree = (
            healthy()
            .file("/proc/irq/100/effective_affinity_list", "60")
            .file("/proc/irq/101/effective_affinity_list", "61")
        )
        assert {finding.verdict for finding in run("cpu-irq-affinity", tree)} == {PASS}

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


def test_container_without_a_seccomp_filter_may_choose_numa_nodes():
    assert (
        only(
            "mem-numa-policy", container().file("/proc/self/status", "CapEff:\t0\nSeccomp:\t0")
        ).verdict
        is PASS
    )
