"""Facts of the machine around the GPUs: name, boot, kernel, CPUs, memory, TCP. Read from procfs and sysfs."""

from dataclasses import dataclass

from busbw.host.source import Source


@dataclass(frozen=True, slots=True)
class Machine:
    """What `read_machine` found; empty or 0 where a file could not be read."""

    hostname: str
    boot_id: str
    kernel: str
    cpus: int
    memory_bytes: int
    congestion: str


def read_machine(source: Source) -> Machine:
    """Name, boot id and kernel of the machine, its online CPUs, its memory in bytes, and its TCP's congestion control."""
    return Machine(
        hostname=source.read("/proc/sys/kernel/hostname").text or "",
        boot_id=source.read("/proc/sys/kernel/random/boot_id").text or "",
        kernel=source.read("/proc/sys/kernel/osrelease").text or "",
        cpus=count_list(source.read("/sys/devices/system/cpu/online").text or ""),
        memory_bytes=_memory(source.read("/proc/meminfo").text or ""),
        congestion=(source.read("/proc/sys/net/ipv4/tcp_congestion_control").text or "").strip(),
    )


def count_list(text: str) -> int:
    """How many CPUs a kernel list such as `0-3,8` names; 0 for an empty one."""
    count = 0
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if not first.isdigit() or not (last or first).isdigit():
            return 0
        count += int(last or first) - int(first) + 1
    return count


def _memory(meminfo: str) -> int:
    for line in meminfo.splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == "MemTotal:" and words[1].isdigit():
            return int(words[1]) * 1024  # the kernel's kB are KiB
    return 0


def numa_node(source: Source, device: str) -> int | None:
    """NUMA node of a device directory; None where the kernel does not know (-1) or does not say."""
    text = source.read(f"{device}/numa_node").text
    return int(text) if text is not None and text.isdigit() else None
