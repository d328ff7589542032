"""CPUs, memory and NUMA nodes, from procfs and sysfs."""

import time
from pathlib import Path

from busbw.host.source import LiveMachine, Source, Unavailable

VIRTUAL = "cpu hypervisor bit"
CPUINFO = Path("/proc/cpuinfo")  # long on hundreds of CPUs, so a snapshot holds only the bit
LOAD_READINGS, LOAD_PAUSE_S = 10, 0.005
# of control groups, version 2 and version 1
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def hypervisor_bit(cpuinfo: Path = CPUINFO) -> str:
    """`1` if the CPU says that it runs under a hypervisor, else `0`.

    Unavailable for CPUs that do not say it: only x86 does.
    """
    try:
        with cpuinfo.open() as lines:
            flags = next((line for line in lines if line.startswith("flags")), "")
    except OSError as error:
        raise Unavailable(f"{cpuinfo}: {(error.strerror or str(error)).lower()}") from error
    if not flags:
        raise Unavailable(f"{cpuinfo}: it has no flags of x86")
    return "1" if "hypervisor" in flags.split() else "0"


def count_list(text: str) -> int:
    """How many CPUs a kernel list such as `0-3,8` contains; 0 for an empty or malformed one."""
    count = 0
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            return 0
        count += int(last or first) - int(first) + 1
    return count


def running_processes(source: Source) -> int:
    """How many processes run or wait for a processor, this one included.

    It is the smallest of LOAD_READINGS readings, as most processes run only for a moment. What is
    recorded or cached answers the same each time and is read once. 0 if /proc/loadavg does not say.
    """
    counts = []
    for reading in range(LOAD_READINGS if isinstance(source, LiveMachine) else 1):
        if reading:
            time.sleep(LOAD_PAUSE_S)
        averages = (source.read("/proc/loadavg").text or "").partition("/")[0]
        running = averages.rpartition(" ")[2]
        counts.append(int(running) if running.isdecimal() else 0)
    return min(counts)


def meminfo(source: Source, field: str) -> int:
    """Bytes of a field of /proc/meminfo such as `MemTotal`; 0 if it cannot be read."""
    for line in (source.read("/proc/meminfo").text or "").splitlines():
        name, _, value = line.partition(":")
        number = value.strip().partition(" ")[0]
        if name == field and number.isdecimal():
            return int(number) * 1024  # the kernel's kB are KiB
    return 0


def numa_node(source: Source, device: str) -> int | None:
    """NUMA node of a device directory; None if it is unknown (the kernel writes -1)."""
    text = source.read(f"{device}/numa_node").text
    return int(text) if text is not None and text.isdecimal() else None


def usable_by_gpu(total_bytes: int, *, unified: bool, source: Source | None = None) -> int:
    """Bytes of a GPU's `total_bytes` that a sweep may plan with: all, or if the GPU uses the host's
    memory (GB10), at most half of what the host has left.
    """
    if not unified:
        return total_bytes
    return min(total_bytes, usable_bytes(source) or total_bytes) // 2


def usable_bytes(source: Source | None = None) -> int:
    """Bytes of memory that this process may still allocate; 0 if nothing could be read.

    They are what the kernel calls available, within the limit of the control group. `source` is the
    live machine by default.
    """
    source = source or LiveMachine()
    sizes = [meminfo(source, "MemAvailable")]
    for path in LIMITS:
        limit = source.read(path).text or ""
        sizes.append(int(limit) if limit.isdecimal() else 0)
    return min((size for size in sizes if size > 0), default=0)
