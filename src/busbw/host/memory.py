"""Memory that this process may still use: what the kernel calls available, and what its control group leaves."""

from busbw.host.source import Live, Source

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # version 2, version 1


def usable_bytes(source: Source | None = None) -> int:
    """Bytes; 0 where nothing could be read."""
    source = source or Live()
    known = [_available(source.read("/proc/meminfo").text or "")]
    known += [int(text) for limit in LIMITS if (text := (source.read(limit).text or "").strip()).isdigit()]
    return min(size for size in known if size > 0) if any(known) else 0


def _available(meminfo: str) -> int:
    words = next((line.split() for line in meminfo.splitlines() if line.startswith("MemAvailable:")), ["", "0"])
    return int(words[1]) * 1024
