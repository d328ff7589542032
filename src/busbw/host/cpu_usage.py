"""How busy a host's CPUs are, and its free memory, to be read often.

`cpu` has what does not change: their number, NUMA nodes and limits.
"""

import time
from contextlib import ExitStack

from busbw.core.link_samples import CounterGroup
from busbw.host.cpu import meminfo
from busbw.host.port_counters import follow
from busbw.host.source import Source

# columns of /proc/stat after the name; guest time is part of user time (fs/proc/stat.c)
IDLE, IOWAIT, GUEST = 3, 4, 8


class CpuUsage:
    """Reads CPU time and free memory. CPU time is that since the previous reading."""

    def __init__(self, source: Source, opened: ExitStack) -> None:
        self._source = source
        self._stat = follow(source, "/proc/stat", opened)
        self._before = self._ticks()

    def read(self) -> CounterGroup:
        """`mem_free` in bytes, and `cpu_busy` in per mille once a tick has passed."""
        before, now = self._before, self._ticks()
        values = {}
        free_bytes = meminfo(self._source, "MemFree")
        if free_bytes:
            values["mem_free"] = free_bytes
        if before and now and now[1] > before[1]:
            values["cpu_busy"] = round(1000 * (now[0] - before[0]) / (now[1] - before[1]))
            self._before = now
        return CounterGroup(time.monotonic(), 0, values)

    def _ticks(self) -> tuple[int, int] | None:
        """Busy ticks and all ticks, summed over the CPUs; None if they cannot be read."""
        text = self._stat() if self._stat else None
        name, *columns = (text or b"").partition(b"\n")[0].split() or [b""]
        if name != b"cpu" or len(columns) <= IOWAIT:
            return None
        ticks = [int(column) for column in columns[:GUEST]]
        return sum(ticks) - ticks[IDLE] - ticks[IOWAIT], sum(ticks)
