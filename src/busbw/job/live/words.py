"""Words that the verdicts on running jobs share."""

from collections.abc import Iterable

from busbw.core.pattern_weights import spans
from busbw.job.live.types import LiveRank


def ranks_text(ranks: Iterable[int]) -> str:
    """`rank 3`, or `ranks 0-2,7`."""
    ascending = sorted(ranks)
    return f"{'rank' if len(ascending) == 1 else 'ranks'} {spans(ascending)}"


def stack_command(rank: LiveRank) -> str:
    """The command that prints where its process is."""
    if rank.is_python:
        return f"py-spy dump --pid {rank.pid}"
    return f"gdb --batch -ex 'thread apply all backtrace' -p {rank.pid}"
