"""How busy a host's CPUs are, and its free memory, to be read often."""

import time
from contextlib import ExitStack

from busbw.core.link_samples import Group
from busbw.host.counters import follow
from busbw.host.cpu import meminfo
from busbw.host.source import Source

# columns of /proc/stat after the name; guest time is part of user time (fs/proc/stat.c)
IDLE, IOWAIT, GUEST = 3, 4, 8


class System:
    """Reads both. CPU time is that since the reading before."""

    def __init__(self, source: Source, opened: ExitStack) -> None:
        self._source = source
        self._stat = follow(source, "/proc/stat", opened)
        self._before = self._ticks()

    def read(self) -> Group:
        """Levels; without CPU time until a tick has passed."""
        before, now = self._before, self._ticks()
        values = {"mem_free": meminfo(self._source, "MemFree")}
        if before and now and now[1] > before[1]:
            values["cpu_busy"] = round(1000 * (now[0] - before[0]) / (now[1] - before[1]))
            self._before = now
        return Group(
            time.monotonic(),
            0,
            {name: value for name, value in values.items() if value or name == "cpu_busy"},
        )

    def _ticks(self) -> tuple[int, int] | None:
        """Busy and all ticks of all CPUs."""
        name, *columns = ((self._stat() or b"") if self._stat else b"").partition(b"\n")[
            0
        ].split() or [b""]
        if name != b"cpu" or len(columns) <= IOWAIT:
            return None
        ticks = [int(column) for column in columns[:GUEST]]
        return sum(ticks) - ticks[IDLE] - ticks[IOWAIT], sum(ticks)
