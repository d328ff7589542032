"""Which ranks were late, in words: the worst first, then what was long on all ranks."""

from statistics import fmean

from busbw.core.lateness import GRADIENTS, Lateness, LongSteps, RankDelay, Recurrence
from busbw.core.pattern import US
from busbw.core.pattern_weights import spans
from busbw.core.sizes import counted
from busbw.ui.number_formats import percent_text, time_text

MAX_RANKS = 4
MOSTLY = 0.5  # of the excess of a long step


def text(found: Lateness | None) -> str:
    """Lines for `busbw show`; '' if nothing is known of it."""
    if found is None or not found.steps_us:
        return ""
    lines = []
    if found.late:
        for late in found.late[:MAX_RANKS]:
            lines += late_lines(late, found)
        lines += _more(found)
    else:
        lines.append(none_line(found))
    if found.long:
        lines.append(long_line(found.long, found))
    lines += _remarks(found)
    return "".join(f"{line}\n" for line in lines)


def name(late: RankDelay) -> str:
    """`rank 3 on gpu07`."""
    return f"rank {late.rank} on {late.host}" if late.host else f"rank {late.rank}"


def _unit(found: Lateness) -> str:
    return "part" if found.parts else "step"


def late_lines(late: RankDelay, found: Lateness) -> list[str]:
    steps = counted(len(found.steps_us), _unit(found))
    when = late.at_times
    waited_us = when.us * when.steps / len(found.steps_us) if when else late.us
    share = percent_text(waited_us, fmean(found.steps_us))
    most = "up to " if found.at_most else ""
    cost = f"{most}{share} % of the time"
    if when:
        lines = [
            f"late at times: {name(late)}, by {most}{_time(when.us)} in {when.steps} of"
            f" {steps}{_when(when, found)}; the others waited {cost} for it"
        ]
    else:
        lines = [
            f"late: {name(late)}, by {most}{_time(late.us)} in each {_unit(found)}"
            f" ({_time(late.low_us)} to {_time(late.high_us)}), last in {late.was_last} of"
            f" {steps}; the others waited {cost} for it"
        ]
    where = [f"{_time(comm.us)} in {comm.comm}" for comm in late.comms if comm.comm]
    if len(where) > 1:
        lines.append(f"  they waited {', '.join(where)}")
    elif where:
        lines.append(f"  they waited in {late.comms[0].comm}")
    lines += [
        f"  rank {other.rank} was late in {other.comm} because it waited for rank"
        f" {late.rank} in {other.waited_in}"
        for other in late.followers
    ]
    return lines


def _time(us: float) -> str:
    """`4.33 ms`, also below 0."""
    return f"-{time_text(-us * US)}" if us < 0 else time_text(us * US)


def _when(when: Recurrence, found: Lateness) -> str:
    unit = _unit(found)
    if when.every:
        return f", one in {when.every}, the first in {unit} {when.first + 1}"
    if when.first == when.last:
        return f", {unit} {when.first + 1}"
    numbers = found.numbers or range(found.skipped, found.skipped + len(found.steps_us))
    if when.last == numbers[-1] and when.steps == sum(at >= when.first for at in numbers):
        return f", from {unit} {when.first + 1} on"
    return f", from {unit} {when.first + 1} to {when.last + 1}"


def _more(found: Lateness) -> list[str]:
    """Late hosts, how many ranks are not shown, and what to do next."""
    lines = []
    for host in found.hosts:
        ranks = spans(sorted(late.rank for late in found.late if late.host == host))
        lines.append(f"all ranks that were read on {host} were late: {ranks}")
    hidden = found.late[MAX_RANKS:]
    if hidden:
        ranks = spans(sorted(late.rank for late in hidden))
        lines.append(f"and {counted(len(hidden), 'rank')} more were late: {ranks}")
    hosts = found.hosts or [late.host for late in found.late[:MAX_RANKS] if late.host]
    named = ",".join(dict.fromkeys(hosts))
    lines.append(f"  next: busbw check --hosts {named}" if named else "  next, there: busbw check")
    return lines


def none_line(found: Lateness) -> str:
    share = percent_text(found.bound_us, fmean(found.steps_us))
    steps = counted(len(found.steps_us), _unit(found))
    return (
        f"no rank was late: of {counted(len(found.ranks), 'rank')} over {steps}, one that is late"
        f" by {_time(found.bound_us)} in each ({share} %) would be named"
    )


def long_line(long: LongSteps, found: Lateness) -> str:
    when = long.when
    share = percent_text(when.us * when.steps, sum(found.steps_us))
    cause = "in calls, as on a slow network"
    if long.in_calls < MOSTLY:
        cause = "outside of calls, as for a checkpoint, an evaluation or input"
    return (
        f"longer on all ranks, none of which was late: {when.steps} of"
        f" {counted(len(found.steps_us), 'step')}{_when(when, found)}, by {_time(when.us)} ({share}"
        f" % of the time), {cause}"
    )


def _remarks(found: Lateness) -> list[str]:
    """Of what the lines above are, where that is less than all."""
    lines = []
    if len(found.ranks) < found.world:
        lines.append(
            f"only {len(found.ranks)} of {found.world} ranks were compared"
            f" ({spans(found.ranks)}): of the others, any may be later"
        )
    if found.parts:
        lines.append(
            f"no step repeats in the calls: {len(found.steps_us)} equal parts of them are compared"
        )
    if found.incomplete:
        unit = counted(found.incomplete, _unit(found))
        lines.append(f"{unit} without a call or a time of some rank left out")
    if found.source == GRADIENTS:
        lines.append("lateness is by how long each rank waited for gradients, as DDP timed it")
    return lines
