"""Follows a job from look to look: merges what one host or several read in the folder of its
capture.

Ranks are compared as seldom as keeps that below COMPARING_SHARE of a CPU.
"""

import math
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from busbw.core.host_ranges import by_reason
from busbw.core.pattern import US
from busbw.core.pattern_weights import ranks_text
from busbw.host import process
from busbw.job.live.connections import PathEvidence
from busbw.job.live.files import HostFiles, HostNews, RankNews
from busbw.job.live.host_watch import HostEvidence, joined, of_host
from busbw.job.live.plugin_ranks import PluginRanks
from busbw.job.live.rank_calls import RankCalls, last_calls, pending
from busbw.job.live.rank_now import Identity
from busbw.job.live.rank_use import RankCounts, RankEvidence
from busbw.job.live.steps import USUAL, JobSteps, LiveSteps
from busbw.job.live.types import JobLook, LiveRank, StepTimes
from busbw.pattern.lateness.judge import MeanDelay

COMPARING_SHARE = 0.01
EARLIER_S = 60.0  # between the files of two jobs that have ended
BEGUN_S = 1.0  # a rank writes that late, and the kernel counts the start of a process in 10 ms
FRESH_S = 5.0  # a rank that runs has written its file anew


class Hosts(Protocol):
    """Who reads the folder: this host, or `busbw.job.live.hosts`."""

    def read(self, wanted: Mapping[str, Collection[int]]) -> dict[str, HostNews]:
        """What is new, by host."""

    def silent(self) -> dict[str, tuple[float, str]]:
        """The hosts that do not answer: since how many seconds, and why."""


class _ThisHost:
    """All files are read here, those of other hosts' ranks too."""

    def __init__(self, folder: Path) -> None:
        self._files = HostFiles(folder)

    def read(self, _wanted: Mapping[str, Collection[int]]) -> dict[str, HostNews]:
        return {"": self._files.look()}

    def silent(self) -> dict[str, tuple[float, str]]:
        return {}


@dataclass(slots=True)
class _WatchedRank:
    """A rank as one host reads it. Times are of this process's clock."""

    reader: str
    news: RankNews  # the last
    written_s: float  # when the file was seen to change
    moved_s: float  # when it was seen to make progress, or was seen first
    stepped_s: float  # when it was seen to end a step
    has_moved: bool = False  # it was seen to make progress
    changes: int = 0  # how often its process was seen to write
    state: str | None = None
    stopped_s: float | None = None  # since when it is seen stopped
    resumed_s: float | None = None  # when it was seen to run again
    end_s: float | None = None  # when its process was seen to end, at once
    end_unix_s: float | None = None  # the same, by the clock of its host
    signal: int = 0  # that killed it, if that was seen
    code: int = 0  # with which it exited, the same
    calls: RankCalls = field(default_factory=RankCalls)
    steps: LiveSteps = field(default_factory=LiveSteps)

    def take(self, news: RankNews, now_s: float) -> None:
        """What is new."""
        if (self.news.pg_status, self.news.steps) != (news.pg_status, news.steps):
            self.moved_s, self.has_moved = now_s, True
        if self.changes < 0 or self.news.steps != news.steps:
            self.stepped_s = now_s - news.step_age_s
        self.changes += 1
        self.news, self.written_s = news, now_s
        self.calls.take(news)
        self.steps.add(news.first_step, news.steps_us, news.waits_us)

    @property
    def runs(self) -> bool:
        """Whether its process is known to run."""
        return self.state is not None and self.state not in process.ENDED

    @property
    def is_gone(self) -> bool:
        """Whether its process is known to have ended."""
        return self.state is not None and self.state in process.ENDED

    @property
    def job(self) -> tuple[str, int]:
        """What ranks of one job on a host have in common."""
        return self.news.launch, self.news.world

    def age_s(self, now_s: float) -> float:
        """Since an own rank has written, by the clock of its host."""
        return self.news.age_s + now_s - self.written_s

    def running_s(self, now_s: float) -> float:
        """Since the process of an own rank was started."""
        return self.news.running_s + now_s - self.written_s


