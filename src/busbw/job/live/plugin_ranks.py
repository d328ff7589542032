"""The ranks that the profiler plugin records, from its files: also of programs without PyTorch."""

import platform
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from busbw.core.errors import UsageError
from busbw.core.sizes import counted
from busbw.host import process
from busbw.job.live.local_process import LocalProcess, owner
from busbw.job.live.plugin_calls import CallOfComm, CommRank, described, pending
from busbw.job.live.plugin_file import PluginFile
from busbw.job.live.plugin_times import PluginTimes
from busbw.job.live.types import JobLook, LiveRank, StepTimes
from busbw.pattern.collector import Collector
from busbw.pattern.lateness.steps import StepStarts, no_starts
from busbw.pattern.pattern_builder import stated_ranks
from busbw.pattern.pending_collective import Outstanding
from busbw.pattern.readers import profiler
from busbw.pattern.readers.profiler import CommOfRank

FILES = "*.capture"
SILENT_S = 10.0  # ranks of other hosts that ended their communicators have ended after that


@dataclass(slots=True)
class PluginLook:
    """What the files say now."""

    ranks: dict[int, LiveRank] = field(default_factory=dict)
    world: int = 0
    pending: list[Outstanding] = field(default_factory=list)
    times: StepTimes | None = None
    unread: list[str] = field(default_factory=list)

    def add_to(self, look: JobLook) -> None:
        """Add what the recorder in the Python of ranks does not tell."""
        told = set(look.ranks)
        look.ranks = self.ranks | look.ranks
        look.world = max(look.world, self.world)
        look.unread += self.unread
        if not look.pending or any(one.left_out or one.resized for one in self.pending):
            look.pending = self.pending
        if look.times is None or not told:
            look.times = self.times
        elif self.times and self.times.late and self.times.knows_more(look.times):
            timed = self.times
            look.times = replace(
                look.times, late=timed.late, seconds=timed.seconds, mean_us=timed.mean_us
            )


@dataclass(slots=True)
class _Watched:
    """A file, and its process if that is one of this host."""

    file: PluginFile
    process: LocalProcess | None = None
    state: str | None = None
    comms: dict[int, CommOfRank] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.file.path.name

    def fact(self, name: str) -> str:
        return self.file.known.facts.get(name, "") if self.file.known else ""

    @property
    def pid(self) -> int:
        return int(self.fact("pid") or 0)


