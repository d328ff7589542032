"""The launcher of an elastic job.

It starts workers on the slots of this host, forms worlds of those that are ready, and replaces lost
ones. A world is a set of workers that train together. It ends when one of its workers is lost, or
when the launcher asks rank 0 to make room for changes. Each worker then asks for the next world.

The number of slots is fixed, or it is the answer of a host discovery script, which runs every
second.
"""

import contextlib
import os
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from busbw.core.errors import BusbwError, NoMeasurement, UsageError
from busbw.launch import hosts, remote
from busbw_accel.horovod.elastic import processes
from busbw_accel.horovod.elastic.processes import WorkerProcess, WorkerState

PERIOD_S, SCRIPT_LIMIT_S = 1.0, 30.0
TICK_S = 0.1
START_LIMIT_S = 60.0  # a world is formed without new workers that take longer
END_LIMIT_S = 5.0  # between SIGTERM and SIGKILL


def parse(text: str, default_slots: int, source: str) -> int:
    """The number of slots in a script's output.

    Its lines are `host:slots`, or `host` for `default_slots`. A host may have 0 slots.

    Raises UsageError for a line that is not a host, and for another host.
    """
    slots = 0
    for line in map(str.strip, text.splitlines()):
        if not line or line.endswith(":0"):
            continue
        for host in hosts.parse_hosts(line):
            if not remote.is_local(host.name):
                raise UsageError(
                    f"{source}: {host.name} is not this host, and the workers of an elastic job run"
                    " on one host",
                    "for several hosts, start the script with torchrun, which restarts all ranks"
                    " from the last commit",
                )
            slots += host.slots or default_slots
    return slots


class Script:
    """Runs a discovery script from a thread. `slots()` is its last valid answer."""

    def __init__(self, command: str, default_slots: int) -> None:
        """Run the script once. `command`: a file, or words as in a shell.

        Raises UsageError if that fails.
        """
        self._source, self._default = f"--host-discovery-script {command}", default_slots
        try:
            if Path(command).is_file():
                self._words = [str(Path(command).absolute())]
            else:
                self._words = shlex.split(command)
        except ValueError as error:
            raise UsageError(f"{self._source}: {error}", "write words as in a shell") from error
        self._slots = self._run_script()
        self._stopped = threading.Event()
        threading.Thread(target=self._repeat, name="host discovery", daemon=True).start()

    def slots(self) -> int:
        return self._slots

    def stop(self) -> None:
        self._stopped.set()

    def _run_script(self) -> int:
        (answer,) = remote.run(["localhost"], self._words, SCRIPT_LIMIT_S)
        if answer.problem:
            raise UsageError(
                f"{self._source}: {answer.problem}",
                "make it executable, and let it print one line per host: localhost:4",
            )
        return parse(answer.out.decode(errors="replace"), self._default, self._source)

    def _repeat(self) -> None:
        reported = ""
        while not self._stopped.wait(PERIOD_S):
            try:
                self._slots = self._run_script()
                reported = ""
            except BusbwError as error:  # the last answer stays valid
                if str(error) != reported:
                    reported = str(error)
                    sys.stderr.write(
                        f"busbw horovodrun: {reported}; {self._slots} slots stay in use\n"
                    )


class Slots:
    """The slots that workers may use.

    A slot whose worker has failed is out of use, for ever or for a time that grows.
    """

    def __init__(self, count: Callable[[], int], cooldown_s: tuple[int, int] | None) -> None:
        """`cooldown_s`: the first and the longest time out of use; None: for ever."""
        self.count, self._cooldown_s = count, cooldown_s
        self._failures: dict[int, int] = {}
        self._until_s: dict[int, float] = {}

    def fail(self, slot: int, now_s: float) -> None:
        """Take a slot out of use, since its worker has failed."""
        self._failures[slot] = self._failures.get(slot, 0) + 1
        self._until_s[slot] = float("inf")
        if self._cooldown_s is not None:
            first, longest = self._cooldown_s
            self._until_s[slot] = now_s + min(longest, first * 2 ** (self._failures[slot] - 1))

    def usable(self, now_s: float) -> list[int]:
        """Slots for new workers, in order."""
        return [slot for slot in range(self.count()) if self._until_s.get(slot, 0.0) <= now_s]


