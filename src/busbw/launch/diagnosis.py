"""Why a job makes no progress, concluded from the reports of its ranks and the state of their hosts. Pure functions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from busbw.core.errors import NoMeasurement, TimedOut
from busbw.core.reports import Here, Stalled
from busbw.host.process import ENDED, GONE, STATES, STOPPED

MOST_NAMED = 8
_DUMP = "py-spy dump --pid PID   (on such a rank's host)"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a job of `ranks` ranks that stands still.

    `here` are those that started and `stalled` those that said they stand still, by rank; `states` are the processes' state letters as
    their own host shows them; `unreachable` are hosts that gave no answer, in the user's words; `gpus` name what a rank runs on;
    `places` are the user's names of the hosts of all ranks, in order of rank (empty: this machine); `dark` are the launching host's
    interfaces that lost their link.
    """

    ranks: int
    here: Mapping[int, Here]
    stalled: Mapping[int, Stalled]
    states: Mapping[int, str] = field(default_factory=dict)
    unreachable: frozenset[str] = frozenset()
    gpus: Mapping[int, str] = field(default_factory=dict)
    places: tuple[str, ...] = ()
    dark: Mapping[str, list[str]] = field(default_factory=dict)

    def broken(self) -> dict[int, str]:
        """Ranks whose process is stopped or ended, with its state; from their host's own view, else from their neighbours'."""
        found = {rank: state for rank, state in self.states.items() if state in ENDED | STOPPED}
        for told in self.stalled.values():
            for rank, other in self.here.items():
                state = told.neighbours.get(other.pid) if other.host == told.host else None
                if state in ENDED | STOPPED and rank not in self.states:
                    found[rank] = state
        return found

    def unlinked(self) -> dict[str, list[str]]:
        """Interfaces that lost their link while the job ran, by host."""
        return {**self.dark, **{told.host: told.dark for told in self.stalled.values() if told.dark}}

    def silent(self) -> list[int]:
        """Ranks that started and have not said that they stand still."""
        return sorted(self.here.keys() - self.stalled.keys())

    def late(self) -> dict[int, Stalled]:
        """Ranks that came less far than others, where there are any, by what they said."""
        first = min((told.step for told in self.stalled.values()), default=0)
        found = {rank: told for rank, told in self.stalled.items() if told.step == first}
        return found if len(found) < len(self.stalled) else {}

    def name(self, rank: int) -> str:
        """`rank 3 on h2 (GPU 1, pid 77)`, with what is known."""
        here = self.here.get(rank)
        host = here.host if here else self.place(rank)
        inside = ", ".join(filter(None, (self.gpus.get(rank, ""), f"pid {here.pid}" if here else "")))
        return f"rank {rank}" + (f" on {host}" if host else "") + (f" ({inside})" if inside else "")

    def names(self, ranks: Iterable[int]) -> str:
        """`ranks 2, 3 on h2` and so on, by host; a single rank with all that is known of it."""
        every = sorted(ranks)
        if len(every) == 1:
            return self.name(every[0])
        by_host: dict[str, list[int]] = {}
        for rank in every:
            here = self.here.get(rank)
            by_host.setdefault(here.host if here else self.place(rank), []).append(rank)
        return " and ".join(_listed(some) + (f" on {host}" if host else "") for host, some in by_host.items())

    def place(self, rank: int) -> str:
        """The user's name of a rank's host."""
        return self.places[rank] if rank < len(self.places) else ""


def _listed(ranks: list[int]) -> str:
    words = ", ".join(map(str, ranks[:MOST_NAMED])) + (f" and {len(ranks) - MOST_NAMED} more" if len(ranks) > MOST_NAMED else "")
    return f"rank {words}" if len(ranks) == 1 else f"ranks {words}"


def conclude(seen: Evidence, waited_s: float) -> TimedOut:
    """The error to end with. What is certain goes first: a process that cannot run; then, where all ranks report, the one that is
    behind; a link that went, a host that is cut off; and where nobody is late or silent, that all stand together."""
    where = _where(seen, waited_s)
    message, hint = _cause(seen)
    return TimedOut(f"{where}: {message}", hint)


def absent(seen: Evidence, limit_s: float) -> TimedOut:
    """The error when some ranks never started."""
    missing = [rank for rank in range(seen.ranks) if rank not in seen.here]
    hosts = sorted({seen.place(rank) for rank in missing} - {""})
    hint = _probe(hosts) if hosts else "run the line that --dry-run prints by hand"
    broken, dark = seen.broken(), seen.unlinked()
    also = f"; {_broken(seen, broken)}" if broken else ""
    if dark:
        link, hint = _dark(seen, dark)
        also += f"; {link}"
    return TimedOut(f"launch: {seen.names(missing)} did not start within {limit_s:g} s, {len(seen.here)} of {seen.ranks} did{also}", hint)


