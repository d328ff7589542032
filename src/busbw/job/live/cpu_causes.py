"""A rank had no CPU: others used it, or the quota of a control group stopped the rank."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from busbw.core.pattern import US
from busbw.core.pattern_weights import ranks_text
from busbw.host.busy_processes import LEAST, BusyProcess
from busbw.host.cgroup import MOUNT, Quota
from busbw.host.settings import cpu_set
from busbw.job.live.delay import MAINLY, PARTLY, Cause, Delay
from busbw.job.live.parts import MOST_LINES
from busbw.job.live.rank_use import BACKWARD, FORWARD, RAN, WAITING
from busbw.job.live.words import CPU_LIST, uses_cpus_alone
from busbw.ui.number_formats import time_text

_CONTAINER = re.compile(r"/docker[-/]([0-9a-f]{12})")
_UNIT = re.compile(r"/([^/]+\.(?:service|scope|slice))/[^/]+$")
MOST_BUSY = 3  # processes that are named
CROWDED = 0.5  # of a CPU, that other processes use
_SET_BY = "docker --cpus, Kubernetes limits.cpu or systemd CPUQuota="


def starved(delay: Delay) -> Cause | None:
    """It was ready and had no CPU, for the delay or for most of a delay in forward and backward."""
    waited_us = delay.part_us(WAITING)
    is_in_model = delay.has(FORWARD, BACKWARD) and waited_us > delay.part_us(RAN)
    if not delay.has(WAITING) and not (is_in_model and waited_us >= PARTLY * delay.us):
        return None
    if delay.rank is None:
        return _of_ranks(delay, {rank: own.get(WAITING, 0.0) for rank, own in delay.grew.items()})
    own = delay.own
    where = f"one of the CPUs {own.cpus}" if own.cpus else "a CPU"
    why = f"{delay.name} waited for {where} for {delay.figure(WAITING)}"
    if own.quota:
        return _of_quota(delay, own.quota, f"{why}; {_quota_text(own.quota)}")
    faults = f"; {own.faults} pages were read from a disk meanwhile" if own.faults else ""
    return _of_others(delay, why + faults, [delay.rank])


def starved_together(delay: Delay) -> Cause | None:
    """Ranks wait for each other: one of them waited for a CPU in some steps, another one in others,
    so that none did for the whole delay.
    """
    waited = {rank: own.get(WAITING, 0.0) for rank, own in delay.grew.items()}
    named = {rank: us for rank, us in waited.items() if us >= PARTLY * delay.us}
    is_most = len(named) > 1 and 2 * len(named) > len(waited)
    if delay.us <= 0 or not is_most:
        return None
    # Ranks of one host that communicate by its CPUs wait for these in communication, too.
    others = sum(one.share for one in _busy_beside(delay, list(named)))
    is_crowded = uses_cpus_alone(delay.look) and others >= CROWDED
    if max(named.values()) < MAINLY * delay.us and not is_crowded:
        return None
    return _of_ranks(delay, named)


def _of_ranks(delay: Delay, waited: Mapping[int, float]) -> Cause:
    """Ranks that waited for so many microseconds of each step more than before."""
    evidence = delay.look.evidence
    cpus = {evidence[rank].cpus for rank in waited}
    where = f"one of the CPUs {min(cpus)}" if len(cpus) == 1 and "" not in cpus else "a CPU"
    who = "all ranks" if len(waited) == len(delay.look.ranks) else ranks_text(sorted(waited))
    figure = replace(delay, more={WAITING: median(waited.values())}).figure(WAITING)
    why = f"{who} waited for {where} for {figure} in the median: {_each(waited)}"
    worst = max(waited, key=waited.__getitem__)
    quotas = [evidence[rank].quota for rank in (worst, *waited)]
    if quotas[0] and all(quotas):
        return _of_quota(delay, quotas[0], f"{why}; {_quota_text(quotas[0])}")
    return _of_others(delay, why, sorted(waited))


def _each(waited: Mapping[int, float]) -> str:
    """How long each rank waited; of many the range."""
    if len(waited) > MOST_LINES:
        return f"{time_text(US * min(waited.values()))} to {time_text(US * max(waited.values()))}"
    return ", ".join(f"rank {rank} {time_text(US * us)}" for rank, us in sorted(waited.items()))


def _of_others(delay: Delay, why: str, ranks: Sequence[int]) -> Cause:
    """The cause of these ranks, with the processes that use their CPUs."""
    wrong_if = delay.same("while nothing else runs on these CPUs")
    if delay.look.host.busy is None:
        return Cause("cpu", why, CPU_LIST, wrong_if)
    busy = _busy_beside(delay, ranks)[:MOST_BUSY]
    if not busy:
        none = f"no other process that is seen there used {100 * LEAST:g} % of a CPU"
        return Cause("cpu", f"{why}; {none}", CPU_LIST, wrong_if)
    several = len({rank.host for rank in delay.look.ranks.values()}) > 1
    texts = [
        f"{one.name}{_place(one, several=several)} {100 * one.share:.0f} % of a CPU" for one in busy
    ]
    run = [one for one in busy if one.pid]
    command = CPU_LIST
    if run:
        pids = ",".join(str(one.pid) for one in run if one.host == run[0].host)
        where = f"  # on {run[0].host}" if several else ""
        command = f"ps -o pid,user,etime,args -p {pids}{where}"
    text = f"{why}; other processes used these CPUs: {', '.join(texts)}"
    return Cause("cpu", text, command, wrong_if)


def _busy_beside(delay: Delay, ranks: Sequence[int]) -> list[BusyProcess]:
    """The other processes that use the CPUs of these ranks, the busiest first."""
    known = delay.look.host.busy or ()
    busy = [one for one in known if any(_shares_cpus(one, delay, rank) for rank in ranks)]
    return sorted(busy, key=lambda one: -one.share)


def _place(one: BusyProcess, *, several: bool) -> str:
    """Its number, and its host where there are `several`."""
    words = [f"process {one.pid}"] * bool(one.pid) + [f"on {one.host}"] * several
    return f" ({' '.join(words)})" if words else ""


def _shares_cpus(one: BusyProcess, delay: Delay, rank: int) -> bool:
    """Whether it may run on a CPU of the rank; True if that is unknown."""
    own, other = cpu_set(delay.look.evidence[rank].cpus), cpu_set(one.cpus)
    is_there = one.host == delay.look.ranks[rank].host
    return is_there and not (own and other and own.isdisjoint(other))


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
