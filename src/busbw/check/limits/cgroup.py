"""Limits of the cgroup: memory, CPU quota and processes."""

from collections.abc import Iterator

from busbw.check.base import check, not_offered, passed, unread, warned
from busbw.check.limits.process import MIN_THREADS, threads_needed
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.cgroup import MOUNT, OWN, CgroupLimit, directories, killed, limits, quotas
from busbw.host.cpu import meminfo
from busbw.host.nvml_health import read_health

FULL_SHARE = 0.9  # of the limit: above it the kernel soon reclaims pages
# What a rank needs on the host: its program, pinned buffers and loaders of data. A limit below
# MONITOR_BYTES is that of a monitor, which runs no rank.
RANK_BYTES, MONITOR_BYTES = 16 << 30, 4 << 30
SMALL_SHARE = 0.5  # of the RAM: above it the host itself is small


def _finding_without_cgroup(machine: Machine, controller: str) -> Finding:
    """The finding if the cgroup of this process is not known."""
    reading = machine.read(OWN)
    if reading.text is None:
        return unread("", reading, "the cgroup of this process")
    return not_offered(
        "", f"{MOUNT} does not have the {controller} cgroup that {OWN} names for this process"
    )


CGROUP_MEMORY = CheckRow(
    id="BW135",
    name="cgroup-memory",
    layer=Layer.LIMITS,
    title="cgroup memory limit",
    right=(
        f"less than {FULL_SHARE:.0%} used, no process was killed for memory, and"
        f" {RANK_BYTES >> 30} GiB for each GPU, or half of the RAM"
    ),
    why=(
        "At the limit the kernel kills a process of the cgroup, and the other ranks wait for it."
        " Files in /dev/shm count too."
    ),
    fix=(
        "raise {path} (in Slurm --mem, in Kubernetes resources.limits.memory, in systemd"
        " MemoryMax=)"
    ),
    stays="permanent in the job or container spec",
    reads=(OWN, "/sys/fs/cgroup/**/memory.max", "memory.current", "memory.stat", "memory.events"),
    sources=("Linux, Documentation/admin-guide/cgroup-v2.rst",),
)


@check(CGROUP_MEMORY)
def check_cgroup_memory(machine: Machine) -> Iterator[Finding]:
    """Processes that were killed, and limits of this cgroup and those above it."""
    if not directories(machine, "memory"):
        yield _finding_without_cgroup(machine, "memory")
        return
    memory_limits = limits(machine, "memory")
    kills = killed(machine)
    if kills and kills[1]:
        fix = "use less memory, or a machine with more"
        if memory_limits:
            fix = filled(CGROUP_MEMORY.fix, path=memory_limits[0].path)
        yield warned(
            "",
            f"the kernel has killed {counted(kills[1], 'process', 'es')} of this cgroup for memory",
            Evidence(kills[0], f"oom_kill {kills[1]}", "0"),
            fix=fix,
        )
    full = False
    for limit in memory_limits:
        used = limit.used
        if used is None or used <= FULL_SHARE * limit.limit:
            continue
        full = True
        message = f"{used / limit.limit:.0%} of the memory limit is used"
        in_use = f"{used} of {limit.limit} bytes used"
        evidence = Evidence(limit.path, in_use, f"less than {FULL_SHARE:.0%}")
        yield warned("", message, evidence, fix=filled(CGROUP_MEMORY.fix, path=limit.path))
    if full or (kills and kills[1]):
        return
    if memory_limits:
        yield _judge_limit(machine, min(memory_limits, key=lambda limit: limit.limit))
    else:
        yield passed("", "memory is not limited", Evidence(OWN, machine.text(OWN) or ""))


def _judge_limit(machine: Machine, least: CgroupLimit) -> Finding:
    """The finding on the least limit, which has room for what is in use."""
    gpus, ram = len(read_health(machine).gpus), meminfo(machine, "MemTotal") or 0
    needed = min(gpus * RANK_BYTES, int(SMALL_SHARE * ram))
    text = f"memory is limited to {least.limit >> 20} MiB"
    if not MONITOR_BYTES <= least.limit < needed:
        return passed("", text, Evidence(least.path, str(least.limit)))
    message = f"{text}; ranks on {counted(gpus, 'GPU')} may need {needed >> 20}"
    evidence = Evidence(least.path, str(least.limit), f"{needed} or more")
    return warned("", message, evidence, fix=filled(CGROUP_MEMORY.fix, path=least.path))


