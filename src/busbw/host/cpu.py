"""CPUs, memory and NUMA nodes, from procfs and sysfs."""

from busbw.host.source import Source


def count_list(text: str) -> int:
    """How many CPUs a kernel list such as `0-3,8` contains; 0 for an empty or malformed one."""
    count = 0
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if not first.isdigit() or not (last or first).isdigit():
            return 0
        count += int(last or first) - int(first) + 1
    return count


def meminfo(source: Source, field: str) -> int:
    """Bytes of a field of /proc/meminfo such as `MemTotal`; 0 if it cannot be read."""
    for line in (source.read("/proc/meminfo").text or "").splitlines():
        name, _, value = line.partition(":")
        number = value.split()[:1]
        if name == field and number and number[0].isdigit():
            return int(number[0]) * 1024  # the kernel's kB are KiB
    return 0


def numa_node(source: Source, device: str) -> int | None:
    """NUMA node of a device directory; None if it is unknown (the kernel writes -1)."""
    text = source.read(f"{device}/numa_node").text
    return int(text) if text is not None and text.isdigit() else None