class JobFolder:
    """The job whose capture is in `folder`, as this host sees it, or as `hosts` do."""

    def __init__(self, folder: Path, hosts: Hosts | None = None) -> None:
        self._hosts = hosts or _ThisHost(folder)
        self._plugin = PluginRanks(folder)
        self._ranks: dict[int, dict[str, _WatchedRank]] = defaultdict(dict)  # by host
        self._others: dict[str, list[int]] = {}  # ranks of other hosts with files on a host
        self._wanted: dict[str, list[int]] = {}
        self._known: dict[int, Identity] = {}
        self._times: StepTimes | None = None
        self._least_wait_us = math.inf  # of a window
        self._uses: dict[str, dict[int, RankCounts]] = {}  # by host that reads
        self._evidence: dict[str, HostEvidence] = {}  # the same
        self._paths: list[PathEvidence] = []
        self._next_comparison_s = 0.0

    def look(self, clock: float | None = None) -> JobLook:
        """The job now; `clock` is that of time.monotonic."""
        read = self._hosts.read(self._wanted)
        now_s = time.monotonic() if clock is None else clock
        look = JobLook()
        for name, news in read.items():
            self._merge(name, news, now_s, look)
        silent = self._hosts.silent()
        look.silent = {name: reason for name, (_, reason) in silent.items()}
        look.unread += [
            f"{text}; what processes do there is not known" for text in by_reason(look.silent)
        ]
        ranks = self._chosen(silent, look)
        self._leave_out_others(ranks, now_s, look)
        self._note_starts(ranks, look.unread)
        self._want_unread(silent)
        if now_s >= self._next_comparison_s:
            start_s = time.process_time()
            self._times = self._compare(ranks)
            took_s = time.process_time() - start_s
            self._next_comparison_s = now_s + took_s / COMPARING_SHARE
        look.world = max((rank.news.world for rank in ranks.values()), default=0)
        for number, rank in ranks.items():
            unknown_s, _ = silent.get(rank.reader, (0.0, ""))
            look.ranks[number] = self._live(rank, now_s, unknown_s)
        calls = {number: rank.calls for number, rank in ranks.items()}
        look.pending, look.last_calls = pending(calls), last_calls(calls)
        look.times = self._times
        self._plugin.look(now_s, lambda rank: _step_starts_ns(ranks.get(rank))).add_to(look)
        look.is_kept = look.is_kept and not look.ranks
        look.host = joined(
            {name: one for name, one in self._evidence.items() if name not in silent}
        )
        if look.host.turn is None:  # paths of two moments cannot be compared
            look.host.paths = self._paths
        self._paths = look.host.paths
        look.unread += look.host.unread
        look.evidence = {
            number: self._rank_evidence(rank, look.times) for number, rank in ranks.items()
        }
        return look

    def _merge(self, name: str, news: HostNews, now_s: float, look: JobLook) -> None:
        """Take what a host has read."""
        self._others[name] = news.others
        prefix = f"{name}: " if name else ""
        look.unread += [f"{prefix}{reason}" for reason in news.unread]
        look.rivals.update(news.rivals)
        look.is_kept |= news.is_kept
        self._uses[name] = news.uses or self._uses.get(name, {})
        self._evidence[name] = news.host or self._evidence.get(name, HostEvidence())
        look.has_launcher |= news.has_launcher
        look.order = look.order or news.order
        for one in news.ranks:
            before = self._ranks[one.rank].get(name)
            if before is None or before.news.process != one.process:
                before = _WatchedRank(name, one, now_s, now_s, now_s, changes=-1)
                self._ranks[one.rank][name] = before
            before.take(one, now_s)
        for by_host in self._ranks.values():
            rank = by_host.get(name)
            if rank is None:
                continue
            number = rank.news.rank
            rank.state = news.states.get(number) if rank.news.is_own else None
            rank.end_s = news.ends_s.get(number, rank.end_s)
            rank.end_unix_s = news.ends_unix_s.get(number, rank.end_unix_s)
            rank.signal = news.signals.get(number, rank.signal)
            rank.code = news.codes.get(number, rank.code)
            stopped = rank.state is not None and rank.state in process.STOPPED
            if rank.stopped_s is not None and not stopped:
                rank.resumed_s = now_s
            since_s = now_s if rank.stopped_s is None else rank.stopped_s
            rank.stopped_s = since_s if stopped else None

    def _chosen(self, silent: Collection[str], look: JobLook) -> dict[int, _WatchedRank]:
        """Each rank as the host reads it that runs it."""
        chosen = {}
        for number, by_host in sorted(self._ranks.items()):
            seen = list(by_host.values())
            chosen[number] = seen[0] if len(seen) == 1 else _best(seen, silent)
            running = {
                rank.news.process: rank for rank in seen if rank.runs and rank.reader not in silent
            }
            if len(running) > 1:
                texts = [f"process {pid} on {host}" for host, pid, _ in sorted(running)]
                look.rivals[number] = " and ".join(texts)
        return chosen

    def _leave_out_others(
        self, ranks: dict[int, _WatchedRank], now_s: float, look: JobLook
    ) -> None:
        """Leave out the ranks of an earlier start of the job, or of another job that has ended.

        Each host may have launched its own ranks. Only ages are compared, each by one host's clock.
        """
        running = [rank for rank in ranks.values() if rank.runs]
        begun_s = min((rank.running_s(now_s) for rank in running), default=None)
        live = running + [rank for rank in ranks.values() if rank.state is None and rank.changes]
        jobs = {rank.job for rank in live}
        ended = {} if live else {number: rank for number, rank in ranks.items() if rank.is_gone}
        newest = min(ended.values(), key=lambda rank: rank.age_s(now_s), default=None)
        earlier, other = [], []
        for number, rank in list(ranks.items()):
            if begun_s is not None and rank.is_gone and rank.age_s(now_s) > begun_s + BEGUN_S:
                earlier.append(number)
            elif rank.state is None and not rank.changes and jobs and rank.job not in jobs:
                if now_s - rank.written_s > FRESH_S:
                    other.append(number)
            elif newest and number in ended and rank.job != newest.job:
                if rank.age_s(now_s) <= newest.age_s(now_s) + EARLIER_S:
                    continue
                other.append(number)
            else:
                continue
            del ranks[number]
        if earlier:
            look.unread.append(
                f"{ranks_text(earlier)}: of an earlier start, gone before others began: left out"
            )
        if other:
            look.unread.append(
                f"{ranks_text(other)}: of another launch, and not written any more: left out"
            )
        for rank in live:
            look.worlds.setdefault(rank.news.world, []).append(rank.news.rank)

    def _note_starts(self, ranks: Mapping[int, _WatchedRank], unread: list[str]) -> None:
        """Say which ranks have joined, or were started again, since the look before."""
        found = {number: rank.news.process for number, rank in ranks.items()}
        again = [
            number
            for number, identity in found.items()
            if self._known.get(number, identity) != identity
        ]
        joined = sorted(found.keys() - self._known.keys()) if self._known else []
        if again:
            (host, pid, _), (_, before, _) = found[again[0]], self._known[again[0]]
            unread.append(
                f"{ranks_text(again)} started again: rank {again[0]} is process {pid} on {host}, it"
                f" was {before}"
            )
        if joined:
            unread.append(f"{ranks_text(joined)} joined")
        self._known |= found

    def _want_unread(self, silent: Collection[str]) -> None:
        """Have one host read each rank that no host runs which answers."""
        answering = {name: others for name, others in self._others.items() if name not in silent}
        run = {
            number
            for number, of_host in self._ranks.items()
            if any(rank.news.is_own and name not in silent for name, rank in of_host.items())
        }
        self._wanted = {}
        for name, others in answering.items():
            self._wanted[name] = [number for number in others if number not in run]
            run.update(self._wanted[name])

    def _live(self, rank: _WatchedRank, now_s: float, unknown_s: float) -> LiveRank:
        """A rank now. What its process does is unknown while its host does not answer."""
        news = rank.news
        delays = self._times.delays if self._times else {}
        live = LiveRank(
            rank=news.rank,
            host=news.host,
            pid=news.pid,
            state=None if unknown_s else rank.state,
            stopped_s=0.0 if rank.stopped_s is None else round(now_s - rank.stopped_s, 3),
            resumed_s=None if rank.resumed_s is None else round(now_s - rank.resumed_s, 3),
            ended=news.ended,
            end_s=rank.end_s,
            end_unix_s=None if rank.end_unix_s is None else round(rank.end_unix_s, 3),
            signal=rank.signal,
            exit_code=rank.code,
            unknown_s=round(unknown_s, 3),
            steps=news.steps,
            still_s=round(now_s - rank.moved_s, 3),
            unmoved=not rank.has_moved,
            stepless_s=round(now_s - rank.stepped_s, 3) if news.steps else None,
            unwritten_s=round(now_s - rank.written_s, 3),
            call=rank.calls.open_call(),
        )
        return msgspec.structs.replace(live, **_delay_s(delays.get(news.rank)))

    def _rank_evidence(self, rank: _WatchedRank, times: StepTimes | None) -> RankEvidence:
        counts = self._uses.get(rank.reader, {}).get(rank.news.rank)
        evidence = RankEvidence()
        if counts and times:
            evidence = counts.evidence(times.mean_us, times.usual_mean_us, times.seconds)
        elif counts:
            evidence = counts.evidence(0.0, None)
        evidence.doing_s = rank.news.doing_s
        evidence.gpu = of_host(rank.reader, evidence.gpu)
        return evidence

    def _compare(self, ranks: Mapping[int, _WatchedRank]) -> StepTimes | None:
        world = max((rank.news.world for rank in ranks.values()), default=0)
        steps = {number: rank.steps for number, rank in ranks.items()}
        hosts = {number: rank.news.host for number, rank in ranks.items()}
        times = JobSteps(world, steps, hosts).compare()
        if times and times.wait_mean_us is not None:
            if times.seconds >= USUAL.seconds:
                self._least_wait_us = min(self._least_wait_us, times.wait_mean_us)
            times.wait_more_us = times.wait_mean_us - self._least_wait_us
        return times