CPU_QUOTA = CheckRow(
    id="BW137",
    name="cpu-quota",
    layer=Layer.LIMITS,
    title="cgroup CPU quota",
    right="no quota, or one that never throttled the cgroup",
    why=(
        "A cgroup that has used its quota stops until the next period (100 ms by default), and all"
        " other ranks wait."
    ),
    fix=(
        "remove the quota in {path} (in Kubernetes resources.limits.cpu, in Docker --cpus, in"
        " systemd CPUQuota=); bind CPUs instead"
    ),
    stays="permanent in the job or container spec",
    reads=(OWN, "/sys/fs/cgroup/**/cpu.max", "cpu.stat"),
    sources=("Linux, Documentation/scheduler/sched-bwc.rst",),
)


@check(CPU_QUOTA)
def check_cpu_quota(machine: Machine) -> Iterator[Finding]:
    """A finding for each quota of this cgroup and those above it."""
    if not directories(machine, "cpu"):
        yield _finding_without_cgroup(machine, "cpu")
        return
    cpu_quotas = quotas(machine)
    for quota in cpu_quotas:
        evidence = Evidence(
            quota.path,
            f"{quota.cpus:g} CPUs, throttled in {quota.throttled} periods",
            "no quota, or never throttled",
        )
        if quota.throttled:
            message = (
                f"the quota of {quota.cpus:g} CPUs throttled the cgroup in"
                f" {counted(quota.throttled, 'period')}"
            )
            yield warned("", message, evidence, fix=filled(CPU_QUOTA.fix, path=quota.path))
        else:
            yield passed(
                "",
                f"the quota of {quota.cpus:g} CPUs has not throttled the cgroup so far",
                evidence,
            )
    if not cpu_quotas:
        yield passed("", "no CPU quota", Evidence(OWN, machine.text(OWN) or ""))


CGROUP_PIDS = CheckRow(
    id="BW138",
    name="cgroup-pids",
    layer=Layer.LIMITS,
    title="cgroup limit of processes and threads",
    right=f"room for 2 x GPUs x CPUs, and for {MIN_THREADS} or more",
    why=(
        "At the limit no thread starts: Resource temporarily unavailable. systemd sets such a limit"
        " by default, Kubernetes may."
    ),
    fix=(
        "raise {path} (in Docker --pids-limit=-1, in Kubernetes podPidsLimit, in systemd"
        " TasksMax=infinity)"
    ),
    stays="permanent in the service or container spec",
    reads=(OWN, "/sys/fs/cgroup/**/pids.max", "pids.current"),
    sources=("Linux, Documentation/admin-guide/cgroup-v2.rst: pids",),
)


@check(CGROUP_PIDS)
def check_cgroup_pids(machine: Machine) -> Iterator[Finding]:
    """A finding for each limit of this cgroup and those above it that is too small."""
    if not directories(machine, "pids"):
        yield _finding_without_cgroup(machine, "pids")
        return
    pid_limits, least = limits(machine, "pids"), threads_needed(machine)
    small = [limit for limit in pid_limits if limit.limit - (limit.used or 0) < least]
    for limit in small:
        message = (
            f"the cgroup may have {limit.limit} processes and threads, and has"
            f" {limit.used or 'some'}; the ranks may need {least}"
        )
        yield warned(
            "",
            message,
            Evidence(limit.path, str(limit.limit), f"room for {least}"),
            fix=filled(CGROUP_PIDS.fix, path=limit.path),
        )
    if pid_limits and not small:
        yield passed(
            "",
            "the cgroup has room for processes and threads",
            *(Evidence(limit.path, str(limit.limit)) for limit in pid_limits),
        )
    elif not pid_limits:
        yield passed(
            "", "the number of processes is not limited", Evidence(OWN, machine.text(OWN) or "")
        )
