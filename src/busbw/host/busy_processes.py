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
REST, REST_SHARE = 0.2, 0.03  # of a CPU, and of the busy time: what ended processes used at least
ENDED = "processes that ended or are not seen, on any CPU"
# columns of /proc/stat after the name (proc(5)): guest time is part of user time
USER, NICE, SYSTEM, IRQ, SOFTIRQ = 0, 1, 2, 5, 6


@dataclass(frozen=True, slots=True)
class BusyProcess:
    """A process of `host`; `share` is of one CPU, and above 1 of several.

    All that have ended, or are of another namespace, are one without a pid.
    """

    pid: int
    name: str
    share: float
    cpus: str = ""  # on which it may run; '' if that is unknown
    host: str = ""


class BusyProcesses:
    """Reads the CPU time of all processes, as seldom as keeps that below READING_SHARE."""

    def __init__(self) -> None:
        # the CPU seconds of the host, and those by pid and start time
        self._readings: deque[tuple[float, float, dict[tuple[int, int], float]]] = deque()
        self.due_s = 0.0  # when they are read next

    def take(self, now_s: float) -> None:
        """Read them, if that is due."""
        if now_s < self.due_s:
            return
        begin_s, busy_s, used = time.process_time(), _busy_s(), {}
        for entry in Path("/proc").glob("[0-9]*"):
            pid = int(entry.name)
            started, cpu_s = process.used(pid)
            if started:
                used[pid, started] = cpu_s
        self._readings.append((now_s, busy_s, used))
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
        (begin_s, before_s, before), (end_s, after_s, after) = self._readings[0], self._readings[-1]
        shares = {
            pid: (cpu_s - before.get((pid, started), 0.0)) / (end_s - begin_s)
            for (pid, started), cpu_s in after.items()
        }
        busy = (after_s - before_s) / (end_s - begin_s)
        rest = busy - sum(shares.values())
        found: list[BusyProcess] = []
        if rest >= max(REST, REST_SHARE * busy):
            found.append(BusyProcess(0, ENDED, rest))
        for pid in sorted(shares, key=lambda pid: -shares[pid]):
            if shares[pid] < LEAST or len(found) == MOST:
                break
            name = process.name(pid)
            if name and pid not in without and not process.is_below(pid, without):
                found.append(BusyProcess(pid, name, shares[pid], allowed_cpus(pid)))
        return found


def _busy_s() -> float:
    """For how long all CPUs of this host together have run processes and interrupts; 0 if that
    cannot be read.
    """
    try:
        columns = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0].split()[1:]
        return sum(int(columns[at]) for at in (USER, NICE, SYSTEM, IRQ, SOFTIRQ)) / process.TICKS
    except (OSError, IndexError, ValueError):
        return 0.0
