"""A thread that reports when its rank makes no progress, or when another rank of the host ends.

It looks twice a second at counters that the timed loop updates anyway, so watching does not make
operations slower. A call that holds the interpreter's lock also blocks this thread; the launcher's
limits and the other ranks cover that.
"""

import contextlib
import logging
import math
import os
import select
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from busbw.core.errors import Exit
from busbw.core.rank_messages import (
    STARTING,
    Gone,
    Here,
    Leaving,
    Report,
    Stalled,
    Throttled,
    Working,
)
from busbw.host import kernel_log, link_state, process, tcp_connections
from busbw.host.cgroup import Quota, quotas, stopping
from busbw.host.source import LiveMachine
from busbw.launch import interfaces
from busbw.launch.cleanup import FOLDER, KILL_LIMIT_S, end_job_here
from busbw.measure.job import Job
from busbw.measure.progress import Pace, Progress

LOG = logging.getLogger(__name__)
GATHERING = frozenset({"start", "rendezvous"})  # ranks of this host are still starting
GATHERING_POLL_S = 0.1  # between two searches for them
TEARDOWN = "teardown"
TEARDOWN_S = (5.0, 60.0)  # the least and the largest limit of this phase, also without --limit
GRACE_S = 8.0  # for the launcher to end the job after a report; then the rank exits
POLL_S = 0.5
AWAY_S = 2.0  # a wait longer by this much means that this process was stopped itself
HEARTBEAT_S = 3600.0  # without a limit
FRAMES = 3
WORK_S = 1.0  # between reports of the current work
QUOTA_S = 4.0  # between two looks at the CPU quotas of this rank

Reporter = Callable[[Report], None]


def end_within(limit_s: float) -> None:
    """Have a child end the job on this host if this process has not ended within the limit.

    For calls that may hold the interpreter's lock for ever, in which no thread of this process can
    act: the abort of Open MPI waits for its daemon.
    """
    rank = os.getpid()
    with warnings.catch_warnings():
        # Python warns of forks with threads, but the child uses none of their locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        if os.fork():
            return
    try:
        process.die_with_parent()
        if os.getppid() == rank:
            time.sleep(limit_s)
            process.outlive_parent()
            end_job_here()
            process.kill(rank)
    finally:
        os._exit(0)


@dataclass(frozen=True, slots=True)
class Phase:
    """What a rank is doing.

    `step` counts phases, `since` is a monotonic time, and `allowed_s` may pass without progress.
    """

    step: int
    name: str
    detail: str
    since: float
    allowed_s: float = math.inf
    progress: Progress | None = None

    def completed(self) -> tuple[int, tuple[int, int]]:
        """A value that changes with every progress."""
        return self.step, self.progress.completed() if self.progress else (0, 0)


