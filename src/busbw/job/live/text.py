"""A watched job in lines: one for each interval, and the evidence when the verdict changes."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from busbw.core.finding import Verdict
from busbw.core.host_ranges import fold
from busbw.core.pattern_weights import ranks_text
from busbw.core.sizes import counted, span
from busbw.job.live.episodes import Episode, VerdictTotals, episodes
from busbw.job.live.types import JobInterval
from busbw.ui.columns import wrapped
from busbw.ui.number_formats import percent_text, time_text

ORDER = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN, Verdict.PASS)
INDENT = " " * 8
DAY_S = 86400.0  # of a longer watch, times have their date
MOST_ENDS = 15  # episodes of a saved watch, from its begin and from its end


def line(interval: JobInterval) -> bytes:
    """One object of JSON Lines."""
    return msgspec.json.encode(interval) + b"\n"


def steps_text(interval: JobInterval) -> str:
    """`step 40.90 ms, usually 38.20 ms, 13.2 % waiting`."""
    if interval.step_s is None:
        if interval.usual_s is None:
            return "no step yet"
        since = f"for {span(interval.no_step_s)}" if interval.no_step_s else "any more"
        return f"no step {since}, usually {time_text(interval.usual_s)}"
    steps = f"step {time_text(interval.step_s)}"
    if interval.usual_s is not None:
        steps += f", usually {time_text(interval.usual_s)}"
    return steps + _waiting(interval.waiting)


def _waiting(share: float | None) -> str:
    return "" if share is None else f", {percent_text(share, 1.0)} % waiting"


def text(interval: JobInterval, width: int | None, *, evidence: bool) -> str:
    """The time, the steps and the verdict; with `evidence` what was seen, and what to do next."""
    clock = interval.at.partition("T")[2][:8]
    lines = [f"{clock}  {steps_text(interval)}  {interval.verdict.name} {interval.message}"]
    if evidence:
        lines += evidence_lines(interval)
    return wrapped("".join(f"{one}\n" for one in lines), width)


def evidence_lines(interval: JobInterval, most: int | None = None) -> list[str]:
    """What was seen, of which at most so many are shown, and the command to type."""
    seen = interval.evidence[:most]
    lines = [f"{INDENT}seen: {one}" for one in seen]
    if hidden := len(interval.evidence) - len(seen):
        lines.append(f"{INDENT}seen: {hidden} more, in --format json")
    said = {"cause": interval.why, "next": interval.next, "wrong if": interval.wrong_if}
    lines += [f"{INDENT}{name}: {text}" for name, text in said.items() if text]
    return lines


def closing(totals: VerdictTotals, seconds: float, width: int | None) -> str:
    """How often and for how long each kind of verdict was seen, the worst first, and what the last
    of them said.
    """
    kinds = sorted(totals.kinds.items(), key=lambda item: ORDER.index(item[0][0]))
    lines = [f"watched for {span(seconds)}:"]
    for (verdict, _), total in kinds:
        look = total.last.look
        ranks = f" ({ranks_text(total.ranks)})" if total.ranks > set(look.suspects) else ""
        often = counted(total.times, "time")
        when = f"{'last ' * (total.times > 1)}at {_clock(total.last.begin_s, seconds)}"
        lasted = span(total.seconds)
        lines.append(f"{verdict.name:<8}{often}, for {lasted}{ranks}, {when}: {look.message}")
        if look.why:
            lines.append(f"{INDENT}cause: {look.why}")
    return wrapped("".join(f"{line}\n" for line in lines), width)


def _clock(unix_s: float, seconds: float) -> str:
    """A time of a watch that took so long."""
    form = "%H:%M:%S" if seconds < DAY_S else "%Y-%m-%d %H:%M:%S"
    return f"{datetime.fromtimestamp(unix_s, UTC):{form}}"


def saved(intervals: Sequence[JobInterval], width: int | None) -> str:
    """When the verdicts of a saved watch changed, and what the job did in between; of many verdicts
    the first and the last, and then how often each kind was seen.
    """
    found = episodes(intervals)
    begin_s, end_s = found[0].begin_s, found[-1].end_s
    begin = datetime.fromtimestamp(begin_s, UTC)
    lines = [
        f"{job_text(intervals)}, watched for {span(end_s - begin_s)} from"
        f" {begin:%Y-%m-%d %H:%M:%S} UTC: {counted(len(found), 'verdict')}"
    ]
    shown: Iterable[Episode | int] = found
    if len(found) > 2 * MOST_ENDS:
        shown = [*found[:MOST_ENDS], len(found) - 2 * MOST_ENDS, *found[-MOST_ENDS:]]
    seconds = end_s - begin_s
    for episode in shown:
        lines += [f"... {episode} more"] if isinstance(episode, int) else _lines(episode, seconds)
    text = wrapped("".join(f"{one}\n" for one in lines), width)
    if len(found) <= 2 * MOST_ENDS:
        return text
    totals = VerdictTotals()
    for episode in found:
        totals.add(episode)
    return text + closing(totals, seconds, width)


def job_text(intervals: Sequence[JobInterval]) -> str:
    """`3 ranks on vm`: all that were seen."""
    hosts = {rank.rank: rank.host for interval in intervals for rank in interval.ranks}
    world = max(interval.world for interval in intervals)
    if len(hosts) < world:
        return f"{len(hosts)} of {counted(world, 'rank')} on {fold(set(hosts.values()))}"
    where = f" on {fold(set(hosts.values()))}" if hosts else ""
    return counted(len(hosts), "rank") + where


def _lines(episode: Episode, seconds: float) -> list[str]:
    look, clock = episode.look, _clock(episode.begin_s, seconds)
    steps = counted(episode.steps, "step")
    if look.step_s is not None and episode.steps:
        steps += f", {time_text(look.step_s)} each{_waiting(look.waiting)}"
    return [
        f"{look.verdict.name:<8}{clock}  for {span(episode.seconds)}: {look.message}",
        f"{INDENT}{steps}",
        *evidence_lines(look),
    ]
