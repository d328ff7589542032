"""Reads the folder of a capture while its job runs.

Each rank replaces its file `.rank_N.now` about once a second. Only those that changed are opened,
to be read. Ranks are compared as seldom as keeps that below COMPARING_SHARE of a CPU.
"""

import os
import platform
import select
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any

import msgspec

from busbw.core.lateness import GRADIENTS, Lateness
from busbw.core.sizes import span
from busbw.host import process
from busbw.job.live.types import JobLook, LiveRank, StepTimes
from busbw.pattern.capture import FILE
from busbw.pattern.collector import Collector
from busbw.pattern.lateness.judge import JobRanks, lateness
from busbw.pattern.lateness.waits import StepWaits
from busbw.pattern.pending_collective import Outstanding, of_dumps
from busbw.pattern.readers import json_recovery

NOW_GLOB, VERSION = ".rank_*.now", 1
COMPARING_SHARE = 0.01
EARLIER_S = 60.0  # clocks of hosts differ by less
ONLY_NCCL = "only files of the profiler plugin are there, of ranks without PyTorch: not watched yet"
WINDOWS_S = (10.0, 30.0)  # in which ranks are compared: a late rank is so in both
LEAST_STEPS, MOST_STEPS = 50, 600  # of the window
EARLIER_STEPS = 3000  # before the window, whose median is the usual time
KEPT_STEPS = EARLIER_STEPS + MOST_STEPS
CONFIDENCE = 0.9999  # that no rank is named by chance in a window; many follow each other


class RankNow(msgspec.Struct, kw_only=True):
    """`.rank_N.now` (pattern/recorder/busbw_rank_now.py)."""

    version: int
    rank: int
    world: int
    host: str
    pid: int
    started: int
    pid_namespace: str
    launch: str
    ended: bool
    written_ns: int
    first_step: int = 0
    steps_us: list[float] = []
    waits_us: list[float | None] = []
    pg_config: dict[str, Any]
    pg_status: dict[str, Any]
    entries: list[dict[str, Any]]

    def dump(self) -> dict[str, Any]:
        """Its part in the form of a dump of the Flight Recorder."""
        return {name: getattr(self, name) for name in ("pg_config", "pg_status", "entries")}

    def call(self) -> str:
        """The first call that has not ended, by its name or number; '' if there is none."""
        for entry in self.entries:
            if not entry.get("retired") and entry.get("state") != "completed":
                return str(entry.get("profiling_name", ""))
        for group in self.pg_status:
            last, done = self.last_call(group), self._number(group, "last_completed_collective")
            if last is not None and done is not None and last > done:
                return f"call {done + 1} of group {group}"
        return ""

    def last_call(self, group: str) -> int | None:
        """The number of the last call in a process group; None if that is unknown."""
        return self._number(group, "last_enqueued_collective")

    def _number(self, group: str, name: str) -> int | None:
        status = self.pg_status.get(group)
        value = status.get(name) if isinstance(status, dict) else None
        return value if isinstance(value, int) else None

    def progress(self) -> Hashable:
        """What changes when the rank calls, or a call or step of it ends."""
        return repr(self.pg_status), self.steps()

    def steps(self) -> int:
        """How many steps the rank has made."""
        return self.first_step + len(self.steps_us)


@dataclass(slots=True)
class _WatchedRank:
    """A rank, with its last steps by number."""

    now: RankNow
    written_s: float  # when the file was seen to change
    moved_s: float  # when it was seen to make progress
    stopped_s: float | None = None  # since when it is seen stopped
    times_us: dict[int, float] = field(default_factory=dict)
    waits_us: dict[int, float] = field(default_factory=dict)
    end_s: float | None = None  # when its process was seen to end, at once

    def wait_for_end(self, descriptor: int) -> None:
        """Note when the process of a pidfd ends."""
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll()
        self.end_s = time.monotonic()
        os.close(descriptor)

    def take(self, now: RankNow, now_s: float) -> None:
        """The file as it is now."""
        if self.now.progress() != now.progress():
            self.moved_s = now_s
        self.now, self.written_s = now, now_s
        for at, (time_us, wait_us) in enumerate(
            zip(now.steps_us, now.waits_us, strict=False), now.first_step
        ):
            self.times_us[at] = time_us
            if wait_us is not None:  # DDP times a step when the next one begins
                self.waits_us[at] = wait_us
        for kept in (self.times_us, self.waits_us):
            for at in list(kept)[:-KEPT_STEPS]:
                del kept[at]


