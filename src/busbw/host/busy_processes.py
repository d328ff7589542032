"""The processes that have used the CPUs of this host most in the last seconds, from /proc."""

import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from busbw.host import process
from busbw.host.process_times import allowed_cpus

SPAN_S = 10.0  # over which a share is taken, or since the reading before
READING_SHARE = 0.005  # of a CPU, that readings take
LEAST = 0.05  # of a CPU
MOST = 8  # processes


@dataclass(frozen=True, slots=True)
class BusyProcess:
    """A process of `host`; `share` is of one CPU, and above 1 of several."""

    pid: int
    name: str
    share: float
    cpus: str = ""  # on which it may run; '' if that is unknown
    host: str = ""


class BusyProcesses:
    """Reads the CPU time of all processes, as seldom as keeps that below READING_SHARE."""

    def __init__(self) -> None:
        # by pid and start time, the CPU seconds
        self._readings: deque[tuple[float, dict[tuple[int, int], float]]] = deque()
        self.due_s = 0.0  # when they are read next

    def take(self, now_s: float) -> None:
        """Read them, if that is due."""
        if now_s < self.due_s:
            return
        begin_s, used = time.process_time(), {}
        for entry in Path("/proc").glob("[0-9]*"):
            pid = int(entry.name)
            started, cpu_s = process.used(pid)
            if started:
                used[pid, started] = cpu_s
        self._readings.append((now_s, used))
        while len(self._readings) > 2 and now_s - self._readings[1][0] >= SPAN_S:
            self._readings.popleft()
        self.due_s = now_s + (time.process_time() - begin_s) / READING_SHARE

    def most(self, without: Collection[int]) -> list[BusyProcess] | None:
        """The busiest first, but for the processes `without` and those that they have started; None
        before the second reading.

        What a process used that was not there before is all that it has used.
        """
        if len(self._readings) < 2:
            return None
        (begin_s, before), (end_s, after) = self._readings[0], self._readings[-1]
        shares = {
            pid: (cpu_s - before.get((pid, started), 0.0)) / (end_s - begin_s)
            for (pid, started), cpu_s in after.items()
        }
        found: list[BusyProcess] = []
        for pid in sorted(shares, key=lambda pid: -shares[pid]):
            if shares[pid] < LEAST or len(found) == MOST:
                break
            name = process.name(pid)
            if name and pid not in without and not process.is_below(pid, without):
                found.append(BusyProcess(pid, name, shares[pid], allowed_cpus(pid)))
        return found
