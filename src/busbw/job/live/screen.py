"""A watched job on one screen: the verdict, the steps of the last minutes, and the ranks.

A rank stands the higher the more it matters: those that are named, then those whose process is not
well, then the latest. Of many ranks the others are counted in one line.
"""

import math
from collections import Counter, deque
from collections.abc import Sequence
from statistics import fmean

from busbw.core.finding import Verdict
from busbw.core.pattern_weights import spans
from busbw.core.sizes import counted, span
from busbw.host.process import ENDED, STATES, STOPPED
from busbw.job.live.episodes import Episodes, unix_s
from busbw.job.live.text import evidence_lines, job_text, steps_text
from busbw.job.live.types import JobInterval, LiveRank
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import sparkline, time_text

TREND_S = 300.0
MAX_BARS, BESIDE_BARS = 60, 43  # bars, and the characters that a line has beside them
FEW_RANKS, MAX_RANKS = 8, 24  # that are shown in a small window, and in any
FEW_LINES, MAX_LINES = 2, 6  # of evidence, in the same
HEIGHT = 40  # of a screen without a window
SMALL = 32  # a window of fewer lines
SHOWN_S = 1.0  # a rank without progress for less is not remarkable
MAX_CALL = 28  # characters
ALWAYS = ("", "rank", "call")  # other columns are shown if any rank has a value
UNKNOWN = "-"


class JobScreen:
    """The screen after each look; `name` is what the folder of the job is called."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._episodes = Episodes()
        self._begin_s: float | None = None
        self._trend: deque[tuple[float, float]] = deque()  # Unix time, and a step's then
        self._last: JobInterval | None = None

    def take(self, interval: JobInterval) -> None:
        now_s = unix_s(interval)
        self._episodes.take(interval)
        self._begin_s = now_s if self._begin_s is None else self._begin_s
        self._last = interval
        if interval.step_s is not None:
            self._trend.append((now_s, interval.step_s))
        while self._trend and now_s - self._trend[0][0] > TREND_S:
            self._trend.popleft()

    def text(self, width: int | None, height: int | None = None) -> str:
        """Lines of at most `width` characters; as many ranks as `height` lines have room for."""
        interval, height = self._last, height or HEIGHT
        if interval is None:
            return ""
        evidence = FEW_LINES if height < SMALL else MAX_LINES
        top = f"{self._head(interval, width)}\n{self._verdict(interval, evidence)}"
        bottom = "".join(f"note: {reason}\n" for reason in _notes(interval))
        top, bottom = wrapped(top, width), wrapped(bottom, width)
        used = top.count("\n") + bottom.count("\n") + 4  # with a heading and the line of the rest
        room = max(FEW_RANKS, min(MAX_RANKS, height - used))
        return top + _ranks(interval, width, room) + bottom

    def _head(self, interval: JobInterval, width: int | None) -> str:
        now_s = unix_s(interval)
        clock = interval.at.partition("T")[2][:8]
        watched = span(now_s - (self._begin_s or now_s))
        lines = [
            f"{self._name}  {job_text([interval])}  {clock} UTC, watched for {watched}",
            steps_text(interval),
        ]
        if self._trend:
            steps_s = [step_s for _, step_s in self._trend]
            ends = f"{time_text(min(steps_s))} to {time_text(max(steps_s))}"
            lasted = span(now_s - self._trend[0][0])
            most = MAX_BARS if width is None else max(1, min(MAX_BARS, width - BESIDE_BARS))
            lines.append(f"{sparkline(self._bars(now_s, most))}  {ends} in the last {lasted}")
        return "".join(f"{line}\n" for line in lines)

    def _bars(self, now_s: float, most: int) -> list[float]:
        """The steps of equal parts of the time, the oldest first; nan for a part without any."""
        part_s = TREND_S / most
        parts: dict[int, list[float]] = {}
        for at_s, step_s in self._trend:
            parts.setdefault(int(at_s // part_s), []).append(step_s)
        numbers = range(min(parts), int(now_s // part_s) + 1)
        return [fmean(parts[number]) if number in parts else math.nan for number in numbers]

    def _verdict(self, interval: JobInterval, evidence: int) -> str:
        """What is wrong, since when, with so many lines of evidence."""
        current = self._episodes.current
        seconds = current.seconds if current else 0.0
        since = f"for {span(seconds)}: " if seconds >= SHOWN_S else ""
        lines = [f"{interval.verdict.name:<8}{since}{interval.message}"]
        lines += evidence_lines(interval, evidence)
        return "".join(f"{line}\n" for line in lines)


def _notes(interval: JobInterval) -> list[str]:
    known = {rank.rank for rank in interval.ranks}
    missing = [rank for rank in range(interval.world) if rank not in known]
    silent = [f"nothing is written by {counted(len(missing), 'rank')}: {spans(missing)}"]
    return (silent if missing and known else []) + interval.unread


def _ranks(interval: JobInterval, width: int | None, room: int) -> str:
    """The table of at most so many ranks, and a line about the others."""
    named = set(interval.suspects)
    ranks = sorted(interval.ranks, key=lambda rank: _order(rank, named))
    if not ranks:
        return ""
    if len(ranks) > room:
        matter = sum(rank.rank in named or not _is_well(rank) or _is_late(rank) for rank in ranks)
        room = min(room, max(FEW_RANKS, matter))
    columns = [column for column in _columns(interval) if _is_shown(column, ranks)]
    order = ["steps", "call", "interval"]
    if interval.verdict is Verdict.FAIL:  # what a rank does says more than how late it was
        order = ["steps", "interval", "call"]
    table = aligned(columns, ranks[:room], width, order)
    return f"\n{table}{wrapped(_rest(ranks[room:]), width)}"


def _order(rank: LiveRank, named: set[int]) -> tuple[bool, bool, float, int]:
    late_s = -math.inf if rank.late_s is None else rank.late_s
    return rank.rank not in named, _is_well(rank), -late_s, rank.rank


def _is_well(rank: LiveRank) -> bool:
    return rank.ended or rank.state is None or rank.state not in STOPPED | ENDED


def _is_late(rank: LiveRank) -> bool:
    return rank.late_low_s is not None and rank.late_low_s > 0


def _columns(interval: JobInterval) -> list[Column]:
    """Of a LiveRank."""
    named = set(interval.suspects)
    hosts = {rank.host for rank in interval.ranks}
    columns = [
        Column(title="", value=lambda rank: ">" if rank.rank in named else " ", left=True),
        Column(title="rank", value=lambda rank: rank.rank),
        Column(title="late", unit="ms", value=_own_late),
        Column(title="interval", unit="ms", value=_interval, left=True),
        Column(title="steps", value=lambda rank: rank.steps or UNKNOWN),
        Column(title="process", value=process_text, left=True),
        Column(title="call", value=_call, left=True),
    ]
    if len(hosts) > 1:
        columns.insert(2, Column(title="host", value=lambda rank: rank.host, left=True))
    return columns


def _is_shown(column: Column, ranks: Sequence[LiveRank]) -> bool:
    if column.title in ALWAYS:
        return True
    return any(column.value(rank) not in (UNKNOWN, "") for rank in ranks)


def _late(late_s: float | None) -> str:
    return UNKNOWN if late_s is None else f"{1e3 * late_s:+.2f}"


def _own_late(rank: LiveRank) -> str:
    """`-` of a rank that makes no steps: its last ones say nothing of now."""
    return _late(rank.late_s) if _is_well(rank) else UNKNOWN


def _interval(rank: LiveRank) -> str:
    if not _is_well(rank) or rank.late_low_s is None or rank.late_high_s is None:
        return UNKNOWN
    return f"{1e3 * rank.late_low_s:.2f} to {1e3 * rank.late_high_s:.2f}"


def process_text(rank: LiveRank) -> str:
    """The state of a rank's process in words; `-` on another host."""
    if rank.ended:
        return "ended"
    if rank.state is None:
        return UNKNOWN
    return STATES.get(rank.state, "running")


