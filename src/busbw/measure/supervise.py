"""Follows a launcher to its end: events go to the sink, and a failure becomes an error that
names its cause.
"""

import os
import signal
import time

import msgspec

from busbw.core.errors import MEMORY_HINT, BusbwError, Exit, NoMeasurement, StartFailed
from busbw.engines.registry import AUTO
from busbw.launch import job, on_host, slurm
from busbw.launch.failures import SHARED_HINT, daemon_failed, known_error, launcher_error
from busbw.launch.launcher_noise import Framing
from busbw.launch.mpirun import marked
from busbw.launch.rank_deaths import (
    aborting_host,
    exited_rank,
    killed_rank,
    put_cause_first,
    reports_rank_death,
    was_terminated,
)
from busbw.launch.rank_monitor import RankMonitor
from busbw.launch.signal_handlers import signals_ignored
from busbw.measure.events import Ended, Note, Started
from busbw.measure.job import Job, kind_of
from busbw.measure.launch_plan import LauncherCommand, launcher_command
from busbw.measure.rank_failure import Failed, RankFailed, failure
from busbw.measure.sink import Sink
from busbw.measure.target import LaunchTarget

TAIL_LINES = 200  # each of a host's ranks may write 40 lines, and the first of them name the cause
SIGNAL_EXIT_BASE = 128  # mpirun's exit code when a rank died of signal N is this plus N
LIMITS_HINT = "ulimit -a; raise these limits, or ask who set them: /etc/security/limits.conf"
ABORT_S = 10.0  # for the launcher to end the job after a rank reported why it failed


