"""Which ranks of the job a record has, and whether groups of one kind are alike: only then does
it speak for the ranks that it lacks.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from busbw.core.pattern import Comm, Pattern
from busbw.core.pattern_weights import POINT_TO_POINT, members_read, ranks_read, world_of
from busbw.core.sizes import counted

MOST_KINDS = 4
TYPICAL = ("pattern-csv", "simai")  # formats that state the calls of a typical rank
WAITS = "one rank of each communicator was read: its times include its wait for the other ranks"
_Calls = Counter[tuple[str, int]]


def coverage(pattern: Pattern) -> list[str]:
    """Notes on a record that lacks ranks: which it has, and, for each named kind of group, whether
    those read are alike.

    Empty if all ranks were read, or the record does not state which.
    """
    ranks, world = sorted(set(pattern.header.ranks)), world_of(pattern)
    if pattern.header.source in TYPICAL:
        return (
            [f"the file states the calls of a typical rank: all {world} are taken to make them"]
            if world > 1
            else []
        )
    if not lacks_ranks(pattern):
        return []
    alone = all(
        members_read(pattern, comm) < min(comm.ranks, 2) or comm.ranks == 1
        for comm in pattern.comms
    )
    return [_read(ranks, world), *_kinds(pattern), *([WAITS] if alone else [])]


def lacks_ranks(pattern: Pattern) -> bool:
    """Whether ranks of the job are known not to have been read."""
    if not pattern.header.ranks or pattern.header.source in TYPICAL:
        return False
    return ranks_read(pattern) < world_of(pattern) or any(
        members_read(pattern, comm) < comm.ranks for comm in pattern.comms
    )


def average(pattern: Pattern) -> str:
    """What shares and totals are, in words: the average of which ranks."""
    if not lacks_ranks(pattern):
        return "average of all ranks"
    ranks = sorted(set(pattern.header.ranks))
    return (
        f"rank {ranks[0]} alone" if len(ranks) == 1 else f"average of the {len(ranks)} ranks read"
    )


def _read(ranks: Sequence[int], world: int) -> str:
    if len(ranks) == 1:
        return (
            f"1 of {world} ranks was read, rank {ranks[0]}: shares and totals are those of this"
            " rank"
        )
    return (
        f"{len(ranks)} of {world} ranks were read, {spans(ranks)}: shares and totals are the"
        " average of these"
    )


def spans(ranks: Sequence[int]) -> str:
    """`0-7,16`, of ascending numbers; at most four spans."""
    found: list[list[int]] = []
    for rank in ranks:
        if found and rank == found[-1][1] + 1:
            found[-1][1] = rank
        else:
            found.append([rank, rank])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in found[:4]]
    return ",".join(shown) + (",..." if len(found) > 4 else "")


def _kinds(pattern: Pattern) -> list[str]:
    """A note for each name and size of groups that are parts of the job, and of which several
    must exist.
    """
    made: dict[int, _Calls] = defaultdict(Counter)
    for row in pattern.rows:
        if row.function not in POINT_TO_POINT:
            made[row.comm][row.function, row.bytes] += row.calls
    kinds: dict[tuple[str, int], list[Comm]] = defaultdict(list)
    for comm in pattern.comms:
        if comm.name and 1 < comm.ranks < world_of(pattern):
            kinds[comm.name, comm.ranks].append(comm)
    notes = [
        _kind(name, [made[comm.id] for comm in comms], world_of(pattern) // size)
        for (name, size), comms in kinds.items()
    ]
    return [note for note in notes if note][:MOST_KINDS]


def _kind(name: str, calls: Sequence[_Calls], of: int) -> str:
    if not 1 < len(calls) < of:
        return ""
    read = f"{len(calls)} of {of} groups {name[:20]} were read"
    if all(one == calls[0] for one in calls):
        return (
            f"{read}, with the same calls: the other {counted(of - len(calls), 'group')} are taken"
            " to be like them"
        )
    return f"{read}, with different calls: what the others do is unknown"
