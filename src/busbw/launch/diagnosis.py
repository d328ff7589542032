"""Diagnoses why a job makes no progress, from the reports of its ranks and the state of their
hosts.

The functions are pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from busbw.core.errors import NoMeasurement, TimedOut
from busbw.core.rank_messages import Here, Stalled
from busbw.host.process import ENDED, FROZEN, GONE, STATES, STOPPED
from busbw.launch import packet_loss
from busbw.launch.failures import DRY_RUN_HINT
from busbw.launch.hosts import probe_command

MAX_NAMED, MAX_HOSTS = 8, 3  # ranks, hosts
_RESUME = (
    "a user, a debugger or the scheduler stopped it (SIGSTOP): look for who did it, and start the"
    " run again"
)
_THAW = (
    "a user or the scheduler froze it (docker pause, freezer.state, cgroup.freeze): thaw it, and"
    " start the run again"
)
_IMPORT = "importlib"  # in the calls of a rank that imports a module
_IMPORT_HINT = (
    "give more time: --launch-limit 600, or look there at what else runs (top) and at the file"
    " system that Python is on"
)
_DUMP = "py-spy dump --pid PID   (on such a rank's host)"


@dataclass(frozen=True, slots=True)
class Helper:
    """A stopped process that starts and ends ranks.

    It is mpirun, a `daemon` of it on another host, or the agent that started the daemon.
    """

    host: str
    name: str
    pid: int
    daemon: bool = False

    def __str__(self) -> str:
        """`prted on h2 (pid 5), which starts and ends the ranks there`."""
        task = ", which starts and ends the ranks there," if self.daemon else ""
        return f"{self.name} on {self.host} (pid {self.pid}){task}"


@dataclass(frozen=True, slots=True)
class StallEvidence:
    """What is known about a stalled job."""

    ranks: int  # how many the job has
    here: Mapping[int, Here]  # those that started
    stalled: Mapping[int, Stalled]  # stall reports
    # state letters of processes, read on their own host
    states: Mapping[int, str] = field(default_factory=dict)
    unreachable: frozenset[str] = frozenset()  # hosts that gave no answer, under the user's names
    gpus: Mapping[int, str] = field(default_factory=dict)  # devices
    hosts: tuple[str, ...] = ()  # the user's names by rank; empty for this machine
    # interfaces of the launching host that lost their link
    links_down: Mapping[str, list[str]] = field(default_factory=dict)
    # processes that run but have not reported their start
    unreported: Mapping[int, Here] = field(default_factory=dict)
    helpers: Sequence[Helper] = ()  # stopped ones

    def broken(self) -> dict[int, str]:
        """Ranks whose process is stopped or has exited, with its state.

        The host's own view outranks that of local_processes.
        """
        broken = {rank: state for rank, state in self.states.items() if state in ENDED | STOPPED}
        for report in self.stalled.values():
            for rank, other in self.here.items():
                state = report.local_processes.get(other.pid) if other.host == report.host else None
                if state in ENDED | STOPPED and rank not in self.states:
                    broken[rank] = state
        return broken

    def unlinked(self) -> dict[str, list[str]]:
        """Interfaces that lost their link while the job ran, by host."""
        by_host = dict(self.links_down)
        for report in self.stalled.values():
            if report.links_down:
                by_host[report.host] = report.links_down
        return by_host

    def silent(self) -> list[int]:
        """Ranks that started but sent no stall report."""
        return sorted(self.here.keys() - self.stalled.keys())

    def late(self) -> dict[int, Stalled]:
        """The reports of ranks that are at an earlier step than others.

        Empty if all are at the same step.
        """
        first_step = min((report.step for report in self.stalled.values()), default=0)
        late = {rank: report for rank, report in self.stalled.items() if report.step == first_step}
        return late if len(late) < len(self.stalled) else {}

    def is_starting(self) -> bool:
        """Whether the limit that passed is that of the start."""
        return any(report.is_starting for report in self.stalled.values())

    def importing(self) -> list[int]:
        """Ranks that have not read all of their Python modules."""
        return sorted(
            rank
            for rank, report in self.stalled.items()
            if any(_IMPORT in call for call in report.doing)
        )

    def name(self, rank: int) -> str:
        """`rank 3 on h2 (GPU 1, pid 77)`, as far as it is known."""
        text = f"rank {rank}{_on(self.place(rank))}"
        details = [self.gpus[rank]] if self.gpus.get(rank) else []
        here = self._process(rank)
        if here:
            details.append(f"pid {here.pid}")
        return f"{text} ({', '.join(details)})" if details else text

    def names(self, ranks: Iterable[int]) -> str:
        """`ranks 2, 3 on h2 and rank 4 on h3`, grouped by host.

        A single rank is written as by `name`.
        """
        ordered = sorted(ranks)
        if len(ordered) == 1:
            return self.name(ordered[0])
        by_host: dict[str, list[int]] = {}
        for rank in ordered:
            by_host.setdefault(self.place(rank), []).append(rank)
        return " and ".join(_list_ranks(group) + _on(host) for host, group in by_host.items())

    def place(self, rank: int) -> str:
        """A host's own name for the host of a rank that started, else the user's name."""
        here = self._process(rank)
        return here.host if here else self.host_of(rank)

    def _process(self, rank: int) -> Here | None:
        return self.here.get(rank) or self.unreported.get(rank)

    def hosts_of(self, ranks: Iterable[int]) -> list[str]:
        """The hosts of these ranks as the user named them, sorted; none for this machine."""
        return sorted({self.host_of(rank) for rank in ranks} - {""})

    def host_of(self, rank: int) -> str:
        """The user's name of a rank's host; '' for this machine."""
        return self.hosts[rank] if rank < len(self.hosts) else ""


def _on(host: str) -> str:
    return f" on {host}" if host else ""


def _list_ranks(ranks: list[int]) -> str:
    text = ", ".join(map(str, ranks[:MAX_NAMED]))
    if len(ranks) > MAX_NAMED:
        text += f" and {len(ranks) - MAX_NAMED} more"
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"


def conclude(evidence: StallEvidence, waited_s: float, leaving_s: float | None = None) -> TimedOut:
    """The error that ends the job.

    `waited_s` is the time since the last report, `leaving_s` the time since the result is complete.

    Causes in order of certainty: a process that cannot run, a late rank if all ranks report, a lost
    link, an unreachable host, a rank that does not report, and finally the network or the library.
    """
    message, hint = _cause(evidence)
    text = f"{_stall_text(evidence, waited_s, leaving_s)}: {message}"
    if evidence.is_starting():
        return TimedOut(text, hint, options=["launch_limit"])
    return TimedOut(text, hint, options=["limit"])


def absent(evidence: StallEvidence, limit_s: float) -> TimedOut:
    """The error when some ranks never started."""
    missing = [rank for rank in range(evidence.ranks) if rank not in evidence.here]
    broken, links_down = evidence.broken(), evidence.unlinked()
    limit = f"within {limit_s:g} s, {len(evidence.here)} of {evidence.ranks} did"
    if missing and all(broken.get(rank) in STOPPED for rank in missing):
        return TimedOut(f"launch: {_broken(evidence, broken)}: not started {limit}", _RESUME)
    hosts = evidence.hosts_of(missing)
    hint = _probe(hosts) if hosts else DRY_RUN_HINT
    also = f"; {_broken(evidence, broken)}" if broken else ""
    if evidence.helpers:
        also, hint = f"{also}; {_helpers(evidence)}", _RESUME
    if links_down:
        link, hint = _links_down(evidence, links_down)
        also += f"; {link}"
    message = f"launch: {evidence.names(missing)} did not start {limit}{also}"
    return TimedOut(message, hint, options=["dry_run"])


def death(
    evidence: StallEvidence, rank: int, ending: str = "exited without an error message"
) -> NoMeasurement:
    """The error when a rank exited and the launcher did not report which one."""
    return NoMeasurement(f"{evidence.name(rank)} {ending}", _broken_hint(evidence, {rank: GONE}))


def death_without_end(evidence: StallEvidence, rank: int) -> NoMeasurement:
    """The error when a rank exited and the job did not end.

    It may have lost its connection to a rank of another host that died before it, which a stopped
    daemon does not report.
    """
    error = death(evidence, rank)
    here = evidence.place(rank)
    elsewhere = {
        other: state for other, state in evidence.broken().items() if evidence.place(other) != here
    }
    causes = [_helpers(evidence)] if evidence.helpers else []
    causes += [_broken(evidence, elsewhere)] if elsewhere else []
    if not causes:
        return error
    hint = _RESUME if evidence.helpers else _broken_hint(evidence, elsewhere)
    return NoMeasurement("; ".join([*causes, error.message]), hint)


def _stall_text(evidence: StallEvidence, waited_s: float, leaving_s: float | None) -> str:
    if leaving_s is not None:
        return (
            f"everything was measured, but the job did not end within {leaving_s:.0f} s and was"
            " killed"
        )
    # Other ranks may run ahead of a late one and wait at a later step. The earliest step is the one
    # that does not end.
    first = min(evidence.stalled.values(), key=lambda report: report.step, default=None)
    if first is None:
        return f"no rank has reported for {waited_s:.0f} s"
    return f"{first.phase_text} made no progress for {first.waited_s:.0f} s"


def _cannot_run(evidence: StallEvidence) -> tuple[str, str] | None:
    """The cause where processes are stopped, have ended, or have not read their modules."""
    broken = evidence.broken()
    if evidence.helpers and not any(state in STOPPED for state in broken.values()):
        # Ranks that cannot report any more end themselves after a while.
        return _helpers(evidence), _RESUME
    if broken:
        return _broken(evidence, broken), _broken_hint(evidence, broken)
    importing = evidence.importing()
    if importing and not evidence.unlinked():
        verb = "is" if len(importing) == 1 else "are"
        return f"{evidence.names(importing)} {verb} still importing Python modules", _IMPORT_HINT
    return None


def _cause(evidence: StallEvidence) -> tuple[str, str]:
    cause = _cannot_run(evidence)
    if cause:
        return cause
    links_down, silent = evidence.unlinked(), evidence.silent()
    if evidence.late() and not silent:
        message, hint = _late_ranks(evidence)
        if links_down:
            meanwhile, _ = _links_down(evidence, links_down)
        else:
            meanwhile, _ = packet_loss.describe(evidence.stalled, evidence.here, evidence.hosts)
        return message + (f"; meanwhile {meanwhile}" if meanwhile else ""), hint
    if links_down:
        return _links_down(evidence, links_down)
    loss, hint = packet_loss.describe(evidence.stalled, evidence.here, evidence.hosts)
    if loss:
        return f"{loss}{_and_silent(evidence)}", hint
    cut_off = [rank for rank in silent if evidence.host_of(rank) in evidence.unreachable]
    if cut_off:
        message = (
            f"{evidence.names(cut_off)} cannot be reached: they do not report, and the launch agent"
            " gets no answer"
        )
        return message, _probe(evidence.hosts_of(cut_off))
    if silent and evidence.stalled:
        return _silent_ranks(evidence, silent)
    if silent:
        return f"{evidence.names(silent)} do not report", _DUMP
    return _same_step(evidence)


def _silent_ranks(evidence: StallEvidence, silent: Sequence[int]) -> tuple[str, str]:
    """The cause where some ranks report and the `silent` ones do not."""
    alive = " although alive" if all(rank in evidence.states for rank in silent) else ""
    names, hosts = evidence.names(silent), evidence.hosts_of(silent)
    silent_hosts = {evidence.place(rank) for rank in silent}
    reporting = {evidence.place(rank) for rank in evidence.stalled}
    if not hosts or silent_hosts <= reporting:
        return f"{names} did not report{alive}: a call blocks them", _DUMP
    ends = f"{_list_hosts(reporting - silent_hosts)} and {_list_hosts(silent_hosts)}"
    return (
        f"the network between {ends} fails, or a call blocks {names}, which did not report{alive}",
        _probe(hosts),
    )


def _list_hosts(hosts: set[str]) -> str:
    return ", ".join(sorted(hosts)) if 0 < len(hosts) <= MAX_HOSTS else f"{len(hosts)} hosts"


def _late_ranks(evidence: StallEvidence) -> tuple[str, str]:
    late = evidence.late()
    others = next(report for rank, report in evidence.stalled.items() if rank not in late)
    verb = "is" if len(late) == 1 else "are"
    message = (
        f"{evidence.names(late)} {verb} stuck at an earlier step ({_current_call(late)}),"
        f" the others wait in {others.phase_text}{_library_report(evidence)}"
    )
    return message, "on the host of that rank: dmesg | tail, top, nvidia-smi"


def _current_call(reports: Mapping[int, Stalled]) -> str:
    return " > ".join(next(iter(reports.values())).doing)


def _library_report(evidence: StallEvidence) -> str:
    for report in evidence.stalled.values():
        if report.library:
            return f"\nNCCL reports:\n{report.library}"
    return ""


def _same_step(evidence: StallEvidence) -> tuple[str, str]:
    """The cause where all ranks wait at the same step."""
    message = (
        f"no rank is late: all {len(evidence.stalled)} wait at the same step"
        f" ({_current_call(evidence.stalled)}), so the network or the library is stuck"
        f"{_library_report(evidence)}"
    )
    option = "--launch-limit" if evidence.is_starting() else "--limit"
    hint = (
        "ip -s link   (on each host: errors and drops), then the same run with NCCL_DEBUG=INFO, or"
        f" more time: {option} 600"
    )
    return message, hint


def _broken(evidence: StallEvidence, broken: Mapping[int, str]) -> str:
    by_state: dict[str, list[int]] = {}
    for rank, state in sorted(broken.items()):
        by_state.setdefault(STATES.get(state, state), []).append(rank)
    return ", ".join(
        f"{evidence.names(ranks)} {'is' if len(ranks) == 1 else 'are'} {state}"
        for state, ranks in by_state.items()
    )


def _helpers(evidence: StallEvidence) -> str:
    verb = "is" if len(evidence.helpers) == 1 else "are"
    return f"{' and '.join(map(str, evidence.helpers))} {verb} stopped"


def _and_silent(evidence: StallEvidence) -> str:
    """`, and rank 3 on h2 does not report any more`; '' if all ranks report or none does."""
    silent = evidence.silent() if evidence.stalled else []
    if not silent:
        return ""
    verb = "does" if len(silent) == 1 else "do"
    return f", and {evidence.names(silent)} {verb} not report any more"


def _broken_hint(evidence: StallEvidence, broken: Mapping[int, str]) -> str:
    rank, state = min(broken.items())
    if state == FROZEN:
        return _THAW
    if state in STOPPED:
        return _RESUME
    host = evidence.host_of(rank)
    ssh = f"ssh {host} " if host else ""
    return f"{ssh}dmesg | tail   (out of memory, or killed by a user)"


def _links_down(evidence: StallEvidence, links_down: Mapping[str, list[str]]) -> tuple[str, str]:
    links = " and ".join(
        f"{', '.join(names)} on {host}" for host, names in sorted(links_down.items())
    )
    host, names = min(links_down.items())
    return (
        f"the link of {links} went down{_and_silent(evidence)}",
        f"ip -brief link; ethtool {names[0]}   (on {host}: cable, switch port, driver)",
    )


def _probe(hosts: list[str]) -> str:
    if len(hosts) == 1:
        return (
            f"ssh -o BatchMode=yes -o ConnectTimeout=5 {hosts[0]} true   (then ping it over the"
            " network of --ifname)"
        )
    return probe_command(hosts)