class PluginRanks:
    """The files of a folder, from look to look."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._watched: dict[Path, _Watched] = {}
        self._times = PluginTimes()

    def look(self, now_s: float, step_starts_ns: StepStarts = no_starts) -> PluginLook:
        """What the files say at `now_s`. `step_starts_ns` says when the steps of a rank began, if
        PyTorch's recorder counts them: by CLOCK_MONOTONIC.
        """
        look = PluginLook()
        for path in sorted(self._folder.glob(FILES)):
            self._read(path, now_s, look.unread)
        read = [one for one in self._watched.values() if one.file.known]
        _find_gone(read, now_s)
        ranks: dict[Hashable, int] = {}
        taken: list[_Watched] = []
        for job in _jobs(read):
            collector = _collector(job)
            stated = stated_ranks(collector.ranks, collector.groups)
            if not stated or set(stated.values()) & set(ranks.values()):
                look.unread.append(_left_out(job))
                continue
            ranks |= stated
            taken += job
            look.world = max(look.world, collector.header.world, max(stated.values()) + 1)
            sizes = [group.ranks for group in collector.groups.values()]
            look.world = max(look.world, *sizes)
        comm_ranks = list(_comm_ranks(taken, ranks, now_s))
        found = pending(comm_ranks)
        look.pending = [one.outstanding for one in found]
        for one in taken:
            if one.file.lost:
                look.unread.append(f"{one.name}: records were lost: its calls are not numbered")
            for key in {comm.process for comm in one.comms.values()}:
                look.ranks[ranks[key]] = self._rank(one, key, ranks[key], comm_ranks, found, now_s)
        self._times.take(
            [one.file for one in taken],
            len(look.ranks),
            now_s,
            _starts_us(taken, ranks, step_starts_ns),
        )
        look.times = self._times.found
        return look

    def _read(self, path: Path, now_s: float, unread: list[str]) -> None:
        watched = self._watched.setdefault(path, _Watched(PluginFile(path)))
        if watched.process:
            watched.state = watched.process.state()
        file = watched.file
        try:
            file.read(now_s, is_writing=watched.state not in process.ENDED)
        except UsageError as error:
            unread.append(error.message)
            return
        except OSError as error:
            unread.append(f"{path.name}: {error.strerror}")
            return
        if watched.process is None and watched.state is None:
            watched.process = owner(path, watched.fact("host"), watched.pid)
            watched.state = watched.process.state() if watched.process else None
        if file.known and len(watched.comms) != len(file.comms):
            watched.comms = profiler.add_comms(file.last(), watched.name, Collector("profiler"))
            file.forget()

    def _rank(
        self,
        one: _Watched,
        key: Hashable,
        rank: int,
        comm_ranks: Sequence[CommRank],
        found: Sequence[CallOfComm],
        now_s: float,
    ) -> LiveRank:
        still_s = now_s - one.file.moved_s
        state, local = one.state, one.process
        own = [of for of in comm_ranks if of.rank == rank]
        is_gone = state is not None and state in process.ENDED
        ended = one.file.has_ended() and (is_gone or (state is None and still_s >= SILENT_S))
        # A program may end without ending its communicators, but not before its last call.
        if is_gone and not (local and local.signal):
            ended = ended or not any(of.is_behind(comm_ranks) for of in own)
        return LiveRank(
            rank=rank,
            host=one.fact("host"),
            pid=one.pid,
            is_python=local.is_python if local else True,
            state=state,
            stopped_s=round(local.stopped_s(state, now_s), 3) if local else 0.0,
            resumed_s=local.resumed_s(now_s) if local else None,
            ended=ended,
            end_s=local.end_s if local else None,
            still_s=round(still_s, 3),
            call=next((call.text for call in found if rank in call.outstanding.waiting), ""),
            last=described(own),
        )


def _find_gone(read: Sequence[_Watched], now_s: float) -> None:
    """Note which processes had ended before the first look.

    A process of another container is not seen here either. So others of its host must have been
    seen, or nothing is written any more.
    """
    here = {one.fact("host") for one in read if one.process}
    if not here and all(now_s - one.file.moved_s >= SILENT_S for one in read):
        here = {platform.node()}
    for one in read:
        if one.process is None and one.fact("host") in here and not process.start_time(one.pid):
            one.state = process.GONE


def _jobs(read: Sequence[_Watched]) -> list[list[_Watched]]:
    """The files by job: those of a job are connected by communicators. A job that may run is first,
    then the newest.
    """
    jobs: list[tuple[set[Hashable], list[_Watched]]] = []
    for one in read:
        keys: set[Hashable] = {comm.key for comm in one.comms.values()}
        files = [one]
        for other in [job for job in jobs if job[0] & keys]:
            jobs.remove(other)
            keys |= other[0]
            files += other[1]
        jobs.append((keys, files))
    return sorted(
        (files for _, files in jobs),
        key=lambda files: (any(map(_may_run, files)), max(map(_begun_ns, files))),
        reverse=True,
    )


def _may_run(one: _Watched) -> bool:
    return one.state is None or one.state not in process.ENDED


def _begun_ns(one: _Watched) -> int:
    return one.file.known.realtime_ns if one.file.known else 0


def _left_out(job: Sequence[_Watched]) -> str:
    names = ", ".join(one.name for one in job[:2])
    more = f" and {counted(len(job) - 2, 'more file')}" if len(job) > 2 else ""
    begun = datetime.fromtimestamp(max(map(_begun_ns, job)) / 1e9, UTC)
    runs = any(map(_may_run, job))
    why = "of another job, or of unknown ranks" if runs else "of an earlier launch"
    return f"{names}{more}: {why}, begun at {begun:%H:%M:%S} UTC: left out"


def _collector(job: Sequence[_Watched]) -> Collector:
    """The ranks and communicators of a job, without calls."""
    collector = Collector("profiler")
    for one in job:
        if one.file.known:
            one.file.known.records = one.file.comms
            profiler.add_comms(one.file.known, one.name, collector)
            one.file.forget()
    return collector


def _comm_ranks(
    taken: Sequence[_Watched], ranks: dict[Hashable, int], now_s: float
) -> Iterator[CommRank]:
    for one in taken:
        made = one.file.made()
        for number, comm in one.comms.items():
            rank = ranks[comm.process]
            yield CommRank(rank, one.file, number, comm, made[number], now_s - one.file.moved_s)


def _starts_us(
    taken: Sequence[_Watched], ranks: Mapping[Hashable, int], of: StepStarts
) -> StepStarts:
    """When steps began, as the calls in the file of a rank have their times."""
    files = {}
    for one in taken:
        own = {ranks[comm.process] for comm in one.comms.values()}
        if len(own) == 1:
            files[own.pop()] = one.file.known

    def starts_us(rank: int) -> list[float]:
        known = files.get(rank)
        return [known.time_us(int(ns)) for ns in of(rank)] if known else []

    return starts_us
