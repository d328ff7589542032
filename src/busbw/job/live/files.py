"""The folder of a capture as one host sees it, and the processes of its ranks that run there.

Each rank replaces its file `.rank_N.now` about once a second. A look opens those that changed, and
returns what is new in them. Ages and times are of this host's clocks alone.
"""

import os
import platform
import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from busbw.host import process, process_times
from busbw.host.busy_processes import BusyProcesses
from busbw.host.tcp_sockets import ProcessSockets
from busbw.job.live.connections import HostConnections
from busbw.job.live.host_watch import HostEvidence, HostReader, gpus_of, strangers
from busbw.job.live.local_process import LocalProcess
from busbw.job.live.rank_now import Identity, RankNow, decoded, new_steps
from busbw.job.live.rank_use import READ_EVERY_S, RankCounts, RankUse
from busbw.pattern import rank_ends
from busbw.pattern.unfinished import KEPT

NAME = re.compile(r"\.rank_.*\.now")
OTHERS_S = 10.0  # between readings of a file of another host's rank, unless it is asked for
RIVAL_S = 10.0  # after a file was seen to go back to a process that it had named before
USE_SHARE = 0.005  # of a CPU, to read what the processes use
OVERLAP = 2  # steps that are sent again: DDP times a step when the next one begins
BROKEN = (OSError, ValueError, RecursionError)  # msgspec's errors are ValueErrors


_OBJECT = msgspec.json.Decoder(dict[str, Any])