def _call(rank: LiveRank) -> str:
    """`call 7 of group 0`, and for how long the rank has made no progress."""
    if rank.is_gone:
        return UNKNOWN
    call = rank.call
    if len(call) > MAX_CALL:
        call = f"{call[: MAX_CALL - 3]}..."
    if rank.still_s < SHOWN_S or rank.ended:
        return call or UNKNOWN
    least = "at least " if rank.unmoved else ""
    return f"{call or 'none'} for {least}{span(rank.still_s)}"


def _rest(ranks: Sequence[LiveRank]) -> str:
    """`... 1000 more ranks: 998 running, 2 stopped; late by -0.31 to +0.42 ms`."""
    if not ranks:
        return ""
    states = Counter(process_text(rank) for rank in ranks)
    words = [
        f"{count} {'of unknown state' if state == UNKNOWN else state}"
        for state, count in states.most_common()
    ]
    parts = [", ".join(words)]
    delays = [rank.late_s for rank in ranks if rank.late_s is not None and _is_well(rank)]
    if delays:
        parts.append(f"late by {_late(min(delays))} to {_late(max(delays))} ms")
    still_s = [rank.still_s for rank in ranks if rank.call and not rank.is_gone]
    if still_s and max(still_s) >= SHOWN_S:
        parts.append(f"{len(still_s)} in a call, without progress for up to {span(max(still_s))}")
    return f"... {counted(len(ranks), 'more rank')}: {'; '.join(parts)}\n"
