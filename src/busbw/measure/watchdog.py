"""What keeps a rank from waiting for ever: it knows where the rank is, and tells when it has been there for too long.

A thread sleeps until the deadline of the present place. Nothing else runs beside a measurement: no wake-up takes the interpreter's lock
from it while places change in time. The end of another rank of this host wakes it too: what breaks then, breaks because of that. A call
that holds the lock keeps the thread from speaking; the launcher's own limits and the other ranks cover that.
"""

import math
import os
import select
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from busbw.core.exits import Exit
from busbw.core.reports import Gone, Here, Report, Stalled
from busbw.core.sampling import THROTTLED_TAKES, first
from busbw.core.sweep import SweepSpec
from busbw.host import carrier, process
from busbw.launch import interfaces

GATHERING = frozenset({"start", "rendezvous"})  # ranks of this host are still coming
MEET_S = 0.1  # between looks for them
STARTING = frozenset({"rendezvous", "init", "prepare"})  # they share one deadline: --launch-limit, from the rank's start on
GRACE_S = 8.0  # for the launcher to conclude and end the job; then the rank ends by itself
SLACK = 10.0  # how much longer than before a place may take, above --limit
SAMPLED = 2.0 * THROTTLED_TAKES  # and how much of the time for samples it may take on top of the limit
SLOWEST_BYTES_S = 1e8  # before anything is known of a size: 0.8 Gbit/s
FRAMES = 3