@dataclass(frozen=True, slots=True)
class Limits:
    """How many workers train together, and how long or often the job may wait or change."""

    first: int  # workers of the first world
    least: int  # workers of a later world, at least
    most: int  # workers of a world, at most
    timeout_s: float  # for too few slots, and for a worker that does not answer
    resets: int | None  # worlds after the first; None: no limit


class Launcher:
    """One job. `run` returns its exit code. `end` must be called after `run`, also if it fails."""

    def __init__(
        self, argv: Sequence[str], environ: Mapping[str, str], slots: Slots, limits: Limits
    ) -> None:
        self._argv, self._environ, self._slots, self._limits = argv, environ, slots, limits
        self._workers: list[WorkerProcess] = []
        self._worlds = 0
        self._change_sent = False  # rank 0 knows that the workers should change
        self._code = 0  # exit code of the last worker that failed
        self._finished_s: float | None = None  # when the first worker ended with 0
        self._short_s: float | None = None  # since when workers are too few

    def run(self) -> int:
        """Run until all workers have ended.

        Returns 0, or the exit code of the worker that failed last (128 + N for signal N).

        Raises NoMeasurement: too few slots, too many worlds, or a worker that does not end.
        """
        while True:
            self._reap()
            if self._has_lost_state() or (self._finished_s is not None and not self._workers):
                return self._code
            if self._finished_s is not None:
                self._finish(self._finished_s)
            else:
                self._start_workers()
                self._form_world()
            self._listen()

    def _reap(self) -> None:
        ended = [worker for worker in self._workers if worker.process.poll() is not None]
        for worker in ended:
            self._workers.remove(worker)
            worker.close()
            code = worker.process.returncode
            if worker.state is WorkerState.LEAVING:
                continue
            if code == 0:
                if self._finished_s is None:
                    self._finished_s, self._code = time.monotonic(), 0
            else:
                self._code = code if code > 0 else 128 - code
                self._slots.fail(worker.slot, time.monotonic())
                ending = f"ended with {code}" if code > 0 else f"was killed by signal {-code}"
                _print(f"{worker} {ending}")

    def _has_lost_state(self) -> bool:
        """Whether all workers that had the state of the training have failed.

        New workers would begin the training again.
        """
        remaining = [
            worker
            for worker in self._workers
            if worker.state is not WorkerState.LEAVING and (worker.rank >= 0 or not self._worlds)
        ]
        return self._code != 0 and self._finished_s is None and not remaining

    def _start_workers(self) -> None:
        staying = self._staying_workers()
        occupied = {worker.slot for worker in self._workers}
        free = [slot for slot in self._slots.usable(time.monotonic()) if slot not in occupied]
        for slot in free[: max(0, self._limits.most - len(staying))]:
            self._workers.append(processes.start(self._argv, self._environ, slot))

    def _staying_workers(self) -> list[WorkerProcess]:
        count = self._slots.count()
        return [
            worker
            for worker in self._workers
            if worker.slot < count and worker.state is not WorkerState.LEAVING
        ]

    def _form_world(self) -> None:
        """Form a world if all workers on slots are ready.

        While a world runs, ask rank 0 to make room for changes instead.
        """
        staying, now_s = self._staying_workers(), time.monotonic()
        ready = [worker for worker in staying if worker.state is WorkerState.READY]
        running = [worker for worker in self._workers if worker.state is WorkerState.RUNNING]
        coming = [
            worker
            for worker in staying
            if worker.state is WorkerState.STARTING and now_s - worker.since_s < START_LIMIT_S
        ]
        if running:
            leaving = any(worker not in staying for worker in running)
            if (leaving or ready) and not coming and not self._change_sent:
                for worker in running:
                    if worker.rank == 0:
                        processes.send(worker.link, processes.CHANGED)
                        self._change_sent = True
            self._stop_silent(running)
            return
        least = self._limits.least if self._worlds else self._limits.first
        if len(ready) < least:
            self._short_s = self._short_s or now_s
            if not coming:
                self._wait_for_slots(len(ready), least, now_s - self._short_s)
        elif not coming:
            members = sorted(ready, key=lambda worker: (worker.rank < 0, worker.rank, worker.slot))
            self._start_world(members[: self._limits.most])

    def _wait_for_slots(self, ready: int, least: int, waited_s: float) -> None:
        """Wait for more workers, up to a limit.

        Workers that are ready keep the state of the training meanwhile, even those without a slot.
        """
        if waited_s > self._limits.timeout_s:
            slots, limit_s = self._slots.count(), self._limits.timeout_s
            raise NoMeasurement(
                f"{ready} of at least {least} workers are ready, of {slots} slots, {limit_s:g} s"
                " after a change",
                "free more slots, or give a smaller --min-np",
            )

    def _stop_silent(self, running: Sequence[WorkerProcess]) -> None:
        """Kill workers that do not ask for a new world.

        Others of their world have asked for it, and have waited for the limit.
        """
        waiting = (
            worker
            for worker in self._workers
            if worker.state is WorkerState.READY and worker.rank >= 0
        )
        waited_s = max((time.monotonic() - worker.since_s for worker in waiting), default=0.0)
        if waited_s > self._limits.timeout_s:
            for worker in running:
                if worker.killed:
                    continue
                _print(f"{worker} did not join a new world within {self._limits.timeout_s:g} s")
                worker.signal(signal.SIGKILL)
                worker.killed = True

    def _start_world(self, members: Sequence[WorkerProcess]) -> None:
        if self._limits.resets is not None and self._worlds > self._limits.resets:
            raise NoMeasurement(
                f"the workers have changed more than {self._limits.resets} times",
                "give a larger --reset-limit",
            )
        self._worlds += 1
        self._change_sent, self._short_s = False, None
        store = os.memfd_create("busbw-horovod")
        slots = ", ".join(str(worker.slot) for worker in members)
        plural = "s" if len(members) > 1 else ""
        _print(f"world {self._worlds}: {len(members)} rank{plural} on slot{plural} {slots}")
        for worker in self._workers:
            if worker.state is WorkerState.READY and worker not in members:
                worker.leave()
        for rank, worker in enumerate(members):
            worker.rank = rank
            worker.become(WorkerState.RUNNING)
            place = {
                "number": self._worlds,
                "rank": rank,
                "size": len(members),
                "local_rank": worker.slot,
            }
            processes.send(worker.link, processes.WORLD, [store], **place)
        os.close(store)

    def _finish(self, since_s: float) -> None:
        """Let the workers end, since one has done its work. No worker joins a new world."""
        for worker in self._workers:
            if worker.state is WorkerState.READY:
                worker.leave()
            elif worker.state is WorkerState.STARTING:
                worker.signal(signal.SIGKILL)
                worker.become(WorkerState.LEAVING)
        if time.monotonic() - since_s > self._limits.timeout_s and self._workers:
            ranks = ", ".join(str(worker.rank) for worker in self._workers)
            raise NoMeasurement(
                f"rank {ranks} did not end within {self._limits.timeout_s:g} s after another",
                "see what it waits for",
            )

    def _listen(self) -> None:
        """Receive messages for one tick."""
        links = {worker.link: worker for worker in self._workers}
        for link in select.select(list(links), [], [], TICK_S)[0]:
            received = links[link].reader.read()
            if received is None:  # it is about to end
                time.sleep(TICK_S / 10)
            for message in received or ():
                if message["kind"] == processes.READY:
                    links[link].become(WorkerState.READY)

    def end(self) -> None:
        for worker in self._workers:
            worker.signal(signal.SIGTERM)
        end_s = time.monotonic() + END_LIMIT_S
        while time.monotonic() < end_s and self._is_running():
            time.sleep(TICK_S / 10)
        for worker in self._workers:
            worker.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(END_LIMIT_S)

    def _is_running(self) -> bool:
        return any(worker.process.poll() is None for worker in self._workers)


def _print(text: str) -> None:
    sys.stderr.write(f"busbw horovodrun: {text}\n")
    sys.stderr.flush()
