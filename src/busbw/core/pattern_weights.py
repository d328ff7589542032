"""Which ranks of the job a record has, and whether groups of one kind are alike: only then does
it speak for the ranks that it lacks.

What a call adds to the average rank that was read: it makes calls on different communicators
comparable, and sends with collectives.

A pattern for another number of ranks, by a stated rule, and the step that it repeats.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from busbw.core.collectives import BY_NAME as COLLECTIVES
from busbw.core.errors import UsageError
from busbw.core.pattern import RECV, SEND, Comm, Pattern, PatternRow, algbw_bytes
from busbw.core.sizes import counted

BYTES, COUNT = "bytes", "count"
LEAST_PERIODS = 3


def ranks_of(pattern: Pattern) -> int:
    """The number of ranks that the pattern needs: one more than its highest member."""
    members = [member for comm in pattern.comms for member in comm.members]
    return max(max(members, default=-1) + 1, max((comm.ranks for comm in pattern.comms), default=0))


def scaled(pattern: Pattern, ranks: int, rule: str) -> Pattern:
    """The pattern for `ranks` ranks.

    `bytes` keeps the bytes that algbw divides by the time, so that each rank's share shrinks as
    ranks are added. `count` keeps NCCL's count argument, so that all_gather and reduce_scatter
    grow. UsageError if a communicator is only a part of the job, or a rank addresses another one:
    no rule says what other ranks would do.
    """
    recorded = ranks_of(pattern)
    if ranks == recorded:
        return pattern
    as_recorded = f"use {recorded} ranks"
    if rule not in (BYTES, COUNT):
        message = f"the pattern is of {recorded} ranks, not {ranks}"
        raise UsageError(
            message, f"{as_recorded}, or choose a rule: --scale {BYTES} or --scale {COUNT}"
        )
    for comm in pattern.comms:
        if comm.ranks != recorded:
            message = (
                f"communicator {comm.id} has {comm.ranks} of {recorded} ranks: no rule tells its"
                f" members among {ranks}"
            )
            raise UsageError(message, as_recorded)
    for row in pattern.rows:
        if row.rank is not None or row.peer is not None:
            raise UsageError(
                f"the pattern has {row.function} to single ranks, which no rule can scale",
                as_recorded,
            )
    header = msgspec.structs.replace(pattern.header, world=ranks, ranks=[])
    comms = [Comm(comm.id, ranks, comm.name) for comm in pattern.comms]
    return Pattern(
        header, comms, [_row(row, recorded, ranks, rule) for row in pattern.rows], pattern.calls
    )


def _row(row: PatternRow, before: int, ranks: int, rule: str) -> PatternRow:
    root = row.root if row.root is None or row.root < ranks else 0
    units = COLLECTIVES[row.function].algbw_units
    if rule == BYTES or row.count is None or row.dtype is None:
        size = row.bytes if rule == BYTES else row.bytes // units(before) * units(ranks)
        count = None if row.count is None else row.count * units(before) // units(ranks)
        if count is not None and row.dtype is not None:
            size = algbw_bytes(row.function, count, row.dtype, ranks)
        return msgspec.structs.replace(row, bytes=size, count=count, root=root)
    return msgspec.structs.replace(
        row, bytes=algbw_bytes(row.function, row.count, row.dtype, ranks), root=root
    )


@dataclass(frozen=True)
class Step:
    """The last `calls` calls are one step of a job, and came `times` times in a row; 0 calls if
    none repeats.
    """

    calls: int = 0
    times: int = 0


def step(rows: Sequence[int]) -> Step:
    """The shortest period of the end of the sequence that is seen three times or more.

    The beginning may differ, as a job's first steps set up, but is shorter than what repeats.
    """
    tail = rows[::-1]
    # of Knuth, Morris and Pratt: the longest border of each prefix of the reversed sequence
    failure = [0] * len(tail)
    found, at = Step(), 0
    for end in range(1, len(tail)):
        while at and tail[end] != tail[at]:
            at = failure[at - 1]
        at += tail[end] == tail[at]
        failure[end] = at
        length, calls = end + 1, end + 1 - at
        if calls <= length // LEAST_PERIODS and 2 * length > len(tail):
            found = Step(calls, length // calls)
    return found


POINT_TO_POINT = (SEND, RECV)


def world_of(pattern: Pattern) -> int:
    """The ranks of the job; at least 1."""
    return max(pattern.header.world, ranks_of(pattern), 1)


def ranks_read(pattern: Pattern) -> int:
    """The ranks whose calls were read: all of the job where the record does not state them."""
    return len(set(pattern.header.ranks)) or world_of(pattern)


def members_read(pattern: Pattern, comm: Comm) -> int:
    """How many ranks of a communicator were read: all where the record does not say."""
    listed = len(set(comm.members) & set(pattern.header.ranks))
    return min(comm.read or listed or comm.ranks or world_of(pattern), ranks_read(pattern))


def parts(pattern: Pattern) -> list[float]:
    """For each row, the part of the ranks read that make a call: members of its communicator, or
    the one that sends or receives.
    """
    read = ranks_read(pattern)
    of_comm = [members_read(pattern, comm) / read for comm in pattern.comms]
    return [
        1 / read if row.function in POINT_TO_POINT else of_comm[row.comm] for row in pattern.rows
    ]


def weights(pattern: Pattern) -> list[float]:
    """For each row, the factor from a call's duration to what it adds to the communication time of
    a rank, averaged over the ranks read.

    A collective occupies the members of its communicator. A send or receive occupies one rank,
    together with the others that this rank started in the same group, so they divide the time
    equally.
    """
    groups: Counter[tuple[int, int | None, int]] = Counter()
    for call in pattern.calls:
        row = pattern.rows[call.row]
        if row.function in POINT_TO_POINT and call.group is not None:
            groups[row.comm, row.rank, call.group] += 1
    divided = [0.0] * len(pattern.rows)
    for call in pattern.calls:
        row = pattern.rows[call.row]
        divided[row.id] += (
            1 / (groups[row.comm, row.rank, call.group] or 1) if call.group is not None else 1
        )
    return [
        (
            part * divided[row.id] / row.calls
            if pattern.calls and row.function in POINT_TO_POINT
            else part
        )
        for row, part in zip(pattern.rows, parts(pattern), strict=True)
    ]


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
