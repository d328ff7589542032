"""Limits of the control groups that this process is in, version 1 or 2."""

from collections.abc import Iterator
from dataclasses import dataclass

from busbw.host.nvidia_services import named_counts
from busbw.host.source import Source

OWN, MOUNT = "/proc/self/cgroup", "/sys/fs/cgroup"
NONE = 1 << 62  # version 1 writes a number of about 2^63 where there is no limit
FILES = {
    "memory": (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ),
    "pids": (("pids.max", "pids.current"),),
}


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit, in the file at `path`, and how much of it is used (None: not readable); files
    that the kernel may drop are no use.
    """

    path: str
    limit: int
    used: int | None


@dataclass(frozen=True, slots=True)
class Quota:
    """CPU time that a group may use, as a number of CPUs, and the periods in which it was
    stopped for it since the group was made.
    """

    path: str
    cpus: float
    throttled: int


def directories(source: Source, controller: str) -> list[str]:
    """Directories of this process's group and those above it; empty if they are not known or not
    mounted.

    A container may show its group's path on the host, but its own group's files at the mount.
    """
    for line in (source.read(OWN).text or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        base = MOUNT if controllers == "" else f"{MOUNT}/{controller}"
        if path.startswith("/") and (controllers == "" or controller in controllers.split(",")):
            parts = [part for part in path.split("/") if part]
            found = ["/".join([base, *parts[:length]]) for length in range(len(parts), -1, -1)]
            if any(source.names(folder) for folder in found):
                return found
    return []


def limits(source: Source, controller: str) -> list[Limit]:
    """Limits of memory (bytes) or pids on the way to the root; groups without one are left out."""
    return [
        limit
        for folder in directories(source, controller)
        for limit in _limits(source, folder, controller)
    ]


def _limits(source: Source, folder: str, controller: str) -> Iterator[Limit]:
    for limit, used in FILES[controller]:
        text = source.read(f"{folder}/{limit}").text or ""
        if text.isdecimal() and int(text) < NONE:
            now = source.read(f"{folder}/{used}").text or ""
            yield Limit(
                f"{folder}/{limit}",
                int(text),
                max(0, int(now) - _files(source, folder)) if now.isdecimal() else None,
            )


def _files(source: Source, folder: str) -> int:
    """Bytes of files that the kernel keeps for a group and gives up before it kills a process."""
    counts = named_counts(source.read(f"{folder}/memory.stat").text or "")
    return counts.get("total_inactive_file", counts.get("inactive_file", 0))


def quotas(source: Source) -> list[Quota]:
    """CPU quotas on the way to the root."""
    return [quota for folder in directories(source, "cpu") if (quota := _quota(source, folder))]


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
    return Quota(path, int(words[0]) / int(words[1]), counts.get("nr_throttled", 0))


def killed(source: Source) -> tuple[str, int] | None:
    """The file and number of processes of this group that were killed for memory; None if no
    such count is readable.
    """
    for folder in directories(source, "memory"):
        for name in ("memory.events", "memory.oom_control"):
            count = named_counts(source.read(f"{folder}/{name}").text or "").get("oom_kill")
            if count is not None:
                return f"{folder}/{name}", count
    return None
