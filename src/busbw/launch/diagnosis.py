"""Diagnoses why a job makes no progress, from the reports of its ranks and the state of their
hosts.

Pure functions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from busbw.core.errors import NoMeasurement, TimedOut
from busbw.core.rank_messages import Here, Stalled
from busbw.host.process import ENDED, GONE, STATES, STOPPED
from busbw.launch import packet_loss
from busbw.launch.failures import DRY_RUN_HINT

MAX_NAMED, MAX_HOSTS = 8, 3  # ranks, hosts
_RESUME = (
    "a user, a debugger or the scheduler stopped it (SIGSTOP): look for who did it, and start the"
    " run again"
)
_DUMP = "py-spy dump --pid PID   (on such a rank's host)"


@dataclass(frozen=True, slots=True)
class Helper:
    """A stopped process that starts and ends ranks: mpirun, a `daemon` of it on another host, or
    the agent that started that.
    """

    host: str
    name: str
    pid: int
    daemon: bool = False

    def __str__(self) -> str:
        """`prted on h2 (pid 5), which starts and ends the ranks there`."""
        return (
            f"{self.name} on {self.host} (pid"
            f" {self.pid}){', which starts and ends the ranks there,' if self.daemon else ''}"
        )


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about a stalled job of `ranks` ranks.

    By rank: `here` are the ranks that started, `stalled` the stall reports, `states` the state
    letters of processes from their own host, and `gpus` the devices. `hosts` are the user's names
    of the hosts of all ranks, in order of rank (empty: this machine). `unreachable` are hosts,
    under the user's names, that gave no answer. `links_down` are interfaces of the launching host
    that lost their link. `found` are ranks that exist but have not reported their start, and
    `helpers` are stopped.
    """

    ranks: int
    here: Mapping[int, Here]
    stalled: Mapping[int, Stalled]
    states: Mapping[int, str] = field(default_factory=dict)
    unreachable: frozenset[str] = frozenset()
    gpus: Mapping[int, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    links_down: Mapping[str, list[str]] = field(default_factory=dict)
    found: Mapping[int, Here] = field(default_factory=dict)
    helpers: Sequence[Helper] = ()

    def broken(self) -> dict[int, str]:
        """Ranks whose process is stopped or has exited, with its state.

        The host's own view outranks that of local_processes.
        """
        found = {rank: state for rank, state in self.states.items() if state in ENDED | STOPPED}
        for report in self.stalled.values():
            for rank, other in self.here.items():
                state = report.local_processes.get(other.pid) if other.host == report.host else None
                if state in ENDED | STOPPED and rank not in self.states:
                    found[rank] = state
        return found

    def unlinked(self) -> dict[str, list[str]]:
        """Interfaces that lost their link while the job ran, by host."""
        return {
            **self.links_down,
            **{
                report.host: report.links_down
                for report in self.stalled.values()
                if report.links_down
            },
        }

    def silent(self) -> list[int]:
        """Ranks that started but sent no stall report."""
        return sorted(self.here.keys() - self.stalled.keys())

    def late(self) -> dict[int, Stalled]:
        """The reports of ranks that are at an earlier step than others; empty if all are at the
        same step.
        """
        first = min((report.step for report in self.stalled.values()), default=0)
        found = {rank: report for rank, report in self.stalled.items() if report.step == first}
        return found if len(found) < len(self.stalled) else {}

    def name(self, rank: int) -> str:
        """`rank 3 on h2 (GPU 1, pid 77)`, as far as known."""
        here = self.here.get(rank) or self.found.get(rank)
        host = self.place(rank)
        inside = ", ".join(
            filter(None, (self.gpus.get(rank, ""), f"pid {here.pid}" if here else ""))
        )
        return f"rank {rank}" + (f" on {host}" if host else "") + (f" ({inside})" if inside else "")

    def names(self, ranks: Iterable[int]) -> str:
        """`ranks 2, 3 on h2 and rank 4 on h3`, grouped by host; a single rank as `name` writes
        it.
        """
        every = sorted(ranks)
        if len(every) == 1:
            return self.name(every[0])
        by_host: dict[str, list[int]] = {}
        for rank in every:
            by_host.setdefault(self.place(rank), []).append(rank)
        return " and ".join(
            _listed(some) + (f" on {host}" if host else "") for host, some in by_host.items()
        )

    def place(self, rank: int) -> str:
        """The host's own name for a rank that started, else the user's."""
        here = self.here.get(rank) or self.found.get(rank)
        return here.host if here else self.host_of(rank)

    def hosts_of(self, ranks: Iterable[int]) -> list[str]:
        """The hosts of these ranks as the user named them, sorted; none for this machine."""
        return sorted({self.host_of(rank) for rank in ranks} - {""})

    def host_of(self, rank: int) -> str:
        """The user's name of a rank's host; '' for this machine."""
        return self.hosts[rank] if rank < len(self.hosts) else ""


def _listed(ranks: list[int]) -> str:
    text = ", ".join(map(str, ranks[:MAX_NAMED])) + (
        f" and {len(ranks) - MAX_NAMED} more" if len(ranks) > MAX_NAMED else ""
    )
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"


def conclude(seen: Evidence, waited_s: float, leaving_s: float | None = None) -> TimedOut:
    """The error that ends the job; `waited_s` is the time since the last report, `leaving_s` that
    since the result is complete.

    Causes in order of certainty: a process that cannot run, a late rank if all ranks report, a lost
    link, an unreachable host, a rank that does not report, and finally the network or the library.
    """
    message, hint = _cause(seen)
    return TimedOut(f"{_where(seen, waited_s, leaving_s)}: {message}", hint, options=["limit"])


def absent(seen: Evidence, limit_s: float) -> TimedOut:
    """The error when some ranks never started."""
    missing = [rank for rank in range(seen.ranks) if rank not in seen.here]
    broken, links_down = seen.broken(), seen.unlinked()
    limit = f"within {limit_s:g} s, {len(seen.here)} of {seen.ranks} did"
    if missing and all(broken.get(rank) in STOPPED for rank in missing):
        return TimedOut(f"launch: {_broken(seen, broken)}: not started {limit}", _RESUME)
    hosts = seen.hosts_of(missing)
    hint = _probe(hosts) if hosts else DRY_RUN_HINT
    also = f"; {_broken(seen, broken)}" if broken else ""
    if seen.helpers:
        also, hint = f"{also}; {_helpers(seen)}", _RESUME
    if links_down:
        link, hint = _links_down(seen, links_down)
        also += f"; {link}"
    message = f"launch: {seen.names(missing)} did not start {limit}{also}"
    return TimedOut(message, hint, options=["dry_run"])


def death(seen: Evidence, rank: int, how: str = "exited without an error message") -> NoMeasurement:
    """The error when a rank exited and the launcher did not report which one."""
    return NoMeasurement(f"{seen.name(rank)} {how}", _broken_hint(seen, {rank: GONE}))


def _where(seen: Evidence, waited_s: float, leaving_s: float | None) -> str:
    if leaving_s is not None:
        return (
            f"everything was measured, but the job did not end within {leaving_s:.0f} s and was"
            " killed"
        )
    # Other ranks may run ahead of a late one and wait at a later step. The earliest step is the one
    # that does not end.
    first = min(seen.stalled.values(), key=lambda report: report.step, default=None)
    if first is None:
        return f"no rank has reported for {waited_s:.0f} s"
    return f"{first.phase_text} made no progress for {first.waited_s:.0f} s"


def _cause(seen: Evidence) -> tuple[str, str]:
    broken = seen.broken()
    if seen.helpers and not any(state in STOPPED for state in broken.values()):
        # ranks that cannot report any more end themselves after a while
        return _helpers(seen), _RESUME
    if broken:
        return _broken(seen, broken), _broken_hint(seen, broken)
    links_down, silent = seen.unlinked(), seen.silent()
    if seen.late() and not silent:
        message, hint = _behind(seen)
        meanwhile = (
            _links_down(seen, links_down)[0]
            if links_down
            else packet_loss.describe(seen.stalled, seen.here, seen.hosts)[0]
        )
        return message + (f"; meanwhile {meanwhile}" if meanwhile else ""), hint
    if links_down:
        return _links_down(seen, links_down)
    lost, look = packet_loss.describe(seen.stalled, seen.here, seen.hosts)
    if lost:
        return (
            lost
            + (
                f", and {seen.names(silent)} {_do(silent)} not report any more"
                if silent and seen.stalled
                else ""
            ),
            look,
        )
    cut = [rank for rank in silent if seen.host_of(rank) in seen.unreachable]
    if cut:
        hosts = seen.hosts_of(cut)
        return (
            (
                f"{seen.names(cut)} cannot be reached: they do not report, and the launch agent"
                " gets no answer"
            ),
            _probe(hosts),
        )
    if silent and seen.stalled:
        return _mute(seen, silent)
    if silent:
        return f"{seen.names(silent)} do not report", _DUMP
    return _together(seen)


def _mute(seen: Evidence, silent: Sequence[int]) -> tuple[str, str]:
    """Some ranks report and these do not."""
    alive = " although alive" if all(rank in seen.states for rank in silent) else ""
    said = f"{seen.names(silent)} did not report{alive}"
    hosts = seen.hosts_of(silent)
    if not hosts:
        return f"{said}: a call blocks them", _DUMP
    others = sorted(
        {seen.place(rank) for rank in seen.stalled} - {seen.place(rank) for rank in silent}
    )
    ends = ", ".join(others) if 0 < len(others) <= MAX_HOSTS else "the others"
    return f"{said}: the network between them and {ends} fails, or a call blocks them", _probe(
        hosts
    )


def _behind(seen: Evidence) -> tuple[str, str]:
    late = seen.late()
    others = next(report for rank, report in seen.stalled.items() if rank not in late)
    stuck = (
        f"{seen.names(late)} {'is' if len(late) == 1 else 'are'} stuck at an earlier step"
        f" ({_doing(late)})"
    )
    return (
        f"{stuck}, the others wait in {others.phase_text}{_library(seen)}",
        "on the host of that rank: dmesg | tail, top, nvidia-smi",
    )


def _doing(reports: Mapping[int, Stalled]) -> str:
    return " > ".join(next(iter(reports.values())).doing)


def _library(seen: Evidence) -> str:
    report = next((one.library for one in seen.stalled.values() if one.library), "")
    return f"\nNCCL reports:\n{report}" if report else ""


def _together(seen: Evidence) -> tuple[str, str]:
    message = (
        f"no rank is late: all {len(seen.stalled)} wait at the same step ({_doing(seen.stalled)}),"
        f" so the network or the library is stuck{_library(seen)}"
    )
    hint = (
        "ip -s link   (on each host: errors and drops), then the same run with NCCL_DEBUG=INFO, or"
        " more time: --limit 600"
    )
    return message, hint


def _broken(seen: Evidence, broken: Mapping[int, str]) -> str:
    by_state: dict[str, list[int]] = {}
    for rank, state in sorted(broken.items()):
        by_state.setdefault(STATES.get(state, state), []).append(rank)
    return ", ".join(
        f"{seen.names(ranks)} {'is' if len(ranks) == 1 else 'are'} {state}"
        for state, ranks in by_state.items()
    )


def _helpers(seen: Evidence) -> str:
    return (
        " and ".join(map(str, seen.helpers))
        + f" {'is' if len(seen.helpers) == 1 else 'are'} stopped"
    )


def _do(ranks: list[int]) -> str:
    return "does" if len(ranks) == 1 else "do"


def _broken_hint(seen: Evidence, broken: Mapping[int, str]) -> str:
    rank, state = min(broken.items())
    host = seen.host_of(rank)
    ssh = f"ssh {host} " if host else ""
    if state in STOPPED:
        return _RESUME
    return f"{ssh}dmesg | tail   (out of memory, or killed by a user)"


def _links_down(seen: Evidence, links_down: Mapping[str, list[str]]) -> tuple[str, str]:
    links = " and ".join(
        f"{', '.join(names)} on {host}" for host, names in sorted(links_down.items())
    )
    silent = seen.silent() if seen.stalled else []
    cut = f", and {seen.names(silent)} {_do(silent)} not report any more" if silent else ""
    host, names = min(links_down.items())
    return (
        f"the link of {links} went down{cut}",
        f"ip -brief link; ethtool {names[0]}   (on {host}: cable, switch port, driver)",
    )


def _probe(hosts: list[str]) -> str:
    if len(hosts) == 1:
        return (
            f"ssh -o BatchMode=yes -o ConnectTimeout=5 {hosts[0]} true   (then ping it over the"
            " network of --ifname)"
        )
    return (
        f"for h in {' '.join(hosts)}; do ssh -o BatchMode=yes -o ConnectTimeout=5 $h hostname; done"
    )
