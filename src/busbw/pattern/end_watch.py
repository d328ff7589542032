"""Notes when the ranks of a capture end, while `busbw capture` waits for the command that it ran.

The kernel wakes a thread when the process of a rank of this host ends, by its descriptor
(pidfd_open(2)): the ranks take no notice of it. How a process ended is in /proc until its launcher
has collected it.
"""

import contextlib
import os
import platform
import select
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Self

import msgspec

from busbw.host import process
from busbw.pattern.rank_ends import VERSION, HostEnds, RankEnd, file_name
from busbw.pattern.unfinished import NOW, RankProcess, rank_process

# Between looks for ranks that have begun: LEAST_S until one has, then a tenth of the time since the
# last one began or ended.
LEAST_S, MOST_S, SHARE = 0.5, 10.0, 0.1
ELSEWHERE_S = 30.0  # between readings of the file of a rank of another host
MOST_ENDS = 10_000  # of a job that is started again and again
JOIN_S = 5.0


@dataclass(slots=True)
class _RankProgram:
    """A rank's file as it was read last."""

    read_s: float
    process: RankProcess
    begin_s: float = 0.0  # of CLOCK_MONOTONIC, of a process of this host
    descriptor: int | None = None  # while it runs


class EndWatch:
    """Notes the ends of the ranks of this host while it is entered. Nothing is written without."""

    def __init__(self, folder: Path, launch: str) -> None:
        self._folder, self._file = folder, folder / file_name(launch)
        self._own = platform.node(), str(Path("/proc/self/ns/pid").readlink())
        self._ranks: dict[str, _RankProgram] = {}  # by the name of its file
        self._ends: list[RankEnd] = []
        self._order = 0
        self._changed_s = time.monotonic()  # when a rank began or ended
        self._stop, self._stopped = os.pipe2(os.O_CLOEXEC)
        self._thread = Thread(target=self._watch, name="rank ends", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Note what has ended until now."""
        os.close(self._stopped)
        self._thread.join(JOIN_S)

    def note_order(self, number: int) -> None:
        """The job is to end, by this signal."""
        self._order = self._order or number

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._stop, select.POLLIN)
        is_open = True
        while is_open:
            self._look(poll)
            events = poll.poll(1e3 * self._pause_s())
            ready = {descriptor for descriptor, _ in events}
            is_open = self._stop not in ready
            self._note(poll, ready)
        for rank in self._ranks.values():
            if rank.descriptor is not None:
                os.close(rank.descriptor)
        os.close(self._stop)

    def _pause_s(self) -> float:
        """Until the next look, if no rank ends before."""
        if not self._ranks:
            return LEAST_S
        return min(MOST_S, max(LEAST_S, SHARE * (time.monotonic() - self._changed_s)))

    def _look(self, poll: "select.poll") -> None:
        """Watch the ranks that have begun."""
        now_s = time.monotonic()
        with contextlib.suppress(OSError):
            for path in self._folder.glob(NOW):
                if not self._is_known(path.name, now_s):
                    self._begin(path, now_s, poll)

    def _is_known(self, name: str, now_s: float) -> bool:
        """Whether nothing new is expected in a file. After an end a rank may be started again."""
        rank = self._ranks.get(name)
        if rank is None:
            return False
        is_here = self._is_here(rank.process)
        return rank.descriptor is not None or (not is_here and now_s < rank.read_s + ELSEWHERE_S)

    def _is_here(self, of: RankProcess) -> bool:
        return (of.host, of.pid_namespace) == self._own

    def _begin(self, path: Path, now_s: float, poll: "select.poll") -> None:
        of = rank_process(path)
        if of is None:
            return
        self._ranks[path.name] = rank = _RankProgram(now_s, of)
        if not self._is_here(of):
            return
        descriptor = process.watch(of.pid)
        if descriptor is None:
            return
        if process.start_time(of.pid) != of.started:  # the pid is another one's by now
            os.close(descriptor)
            return
        running_s = time.clock_gettime(time.CLOCK_BOOTTIME) - of.started / process.TICKS
        rank.begin_s = time.monotonic() - running_s
        rank.descriptor, self._changed_s = descriptor, now_s
        poll.register(descriptor, select.POLLIN)

    def _note(self, poll: "select.poll", ready: set[int]) -> None:
        """Write the ends of the processes with these descriptors."""
        end_s, unix_s = time.monotonic(), time.time()
        ended = [rank for rank in self._ranks.values() if rank.descriptor in ready]
        for rank in ended:
            of = rank.process
            number, code = process.exit_status(of.pid)  # at once: a launcher collects it soon
            end = RankEnd(
                rank=of.rank,
                pid=of.pid,
                started=of.started,
                begin_s=rank.begin_s,
                end_s=end_s,
                unix_s=unix_s,
                signal=number,
                code=code,
                order=self._order,
            )
            self._ends.append(end)
        for rank in ended:
            if rank.descriptor is not None:
                poll.unregister(rank.descriptor)
                os.close(rank.descriptor)
            rank.descriptor, self._changed_s = None, end_s
        if ended:
            self._write()

    def _write(self) -> None:
        """Replace the file. A full disk disturbs no training."""
        host, pid_namespace = self._own
        self._ends = self._ends[-MOST_ENDS:]
        pid = os.getpid()
        content = HostEnds(
            version=VERSION,
            host=host,
            pid_namespace=pid_namespace,
            pid=pid,
            started=process.start_time(pid),
            ends=self._ends,
        )
        part = self._file.with_name(f"{self._file.name}.part")
        with contextlib.suppress(OSError):
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(content))
            part.replace(self._file)
