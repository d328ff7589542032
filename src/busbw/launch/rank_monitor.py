"""The launcher's view of its ranks: which have started, which report that they are stuck, and when the job must end."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from busbw.core.errors import BusbwError
from busbw.core.reports import Gone, Here, Stalled, Working, decode
from busbw.host import carrier, process
from busbw.launch import agent, diagnosis, interfaces
from busbw.launch.exit_watcher import ExitWatcher
from busbw.launch.failures import signal_words

GATHER_S = 1.5  # from the first rank that stands still to the last: their limits began within one operation of each other
LIBRARY_S = 3.5  # and for what NCCL says of itself
ASK_S = 3.0  # for a host to answer; ranks wait longer than all of this before they end themselves
MARGIN_S = 3.0
LEAVING_S = 60.0  # for the launcher to end after its ranks have said their last
PROGRAM = "busbw"  # in the command line of every rank
LOOK_S = 0.5  # between two looks at the processes of this host
SURE_S = 1.0  # that a process is stopped: not for a moment, as a debugger or a profiler does it
ENDED_S = 5.0  # for the launcher to end a job that lost a process
AWAY_S = 2.0  # between two looks at the job: this process was stopped (Ctrl-Z), or whoever reads its output made it wait


@dataclass(slots=True)
class RankMonitor:
    """Follows a job of `ranks` processes (0: as many as come).

    `places` are the user's names of their hosts in order of rank, empty for this machine.
    `limit_s` and `start_limit_s` are those of the ranks (see Job), `gpus` gives what ranks run on once that is known;
    `ifname` is --ifname, whose interfaces are watched in addition to the default ones.
    """

    ranks: int
    places: tuple[str, ...]
    limit_s: float
    start_limit_s: float
    library: bool = False
    gpus: Callable[[], Mapping[int, str]] = dict
    here: dict[int, Here] = field(default_factory=dict)
    stalled: dict[int, Stalled] = field(default_factory=dict)
    gone: list[int] = field(default_factory=list)
    exits: ExitWatcher = field(default_factory=ExitWatcher)
    ifname: str = ""
    linked: frozenset[str] = field(init=False)
    begun: float = field(default_factory=time.monotonic)
    heard: float = 0.0
    looked: float = 0.0
    own: dict[int, int] = field(default_factory=dict)  # ranks that are processes of this host: their number
    halted: dict[int, tuple[float, str]] = field(default_factory=dict)  # ranks of this host that do not run: since when, state
    named: set[int] = field(default_factory=set)  # those that `changes` has reported
    seen: float = 0.0
    first_stalled: float = 0.0
    started: bool = False
    leaving: bool = False
    working: Callable[[Working], None] = lambda _: None

    def __post_init__(self) -> None:
        """Note the links that are there before the job."""
        self.linked = carrier.linked(interfaces.selected(self.ifname))

    def take(self, line: str) -> bool:
        """Whether a line of stderr was a report; it is noted."""
        told = decode(line)
        if told is None:
            return False
        self.heard = time.monotonic()
        if isinstance(told, Here):
            # In a container of this host the number would be another process's.
            if told.rank not in self.here and told.host == os.uname().nodename and PROGRAM in process.command(told.pid):
                self.own[told.rank] = told.pid
                self.exits.watch(told.rank, told.pid)
            self.here[told.rank] = told
        elif isinstance(told, Working):
            self.working(told)
        elif isinstance(told, Gone):
            self.gone += [rank for rank, here in self.here.items() if (here.host, here.pid) == (told.host, told.pid)]
        else:
            self.first_stalled = self.first_stalled or self.heard
            self.stalled[told.rank] = told
        return True

    def event(self, *, leaving: bool = False) -> None:
        """Rank 0 told something, so the sweep goes on, or is at its end: `leaving`."""
        self.heard, self.started, self.leaving = time.monotonic(), True, leaving
        self.stalled.clear()  # a row is done: whoever stood still does so no longer
        self.first_stalled = 0.0

    def verdict(self, *, queued: bool = False) -> BusbwError | None:
        """The error to end the job with, None as long as it may go on; asks hosts, for at most ASK_S, when it is to end.

        While the job waits in a scheduler's queue its time has not begun.
        """
        now = time.monotonic()
        self._back(now)
        if queued:
            self.begun = now
        if error := self._halted_for_long(now):
            return error
        if self.first_stalled:
            return self.conclude() if self._gathered(now) else None
        if not self.started:
            if self.start_limit_s and self.here and len(self.here) < self.ranks and now - self.begun > self.start_limit_s:
                return diagnosis.absent(self.evidence(), self.start_limit_s)
            late = len(self.here) >= max(self.ranks, 1) and now - self.heard > self.start_limit_s + MARGIN_S
            return self.conclude() if self.start_limit_s and late else None
        patience_s = 2 * self.limit_s + MARGIN_S if self.limit_s else LEAVING_S if self.leaving else 0
        return self.conclude() if patience_s and now - self.heard > patience_s else None

    def _back(self, now: float) -> None:
        """Time in which this process did not look is no silence of the ranks'."""
        away_s, self.looked = now - (self.looked or now), now
        if away_s > AWAY_S:
            self.begun, self.heard = min(self.begun + away_s, now), min(self.heard + away_s, now)
            self.halted.clear()

    def changes(self) -> list[str]:
        """What to tell at once, whatever the limit: ranks of this host that are stopped or have ended, and those that run again."""
        now, told = time.monotonic(), []
        if self.leaving or now - self.seen < LOOK_S:
            return []
        self.seen = now
        for rank, pid in self.own.items():
            state = process.state(pid)
            if state in process.STOPPED | process.ENDED:
                since, _ = self.halted[rank] = (self.halted.get(rank, (now, ""))[0], state)
                if now - since >= SURE_S and rank not in self.named:
                    self.named.add(rank)
                    told.append(f"{self._known().name(rank)} is {process.STATES[state]}{self._consequence(state)}")
                continue
            self.halted.pop(rank, None)
            if rank in self.named:
                self.named.remove(rank)
                told.append(f"{self._known().name(rank)} runs again")
        return told

    def _consequence(self, state: str) -> str:
        if state in process.ENDED:
            return ""
        limit_s = self.limit_s if self.started else self.start_limit_s
        return f": the run ends unless it goes on within {limit_s:g} s" if limit_s else ": the run waits for it"

    def _halted_for_long(self, now: float) -> BusbwError | None:
        """The error where the launcher does not end a job that lost a process, or nobody speaks because those who would are stopped."""
        limit_s = self.limit_s if self.started else self.start_limit_s
        for rank, (since, state) in self.halted.items():
            if state in process.ENDED and now - since > ENDED_S:
                return diagnosis.death(self._known(), rank)
            if state in process.STOPPED and limit_s and now - max(since, self.heard) > limit_s + MARGIN_S:
                return self.conclude()
        return None

    def conclude(self) -> BusbwError:
        """Why the job stands still."""
        silent_s = time.monotonic() - self.heard
        return diagnosis.conclude(self.evidence(), silent_s)

    def death(self, host: str = "") -> BusbwError | None:
        """The error for the rank that others saw end first: of those on `host`, where there are any. None where they saw none."""
        near = [rank for rank in self.gone if self.here[rank].host == host]
        return diagnosis.death(self._known(), (near or self.gone)[0]) if self.gone else None

    def fallen(self, signal: int) -> BusbwError | None:
        """The error where all that the launcher says is that a rank died of `signal`: the first of this host that ended."""
        return diagnosis.death(self._known(), self.exits.order[0], f"died of {signal_words(signal)}") if self.exits.order else None

    def _known(self) -> diagnosis.Evidence:
        return diagnosis.Evidence(self.ranks, self.here, {}, gpus=self.gpus(), places=self.places)

    def evidence(self) -> diagnosis.Evidence:
        """What the ranks said, and what the hosts of those that did not say of them."""
        states, unreachable = self._look()
        return diagnosis.Evidence(self.ranks, self.here, self.stalled, states, unreachable, self.gpus(), self.places, self._dark())

    def _dark(self) -> dict[str, list[str]]:
        """Interfaces of this host that have lost their link."""
        lost = carrier.lost(self.linked, interfaces.selected(self.ifname))
        return {os.uname().nodename: lost} if lost else {}

    def _gathered(self, now: float) -> bool:
        told = any(stalled.library for stalled in self.stalled.values())
        patience_s = LIBRARY_S if self.library and not told else GATHER_S
        return now - self.first_stalled > patience_s or (len(self.stalled) == (self.ranks or len(self.here)) and (told or not self.library))

    def _look(self) -> tuple[dict[int, str], frozenset[str]]:
        """States of the ranks that said nothing, and the hosts that do not answer."""
        own, states = os.uname().nodename, {}
        away: dict[str, list[int]] = {}
        for rank in self.here.keys() - self.stalled.keys():
            here = self.here[rank]
            place = self.places[rank] if rank < len(self.places) else ""
            if here.host == own:
                states[rank] = process.state(here.pid)
            elif place:
                away.setdefault(place, []).append(rank)
        answers = agent.states({place: [self.here[rank].pid for rank in ranks] for place, ranks in away.items()}, ASK_S)
        for place, ranks in away.items():
            answer = answers[place] or {}
            states |= {rank: answer[self.here[rank].pid] for rank in ranks if self.here[rank].pid in answer}
        return states, frozenset(place for place, answer in answers.items() if answer is None)