class Follower:
    """Follows one launched job."""

    def __init__(self, started: LauncherCommand, sink: Sink) -> None:
        self.sink, self.hosts = sink, [host.name for host in started.hosts]
        host_of_rank: list[str] = []
        for host in started.hosts:
            host_of_rank += [host.name] * host.slots
        work = started.job
        self._kind = kind_of(work)
        library = work.engine in ("nccl", AUTO)
        self.monitor = RankMonitor(
            work.ranks,
            tuple(host_of_rank),
            work.limit_s,
            work.launch_limit_s,
            library,
            self._gpu_names,
            ifname=started.ifname,
        )
        self.monitor.on_working = sink.working
        self.queue = slurm.Queue()
        self._framing = Framing()
        self._tail: list[str] = []
        self._failures: list[Failed] = []
        self._failed_at = 0.0
        # whether a rank had exited before the first one that reported a failure
        self._exit_before_failure = False

    def follow(self, argv: list[str], launch_limit_s: float) -> None:
        """Run the launcher; RankFailed or NoMeasurement if it fails."""
        status = job.run(
            marked(argv, self.monitor.cleanup.marker) if self.hosts else argv,
            os.environ,
            self._on_line,
            self._on_message,
            launch_limit_s,
            self.hosts,
            stop_reason=self._stop_reason,
            has_reported=lambda: bool(self.monitor.started_ranks),
            is_queued=lambda: self.queue.waiting,
            why_silent=self.monitor.silence_error,
            cleanup=self.monitor.cleanup,
            end_elsewhere=self.monitor.end_elsewhere if self.hosts else None,
        )
        error = self._error_of(status)
        if self.hosts and self._may_leave_something(error):
            with signals_ignored():
                self.monitor.end_elsewhere()  # what a lost daemon leaves
        if error:
            raise error

    def _may_leave_something(self, error: BusbwError | None) -> bool:
        """Whether ranks or daemons, which have started on other hosts, may not clean up there."""
        text = "\n".join(self._tail)
        started = bool(self.monitor.started_ranks) or daemon_failed(text)
        return started and bool(error or known_error(text))

    def _on_line(self, line: bytes) -> None:
        try:
            event = self._kind.decode_event(line)
        except msgspec.DecodeError:
            self._on_message(line)
            return
        if not isinstance(event, Note):
            self.monitor.record_event(leaving=isinstance(event, Ended))
        if isinstance(event, Started):
            # With `auto` the engine is known only now.
            self.monitor.library_reports = event.result.library.engine == "nccl"
        self.sink.take(event)

    def _on_message(self, line: bytes) -> None:
        # mpirun 5 writes stray NULs.
        text = line.decode(errors="replace").replace("\0", "").rstrip()
        failed = failure(text)
        if failed:
            if not self._failures and self.monitor.lost_ranks:
                self._exit_before_failure = True
            self._failures.append(failed)
            self._failed_at = self._failed_at or time.monotonic()
        if failed or self.monitor.record_report(text):
            return
        self._tail.append(text)
        del self._tail[:-TAIL_LINES]
        self.queue.take(text)
        if not self._framing(text) and not slurm.own_line(text):
            self.sink.note(text)

    def _stop_reason(self) -> BusbwError | None:
        """The error with which to stop a job that is still running."""
        self.sink.record.catch_up()
        if self._failures:
            waited_s = time.monotonic() - self._failed_at
            return RankFailed(self._failures[0]) if waited_s > ABORT_S else None
        for change in self.monitor.state_changes():
            self.sink.note(f"note: {change}")
        return self.monitor.stop_reason(queued=self.queue.waiting)

    def _error_of(self, status: int) -> BusbwError | None:
        """The error of a job whose launcher exited with `status`; None if it succeeded."""
        text = put_cause_first("\n".join(self._tail), self.monitor.lost_ranks)
        result = self.sink.record.result
        if status == 0 and result is not None and result.complete and not self._failures:
            return None
        # The death of a rank causes errors on others, and one of them may abort before the launcher
        # has seen the death.
        death = known_error(text, self.hosts, kills=True)
        if death is None and reports_rank_death(text):
            death = launcher_error(status, text, self.hosts)
        if death is None and not self._failures and self.monitor.sweep_started:
            death = self._terminated(status, text)
        if death is None and (self._exit_before_failure or not self._failures):
            death = self.monitor.first_exit_error(aborting_host(text))
        if death is None and self._failures:
            return RankFailed(min(self._failures, key=lambda failed: failed.exit == Exit.BUG))
        if death is None and self.monitor.stall_reports:
            return self.monitor.stall_error()
        killed = None
        # The upper limit is because Open MPI 4 exits with 255 after a rank that gave up.
        if SIGNAL_EXIT_BASE < status < SIGNAL_EXIT_BASE + signal.NSIG:
            killed = self.monitor.signal_error(status - SIGNAL_EXIT_BASE)
        error = (
            death or known_error(text, self.hosts) or killed or self._launcher_error(status, text)
        )
        error = self._out_of_room(error, status, text) or error
        error.add(self._rows_reached())
        return error

    def _terminated(self, status: int, text: str) -> BusbwError | None:
        if was_terminated(status, text) and known_error(text, self.hosts) is None:
            return launcher_error(status, "", self.hosts)
        return None

    def _launcher_error(self, status: int, text: str) -> BusbwError:
        """The error of a launcher that does not say why it ended, with ranks that may be why."""
        exited = exited_rank(text)
        cause = f"{self.monitor.names([exited[0]])} exited with {exited[1]}" if exited else ""
        error = launcher_error(status, text, self.hosts, cause)
        absent = self.monitor.absent_ranks()
        if absent and not exited:
            error.add(f"; {self.monitor.names(absent)} had not started")
        return error

    def _out_of_room(self, error: BusbwError, status: int, text: str) -> BusbwError | None:
        """The error if a host has no memory for a rank, or this one no room for the job's files."""
        rank = self._killed_rank(status, text)
        kill = self.monitor.memory_kill(rank) if rank is not None else ""
        if kill:
            return NoMeasurement(f"{error.message}: {kill}", MEMORY_HINT, error.options)
        unexplained = (
            known_error(text, self.hosts) is None or status == SIGNAL_EXIT_BASE + signal.SIGBUS
        )
        full = on_host.list_full_file_systems() if unexplained else []
        if full:
            message = f"{error.message}; on this host {' and '.join(full)}"
            hint = f"df -h {full[0].split()[0]}; {SHARED_HINT}"
            return NoMeasurement(message, hint, error.options)
        limits = on_host.list_limits() if unexplained or rank is not None else []
        if limits:
            message = f"{error.message}; on this host {' and '.join(limits)}"
            return NoMeasurement(message, LIMITS_HINT, error.options)
        return None

    def _killed_rank(self, status: int, text: str) -> int | None:
        """The rank that SIGKILL ended, as far as known."""
        rank = killed_rank(text)
        if rank is None and status == SIGNAL_EXIT_BASE + signal.SIGKILL:
            rank = next(iter(self.monitor.exits.order), None)
        return rank if rank is not None else next(iter(self.monitor.lost_ranks), None)

    def _rows_reached(self) -> str:
        """How far the run came, to append to its error; '' before all ranks had joined."""
        result = self.sink.record.result
        before_rows = ", before the first row" if self.monitor.sweep_started else ""
        return (result.reached() if result else "") or before_rows

    def _gpu_names(self) -> dict[int, str]:
        result = self.sink.record.result
        devices = result.world.devices if result else []
        return {device.rank: f"GPU {device.index}" for device in devices if device.bus}


def launch(work: Job, where: LaunchTarget, sink: Sink) -> None:
    """Start the ranks of a job and follow them to their end.

    A transient failure of the start is retried once.
    """
    prepared = launcher_command(work, where)
    if prepared.note:
        sink.note(prepared.note)
    limit_s = prepared.job.launch_limit_s
    try:
        Follower(prepared, sink).follow(prepared.argv, limit_s)
    except StartFailed as error:
        sink.note(f"note: {error.message}; starting again")
        Follower(prepared, sink).follow(prepared.argv, limit_s)
