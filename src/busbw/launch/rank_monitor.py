"""The launcher's view of its ranks: which have started, which report that they are stuck, and
when the job must end.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from busbw.core.errors import BusbwError
from busbw.core.rank_messages import Gone, Here, Leaving, Stalled, Throttled, Working, decode
from busbw.host import link_state, process
from busbw.launch import diagnosis, interfaces, survey
from busbw.launch.cleanup import Cleanup, new_mark
from busbw.launch.exit_watcher import ExitWatcher
from busbw.launch.signals import signal_words

# From the first stall report to the last: the limits of ranks began within one operation of each
# other.
STALL_REPORTS_S = 1.5
LIBRARY_REPORTS_S = 3.5  # the same, if NCCL's own report is expected
HOST_ANSWER_S = 3.0  # for a host to answer; ranks wait longer than all of this before they exit
# For all answers, also if processes of this host hang in the kernel
MAX_SURVEY_S = 3 * HOST_ANSWER_S
REPORT_MARGIN_S = 3.0
# Bounds of the time for the launcher to exit after the result is complete: --limit within these.
LEAVING_BOUNDS_S = (5.0, 60.0)
# Rows after which the files of ranks are known: libraries create some with the first operation.
RECORDED_ROWS = 3
END_ELSEWHERE_S = 6.0  # for other hosts to end what is left of a job
PROGRAM = "busbw"  # in the command line of every rank
PROCESS_CHECK_S = 0.5  # between checks of the processes of this host
# Before a process counts as stopped: debuggers and profilers stop it briefly.
STOPPED_CONFIRM_S = 1.0
ENDED_CONFIRM_S = 5.0  # for the launcher to end a job that lost a process
# Between checks of the job: a longer gap means that this process was stopped (Ctrl-Z) or blocked on
# its output.
MAX_CHECK_GAP_S = 2.0


@dataclass(slots=True)
class RankMonitor:
    """Follows a job."""

    ranks: int  # processes; 0: unknown
    hosts: tuple[str, ...]  # the user's names by rank; empty for this machine
    limit_s: float  # limits of the ranks, see Job
    launch_limit_s: float
    library_reports: bool = False
    gpus: Callable[[], Mapping[int, str]] = dict  # the devices of ranks, once they are known
    started_ranks: dict[int, Here] = field(default_factory=dict)
    stall_reports: dict[int, Stalled] = field(default_factory=dict)
    lost_ranks: list[int] = field(default_factory=list)
    exits: ExitWatcher = field(default_factory=ExitWatcher)
    ifname: str = ""  # its interfaces are watched besides the default ones
    links_at_start: frozenset[str] = field(init=False)
    began_at: float = field(default_factory=time.monotonic)
    last_report_at: float = 0.0
    last_check_at: float = 0.0
    # Pids of the ranks of this host, by rank.
    local_pids: dict[int, int] = field(default_factory=dict)
    # Ranks of this host that do not run: since when, and their state.
    not_running: dict[int, tuple[float, str]] = field(default_factory=dict)
    announced_ranks: set[int] = field(default_factory=set)  # that `state_changes` has reported
    throttled: dict[tuple[str, str], Throttled] = field(default_factory=dict)  # by host and quota
    unsaid: list[str] = field(default_factory=list)  # messages for `state_changes`
    last_process_check_at: float = 0.0
    first_stall_at: float = 0.0
    sweep_started: bool = False
    sweep_ended: bool = False
    on_working: Callable[[Working], None] = lambda _: None
    cleanup: Cleanup = field(default_factory=lambda: Cleanup(new_mark()))
    last_left_at: float = 0.0  # when the result was complete, or a rank left after that
    launcher_stopped_at: float = 0.0  # since when the launcher is stopped; 0 while it runs
    rows: int = 0
    # The answers of the hosts, which are asked at the first report of a stall.
    pending_survey: "Future[survey.Survey] | None" = None
    unreachable: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Record the links that exist before the job."""
        self.links_at_start = link_state.interfaces_with_link(interfaces.selected(self.ifname))

    def record_report(self, line: str) -> bool:
        """Record a line of stderr if it is a report, and return whether it is."""
        report = decode(line)
        if report is None:
            return False
        self.last_report_at = time.monotonic()
        if isinstance(report, Here):
            self._add_rank(report)
        elif isinstance(report, Working):
            self.on_working(report)
        elif isinstance(report, Throttled):
            self._add_quota(report)
        elif isinstance(report, Leaving):
            self.last_left_at = self.last_report_at
        elif isinstance(report, Gone):
            self.lost_ranks += [
                rank
                for rank, here in self.started_ranks.items()
                if (here.host, here.pid) == (report.host, report.pid)
            ]
        elif not (self.rows and report.is_starting and report.waited_s < self.limit_s):
            # Rows come by another pipe: a report of the start may come after the first.
            if not self.first_stall_at:
                self.first_stall_at = self.last_report_at
                # Hosts are asked while the other ranks report.
                self.pending_survey = self._ask_hosts()
            self.stall_reports[report.rank] = report
        return True

    def _add_rank(self, report: Here) -> None:
        is_new = report.rank not in self.started_ranks and report.host == os.uname().nodename
        # A pid from a container of this host belongs to another process here.
        if is_new and PROGRAM in process.command(report.pid):
            self.local_pids[report.rank] = report.pid
            self.exits.watch(report.rank, report.pid)
        self.started_ranks[report.rank] = report
        if report.rank in self.local_pids:
            self.cleanup.record_folder(report.folder)

    def _add_quota(self, report: Throttled) -> None:
        """Ranks of a container share its quota: the first that reports it is named."""
        quota = (report.host, report.path)
        if quota not in self.throttled:
            self.throttled[quota] = report
            self.unsaid.append(self._quota_text(report))

    def _quota_text(self, report: Throttled) -> str:
        name = self._evidence_of_reports().name(report.rank)
        return f"{name} is slowed by a CPU quota of {report.cpus:.2g} CPUs ({report.path})"

    def record_event(self, *, leaving: bool = False) -> None:
        """Record an event of rank 0: the sweep makes progress, or ends (`leaving`)."""
        self.last_report_at, self.sweep_started, self.sweep_ended = time.monotonic(), True, leaving
        self.last_left_at = self.last_report_at
        if self.rows < RECORDED_ROWS:
            self.cleanup.record(self.local_pids.values())
        self.rows += 1
        self.stall_reports.clear()  # a row is done, so no rank is stalled any more
        self.first_stall_at, self.pending_survey = 0.0, None

    def stop_reason(self, *, queued: bool = False) -> BusbwError | None:
        """The error that ends the job, or None.

        If the job must end, hosts are asked for process states, which takes up to HOST_ANSWER_S.
        Time in a scheduler's queue (`queued`) does not count.
        """
        now = time.monotonic()
        self._skip_gap(now)
        if queued:
            self.began_at = now
        if not self.sweep_started:
            # Libraries create files at any moment of the start.
            self.cleanup.record(self.local_pids.values())
        error = self._not_running_for_long(now)
        if error:
            return error
        if self._launcher_stopped_for_long(now):
            return self.stall_error()
        if self.first_stall_at:
            return self.stall_error() if self._gathered(now) else None
        if self._ranks_missing(now):
            return self.missing_ranks_error()
        return self.stall_error() if self._silent_for_long(now) else None

    def _launcher_stopped_for_long(self, now: float) -> bool:
        limit_s = self._limit_s()
        if not self.launcher_stopped_at or not limit_s:
            return False
        return now - max(self.launcher_stopped_at, self.last_report_at) > limit_s

    def _ranks_missing(self, now: float) -> bool:
        """Whether some ranks, but not all, have started within the limit of the launch."""
        if self.sweep_started or not self.launch_limit_s:
            return False
        return (
            0 < len(self.started_ranks) < self.ranks and now - self.began_at > self.launch_limit_s
        )

    def _silent_for_long(self, now: float) -> bool:
        """Whether nothing was reported beyond the limit of what the job does now."""
        silence_s = now - self.last_report_at
        if not self.sweep_started:
            all_here = len(self.started_ranks) >= max(self.ranks, 1)
            too_long = silence_s > self.launch_limit_s + REPORT_MARGIN_S
            return bool(self.launch_limit_s) and all_here and too_long
        if self.sweep_ended:
            return now - self.last_left_at > self._limit_s()
        return bool(self.limit_s) and silence_s > 2 * self.limit_s + REPORT_MARGIN_S

    def _limit_s(self) -> float:
        """How long the job may stand still now; 0 for no limit."""
        if self.sweep_ended:
            min_s, max_s = LEAVING_BOUNDS_S
            return min(max(self.limit_s or max_s, min_s), max_s)
        return self.limit_s if self.sweep_started else self.launch_limit_s

    def _skip_gap(self, now: float) -> None:
        """Do not count time in which this process did not run as silence of the ranks."""
        away_s, self.last_check_at = now - (self.last_check_at or now), now
        if away_s > MAX_CHECK_GAP_S:
            self.began_at = min(self.began_at + away_s, now)
            self.last_report_at = min(self.last_report_at + away_s, now)
            self.last_left_at = min(self.last_left_at + away_s, now)
            self.launcher_stopped_at = 0.0
            self.not_running.clear()

    def state_changes(self) -> list[str]:
        """Messages to print now: local ranks that stopped, exited or resumed, and CPU quotas."""
        now = time.monotonic()
        if now - self.last_process_check_at < PROCESS_CHECK_S:
            return []
        messages, self.unsaid = self.unsaid, []
        self.last_process_check_at = now
        stopped = (
            bool(self.cleanup.launcher) and process.state(self.cleanup.launcher) in process.STOPPED
        )
        self.launcher_stopped_at = (self.launcher_stopped_at or now) if stopped else 0.0
        if self.sweep_ended:
            return messages
        for rank, pid in self.local_pids.items():
            state = process.state(pid)
            if state in process.STOPPED | process.ENDED:
                since, _ = self.not_running.get(rank, (now, ""))
                self.not_running[rank] = (since, state)
                if now - since >= STOPPED_CONFIRM_S and rank not in self.announced_ranks:
                    self.announced_ranks.add(rank)
                    name, condition = self._evidence_of_reports().name(rank), process.STATES[state]
                    messages.append(f"{name} is {condition}{self._consequence(state)}")
                continue
            self.not_running.pop(rank, None)
            if rank in self.announced_ranks:
                self.announced_ranks.remove(rank)
                messages.append(f"{self._evidence_of_reports().name(rank)} runs again")
        return messages

    def _consequence(self, state: str) -> str:
        if state in process.ENDED:
            return ""
        limit_s = self._limit_s()
        if not limit_s:
            return ": the run waits for it"
        return f": the run ends unless it resumes within {limit_s:g} s"

    def _not_running_for_long(self, now: float) -> BusbwError | None:
        """The error if a rank has ended and the job has not, or if a rank is stopped too long."""
        limit_s = self._limit_s()
        for rank, (since, state) in self.not_running.items():
            if state in process.ENDED and now - since > ENDED_CONFIRM_S:
                return self._death_error(rank)
            stopped_s = now - max(since, self.last_report_at)
            if state in process.STOPPED and limit_s and stopped_s > limit_s + REPORT_MARGIN_S:
                return self.stall_error()
        return None

    def _death_error(self, rank: int) -> BusbwError:
        """The error of a job that does not end although this rank, or one before it, has exited."""
        rank = next((exited for exited in self.exits.order if exited in self.not_running), rank)
        killer = process.fatal_signal(self.local_pids[rank])
        if killer:
            ending = f"died of {signal_words(killer)}"
            return diagnosis.death(self._evidence_of_reports(), rank, ending)
        return diagnosis.death_without_end(self.collect_evidence(), rank)

    def stall_error(self) -> BusbwError:
        """The diagnosis of a stalled job."""
        now = time.monotonic()
        leaving_s = now - self.last_left_at if self.sweep_ended else None
        error = diagnosis.conclude(self.collect_evidence(), now - self.last_report_at, leaving_s)
        for report in self.throttled.values():
            error.add(f"; {self._quota_text(report)}")
        return error

    def missing_ranks_error(self) -> BusbwError:
        """The error if some ranks have not started within the limit."""
        return diagnosis.absent(self.collect_evidence(), self.launch_limit_s)

    def silence_error(self) -> BusbwError | None:
        """The error if no rank has started in time: a process is stopped, or a link went down."""
        evidence = self.collect_evidence()
        if evidence.broken() or evidence.helpers or evidence.unlinked():
            return diagnosis.absent(evidence, self.launch_limit_s)
        return None

    def end_elsewhere(self) -> None:
        """End what is left of the job on other hosts; takes up to END_ELSEWHERE_S."""
        survey.end(self.cleanup, self.started_ranks, self.hosts, self.unreachable, END_ELSEWHERE_S)

    def memory_kill(self, rank: int) -> str:
        """That the kernel killed this rank for lack of memory, if so; takes up to HOST_ANSWER_S."""
        if rank not in self.started_ranks:
            return ""
        host = self.hosts[rank] if rank < len(self.hosts) else ""
        return survey.memory_kill(self.started_ranks[rank], host, HOST_ANSWER_S)

    def first_exit_error(self, host: str = "") -> BusbwError | None:
        """The error for the rank that others saw exit first, if possible a rank on `host`.

        None if they saw none.
        """
        if not self.lost_ranks:
            return None
        on_host = [rank for rank in self.lost_ranks if self.started_ranks[rank].host == host]
        return diagnosis.death(self._evidence_of_reports(), (on_host or self.lost_ranks)[0])

    def names(self, ranks: Iterable[int]) -> str:
        """`ranks 2, 3 on h2 and rank 4 on h3`."""
        return self._evidence_of_reports().names(ranks)

    def absent_ranks(self) -> list[int]:
        """The ranks that have not started, where others have."""
        absent = sorted(set(range(self.ranks)) - self.started_ranks.keys())
        return absent if len(absent) < self.ranks else []

    def signal_error(self, signal: int) -> BusbwError | None:
        """The error if the launcher only reports that a rank died of `signal`.

        It names the first local rank that exited; None if there is none.
        """
        if not self.exits.order:
            return None
        first = self.exits.order[0]
        return diagnosis.death(
            self._evidence_of_reports(), first, f"died of {signal_words(signal)}"
        )

    def _evidence_of_reports(self) -> diagnosis.StallEvidence:
        return diagnosis.StallEvidence(
            self.ranks, self.started_ranks, {}, gpus=self.gpus(), hosts=self.hosts
        )

    def collect_evidence(self) -> diagnosis.StallEvidence:
        """The reports of ranks, and what their hosts know of the job's processes."""
        pending = self.pending_survey or self._ask_hosts()
        self.pending_survey = None
        try:
            answers = pending.result(MAX_SURVEY_S)
        except TimeoutError:  # so much hangs on this host
            answers = survey.Survey()
        self.unreachable = answers.unreachable
        silent = {
            rank: state for rank, state in answers.states.items() if rank not in self.stall_reports
        }
        if self.sweep_ended:  # it is right then that a rank has ended
            silent = {rank: state for rank, state in silent.items() if state not in process.ENDED}
        return diagnosis.StallEvidence(
            ranks=self.ranks,
            here=self.started_ranks,
            stalled=self.stall_reports,
            states=silent,
            unreachable=answers.unreachable,
            gpus=self.gpus(),
            hosts=self.hosts,
            links_down=self._links_down(),
            unreported=answers.unreported,
            helpers=answers.helpers,
        )

    def _ask_hosts(self) -> "Future[survey.Survey]":
        return survey.begin(
            self.cleanup, self.started_ranks, self.local_pids, self.hosts, HOST_ANSWER_S
        )

    def _links_down(self) -> dict[str, list[str]]:
        """Interfaces of this host that have lost their link."""
        lost = link_state.lost_links(self.links_at_start, interfaces.selected(self.ifname))
        return {os.uname().nodename: lost} if lost else {}

    def _gathered(self, now: float) -> bool:
        """Whether all stall reports are here that can be expected."""
        awaits_library = self.library_reports and not any(
            stalled.library for stalled in self.stall_reports.values()
        )
        if now - self.first_stall_at > (LIBRARY_REPORTS_S if awaits_library else STALL_REPORTS_S):
            return True
        return (
            len(self.stall_reports) == (self.ranks or len(self.started_ranks))
            and not awaits_library
        )
