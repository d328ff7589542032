"""How much of the job's time a call takes: what makes calls on different communicators, and sends beside collectives, comparable."""

from collections import Counter

from busbw.core.pattern import RECV, SEND, Pattern
from busbw.core.pattern_scale import ranks_of

POINT_TO_POINT = (SEND, RECV)


def world_of(pattern: Pattern) -> int:
    """The ranks of the job; at least 1."""
    return max(pattern.header.world, ranks_of(pattern), 1)


def weights(pattern: Pattern) -> list[float]:
    """For each row, the factor from a call's duration to what it adds to the communication time of a rank, averaged over the job's ranks.

    A collective occupies all members of its communicator. A send or receive occupies one rank, together with the others that this rank
    started in the same group, so they divide the time equally.
    """
    world = world_of(pattern)
    groups: Counter[tuple[int, int | None, int]] = Counter()
    for call in pattern.calls:
        row = pattern.rows[call.row]
        if row.function in POINT_TO_POINT and call.group is not None:
            groups[row.comm, row.rank, call.group] += 1
    parts = [0.0] * len(pattern.rows)
    for call in pattern.calls:
        row = pattern.rows[call.row]
        parts[row.id] += 1 / (groups[row.comm, row.rank, call.group] or 1) if call.group is not None else 1
    return [
        (parts[row.id] / row.calls if pattern.calls else 1) / world
        if row.function in POINT_TO_POINT
        else (pattern.comm(row).ranks or world) / world
        for row in pattern.rows
    ]
