"""What the ranks of a job do, which are not known, and whose files are in the folder besides."""

from collections.abc import Sequence

from busbw.core.host_ranges import by_reason
from busbw.core.pattern_weights import ranks_text
from busbw.core.sizes import counted, span
from busbw.host.process import STATES
from busbw.job.live.types import JobLook

SEEN_S = 1.0  # in two looks: debuggers stop a process for a moment
MOST_LINES = 8  # of what ranks do, and of late ranks


def unknown_text(look: JobLook) -> str:
    """The ranks of which nothing is known now, since when, and why; '' without any."""
    reasons = "; ".join(by_reason(look.silent))
    if look.silent and not look.ranks:
        return f"no rank is known: {reasons}"
    unknown = look.unknown()
    if not unknown:
        return ""
    since_s = [look.ranks[rank].unknown_s for rank in unknown if rank in look.ranks]
    since = f" since {span(max(since_s))}" if since_s else ""
    verb = "is" if len(unknown) == 1 else "are"
    return f"{ranks_text(unknown)} of {look.world} {verb} not known{since}: {reasons}"


def two_jobs_text(look: JobLook) -> str:
    """Which jobs write into the folder; '' for one."""
    if look.rivals:
        first, *others = sorted(look.rivals)
        more = f", and so are {counted(len(others), 'more rank')}" if others else ""
        text = f"rank {first} is {look.rivals[first]}{more}"
    elif len(look.worlds) > 1:
        parts = sorted(look.worlds.items())
        text = "; ".join(f"{ranks_text(ranks)} of a job of {world}" for world, ranks in parts)
    else:
        return ""
    return f"two jobs write into the folder: {text}"


def doing_lines(look: JobLook) -> list[str]:
    """What each rank does: of many, those that differ."""
    texts: dict[str, list[int]] = {}
    unknown = set(look.unknown())
    for number, rank in sorted(look.ranks.items()):
        if number in unknown:
            continue
        does = f"in {rank.call}" if rank.call else "in no call"
        if rank.last and not rank.call:
            does = f"calls made: {rank.last}"
        elif rank.is_gone:
            does = f"was {does}"
        state = f", process {STATES[rank.state]}" if rank.state in STATES else ""
        ended = ", at its end" if rank.ended else ""
        texts.setdefault(f"{does}{state}{ended}", []).append(number)
    states = list(texts.items())
    if len(states) > MOST_LINES:
        states.sort(key=lambda item: len(item[1]))
    lines = []
    for text, ranks in states[:MOST_LINES]:
        lines.append(f"{ranks_text(ranks)}: {text}{_still(look, ranks)}")
    others = [number for _, ranks in states[MOST_LINES:] for number in ranks]
    if others:
        lines.append(f"{ranks_text(others)}: in other calls")
    if unknown:
        return [*lines, unknown_text(look)]
    missing = look.missing()
    return [*lines, f"{ranks_text(missing)}: nothing written"] if missing else lines


def _still(look: JobLook, ranks: Sequence[int]) -> str:
    """For how long ranks that run make no progress."""
    longest = max((look.ranks[rank] for rank in ranks), key=lambda rank: rank.still_s)
    if longest.is_gone or longest.still_s < SEEN_S:
        return ""
    if not longest.unmoved:
        return f", no progress for {span(longest.still_s)}"
    text = f", no progress for at least {span(longest.still_s)}, since the watch began"
    if longest.stepless_s is None or longest.stepless_s < longest.still_s + SEEN_S:
        return text
    return f"{text}; its last step ended {span(longest.stepless_s)} ago"
