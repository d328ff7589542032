"""Limits of control groups, version 1 and 2, on hosts and in containers."""

import pytest
from tree import Tree

from busbw.host.cgroup import CgroupLimit, Quota, directories, killed, limits, quotas, stopping
from busbw.host.source import LiveMachine

JOB = "/sys/fs/cgroup/system.slice/job"


def cgroup_v2(path: str = "/system.slice/job") -> Tree:
    """A host with version 2."""
    return Tree().file("/proc/self/cgroup", f"0::{path}")


def cgroup_v1() -> Tree:
    """A host with version 1."""
    return Tree().file(
        "/proc/self/cgroup", "5:cpu,cpuacct:/job\n4:memory:/job\n1:name=systemd:/\n0::/"
    )


def test_directories_lead_to_the_root_group():
    tree = cgroup_v2().file(f"{JOB}/memory.max", "max")
    assert directories(tree.source(), "memory") == [
        JOB,
        "/sys/fs/cgroup/system.slice",
        "/sys/fs/cgroup",
    ]


def test_group_that_is_not_mounted():
    assert directories(cgroup_v2().source(), "memory") == []
    assert directories(Tree().source(), "memory") == []


def test_container_shows_its_own_group_at_the_mount():
    tree = (
        cgroup_v2("/../kubepods/pod1")
        .file("/sys/fs/cgroup/memory.max", "1000")
        .file("/sys/fs/cgroup/memory.current", "900")
    )
    assert limits(tree.source(), "memory") == [CgroupLimit("/sys/fs/cgroup/memory.max", 1000, 900)]


def test_limits_of_version_2():
    tree = cgroup_v2().files(JOB, **{"memory.max": "4000", "pids.max": "max"})
    tree.files(
        "/sys/fs/cgroup/system.slice",
        **{"memory.max": "9000", "memory.current": "80", "pids.max": "77", "pids.current": "5"},
    )
    assert limits(tree.source(), "memory") == [
        CgroupLimit(f"{JOB}/memory.max", 4000, None),
        CgroupLimit("/sys/fs/cgroup/system.slice/memory.max", 9000, 80),
    ]
    assert limits(tree.source(), "pids") == [
        CgroupLimit("/sys/fs/cgroup/system.slice/pids.max", 77, 5)
    ]


def test_limits_of_version_1():
    base = "/sys/fs/cgroup/memory"
    tree = cgroup_v1().files(
        f"{base}/job", **{"memory.limit_in_bytes": "5000", "memory.usage_in_bytes": "10"}
    )
    tree.file(f"{base}/memory.limit_in_bytes", "9223372036854771712")
    assert limits(tree.source(), "memory") == [
        CgroupLimit(f"{base}/job/memory.limit_in_bytes", 5000, 10)
    ]


@pytest.mark.parametrize(
    ("periods", "throttled", "stops"), [(40, 36, True), (40, 20, False), (9, 9, False)]
)
def test_a_quota_that_stops_its_group_in_most_periods(periods, throttled, stops):
    before = [Quota("own", 4.0, 7, 100), Quota("above", 0.08, 50, 100)]
    after = [
        Quota("own", 4.0, 7, 100 + periods),
        Quota("above", 0.08, 50 + throttled, 100 + periods),
    ]
    assert stopping(before, after) == (after[1] if stops else None)
    assert stopping([], after) is None


def test_quotas_of_both_versions():
    tree = (
        cgroup_v2()
        .files(JOB, **{"cpu.max": "250000 100000", "cpu.stat": "nr_periods 9\nnr_throttled 3"})
        .file("/sys/fs/cgroup/system.slice/cpu.max", "max 100000")
    )
    assert quotas(tree.source()) == [Quota(f"{JOB}/cpu.max", 2.5, 3, 9)]
    base = "/sys/fs/cgroup/cpu"
    tree = (
        cgroup_v1()
        .files(f"{base}/job", **{"cpu.cfs_quota_us": "400000", "cpu.cfs_period_us": "100000"})
        .file(f"{base}/cpu.cfs_quota_us", "-1")
    )
    assert quotas(tree.source()) == [Quota(f"{base}/job/cpu.cfs_quota_us", 4.0, 0, 0)]


def test_quota_without_a_period():
    assert quotas(cgroup_v2().file(f"{JOB}/cpu.max", "100 0").source()) == []


def test_killed_processes():
    assert killed(cgroup_v2().file(f"{JOB}/memory.events", "oom 4\noom_kill 3").source()) == (
        f"{JOB}/memory.events",
        3,
    )
    assert killed(cgroup_v2().file(f"{JOB}/memory.max", "max").source()) is None


def test_own_groups_of_this_machine():
    for controller in ("memory", "cpu", "pids"):
        assert all(
            path.startswith("/sys/fs/cgroup") for path in directories(LiveMachine(), controller)
        )
