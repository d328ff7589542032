"""What the last calls of the ranks show: which ranks made another call than the others, left one
out, or came to the end of their program before a call of the others.
"""

from collections.abc import Sequence

from busbw.core.finding import Verdict
from busbw.core.pattern_weights import ranks_text
from busbw.job.live.parts import doing_lines
from busbw.job.live.types import JobLook, LiveRank, LiveVerdict
from busbw.job.live.words import stack_command
from busbw.job.stalls import by_call
from busbw.pattern.pending_collective import Outstanding

LEFT = "missing"
_BRANCH = "look for a branch that depends on the rank or its data"


def fault(look: JobLook, first: LiveRank | None) -> LiveVerdict | None:
    """What the calls say of ranks that have ended, the `first` of them before all others if that
    was seen; None if they agree.

    A rank that ended after another one may have done so because of that one's death.
    """
    found = different(look) or left(look)
    if found is None or found.kind != LEFT:
        return found
    died = any(rank.is_gone and not rank.ended for rank in look.ranks.values())
    is_cause = first.rank in found.suspects if first else not died
    return found if is_cause else None


def different(look: JobLook) -> LiveVerdict | None:
    """Ranks made different calls under one number."""
    for call in look.pending:
        if call.different:
            return LiveVerdict(
                Verdict.FAIL,
                "mismatch",
                f"ranks made different calls as {place(call)}: {by_call(call.different)}",
                _odd(call),
                [*_usual(call), *_doing(look)],
                _next(look, call),
            )
    return None


def _odd(call: Outstanding) -> Sequence[int]:
    """The ranks that made another call than most; else those that left one out, or alone made it
    with another size than before.
    """
    made = list(call.different.values())
    common = max(made, key=made.count)
    if 2 * made.count(common) > len(made):
        return [rank for rank, own in call.different.items() if own != common]
    return call.left_out or call.resized


def _usual(call: Outstanding) -> list[str]:
    """What the calls before say. A call that is not usual may still be the right one."""
    if call.left_out:
        return [f"{ranks_text(call.left_out)} left out {call.usual}: it made the call that follows"]
    return [f"before, all ranks called {call.usual} at this place"] if call.usual else []


def _doing(look: JobLook) -> list[str]:
    """Of processes that have ended nothing is to be said."""
    return [] if all(rank.has_ended for rank in look.ranks.values()) else doing_lines(look)


def _next(look: JobLook, call: Outstanding) -> str:
    running = [rank for rank in call.different if not look.ranks[rank].has_ended]
    return f"{_BRANCH}: {stack_command(look.ranks[running[0]])}" if running else _BRANCH


def left(look: JobLook) -> LiveVerdict | None:
    """Ranks ended their program before a call that other ranks have made.

    The numbers of a rank are final if its Python came to its end. Another one may have made more
    calls than it wrote, but not fewer.
    """
    for group, numbers in look.last_calls.items():
        least = min(numbers.values())
        behind = [rank for rank, number in numbers.items() if number == least]
        ahead = [rank for rank, number in numbers.items() if number > least]
        if not ahead or not all(look.ranks[rank].ended for rank in behind):
            continue
        whom = ranks_text(behind)
        return LiveVerdict(
            Verdict.FAIL,
            LEFT,
            f"{whom} came to the end of the program after call {least} of group {group}, before"
            f" {ranks_text(ahead)}, which made call {least + 1}",
            behind,
            _doing(look),
            f"see the output of {whom}: an exception, an exit, or fewer steps",
        )
    return None


def others_agree(look: JobLook, rank: LiveRank) -> str:
    """That all other ranks came to their end after the same calls, or failed in the same one, so
    that none of them is the cause of the abort of this one; '' if that is not known of each group
    of this rank.

    Of two others that agree both would have to be wrong.
    """
    text = ""
    for group, numbers in look.last_calls.items():
        if rank.rank not in numbers:
            continue
        others = {other: number for other, number in numbers.items() if other != rank.rank}
        if len(others) < 2 or len(set(others.values())) > 1:
            return ""
        last = max(others.values())
        calls = [call for call in look.pending if (call.group, call.seq) == (group, last)]
        in_it = {waiting for call in calls for waiting in call.waiting}
        if not all(look.ranks[other].ended or other in in_it for other in others):
            return ""
        text = text or f"all others made the same calls, up to number {last} of group {group}"
    return text


def place(call: Outstanding) -> str:
    """`number 7 of group 0`."""
    return f"number {call.seq} of {call.noun} {call.group}"
