"""What keeps a rank from waiting for ever: a thread that sees how far the rank has come, and reports when it comes no further.

It looks twice a second, and reads what the timed loop leaves behind anyway: an operation is not made longer by being watched. The end of
another rank of this host wakes it too: what breaks then, breaks because of that. A call that holds the interpreter's lock keeps the
thread from speaking; the launcher's own limits and the other ranks cover that.
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
from busbw.core.reports import Gone, Here, Report, Stalled, Working
from busbw.host import carrier, process
from busbw.launch import interfaces
from busbw.measure.progress import Pace, Progress

GATHERING = frozenset({"start", "rendezvous"})  # ranks of this host are still coming
MEET_S = 0.1  # between looks for them
STARTING = frozenset({"rendezvous", "init", "prepare"})  # they share one deadline: --launch-limit, from the rank's start on
GRACE_S = 8.0  # for the launcher to conclude and end the job; then the rank ends by itself
POLL_S = 0.5  # between two looks
AWAY_S = 2.0  # later than that: this process was stopped itself
HEARTBEAT_S = 3600.0  # without a limit
FRAMES = 3
WORK_S = 1.0  # between two reports of what rank 0 is doing

Tell = Callable[[Report], None]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank is: `step` counts places, `since` is of the monotonic clock; `allowed_s` may pass until it comes further."""

    step: int
    phase: str
    detail: str
    since: float
    allowed_s: float = math.inf
    progress: Progress | None = None

    def seen(self) -> tuple[int, tuple[int, int]]:
        """Differs from what it was before where the rank came further."""
        return self.step, self.progress.completed() if self.progress else (0, 0)


class Watchdog:
    """Watches the main thread of rank `rank`. `tell` gets what is to be said.

    A rank that nobody ends exits with `code`, after its parent where that is one of the `daemons` (by name) that could outlive the job.
    """

    def __init__(
        self,
        rank: int,
        limit_s: float,
        start_limit_s: float,
        tell: Tell,
        *,
        daemons: tuple[str, ...] = (),
        code: int = Exit.UNKNOWN,
        progress: bool = False,
    ) -> None:
        self._host, self._rank, self._tell = os.uname().nodename, rank, tell
        self._daemons, self._code = daemons, code
        self._reports_work, self._worked = progress and rank == 0, time.monotonic()
        self._pace = Pace(limit_s)
        now = time.monotonic()
        self._start_deadline = now + start_limit_s if start_limit_s else math.inf
        self.place = Place(0, "start", "", now)
        self.library: Callable[[], str] | None = None
        self._selected = interfaces.selected(os.environ.get(interfaces.VARIABLE, ""))
        self._linked = carrier.linked(self._selected)
        self._main = threading.main_thread().ident
        self._pause_s = min(POLL_S, *(limit / 4 for limit in (limit_s, start_limit_s) if limit), POLL_S)
        self._seen, self._moved, self._told = self.place.seen(), now, now
        self._over, self._starting = False, True
        self._poll = select.poll()
        self._others: dict[int, int] = {}  # descriptor of another process: its pid
        self._met = False

    def start(self) -> None:
        """Say that the rank is here, and begin to watch."""
        self._tell(self._here())
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def at(self, phase: str, detail: str = "", progress: Progress | None = None) -> None:
        """The rank is at a new place from now on."""
        now, before = time.monotonic(), self.place
        self._pace.learn(before.phase, before.progress, now - before.since)
        self._starting = self._starting and phase in STARTING
        allowed_s = self._start_deadline - now if self._starting else self._pace.allowed_s(phase, progress)
        self.place = Place(before.step + 1, phase, detail, now, allowed_s, progress)

    def stop(self) -> None:
        """Watch no longer."""
        self._over = True

    def _watch(self) -> None:
        while not self._over:
            place = self._look()
            if place is None or self._over:
                continue
            self._speak(place)
            time.sleep(GRACE_S)
            if self.place.seen() == self._seen and not self._over:
                self._leave()

    def _look(self) -> Place | None:
        """Sleep for a moment; the place, where the rank came no further within its limit. At times process 0 says that it is alive."""
        asked, pause_s = time.monotonic(), MEET_S if self.place.phase in GATHERING else self._pause_s
        # Not Condition.wait: with an older C library that waits by the time of day, which may jump.
        for descriptor, _ in self._poll.poll(math.ceil(pause_s * 1e3)):
            self._answer(descriptor)
        if not self._met:
            self._meet()
        now, place = time.monotonic(), self.place
        seen = place.seen()
        if now - asked > pause_s + AWAY_S:
            self._seen, self._moved = seen, now
        elif seen != self._seen:
            self._moved = place.since if seen[0] != self._seen[0] and not any(seen[1]) else now
            self._seen = seen
        if now - self._moved > place.allowed_s:
            return place
        if self._reports_work and now - self._worked > WORK_S:
            left_s = place.progress.left_s if place.progress else None
            left_s = None if left_s is None or left_s < now - place.since else left_s - (now - place.since)
            self._worked = now
            self._tell(Working(place.phase, place.detail, left_s))
        if self._rank == 0 and now - self._told > (self._pace.limit_s or HEARTBEAT_S):
            self._told = now
            self._tell(self._here())
        return None

    def _answer(self, descriptor: int) -> None:
        """The end of another process."""
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
        waited_s = time.monotonic() - self._moved
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
