"""Following a launcher to its end: what its ranks tell goes to the output, and whatever goes wrong ends as an error that names it."""

import os
import re
import time
from collections.abc import Callable, Sequence

import msgspec

from busbw.cli.output import Output
from busbw.cli.streams import talk
from busbw.core.errors import BusbwError, StartFailed
from busbw.core.exits import Exit
from busbw.core.sizes import short_size
from busbw.engines.registry import AUTO
from busbw.launch import job, slurm
from busbw.launch.failures import aborting_host, died, in_order, known
from busbw.launch.hosts import Host
from busbw.launch.rank_monitor import RankMonitor
from busbw.measure.events import Ended, Event, Failed, Note, Started, decode, failure
from busbw.measure.job import Job

TAIL_LINES = 60
SIGNALLED = 128  # mpirun's exit code when a rank died of signal N is this plus N
ABORT_S = 10.0  # for the launcher to end the job after a rank said why it failed


class RankFailed(BusbwError):
    """A rank gave up and said why; its exit code and kind are kept."""

    def __init__(self, failed: Failed) -> None:
        # What cannot be meant is the same on all ranks.
        where = f"rank {failed.rank} on {failed.host}: " if failed.rank >= 0 and failed.exit != Exit.USAGE else ""
        super().__init__(where + failed.message, failed.hint)
        self.exit, self.kind = Exit(failed.exit), failed.kind


class Follower:
    """One launched job: `places` are the hosts named by the user, with their slots, `ifname` is --ifname."""

    def __init__(self, work: Job, output: Output, places: Sequence[Host] = (), ifname: str = "") -> None:
        self.output, self.hosts = output, [place.name for place in places]
        of_rank = tuple(place.name for place in places for _ in range(place.slots))
        library = work.engine in ("nccl", AUTO)
        self.roll = RankMonitor(work.ranks, of_rank, work.limit_s, work.start_limit_s, library, self._gpus, ifname=ifname)
        self.queue = slurm.Queue()
        self._framing = Framing()
        self._tail: list[str] = []
        self._failures: list[Failed] = []
        self._failed_at = 0.0
        self._after_death = False  # a rank had ended before the first that says why it fails

    def follow(self, argv: list[str], launch_limit_s: float) -> None:
        """Run the launcher; RankFailed or NoMeasurement when it does not end well."""
        status = job.run(
            argv,
            os.environ,
            self._on_line,
            self._on_talk,
            launch_limit_s,
            self.hosts,
            verdict=self._verdict,
            heard=lambda: bool(self.roll.here),
            queued=lambda: self.queue.waiting,
        )
        error = self._why(status)
        if error:
            raise error

    def _on_line(self, line: bytes) -> None:
        try:
            event: Event = decode(line)
        except msgspec.DecodeError:
            self._on_talk(line)
            return
        if not isinstance(event, Note):
            self.roll.event(leaving=isinstance(event, Ended))
        if isinstance(event, Started):
            self.roll.library = event.result.library.engine == "nccl"  # known at last where the ranks chose it
        self.output.take(event)

    def _on_talk(self, line: bytes) -> None:
        text = line.decode(errors="replace").replace("\0", "").rstrip()  # mpirun 5 writes stray NULs
        failed = failure(text)
        if failed:
            self._after_death = self._after_death or (not self._failures and bool(self.roll.gone))
            self._failures.append(failed)
            self._failed_at = self._failed_at or time.monotonic()
        if failed or self.roll.take(text):
            return
        self._tail.append(text)
        del self._tail[:-TAIL_LINES]
        self.queue.take(text)
        if not self._framing(text) and not slurm.own_line(text):
            talk(text)

    def _verdict(self) -> BusbwError | None:
        """The error to end a job with that does not end by itself."""
        if self._failures:
            return RankFailed(self._failures[0]) if time.monotonic() - self._failed_at > ABORT_S else None
        for change in self.roll.changes():
            talk(f"note: {change}")
        return self.roll.verdict(queued=self.queue.waiting)

    def _why(self, status: int) -> BusbwError | None:
        """The error that a job ended with by itself."""
        text = in_order("\n".join(self._tail), self.roll.gone)
        if status == 0 and self.output.record.result.complete and not self._failures:
            return None
        # A rank that dies breaks the others' connections: what they say of that is not the cause, and one may abort before the
        # launcher has seen the death.
        death = job.explain(status, text, self.hosts) if died(text) else None
        if death is None and (self._after_death or not self._failures):
            death = self.roll.death(aborting_host(text))
        if death is None and self._failures:
            return RankFailed(min(self._failures, key=lambda failed: failed.exit == Exit.BUG))
        if death is None and self.roll.stalled:
            return self.roll.conclude()
        fallen = self.roll.fallen(status - SIGNALLED) if status > SIGNALLED else None
        error = death or known(text, self.hosts) or fallen or job.explain(status, text, self.hosts)
        error.message += self._reached()
        return error

    def _reached(self) -> str:
        result = self.output.record.result
        if result.rows:
            return f", after the row of {short_size(result.rows[-1].size_bytes)}"
        if result.training:
            runs = result.training.runs
            return f", after the method {runs[-1].method}" if runs else ", before the first method was done"
        return ", before the first row" if self.roll.started else ""

    def _gpus(self) -> dict[int, str]:
        devices = self.output.record.result.world.devices
        return {device.rank: f"GPU {device.index}" for device in devices if device.bus}


def follow(argv: list[str], launch_limit_s: float, make: Callable[[], Follower]) -> None:
    """Follow the job that `argv` starts to its end; once more where its ranks did not come to start, of a fault that passes."""
    try:
        make().follow(argv, launch_limit_s)
    except StartFailed as error:
        talk(f"note: {error.message}; started once more")
        make().follow(argv, launch_limit_s)


_DELAY = re.compile(r"\[\S+:\d+\] Delaying for \d+ seconds before aborting")
_DASHES = re.compile(r"-{70,}")  # Open MPI's frames have 74, and 76
FRAME_LINES = 40  # the longest of its messages is shorter
_STARRED = re.compile(r"(\[\S+:\d+\]) \*\*\* (An error occurred in Socket closed)?")


class Framing:
    """Tells the launcher's own messages from what the ranks say: those between lines of dashes, and what Open MPI's other ranks write
    when one has died, which only repeats that."""

    def __init__(self) -> None:
        self._left = 0  # lines that the open frame may still hold
        self._echo = ""  # the prefix of such a rank's lines

    def __call__(self, text: str) -> bool:
        """Whether a line of stderr is one of these, or empty."""
        starred = _STARRED.match(text)
        if starred and starred.group(2):
            self._echo = starred.group(1)
        if _DELAY.match(text) or (starred and starred.group(1) == self._echo):
            return True
        if _DASHES.fullmatch(text):
            self._left = 0 if self._left else FRAME_LINES
            return True
        inside, self._left = self._left > 0, max(self._left - 1, 0)
        return inside or not text.strip()
