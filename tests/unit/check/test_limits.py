"""Branches of the checks of limits: values at the limits, containers, what cannot be read."""

import json

import pytest
from cases_os import GROUP, container, limit
from healthy import healthy
from healthy_os import LIMITS
from one_check import changed, only

from busbw.core.finding import Verdict

PASS, WARN, FAIL, SKIP, UNKNOWN = (
    Verdict.PASS,
    Verdict.WARN,
    Verdict.FAIL,
    Verdict.SKIP,
    Verdict.UNKNOWN,
)


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
        finding = only("allowed-cpus", healthy().call("allowed cpus", json.dumps(list(range(48)))))
        assert (
            finding.message
            == "none of the allowed CPUs is on the NUMA node of GPU 4, GPU 5, GPU 6, GPU 7"
        )

    def test_machine_without_gpus_needs_one(self):
        assert only("allowed-cpus", healthy(gpus=0).call("allowed cpus", "[3]")).verdict is PASS


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
