"""Why a job stands still, and the words for the ranks and calls that cause it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from busbw.job.types import JobData, RankStatus
from busbw.pattern import merge
from busbw.pattern.pending_collective import Outstanding

MAX_NAMED = 4  # ranks that a message names


@dataclass(frozen=True, slots=True)
class Stall:
    """Why the job stands still: the ranks that cause it, if known, and the addresses of the hosts
    whose ports are suspect. `fix` is '' for that of the culprits or addresses.
    """

    culprits: Sequence[RankStatus]
    addresses: Sequence[str]
    message: str
    fix: str = ""


def by_call(calls: Mapping[int, str]) -> str:
    """`rank 0 all_reduce of 4 Float; ranks 1, 2 broadcast of 4 Float`: the fewest ranks first."""
    ranks: dict[str, list[int]] = {}
    for rank, call in calls.items():
        ranks.setdefault(call, []).append(rank)
    texts = []
    for call, numbers in sorted(ranks.items(), key=lambda item: len(item[1])):
        texts.append(f"{numbered(numbers)} {call}")
    return "; ".join(texts)


def named(job: JobData, ranks: Sequence[RankStatus]) -> str:
    """`rank 1 (pid 77, h2, GPU 1)`, or several."""
    names = []
    for rank in ranks[:MAX_NAMED]:
        gpu = f"GPU {rank.gpu}"
        if rank.nvml not in (rank.gpu, -1):
            gpu += f", NVML {rank.nvml}"
        names.append(f"rank {rank.rank} (pid {rank.pid}, {job.host(rank.host)}, {gpu})")
    more = f" and {len(ranks) - MAX_NAMED} more" if len(ranks) > MAX_NAMED else ""
    return ", ".join(names) + more


def call_text(call: Outstanding) -> str:
    """`all_reduce number 7 of group 0`; without a number if that is not known."""
    return f"{call.function} {place(call)}"


def is_send(call: Outstanding) -> bool:
    """Whether it is a send or a receive."""
    return merge.function(call.function.partition(" ")[0]) in merge.POINT_TO_POINT


def place(call: Outstanding) -> str:
    """`number 7 of group 0`."""
    return (f"number {call.seq} " if call.seq else "") + f"of group {call.group}"


def subject(job: JobData, ranks: Sequence[RankStatus], numbers: Sequence[int]) -> str:
    """The ranks as RAS names them, or their numbers if it does not name them all."""
    return named(job, ranks) if len(ranks) == len(numbers) else numbered(numbers)


def numbered(numbers: Sequence[int]) -> str:
    """`rank 3`; `ranks 0, 1, 2, 3 and 4 more`."""
    more = f" and {len(numbers) - MAX_NAMED} more" if len(numbers) > MAX_NAMED else ""
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {joined(numbers[:MAX_NAMED])}{more}"


def joined(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, ranks))