class Watchdog:
    """Watches the main thread of rank `rank` with the limits of `job`.

    Reports go to `report`; on rank 0 they include the current work, if the job asks for it. If the
    job is not ended after a report, the rank exits with `code`. If its parent is one of the
    `daemons` (by name), which could outlive the job, the job on this host is ended with it.
    """

    def __init__(
        self,
        rank: int,
        job: Job,
        report: Reporter,
        daemons: tuple[str, ...] = (),
        code: int = Exit.UNKNOWN,
    ) -> None:
        now = time.monotonic()
        self._rank, self._host, self._report = rank, os.uname().nodename, report
        self._daemons, self._code = daemons, code
        self._reports_work = job.progress and rank == 0
        self._pace = Pace(job.limit_s)
        self._launch_deadline = now + job.launch_limit_s if job.launch_limit_s else math.inf
        self.phase = Phase(0, "start", "", now)
        # Returns the report of the communication library.
        self.library: Callable[[], str] | None = None
        self._selected = interfaces.selected(os.environ.get(interfaces.VARIABLE, ""))
        self._linked = link_state.interfaces_with_link(self._selected)
        self._main = threading.main_thread().ident
        limits_s = [limit_s for limit_s in (job.limit_s, job.launch_limit_s) if limit_s]
        self._poll_s = min([POLL_S, *(limit_s / 4 for limit_s in limits_s)])
        self._completed, self._progressed = self.phase.completed(), now
        self._last_here = self._last_work = now
        self._oom_kills = kernel_log.count()
        # The counts when half of the limit had passed, and what was completed then.
        self._connections: dict[tcp_connections.Ends, tcp_connections.ConnectionCounts] = {}
        self._counted: object = None
        self._quotas: list[Quota] = []
        self._next_quota_at = 0.0
        self._stopped, self._starting = False, True
        self._poll = select.poll()
        self._siblings: dict[int, int] = {}  # pid of another rank of this host, by descriptor
        self._all_known = False

    def start(self) -> None:
        """Report that the rank has started, and begin to watch."""
        self._report(self._here())
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def enter_phase(self, phase: str, detail: str = "", progress: Progress | None = None) -> None:
        now, before = time.monotonic(), self.phase
        self._pace.learn(before.name, before.progress, now - before.since)
        self._starting = self._starting and phase in STARTING
        if self._starting:
            LOG.debug("phase %s %s", phase, detail)
        if self._starting:
            allowed_s = self._launch_deadline - now
        else:
            allowed_s = self._pace.allowed_s(phase, progress)
        if phase == TEARDOWN:
            least_s, largest_s = TEARDOWN_S
            allowed_s = min(max(allowed_s, least_s), largest_s)
        self.phase = Phase(before.step + 1, phase, detail, now, allowed_s, progress)

    def leave(self) -> None:
        """The rank has measured everything and leaves the job, which is watched too: a library
        may wait for ranks and daemons there.
        """
        self.enter_phase(TEARDOWN, "")
        self._report(Leaving(self._rank))

    def stop(self) -> None:
        self._stopped = True

    def _watch(self) -> None:
        while not self._stopped:
            stalled = self._check_once()
            if stalled is None or self._stopped:
                continue
            with contextlib.suppress(OSError):  # stderr may be closed
                self._report_stall(stalled)
            time.sleep(GRACE_S)
            if self.phase.completed() == self._completed and not self._stopped:
                self._exit()

    def _check_once(self) -> Phase | None:
        """Wait for a moment, report what is due, and return the phase if it exceeded its limit."""
        poll_s = GATHERING_POLL_S if self.phase.name in GATHERING else self._poll_s
        began = time.monotonic()
        # Not Condition.wait: with an older C library it uses the time of day, which may jump.
        for descriptor, _ in self._poll.poll(math.ceil(poll_s * 1e3)):
            self._sibling_ended(descriptor)
        if not self._all_known:
            self._watch_siblings()
        now, phase = time.monotonic(), self.phase
        completed = phase.completed()
        if now - began > poll_s + AWAY_S:
            self._completed, self._progressed = completed, now
        elif completed != self._completed:
            has_only_begun = completed[0] != self._completed[0] and not any(completed[1])
            self._progressed = phase.since if has_only_begun else now
            self._completed = completed
        if now - self._progressed > phase.allowed_s / 2 and self._counted != completed:
            self._counted, self._connections = completed, tcp_connections.read()
        if now - self._progressed > phase.allowed_s:
            return phase
        self._report_alive(phase, now)
        return None

    def _report_alive(self, phase: Phase, now: float) -> None:
        """Report the current work, and that the rank is alive, when due."""
        if self._reports_work and now - self._last_work > WORK_S:
            self._last_work = now
            since_s = now - phase.since
            left_s = phase.progress.left_s if phase.progress else None
            if left_s is not None:
                left_s = left_s - since_s if left_s >= since_s else None
            self._report(Working(phase.name, phase.detail, left_s))
        if self._rank == 0 and now - self._last_here > (self._pace.limit_s or HEARTBEAT_S):
            self._last_here = now
            self._report(self._here())
        if not self._starting and now > self._next_quota_at:
            self._next_quota_at = now + QUOTA_S
            self._report_quota()

    def _report_quota(self) -> None:
        """Report, once, a CPU quota that has stopped this rank in most periods of late."""
        before, self._quotas = self._quotas, quotas(LiveMachine())
        quota = stopping(before, self._quotas)
        if quota:
            self._report(Throttled(self._rank, self._host, quota.cpus, quota.path))
            self._next_quota_at = math.inf

    def _sibling_ended(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        os.close(descriptor)
        pid = self._siblings.pop(descriptor)
        if self.phase.name != TEARDOWN:
            self._report(Gone(self._rank, self._host, pid))

    def _watch_siblings(self) -> None:
        """Watch the other ranks of this host that have started.

        After all ranks have joined, it is called once more.
        """
        self._all_known = self.phase.name not in GATHERING
        for pid in process.siblings().keys() - self._siblings.values():
            descriptor = process.watch(pid)
            if descriptor is not None:
                self._siblings[descriptor] = pid
                self._poll.register(descriptor, select.POLLIN)

    def _here(self) -> Here:
        return Here(
            self._rank, self._host, os.getpid(), self._oom_kills, os.environ.get(FOLDER, "")
        )

    def _report_stall(self, phase: Phase) -> None:
        frame = sys._current_frames().get(self._main or 0)
        innermost = traceback.extract_stack(frame)[-FRAMES:] if frame else []
        calls = [f"{Path(call.filename).name}:{call.lineno} {call.name}" for call in innermost]
        waited_s = time.monotonic() - self._progressed
        links_down = link_state.lost_links(self._linked, self._selected)
        stalled = Stalled(
            self._rank,
            self._host,
            os.getpid(),
            phase.name,
            phase.detail,
            phase.step,
            waited_s,
            calls,
            process.siblings(),
            links_down,
            connections=tcp_connections.lossy(self._connections),
        )
        self._report(stalled)
        if self.library is not None:
            self._report(msgspec.structs.replace(stalled, library=self.library()))

    def _exit(self) -> None:
        """End this rank, since the launcher is out of reach, and the job on this host."""
        if process.name(os.getppid()) in self._daemons:
            end_within(0.0)
            time.sleep(KILL_LIMIT_S)
        os._exit(self._code)