Tell = Callable[[Report], None]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank is: `step` counts places, `since` is of the monotonic clock, in seconds."""

    step: int
    phase: str
    detail: str
    since: float


class Pace:
    """How long a place of the sweep may take: `limit_s`, or more where operations of its size have been seen to take longer."""

    def __init__(self, spec: SweepSpec, limit_s: float) -> None:
        self.limit_s = limit_s
        self._operations = _operations(spec)
        self._sampled_s = SAMPLED * spec.sampling.max_time_s if spec.sampling else 0.0
        self._growth = max(spec.step_factor, 2)
        self._known: dict[str, float] = {}  # seconds an operation, by size
        self._latest: float | None = None
        self._first = spec.min_bytes / SLOWEST_BYTES_S

    def learn(self, place: Place, took_s: float) -> None:
        """A place of the sweep was left after `took_s`."""
        if place.phase in self._operations:
            self._latest = took_s / self._operations[place.phase]
            self._known[_size(place.detail)] = self._latest

    def allowed_s(self, phase: str, detail: str) -> float:
        """Seconds that a place may take; infinity without a limit."""
        if not self.limit_s:
            return math.inf
        count = self._operations.get(phase, 0)
        unknown = self._first if self._latest is None else self._latest * self._growth * SLACK
        known = self._known.get(_size(detail))
        likely = unknown if known is None else known * SLACK
        return max(self.limit_s, count * likely) + self._sampled_s


def _operations(spec: SweepSpec) -> dict[str, int]:
    """Operations a place runs, by phase."""
    if spec.sampling:
        timed = first(spec.sampling) * spec.agg_iters * THROTTLED_TAKES
    else:
        timed = spec.iters * spec.agg_iters * max(spec.cudagraph, 1)
    return {"warm-up": max(spec.warmup_iters, 1), "verify": max(spec.check, 1), "timing": max(timed, 1) + 1}


def _size(detail: str) -> str:
    return detail.partition(" ")[0]


class Watchdog:
    """Watches the main thread of rank `rank`. `tell` gets what is to be said.

    A rank that nobody ends exits with `code`, after its parent where that is one of the `daemons` (by name) that could outlive the job.
    """

    def __init__(
        self,
        rank: int,
        spec: SweepSpec,
        limit_s: float,
        start_limit_s: float,
        tell: Tell,
        *,
        daemons: tuple[str, ...] = (),
        code: int = Exit.UNKNOWN,
    ) -> None:
        self._host, self._rank, self._tell = os.uname().nodename, rank, tell
        self._daemons, self._code = daemons, code
        self._pace = Pace(spec, limit_s)
        now = time.monotonic()
        self._start_deadline = now + start_limit_s if start_limit_s else math.inf
        self.place = Place(0, "start", "", now)
        self.library: Callable[[], str] | None = None
        self._selected = interfaces.selected(os.environ.get(interfaces.VARIABLE, ""))
        self._linked = carrier.linked(self._selected)
        self._main = threading.main_thread().ident
        self._deadline, self._wakes = math.inf, math.inf
        self._bell = os.eventfd(0, os.EFD_NONBLOCK)
        self._over, self._starting = False, True
        self._poll = select.poll()
        self._poll.register(self._bell, select.POLLIN)
        self._others: dict[int, int] = {}  # descriptor of another process: its pid
        self._met = False

    def start(self) -> None:
        """Say that the rank is here, and begin to watch."""
        self._tell(self._here())
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def at(self, phase: str, detail: str = "") -> None:
        """The rank is at a new place from now on."""
        now, before = time.monotonic(), self.place
        self._pace.learn(before, now - before.since)
        self._starting = self._starting and phase in STARTING
        deadline = self._start_deadline if self._starting else now + self._pace.allowed_s(phase, detail)
        self.place, self._deadline = Place(before.step + 1, phase, detail, now), deadline
        if deadline < self._wakes or phase == "init":
            os.eventfd_write(self._bell, 1)

    def stop(self) -> None:
        """Watch no longer."""
        self._over, self._deadline = True, math.inf
        os.eventfd_write(self._bell, 1)

    def _watch(self) -> None:
        while not self._over:
            if not self._sleep():
                continue
            place = self.place
            self._speak(place)
            time.sleep(GRACE_S)
            if self.place == place and not self._over:
                self._leave()

    def _sleep(self) -> bool:
        """Sleep until the deadline as it is now; whether it has passed. Every `limit_s` it says that the rank is alive."""
        self._wakes = math.inf  # whatever deadline comes from here on rings the bell
        deadline, now = self._deadline, time.monotonic()
        if deadline <= now:
            return True
        longest = self._pace.limit_s or 3600.0
        self._wakes = min(deadline, now + longest)
        # Not Condition.wait: with an older C library that waits by the time of day, which may jump.
        pause_s = MEET_S if self.place.phase in GATHERING else math.inf
        rung = [descriptor for descriptor, _ in self._poll.poll(math.ceil(min(self._wakes - now, pause_s) * 1e3))]
        for descriptor in rung:
            self._answer(descriptor)
        if not self._met:
            self._meet()
        elif not rung and self._rank == 0 and self._deadline > time.monotonic():
            self._tell(self._here())
        return False

    def _answer(self, descriptor: int) -> None:
        """A new place, or the end of another process."""
        if descriptor == self._bell:
            os.eventfd_read(self._bell)
            return
        self._poll.unregister(descriptor)
        os.close(descriptor)
        pid = self._others.pop(descriptor)
        if self.place.phase != "teardown":
            self._tell(Gone(self._rank, self._host, pid))

    def _meet(self) -> None:
        """Watch the ranks of this host that have come, for the last time once all have."""
        self._met = self.place.phase not in GATHERING
        for pid in process.siblings().keys() - self._others.values():
            descriptor = process.watch(pid)
            if descriptor is not None:
                self._others[descriptor] = pid
                self._poll.register(descriptor, select.POLLIN)

    def _here(self) -> Here:
        return Here(self._rank, self._host, os.getpid())

    def _speak(self, place: Place) -> None:
        waited_s = time.monotonic() - place.since
        dark = carrier.lost(self._linked, self._selected)
        words = (self._rank, self._host, os.getpid(), place.phase, place.detail, place.step, waited_s, self._doing())
        neighbours = process.siblings()
        self._tell(Stalled(*words, neighbours, dark))
        if self.library is not None:
            self._tell(Stalled(*words, neighbours, dark, self.library()))

    def _doing(self) -> list[str]:
        """The main thread's innermost calls."""
        frame = sys._current_frames().get(self._main or 0)
        calls = traceback.extract_stack(frame, limit=None) if frame else []
        return [f"{Path(call.filename).name}:{call.lineno} {call.name}" for call in calls[-FRAMES:]]

    def _leave(self) -> None:
        """Nobody ended the job, so the launcher is out of reach: nothing of it may stay on this host."""
        parent = os.getppid()
        if process.name(parent) in self._daemons:
            process.kill(parent)  # its other ranks go with it: see process.die_with_parent
        os._exit(self._code)
