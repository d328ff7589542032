"""A rank had no CPU: others used it, or the quota of a control group stopped the rank."""

import re

from busbw.host.cgroup import MOUNT, Quota
from busbw.job.live.delay import PARTLY, Cause, Delay
from busbw.job.live.rank_use import BACKWARD, FORWARD, RAN, WAITING
from busbw.ui.number_formats import time_text

_CONTAINER = re.compile(r"/docker[-/]([0-9a-f]{12})")
_UNIT = re.compile(r"/([^/]+\.(?:service|scope|slice))/[^/]+$")
_SET_BY = "docker --cpus, Kubernetes limits.cpu or systemd CPUQuota="


def starved(delay: Delay) -> Cause | None:
    """It was ready and had no CPU, for the delay or for most of a delay in forward and backward."""
    waited_us = delay.part_us(WAITING)
    is_in_model = delay.has(FORWARD, BACKWARD) and waited_us > delay.part_us(RAN)
    if not delay.has(WAITING) and not (is_in_model and waited_us >= PARTLY * delay.us):
        return None
    own = delay.own
    where = f"one of the CPUs {own.cpus}" if own.cpus else "a CPU"
    why = f"{delay.name} waited for {where} for {delay.figure(WAITING)}"
    if own.quota:
        return _of_quota(delay, own.quota, f"{why}; {_quota_text(own.quota)}")
    faults = f"; {own.faults} pages were read from a disk meanwhile" if own.faults else ""
    return Cause(
        "cpu",
        why + faults,
        "ps -eLo psr,pcpu,pid,comm --sort=-pcpu | head -20",
        delay.same("while nothing else runs on these CPUs"),
    )


def quota_alone(delay: Delay) -> Cause | None:
    """A quota stops the late rank alone. On a GPU it gives work too late, and needs few CPUs."""
    own, evidence = delay.own.quota, delay.look.evidence
    others = [one for rank, one in evidence.items() if rank not in delay.late]
    if own is None or any(one.quota for one in others):
        return None
    return _of_quota(delay, own, f"of {delay.name} alone {_quota_text(own)}")


def _of_quota(delay: Delay, quota: Quota, why: str) -> Cause:
    return Cause("cpu", why, _raise(quota.path), delay.same("with a larger quota"))


def _quota_text(quota: Quota) -> str:
    """What is allowed in which period, where that is written, and how often it was not enough."""
    period_s = 1e-6 * quota.period_us
    return (
        f"the cgroup allows {time_text(quota.cpus * period_s)} of CPU time in each"
        f" {time_text(period_s)}, that is {quota.cpus:g} CPUs ({quota.path}), and has stopped it in"
        f" {quota.throttled} periods"
    )


def _raise(path: str) -> str:
    """How to raise the quota in a file, by who makes cgroups of its name."""
    container, unit = _CONTAINER.search(path), _UNIT.search(path)
    if container:
        return f"docker update --cpus N {container[1]}  # N: how many CPUs the rank needs"
    if "kubepods" in path:
        return "raise resources.limits.cpu of the rank's container in its pod"
    if path.rpartition("/")[0] in (MOUNT, f"{MOUNT}/cpu"):  # the group of a container, seen in it
        return f"raise the container's quota from outside: {_SET_BY}"
    if unit:
        return f"systemctl set-property --runtime {unit[1]} CPUQuota=  # as root: no quota"
    nothing = "-1" if path.endswith("cfs_quota_us") else "max"
    return f"echo {nothing} > {path}  # as root: no quota. {_SET_BY} may have set it"
