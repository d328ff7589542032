"""What a call adds to the average rank that was read: it makes calls on different communicators
comparable, and sends with collectives.
"""

from collections import Counter

from busbw.core.pattern import RECV, SEND, Comm, Pattern
from busbw.core.pattern_scale import ranks_of

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
