"""A job that was not started under `busbw capture`, as /proc and NCCL's RAS show it.

A process that is given may be the launcher: the ranks are then those that it started.
"""

import platform
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Thread

from busbw.core.errors import UsageError
from busbw.host import process, process_sockets
from busbw.host.process_sockets import SocketQueues
from busbw.job import host as host_data
from busbw.job import ras_report
from busbw.job.live.local_process import LocalProcess
from busbw.job.live.types import JobLook, LiveRank
from busbw.job.types import RasReport
from busbw.measure.profiler_file import RANK_NAMES, WORLD_NAMES, stated

SPAN_S = 10.0  # over which a process runs or sleeps
RAS_EVERY_S = 5.0
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})  # that start the rank


@dataclass(slots=True)
class ProcessUse:
    """What a rank's process does."""

    cpu: float | None = None  # share of a CPU in the last SPAN_S, None if not seen for so long
    place: str = ""  # the kernel's function in which it sleeps
    queues: SocketQueues | None = None
    unread_s: float = 0.0  # for how long the same bytes stand unread


@dataclass(slots=True)
class ProcessLook:
    """The processes of a job at one moment."""

    job: JobLook = field(default_factory=JobLook)
    uses: dict[int, ProcessUse] = field(default_factory=dict)  # by rank
    ras: Sequence[RasReport] = ()  # the last two
    no_ras: str = ""


@dataclass(slots=True)
class _WatchedProcess:
    rank: int
    process: LocalProcess
    cpu_s: deque[tuple[float, float]] = field(default_factory=deque)  # when, and CPU seconds
    unread: int = 0
    unread_since_s: float = 0.0


class JobProcesses:
    """The ranks among the processes `pids`, or among those that these started."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._notes: list[str] = []
        self._world = 0
        self._ranks = [
            _WatchedProcess(rank, LocalProcess(pid)) for rank, pid in self._found(pids).items()
        ]
        self._ras = _Ras()

    def _found(self, pids: Sequence[int]) -> dict[int, int]:
        """The process of each rank. UsageError if there is none."""
        found: dict[int, int] = {}
        unnumbered = []
        for pid in pids:
            if not process.start_time(pid):
                raise UsageError(f"--pid {pid}: no such process", "ps -ef names those of a job")
            own = list(self._of_tree(pid))
            for rank, of_rank in own:
                found.setdefault(rank, of_rank)
            if not own:
                unnumbered.append(pid)
        for pid in unnumbered:
            rank = next(number for number in range(len(pids) + 1) if number not in found)
            found[rank] = pid
            self._notes.append(
                f"process {pid}: no variable states its rank: it is called rank {rank}"
            )
        return dict(sorted(found.items()))

    def _of_tree(self, pid: int) -> Iterator[tuple[int, int]]:
        """The ranks of a process and of those that it started, each with its first process that is
        no shell.
        """
        for one in process.tree(pid):
            try:
                variables = process.variables(one)
            except OSError:
                continue
            rank = stated(variables, RANK_NAMES)
            self._world = max(self._world, stated(variables, WORLD_NAMES) or 0)
            if rank is not None and process.name(one) not in SHELLS:
                yield rank, one

    def look(self, clock: float | None = None) -> ProcessLook:
        now_s = time.monotonic() if clock is None else clock
        look = ProcessLook()
        look.job.world = max(self._world, len(self._ranks))
        for one in self._ranks:
            state = one.process.state()
            look.uses[one.rank] = self._use(one, state, now_s)
            look.job.ranks[one.rank] = self._live(one, state, now_s)
        look.job.unread = list(self._notes)
        missing = look.job.missing()
        if missing:
            look.job.unread.append(f"{len(missing)} of {look.job.world} ranks are not seen here")
        look.ras, look.no_ras = self._ras.take(now_s)
        return look

    def _use(self, one: _WatchedProcess, state: str, now_s: float) -> ProcessUse:
        pid = one.process.pid
        one.cpu_s.append((now_s, process.cpu_s(pid)))
        while len(one.cpu_s) > 2 and one.cpu_s[1][0] <= now_s - SPAN_S:
            one.cpu_s.popleft()
        (first_s, first), (last_s, last) = one.cpu_s[0], one.cpu_s[-1]
        found = ProcessUse(queues=process_sockets.queues(pid))
        if last_s - first_s >= SPAN_S:
            found.cpu = (last - first) / (last_s - first_s)
        if state in ("S", "D"):
            found.place = process.read_proc(pid, "wchan").strip("0")
        unread = found.queues.unread if found.queues else 0
        if unread != one.unread:
            one.unread, one.unread_since_s = unread, now_s
        found.unread_s = now_s - one.unread_since_s if unread else 0.0
        return found

    @staticmethod
    def _live(one: _WatchedProcess, state: str, now_s: float) -> LiveRank:
        is_gone = state in process.ENDED
        return LiveRank(
            rank=one.rank,
            host=platform.node(),
            pid=one.process.pid,
            state=state,
            stopped_s=round(one.process.stopped_s(state, now_s), 3),
            ended=is_gone and not one.process.signal,
            end_s=one.process.end_s,
        )


class _Ras:
    """NCCL's RAS of this host, asked on a thread: it may take 10 s."""

    def __init__(self) -> None:
        self._reports: deque[RasReport] = deque(maxlen=2)
        self._why = "NCCL's RAS is being asked"
        self._thread: Thread | None = None
        self._next_s = 0.0

    def take(self, now_s: float) -> tuple[Sequence[RasReport], str]:
        """The last two reports, and why there is none."""
        is_asking = self._thread is not None and self._thread.is_alive()
        if now_s >= self._next_s and not is_asking:
            self._next_s = now_s + RAS_EVERY_S
            self._thread = Thread(target=self._ask, daemon=True)
            self._thread.start()
        return list(self._reports), "" if self._reports else self._why

    def _ask(self) -> None:
        text, why = host_data.report("")
        report = ras_report.parse(text)
        if report.nccl:
            self._reports.append(report)
        else:
            self._why = why or "unknown report of NCCL RAS"