def _best(seen: Sequence[_WatchedRank], silent: Collection[str]) -> _WatchedRank:
    """The reading of a rank that says what it does now.

    The host that runs it is believed, and while it does not answer whoever else can read the file.
    """
    answering = [rank for rank in seen if rank.reader not in silent]
    run_here = {rank.news.process for rank in answering if rank.news.is_own}

    def order(rank: _WatchedRank) -> tuple[bool, bool, bool]:
        is_copy = not rank.news.is_own and rank.news.process in run_here
        answers = rank in answering
        return not is_copy, answers and rank.runs, answers != rank.is_gone

    return max(seen, key=lambda rank: (order(rank), rank.written_s))


def _delay_s(delay: MeanDelay | None) -> dict[str, float]:
    """The delay of a rank as fields of LiveRank; without an interval if that has no ends."""
    if delay is None:
        return {}
    ends = {"late_low_s": delay.low_us, "late_high_s": delay.high_us}
    known = {"late_s": delay.us} | (ends if math.isfinite(delay.high_us - delay.low_us) else {})
    return {name: round(US * value, 7) for name, value in known.items()}


def _step_starts_ns(rank: _WatchedRank | None) -> list[int]:
    """When its last steps began, and the last one ended, by its CLOCK_MONOTONIC; [] if unknown."""
    if rank is None or not rank.news.step_end_ns:
        return []
    starts = [rank.news.step_end_ns]
    for step_us in reversed(rank.steps.times_us):
        if math.isnan(step_us):
            break
        starts.append(starts[-1] - round(1000 * step_us))
    return starts[::-1]
