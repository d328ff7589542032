"""A pattern for another number of ranks, by a stated rule, and the step that it repeats."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from busbw.core.collectives import BY_NAME as COLLECTIVES
from busbw.core.errors import UsageError
from busbw.core.pattern import Comm, Pattern, PatternRow, algbw_bytes

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
