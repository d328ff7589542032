"""Memory that this process may still allocate: what the kernel calls available, within the limit
of the control group.
"""

from busbw.host.cpu import meminfo
from busbw.host.source import Live, Source

# version 2, version 1
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def usable_bytes(source: Source | None = None) -> int:
    """Bytes; 0 if nothing could be read. `source` is the live machine by default."""
    source = source or Live()
    limits = [int(text) for path in LIMITS if (text := (source.read(path).text or "")).isdecimal()]
    return min((size for size in (meminfo(source, "MemAvailable"), *limits) if size > 0), default=0)
