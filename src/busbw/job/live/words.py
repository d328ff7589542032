"""Words that the verdicts on running jobs share."""

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from busbw.core.host_ranges import fold
from busbw.core.sizes import counted
from busbw.job.live.types import JobLook, LiveRank

CPU_LIST = "ps -eLo psr,pcpu,pid,comm --sort=-pcpu | head -20"  # what uses which CPU


def stack_command(rank: LiveRank) -> str:
    """The command that prints where its process is."""
    if rank.is_python:
        return f"py-spy dump --pid {rank.pid}"
    return f"gdb --batch -ex 'thread apply all backtrace' -p {rank.pid}"


def named(ranks: Sequence[LiveRank]) -> str:
    """`rank 3 on gpu07`; of several the first with the number of the others."""
    more = f" (and {counted(len(ranks) - 1, 'more rank')})" if len(ranks) > 1 else ""
    return f"rank {ranks[0].rank} on {ranks[0].host}{more}"


def ended_at(ranks: Iterable[LiveRank]) -> str:
    """` at 22:48:18 UTC`, when the last of them ended, with the date on another day than today; ''
    if that is not known of all.
    """
    ends_s = [rank.end_unix_s for rank in ranks]
    known = [end_s for end_s in ends_s if end_s is not None]
    if not known or len(known) < len(ends_s):
        return ""
    at = datetime.fromtimestamp(max(known), UTC)
    is_today = at.date() == datetime.fromtimestamp(time.time(), UTC).date()
    return f" at {at:%H:%M:%S} UTC" if is_today else f" at {at:%Y-%m-%d %H:%M:%S} UTC"


def rate_text(per_s: float) -> str:
    """Bytes per second as `0.13 Gbit/s`."""
    return f"{8 * per_s / 1e9:.3g} Gbit/s"


def uses_cpus_alone(look: JobLook) -> bool:
    """Whether the ranks are on one host without GPUs: then no network connects them."""
    return len({rank.host for rank in look.ranks.values()}) < 2 and not look.host.gpus


def longer_tests(look: JobLook) -> str:
    """The commands that say why communication takes longer."""
    return CPU_LIST if uses_cpus_alone(look) else link_tests(look)


def link_tests(look: JobLook) -> str:
    """The commands that tell a host from its ports, and these from each other."""
    names = sorted({rank.host for rank in look.ranks.values()})
    if len(names) < 2:
        return "busbw check; busbw watch"
    hosts = fold(names)
    return f"busbw check --hosts {hosts}; busbw link --hosts {hosts} --rail all"