class JobFolder:
    """The folder of a capture, followed from look to look."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ranks: dict[int, _WatchedRank] = {}
        self._seen: dict[Path, Hashable] = {}  # what told a version of the file from others
        self._times: StepTimes | None = None
        self._next_comparison_s = 0.0
        self._pid_namespace = str(Path("/proc/self/ns/pid").readlink())

    def look(self, clock: float | None = None) -> JobLook:
        """The job now; `clock` is that of time.monotonic."""
        now_s = time.monotonic() if clock is None else clock
        look = JobLook()
        for path in sorted(self._folder.glob(NOW_GLOB)):
            if self._has_changed(path):
                self._read_now(path, now_s, look.unread)
        self._leave_out_others(look.unread)
        if now_s >= self._next_comparison_s:
            start_s = time.process_time()
            self._times = self._compare()
            took_s = time.process_time() - start_s
            self._next_comparison_s = now_s + took_s / COMPARING_SHARE
        if not self._ranks:
            look.is_kept = (self._folder / FILE).exists()
            if any(self._folder.glob("*.capture")):
                look.unread.append(ONLY_NCCL)
        look.world = max((rank.now.world for rank in self._ranks.values()), default=0)
        look.ranks = {number: self._rank(self._ranks[number], now_s) for number in self._ranks}
        look.pending = self._pending()
        look.times = self._times
        return look

    def _has_changed(self, path: Path) -> bool:
        try:
            status = path.stat()
        except OSError:
            return False
        version = status.st_ino, status.st_mtime_ns, status.st_size
        changed = self._seen.get(path) != version
        self._seen[path] = version
        return changed

    def _read_now(self, path: Path, now_s: float, unread: list[str]) -> None:
        try:
            now = msgspec.json.decode(path.read_bytes(), type=RankNow)
        except (OSError, *json_recovery.BROKEN) as error:
            unread.append(f"{path.name}: {error}")
            return
        if now.version != VERSION:
            unread.append(f"{path.name}: version {now.version}; this busbw reads {VERSION}")
            return
        before = self._ranks.get(now.rank)
        if before is None or before.now.pid != now.pid:
            self._ranks[now.rank] = before = _WatchedRank(now, now_s, now_s)
            descriptor = process.watch(now.pid) if self._state(now) else None
            if descriptor is not None:
                Thread(target=before.wait_for_end, args=(descriptor,), daemon=True).start()
        before.take(now, now_s)

    def _leave_out_others(self, unread: list[str]) -> None:
        """Leave out the ranks of an earlier launch. Each host may have launched its own ranks."""
        newest = max(
            (rank.now for rank in self._ranks.values()),
            key=lambda now: now.written_ns,
            default=None,
        )
        for number, rank in list(self._ranks.items()):
            now = rank.now
            if newest is None or (now.launch, now.world) == (newest.launch, newest.world):
                continue
            older_s = (newest.written_ns - now.written_ns) / 1e9
            if older_s > EARLIER_S and not self._state(now):
                unread.append(
                    f"rank {number}: of another launch, and {span(older_s)} older: left out"
                )
                del self._ranks[number]

    def _compare(self) -> StepTimes | None:
        """The last steps that all ranks have which make any; None without any."""
        ranks = [rank for rank in self._ranks.values() if rank.times_us]
        if not ranks:
            return None
        shared = set(ranks[0].times_us).intersection(*(rank.times_us for rank in ranks))
        numbers = sorted(shared)
        if not numbers:
            return None
        times_us = {at: median(rank.times_us[at] for rank in ranks) for at in numbers}
        recent, window = (_window(numbers, times_us, seconds) for seconds in WINDOWS_S)
        earlier = [times_us[at] for at in numbers[: -len(window)]]
        timed = [at for at in window if all(at in rank.waits_us for rank in ranks)]
        late = _late(ranks, timed, times_us)
        now_late = _late(ranks, [at for at in timed if at >= recent[0]], times_us)
        if late and now_late:
            named = {one.rank for one in now_late.late}
            kept = [one for one in late.late if one.at_times or one.rank in named]
            late = msgspec.structs.replace(late, late=kept)
        least = [min(rank.waits_us[at] for rank in ranks) for at in timed]
        return StepTimes(
            now_us=median(times_us[at] for at in recent),
            window_us=median(times_us[at] for at in window),
            usual_us=median(earlier) if len(earlier) >= LEAST_STEPS else None,
            longest_us=max(times_us.values()),
            wait_us=median(least) if least else None,
            late=late,
        )

    def _rank(self, rank: _WatchedRank, now_s: float) -> LiveRank:
        now = rank.now
        state = self._state(now)
        stopped = state is not None and state in process.STOPPED
        rank.stopped_s = (now_s if rank.stopped_s is None else rank.stopped_s) if stopped else None
        return LiveRank(
            rank=now.rank,
            host=now.host,
            pid=now.pid,
            state=state,
            stopped_s=0.0 if rank.stopped_s is None else round(now_s - rank.stopped_s, 3),
            ended=now.ended,
            end_s=rank.end_s,
            steps=now.steps(),
            still_s=round(now_s - rank.moved_s, 3),
            unwritten_s=round(now_s - rank.written_s, 3),
            call=now.call(),
        )

    def _state(self, now: RankNow) -> str | None:
        """The state of a rank's process; None for one of another host or container."""
        if now.host != platform.node() or now.pid_namespace != self._pid_namespace:
            return None
        if process.start_time(now.pid) != now.started:
            return process.GONE
        return process.state(now.pid)

    def _pending(self) -> list[Outstanding]:
        """The collectives that are pending or differ, of the ranks that stand still.

        A rank without calls in its file is one of `silent`; by the number of its last call it is
        told whether it is one of `absent`.
        """
        named = [
            (str(number), number, rank.now.dump())
            for number, rank in self._ranks.items()
            if rank.now.entries
        ]
        found = of_dumps(named, Collector("now"))
        for one in found:
            for number in list(one.silent):
                rank = self._ranks.get(number)
                last = rank.now.last_call(one.group) if rank else None
                if last is not None:
                    one.silent.remove(number)
                if last is not None and last < one.seq:
                    one.absent[number] = f"number {last}"
        return found


def _late(
    ranks: Sequence[_WatchedRank], numbers: Sequence[int], times_us: Mapping[int, float]
) -> Lateness | None:
    if len(ranks) < 2:
        return None
    waits = {rank.now.rank: [rank.waits_us[at] for at in numbers] for rank in ranks}
    hosts = {rank.now.rank: rank.now.host for rank in ranks}
    job = JobRanks(ranks[0].now.world, hosts)
    times = StepWaits([times_us[at] for at in numbers], waits, numbers=numbers)
    return lateness(times, job, GRADIENTS, CONFIDENCE)


def _window(numbers: Sequence[int], times_us: Mapping[int, float], seconds: float) -> Sequence[int]:
    """The steps of the last seconds, from LEAST_STEPS to MOST_STEPS."""
    steps, total_us = 0, 0.0
    for at in reversed(numbers[-MOST_STEPS:]):
        total_us += times_us[at]
        if steps >= LEAST_STEPS and total_us > seconds * 1e6:
            break
        steps += 1
    return numbers[-steps:]