class RankNews(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is new of a rank. Times are in seconds.

    `pg_config` and `entries` are None if they are as before.
    """

    rank: int
    world: int
    host: str
    pid: int
    started: int
    launch: str
    ended: bool = False
    is_own: bool = False  # its process is on the host that read this, and not in a container
    age_s: float = 0.0  # of an own rank's file
    running_s: float = 0.0  # since an own rank's process was started
    doing_s: dict[str, float] = {}  # for how long it is in a part of a step
    steps: int = 0  # how many it has made
    step_end_ns: int = 0  # when the last of them ended, of its CLOCK_MONOTONIC; 0 if unknown
    step_age_s: float = 0.0  # since then, of an own rank
    first_step: int = 0  # of these:
    steps_us: list[float] = []
    waits_us: list[float | None] = []
    pg_status: dict[str, Any] = {}
    pg_config: dict[str, Any] | None = None
    entries: list[dict[str, Any]] | None = None

    @property
    def process(self) -> Identity:
        """What identifies its process."""
        return self.host, self.pid, self.started


class HostNews(msgspec.Struct, omit_defaults=True):
    """What one look of a host returns; by rank where it is a dictionary."""

    now_s: float = 0.0  # of its monotonic clock
    ranks: list[RankNews] = []
    states: dict[int, str] = {}  # of the own ranks' processes
    ends_s: dict[int, float] = {}  # when these ended
    ends_unix_s: dict[int, float] = {}  # the same in Unix seconds
    signals: dict[int, int] = {}  # that killed them, if that was seen
    codes: dict[int, int] = {}  # with which others exited
    order: int = 0  # the signal by which `busbw capture` was told to end the job
    others: list[int] = []  # ranks of other hosts, with files here
    rivals: dict[int, str] = {}  # the processes that write one file in turns
    uses: dict[int, RankCounts] = {}  # of all ranks that are read here; empty if not read anew
    host: HostEvidence | None = None  # None if not read anew
    unread: list[str] = []
    has_launcher: bool = False  # the parent of an own rank that has ended still runs
    is_kept: bool = False  # there is no rank's file, and busbw has made the pattern of the job


@dataclass(slots=True)
class _SentFile:
    """A rank's file as it was read last, and what was sent of it."""

    now: RankNow
    is_own: bool
    read_s: float
    is_sent: bool = False
    sent_steps: int = 0
    sent_config: bytes = b""
    sent_entries: bytes = b""
    process: LocalProcess | None = None  # of an own rank that was seen to run
    use: RankUse = field(default_factory=RankUse)
    launcher: tuple[int, int] | None = None  # the parent of an own rank: its pid and start
    earlier: dict[Identity, RankNow] = field(default_factory=dict)  # other processes that wrote it
    returned_s: float = -RIVAL_S


class HostFiles:
    """The files in `folder`, followed from look to look.

    `node` is the name of this host, `clock_ns` its clock.
    """

    def __init__(
        self, folder: Path, node: str = "", clock_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._folder, self._node, self._clock_ns = folder, node or platform.node(), clock_ns
        self._pid_namespace = str(Path("/proc/self/ns/pid").readlink())
        self._files: dict[str, _SentFile] = {}
        self._versions: dict[str, object] = {}  # what tells a version of a file from others
        self._broken: dict[str, str] = {}
        self._ends: dict[rank_ends.Identity, rank_ends.RankEnd] = {}  # that were noted
        self._captures: dict[rank_ends.Identity, tuple[int, int]] = {}  # who noted them
        self._host, self._busy = HostReader(), BusyProcesses()
        self._sockets, self._connections = ProcessSockets(), HostConnections(self._node)
        self._turn, self._next_use_s = -1, 0.0

    def look(self, wanted: Collection[int] | None = None, turn: int | None = None) -> HostNews:
        """What is new. Of other hosts' ranks only the `wanted` are read each time; None for all.

        What processes use is read once in each `turn`, by default of this host's clock.
        """
        now_s = time.monotonic()
        turn = turn_at(now_s) if turn is None else turn
        news = HostNews(now_s)
        names = set[str]()
        kept = False
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if NAME.fullmatch(entry.name):
                        names.add(entry.name)
                        self._read_changed(entry, wanted, now_s)
                    elif rank_ends.is_file(entry.name):
                        self._read_ends(entry)
                    kept |= entry.name == KEPT
        except OSError as error:
            news.unread.append(f"{self._folder}: {error.strerror}")
        news.is_kept = kept and not names
        news.unread += [
            f"{name}: {why}" for name, why in sorted(self._broken.items()) if name in names
        ]
        for name in sorted(self._files):
            self._add(self._files[name], wanted, news, now_s)
        is_due = turn != self._turn and now_s >= self._next_use_s
        if is_due and any(file.sent_steps for file in self._files.values()):
            self._turn, start_s = turn, time.process_time()
            self._take_use(now_s, news)
            self._next_use_s = now_s + (time.process_time() - start_s) / USE_SHARE
        return news

    def _take_use(self, now_s: float, news: HostNews) -> None:
        """What the processes of this host have used, and what all ranks have written."""
        news.host = self._host.evidence()
        news.host.turn = self._turn
        files = {file.now.rank: file for file in self._files.values()}
        pids = {rank: file.now.pid for rank, file in files.items() if self._runs_here(file)}
        gpus = gpus_of(news.host, pids)
        for gpu in news.host.gpus.values():
            gpu.strangers = strangers(gpu.last, pids)
        self._busy.take(now_s)
        busy = self._busy.most(pids.values())
        news.host.busy = busy and [replace(one, host=self._node) for one in busy]
        self._connections.take(now_s, self._sockets.read(pids.values(), now_s))
        news.host.paths = self._connections.evidence()
        for rank, file in files.items():
            times = process_times.read(pids[rank], now_s) if rank in pids else None
            file.use.take(now_s, times, file.now.counts(file.sent_steps))
            news.uses[rank] = file.use.counts(pids.get(rank, 0), gpus.get(rank, ""))

    def _runs_here(self, file: _SentFile) -> bool:
        return file.is_own and self._state(file.now) not in process.ENDED

    def _read_changed(
        self, entry: "os.DirEntry[str]", wanted: Collection[int] | None, now_s: float
    ) -> None:
        file = self._files.get(entry.name)
        if file and not _is_wanted(file, wanted) and now_s < file.read_s + OTHERS_S:
            return
        try:
            status = entry.stat()
            version = status.st_ino, status.st_mtime_ns, status.st_size
            if self._versions.get(entry.name) == version:
                return
            with Path(entry.path).open("rb") as opened:
                self._take(entry.name, opened.read(), now_s)
        except FileNotFoundError:  # it is being replaced
            return
        except BROKEN as error:
            self._broken[entry.name] = str(error)
        else:
            self._broken.pop(entry.name, None)
        self._versions[entry.name] = version

    def _read_ends(self, entry: "os.DirEntry[str]") -> None:
        """The ends that `busbw capture` noted."""
        version = entry.stat().st_mtime_ns
        if self._versions.get(entry.name) != version:
            self._versions[entry.name] = version
            noted = rank_ends.read(Path(entry.path))
            ends = noted.last() if noted else {}
            self._ends |= ends
            if noted:
                self._captures |= dict.fromkeys(ends, (noted.pid, noted.started))

    def _take(self, name: str, data: bytes, now_s: float) -> None:
        """The content of a file; ValueError if it is cut off, or of another version."""
        now = decoded(data)
        is_own = now.host == self._node and now.pid_namespace == self._pid_namespace
        before = self._files.get(name)
        if before and before.now.process == now.process:
            before.now, before.is_own, before.read_s, before.is_sent = now, is_own, now_s, False
            return
        self._files[name] = file = _SentFile(now, is_own, now_s)
        if before:
            file.earlier = before.earlier | {before.now.process: before.now}
            if file.earlier.pop(now.process, None):
                file.returned_s = now_s
        if not is_own or not self._state(now):
            return
        launcher = process.parent(now.pid)
        file.launcher = launcher, process.start_time(launcher)
        file.process = LocalProcess(now.pid)

    def _add(
        self, file: _SentFile, wanted: Collection[int] | None, news: HostNews, now_s: float
    ) -> None:
        rank = file.now.rank
        if file.is_own:
            news.states[rank] = state = self._state(file.now)
            if state in process.ENDED:
                self._add_end(file, news)
        else:
            news.others.append(rank)
        rival = self._rival(file, now_s)
        if rival:
            news.rivals[rank] = rival
        if file.is_sent or not _is_wanted(file, wanted):
            return
        file.is_sent = True
        try:
            news.ranks.append(self._news(file))
        except BROKEN as error:
            news.unread.append(f".rank_{rank}.now: {error}")

    def _add_end(self, file: _SentFile, news: HostNews) -> None:
        """When the process ended and how, and whether its launcher still runs."""
        now, rank = file.now, file.now.rank
        identity = now.host, now.pid_namespace, now.pid, now.started
        # `busbw capture` waits for a launcher of which no rank was seen to run
        pid, started = file.launcher or self._captures.get(identity, (0, 0))
        news.has_launcher |= pid > 1 and 0 < started == process.start_time(pid)
        local = file.process
        noted = self._ends.get(identity)
        end_s = local.ended_s() if local else None
        if noted:
            news.ends_unix_s[rank] = noted.unix_s
        elif end_s is not None:
            news.ends_unix_s[rank] = self._clock_ns() / 1e9 - (time.monotonic() - end_s)
        if noted and noted.order:  # all were told to end, and may have taken their time
            news.order, end_s = noted.order, None
        elif noted and end_s is None:
            end_s = noted.end_s
        if end_s is not None:
            news.ends_s[rank] = end_s
        for end in (noted, local):
            if end and end.signal:
                news.signals[rank] = end.signal
            if end and end.code:
                news.codes[rank] = end.code

    def _news(self, file: _SentFile) -> RankNews:
        now = file.now
        first, steps, waits = new_steps(now, file.sent_steps - OVERLAP)
        news = RankNews(
            rank=now.rank,
            world=now.world,
            host=now.host,
            pid=now.pid,
            started=now.started,
            launch=now.launch,
            ended=now.ended,
            is_own=file.is_own,
            doing_s=now.doing_s,
            steps=first + len(steps),
            step_end_ns=now.step_end_ns,
            first_step=first,
            steps_us=steps,
            waits_us=waits,
            pg_status=_OBJECT.decode(now.pg_status),
        )
        if file.is_own:
            news.age_s = (self._clock_ns() - now.written_ns) / 1e9
            up_s = time.clock_gettime(time.CLOCK_BOOTTIME)
            if now.step_end_ns:
                news.step_age_s = max(0.0, time.monotonic() - now.step_end_ns / 1e9)
            news.running_s = up_s - now.started / os.sysconf("SC_CLK_TCK")
        config, entries = bytes(now.pg_config), bytes(now.entries)
        if config != file.sent_config:
            news.pg_config = _OBJECT.decode(config)
        if entries != file.sent_entries:
            news.entries = msgspec.json.decode(entries, type=list[dict[str, Any]])
        file.sent_steps, file.sent_config, file.sent_entries = news.steps, config, entries
        return news

    def _state(self, now: RankNow) -> str:
        """The state of an own rank's process."""
        if process.start_time(now.pid) != now.started:
            return process.GONE
        return process.state(now.pid)

    def _rival(self, file: _SentFile, now_s: float) -> str:
        """The two processes that write a file in turns; '' for one."""
        for other in file.earlier.values():
            is_here = (other.host, other.pid_namespace) == (self._node, self._pid_namespace)
            runs = is_here and self._state(other) not in process.ENDED
            if runs or now_s < file.returned_s + RIVAL_S:
                both = sorted([file.now.process, other.process])
                return " and ".join(f"process {pid} on {host}" for host, pid, _ in both)
        return ""


def turn_at(clock_s: float) -> int:
    """The turn of a moment. Asked with the same turn, several hosts read the same moment."""
    return int(clock_s / READ_EVERY_S)


def _is_wanted(file: _SentFile, wanted: Collection[int] | None) -> bool:
    return file.is_own or wanted is None or file.now.rank in wanted
