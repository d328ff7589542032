"""Limits of the control groups that a process, by default this one, is in, version 1 or 2."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from busbw.host.settings import named_counts
from busbw.host.source import Source

OWN, MOUNT = "/proc/self/cgroup", "/sys/fs/cgroup"
SELF = "self"  # as a pid in /proc
MIN_PERIODS = 10  # of a CPU quota, by default 0.1 s each
NONE = 1 << 62  # version 1 writes a number of about 2^63 where there is no limit
FILES = {
    "memory": (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ),
    "pids": (("pids.max", "pids.current"),),
}


@dataclass(frozen=True, slots=True)
class CgroupLimit:
    """The limit in the file at `path`, and how much of it is used (None if not readable).

    Memory of files that the kernel may drop does not count as used.
    """

    path: str
    limit: int
    used: int | None


@dataclass(frozen=True, slots=True)
class Quota:
    """CPU time that a group may use, as a number of CPUs.

    `throttled` of its `periods`, since it was created, are those in which the quota stopped it.
    """

    path: str
    cpus: float
    throttled: int
    periods: int
    period_us: int = field(default=100_000, compare=False)  # in which it may use that


def directories(source: Source, controller: str, pid: str = SELF) -> list[str]:
    """Directories of a process's group and of the groups above it, up to the root.

    Empty if they are not known or not mounted. A container may show its group's path on the host,
    but its own group's files at the mount.
    """
    for line in (source.read(f"/proc/{pid}/cgroup").text or "").splitlines():
        _, _, entry = line.partition(":")
        controllers, _, path = entry.partition(":")
        base = MOUNT if controllers == "" else f"{MOUNT}/{controller}"
        if path.startswith("/") and (controllers == "" or controller in controllers.split(",")):
            parts = [part for part in path.split("/") if part]
            folders = ["/".join([base, *parts[:length]]) for length in range(len(parts), -1, -1)]
            if any(source.names(folder) for folder in folders):
                return folders
    return []


def limits(source: Source, controller: str) -> list[CgroupLimit]:
    """Limits of memory (bytes) or pids on the way to the root; groups without one are left out."""
    return [
        limit
        for folder in directories(source, controller)
        for limit in _limits(source, folder, controller)
    ]


def _limits(source: Source, folder: str, controller: str) -> Iterator[CgroupLimit]:
    for limit_file, usage_file in FILES[controller]:
        limit = source.read(f"{folder}/{limit_file}").text or ""
        if not limit.isdecimal() or int(limit) >= NONE:
            continue
        usage = source.read(f"{folder}/{usage_file}").text or ""
        used = None
        if usage.isdecimal():
            used = max(0, int(usage) - _cached_file_bytes(source, folder))
        yield CgroupLimit(f"{folder}/{limit_file}", int(limit), used)


def _cached_file_bytes(source: Source, folder: str) -> int:
    """Bytes of files that the kernel keeps for a group and gives up before it kills a process."""
    counts = named_counts(source.read(f"{folder}/memory.stat").text or "")
    return counts.get("total_inactive_file", counts.get("inactive_file", 0))


def quotas(source: Source, pid: str = SELF) -> list[Quota]:
    """CPU quotas of a process on the way to the root."""
    read = (_quota(source, folder) for folder in directories(source, "cpu", pid))
    return [quota for quota in read if quota]


def _quota(source: Source, folder: str) -> Quota | None:
    path = f"{folder}/cpu.max"
    words = (source.read(path).text or "").split()
    if not words:
        path = f"{folder}/cpu.cfs_quota_us"
        words = [
            source.read(f"{folder}/{name}").text or ""
            for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        ]
    if len(words) != 2 or not all(word.isdecimal() for word in words) or not int(words[1]):
        return None  # `max`, or -1 in version 1: no limit
    counts = named_counts(source.read(f"{folder}/cpu.stat").text or "")
    quota_us, period_us = int(words[0]), int(words[1])
    throttled, periods = counts.get("nr_throttled", 0), counts.get("nr_periods", 0)
    return Quota(path, quota_us / period_us, throttled, periods, period_us)


def stopping(before: Sequence[Quota], after: Sequence[Quota]) -> Quota | None:
    """The quota that stopped its group in most of the periods between two looks at `quotas`."""
    for old, new in zip(before, after, strict=False):
        periods = new.periods - old.periods
        if periods >= MIN_PERIODS and new.throttled - old.throttled > periods / 2:
            return new
    return None


def killed(source: Source) -> tuple[str, int] | None:
    """The number of processes of this group that were killed for memory, after its file's path.

    None if no such count is readable.
    """
    for folder in directories(source, "memory"):
        for name in ("memory.events", "memory.oom_control"):
            count = named_counts(source.read(f"{folder}/{name}").text or "").get("oom_kill")
            if count is not None:
                return f"{folder}/{name}", count
    return None
