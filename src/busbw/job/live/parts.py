"""Which part of a job is not known, and whose files are in the folder besides."""

from busbw.core.host_ranges import by_reason
from busbw.core.sizes import counted, span
from busbw.job.live.types import JobLook
from busbw.job.live.words import ranks_text


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
