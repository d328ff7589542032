"""Words that the verdicts on running jobs share."""

from collections.abc import Iterable, Sequence

from busbw.core.pattern_weights import spans
from busbw.core.sizes import counted
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


def named(ranks: Sequence[LiveRank]) -> str:
    """`rank 3 on gpu07`; of several the first with the number of the others."""
    more = f" (and {counted(len(ranks) - 1, 'more rank')})" if len(ranks) > 1 else ""
    return f"rank {ranks[0].rank} on {ranks[0].host}{more}"