def death(seen: Evidence, rank: int, how: str = "exited without an error message") -> NoMeasurement:
    """The error when a rank's process ended and its launcher did not say which."""
    return NoMeasurement(f"{seen.name(rank)} {how}", _broken_hint(seen, {rank: GONE}))


def _where(seen: Evidence, waited_s: float) -> str:
    # Ranks may run ahead of one that is late, and then wait in a later place: what does not end is the earliest.
    first = min(seen.stalled.values(), key=lambda told: told.step, default=None)
    if first is None:
        return f"nothing was heard for {waited_s:.0f} s"
    return f"{first.place} made no progress for {first.waited_s:.0f} s"


def _cause(seen: Evidence) -> tuple[str, str]:
    broken = seen.broken()
    if broken:
        return _broken(seen, broken), _broken_hint(seen, broken)
    dark, silent = seen.unlinked(), seen.silent()
    if seen.late() and not silent:
        message, hint = _behind(seen)
        return message + (f"; {_dark(seen, dark)[0]} meanwhile" if dark else ""), hint
    if dark:
        return _dark(seen, dark)
    cut = [rank for rank in silent if seen.place(rank) in seen.unreachable]
    if cut:
        hosts = sorted({seen.place(rank) for rank in cut})
        return f"{seen.names(cut)} cannot be reached: nothing is heard from there, and the launch agent gets no answer", _probe(hosts)
    if silent and seen.stalled:
        hosts = sorted({seen.place(rank) for rank in silent} - {""})
        alive = " though alive" if all(rank in seen.states for rank in silent) else ""
        why = "the network between them and the others, or a call that blocks them" if hosts else "a call that blocks them"
        return f"{seen.names(silent)} did not report{alive}: {why}", _probe(hosts) if hosts else _DUMP
    if silent:
        return f"{seen.names(silent)} say nothing, not even where they are", _DUMP
    return _together(seen)


def _behind(seen: Evidence) -> tuple[str, str]:
    late = seen.late()
    others = next(told for rank, told in seen.stalled.items() if rank not in late)
    stuck = f"{seen.names(late)} {'is' if len(late) == 1 else 'are'} stuck at an earlier step ({_doing(late)})"
    return f"{stuck}, the others wait in {others.place}{_library(seen)}", "look at that rank's host: dmesg | tail, top, nvidia-smi"


def _doing(told: Mapping[int, Stalled]) -> str:
    return " > ".join(next(iter(told.values())).doing)


def _library(seen: Evidence) -> str:
    says = next((told.library for told in seen.stalled.values() if told.library), "")
    return f"\nNCCL says:\n{says}" if says else ""


def _together(seen: Evidence) -> tuple[str, str]:
    doing, says = _doing(seen.stalled), _library(seen)
    message = f"no rank is late: all {len(seen.stalled)} wait there ({doing}), so the network or the library stands still{says}"
    return message, "ip -s link   (on each host: errors and drops), then the same run with NCCL_DEBUG=INFO, or more time: --limit 600"


def _broken(seen: Evidence, broken: Mapping[int, str]) -> str:
    by_state: dict[str, list[int]] = {}
    for rank, state in sorted(broken.items()):
        by_state.setdefault(STATES.get(state, state), []).append(rank)
    return ", ".join(f"{seen.names(ranks)} {'is' if len(ranks) == 1 else 'are'} {state}" for state, ranks in by_state.items())


def _broken_hint(seen: Evidence, broken: Mapping[int, str]) -> str:
    rank, state = min(broken.items())
    host = seen.place(rank)
    ssh = f"ssh {host} " if host else ""
    if state in STOPPED:
        return "somebody, a debugger or the scheduler stopped it (SIGSTOP): let it run, and start again"
    return f"{ssh}dmesg | tail   (out of memory, or killed by somebody)"


def _dark(seen: Evidence, dark: Mapping[str, list[str]]) -> tuple[str, str]:
    links = " and ".join(f"{', '.join(names)} on {host}" for host, names in sorted(dark.items()))
    silent = seen.silent() if seen.stalled else []
    cut = f", and {seen.names(silent)} {'is' if len(silent) == 1 else 'are'} not heard any more" if silent else ""
    host, names = min(dark.items())
    return f"the link of {links} went down{cut}", f"ip -brief link; ethtool {names[0]}   (on {host}: cable, switch port, driver)"


def _probe(hosts: list[str]) -> str:
    if len(hosts) == 1:
        return f"ssh -o BatchMode=yes -o ConnectTimeout=5 {hosts[0]} true   (then ping it over the network of --ifname)"
    return f"for h in {' '.join(hosts)}; do ssh -o BatchMode=yes -o ConnectTimeout=5 $h hostname; done"
