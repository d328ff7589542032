"""What a pattern says about the ranks of its job, also about those that were not read.

`weights` has what a call adds to the time of an average rank, which makes calls on different
communicators comparable, and sends with collectives. `coverage` notes which ranks were read, and
whether groups of one kind are alike: only then does the record represent the ranks that it lacks.
`scaled` makes the pattern for another number of ranks, by a stated rule. `step` finds the step that
a job repeats.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from busbw.core.collectives import BY_NAME as COLLECTIVES
from busbw.core.errors import UsageError
from busbw.core.pattern import RECV, SEND, Comm, Header, Pattern, PatternRow, algbw_bytes
from busbw.core.sizes import counted

BYTES, COUNT = "bytes", "count"
MIN_PERIODS = 3
POINT_TO_POINT = (SEND, RECV)
MAX_KINDS = 4
FLIGHT_RECORDER = "flight-recorder"
# Formats that state the calls of a typical rank
FORMATS_OF_TYPICAL_RANKS = "pattern-csv", "simai"
WAITS_NOTE = (
    "one rank of each communicator was read: its times include its wait for the other ranks"
)


def ranks_of(pattern: Pattern) -> int:
    """The number of ranks that the pattern needs: one more than its highest member, and at least
    the ranks of its largest communicator.
    """
    members = [member for comm in pattern.comms for member in comm.members]
    largest = max((comm.ranks for comm in pattern.comms), default=0)
    return max(max(members, default=-1) + 1, largest)


def scaled(pattern: Pattern, ranks: int, rule: str) -> Pattern:
    """The pattern for `ranks` ranks.

    `bytes` keeps the bytes that algbw divides by the time, so that each rank's share shrinks as
    ranks are added. `count` keeps NCCL's count argument, so that all_gather and reduce_scatter
    grow. No rank's share becomes less than an element. UsageError if a communicator is only a
    part of the job, or a rank addresses another one: no rule says what other ranks would do.
    """
    recorded = ranks_of(pattern)
    if ranks == recorded:
        return pattern
    as_recorded = f"use {recorded} ranks"
    if rule not in (BYTES, COUNT):
        raise UsageError(
            f"the pattern is of {recorded} ranks, not {ranks}",
            f"{as_recorded}, or choose a rule: --scale {BYTES} or --scale {COUNT}",
        )
    for comm in pattern.comms:
        if comm.ranks != recorded:
            raise UsageError(
                f"communicator {comm.id} has {comm.ranks} of {recorded} ranks:"
                f" no rule tells its members among {ranks}",
                as_recorded,
            )
    for row in pattern.rows:
        if row.rank is not None or row.peer is not None:
            raise UsageError(
                f"the pattern has {row.function} to single ranks, which no rule can scale",
                as_recorded,
            )
    header = msgspec.structs.replace(pattern.header, world=ranks, ranks=[])
    comms = [Comm(comm.id, ranks, comm.name) for comm in pattern.comms]
    rows = [_scaled_row(row, recorded, ranks, rule) for row in pattern.rows]
    return Pattern(header, comms, rows, pattern.calls)


def _scaled_row(row: PatternRow, recorded: int, ranks: int, rule: str) -> PatternRow:
    root = row.root if row.root is None or row.root < ranks else 0
    units = COLLECTIVES[row.function].algbw_multiple
    if rule == COUNT and row.count is not None and row.dtype is not None:
        size = algbw_bytes(row.function, row.count, row.dtype, ranks)
        return msgspec.structs.replace(row, bytes=size, root=root)
    size = row.bytes if rule == BYTES else row.bytes // units(recorded) * units(ranks)
    count = None
    if row.count is not None:
        count = max(row.count * units(recorded) // units(ranks), min(row.count, 1))
    if count is not None and row.dtype is not None:
        size = algbw_bytes(row.function, count, row.dtype, ranks)
    return msgspec.structs.replace(row, bytes=size, count=count, root=root)


@dataclass(frozen=True)
class RepeatedStep:
    """The last `calls` calls are one step of a job, which came `times` times in a row; 0 calls if
    no step repeats.
    """

    calls: int = 0
    times: int = 0


def step(rows: Sequence[int]) -> RepeatedStep:
    """The shortest period of the end of the sequence that comes MIN_PERIODS times or more.

    `rows` has the row of each call. The beginning may differ, because a job's first steps set up,
    but must be shorter than the repeated end.
    """
    backward = rows[::-1]
    # the failure function of Knuth, Morris and Pratt: the longest border of each prefix
    borders = [0] * len(backward)
    repeated, border = RepeatedStep(), 0
    for end in range(1, len(backward)):
        while border and backward[end] != backward[border]:
            border = borders[border - 1]
        border += backward[end] == backward[border]
        borders[end] = border
        length, calls = end + 1, end + 1 - border
        if calls <= length // MIN_PERIODS and 2 * length > len(backward):
            repeated = RepeatedStep(calls, length // calls)
    return repeated


def world_of(pattern: Pattern) -> int:
    """The ranks of the job; at least 1."""
    return max(pattern.header.world, ranks_of(pattern), 1)


def ranks_read(pattern: Pattern) -> int:
    """The number of ranks whose calls were read: all if the record does not state them."""
    return len(set(pattern.header.ranks)) or world_of(pattern)


def members_read(pattern: Pattern, comm: Comm) -> int:
    """How many ranks of a communicator were read: all if the record does not state it."""
    listed = len(set(comm.members) & set(pattern.header.ranks))
    return min(comm.read or listed or comm.ranks or world_of(pattern), ranks_read(pattern))


def parts(pattern: Pattern) -> list[float]:
    """For each row, the share of the ranks read that make a call: the members of its communicator,
    or the one rank that sends or receives.
    """
    read = ranks_read(pattern)
    by_comm = [members_read(pattern, comm) / read for comm in pattern.comms]
    return [
        1 / read if row.function in POINT_TO_POINT else by_comm[row.comm] for row in pattern.rows
    ]


def weights(pattern: Pattern) -> list[float]:
    """For each row, the factor from a call's duration to what it adds to the communication time of
    a rank, averaged over the ranks read.

    A collective occupies the members of its communicator. A send or receive occupies one rank. All
    that this rank started in the same group share the time equally.
    """
    row_parts = parts(pattern)
    if not pattern.calls:
        return row_parts
    groups: Counter[tuple[int, int | None, int]] = Counter()
    for call in pattern.calls:
        row = pattern.rows[call.row]
        if row.function in POINT_TO_POINT and call.group is not None:
            groups[row.comm, row.rank, call.group] += 1
    shares = [0.0] * len(pattern.rows)  # sum of 1 over the calls of the same group
    for call in pattern.calls:
        row = pattern.rows[call.row]
        in_group = groups[row.comm, row.rank, call.group] if call.group is not None else 1
        shares[row.id] += 1 / (in_group or 1)
    return [
        part * shares[row.id] / row.calls if row.function in POINT_TO_POINT else part
        for row, part in zip(pattern.rows, row_parts, strict=True)
    ]


_Calls = Counter[tuple[str, int]]


def coverage(pattern: Pattern) -> list[str]:
    """Notes on what a record lacks: calls of which only the kernels are known, reduce_scatters that
    have another name in it, and ranks: which it has, and, for each named kind of group, whether
    those read are alike.

    Empty if nothing is known to be missing.
    """
    ranks, world = sorted(set(pattern.header.ranks)), world_of(pattern)
    if pattern.header.source in FORMATS_OF_TYPICAL_RANKS:
        if world == 1:
            return []
        return [f"the file states the calls of a typical rank: all {world} are taken to make them"]
    notes = _unlisted_notes(pattern.header) + _renamed_notes(pattern)
    if not lacks_ranks(pattern):
        return notes
    notes += [_ranks_note(pattern.header, ranks, world), *_kind_notes(pattern)]
    alone = all(
        members_read(pattern, comm) < min(comm.ranks, 2) or comm.ranks == 1
        for comm in pattern.comms
    )
    if alone and any(row.cpu_us or row.gpu_us for row in pattern.rows):
        notes.append(WAITS_NOTE)
    return notes


def _renamed_notes(pattern: Pattern) -> list[str]:
    """A note on all_reduces that PyTorch's Gloo may have made of reduce_scatters: of as many
    elements as an all_gather, in a record without NCCL and without a reduce_scatter.
    """
    header, functions = pattern.header, {row.function for row in pattern.rows}
    if header.source != FLIGHT_RECORDER or header.nccl or "reduce_scatter" in functions:
        return []
    ranks = {comm.id: comm.ranks for comm in pattern.comms}
    gathered = {
        (row.comm, row.count * ranks[row.comm])
        for row in pattern.rows
        if row.function == "all_gather" and row.count
    }
    calls = sum(
        row.calls
        for row in pattern.rows
        if row.function == "all_reduce" and (row.comm, row.count) in gathered
    )
    if not calls:
        return []
    return [
        f"{counted(calls, 'all_reduce')} of as many elements as an all_gather may be"
        " reduce_scatters, such as FSDP's: PyTorch's Gloo makes an all_reduce of each, and records"
        " that; NCCL's reduce_scatter moves half the bytes"
    ]


def _unlisted_notes(header: Header) -> list[str]:
    """A note on communication that has kernels, but no calls in the record."""
    gpu_time = header.gpu_time
    if gpu_time is None or not gpu_time.unlisted:
        return []
    longest = sorted(gpu_time.unlisted, key=lambda kernels: -kernels.gpu_us.total)
    names = list(dict.fromkeys(kernels.name for kernels in longest))
    others = f" and {len(names) - MAX_KINDS} others" if len(names) > MAX_KINDS else ""
    share = 100 * gpu_time.unlisted_us / (gpu_time.communication_us or 1.0)
    return [
        f"{share:.1f} % of the communication's GPU time is in kernels without a recorded call:"
        " calls in CUDA graphs, and of libraries other than NCCL, have no arguments in the trace,"
        f" so sizes shown as - are unknown. {counted(gpu_time.unlisted_calls, 'kernel')},"
        f" {gpu_time.unlisted_us / 1e3:.3f} ms: {', '.join(names[:MAX_KINDS])}{others}"
    ]


def lacks_ranks(pattern: Pattern) -> bool:
    """Whether ranks of the job are known not to have been read."""
    if not pattern.header.ranks or pattern.header.source in FORMATS_OF_TYPICAL_RANKS:
        return False
    return ranks_read(pattern) < world_of(pattern) or any(
        members_read(pattern, comm) < comm.ranks for comm in pattern.comms
    )


def average(pattern: Pattern) -> str:
    """Which ranks shares and totals are the average of, in words."""
    if not lacks_ranks(pattern):
        return "average of all ranks"
    ranks = sorted(set(pattern.header.ranks))
    if len(ranks) == 1:
        return f"rank {ranks[0]} alone" if pattern.header.ranks_known else "one rank alone"
    return f"average of the {len(ranks)} ranks read"


def _ranks_note(header: Header, ranks: Sequence[int], world: int) -> str:
    which = f", rank {ranks[0]}" if len(ranks) == 1 else f", {spans(ranks)}"
    if not header.ranks_known:
        which = "; the log does not say which"
    if len(ranks) == 1:
        return f"1 of {world} ranks was read{which}: shares and totals are those of this rank"
    return (
        f"{len(ranks)} of {world} ranks were read{which}:"
        " shares and totals are the average of these"
    )


def ranks_text(ranks: Iterable[int]) -> str:
    """`rank 3`, or `ranks 0-2,7`."""
    ascending = sorted(set(ranks))
    return f"{'rank' if len(ascending) == 1 else 'ranks'} {spans(ascending)}"


def spans(ranks: Sequence[int]) -> str:
    """`0-7,16` for ascending ranks; at most four spans."""
    ends: list[list[int]] = []
    for rank in ranks:
        if ends and rank == ends[-1][1] + 1:
            ends[-1][1] = rank
        else:
            ends.append([rank, rank])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in ends[:4]]
    return ",".join(shown) + (",..." if len(ends) > 4 else "")


def _kind_notes(pattern: Pattern) -> list[str]:
    """A note for each kind of group that is a part of the job and must exist several times."""
    calls_by_comm: dict[int, _Calls] = defaultdict(Counter)
    for row in pattern.rows:
        if row.function not in POINT_TO_POINT:
            calls_by_comm[row.comm][row.function, row.bytes] += row.calls
    world = world_of(pattern)
    kinds: dict[tuple[str, int], list[_Calls]] = defaultdict(list)
    for comm in pattern.comms:
        if comm.name and 1 < comm.ranks < world:
            kinds[comm.name, comm.ranks].append(calls_by_comm[comm.id])
    notes = [_kind_note(name, calls, world // size) for (name, size), calls in kinds.items()]
    return [note for note in notes if note][:MAX_KINDS]


def _kind_note(name: str, calls: Sequence[_Calls], groups: int) -> str:
    """The note on groups of a name, of which there are `groups`; `calls` are those of the read."""
    if not 1 < len(calls) < groups:
        return ""
    read = f"{len(calls)} of {groups} groups {name[:20]} were read"
    if any(calls_of_group != calls[0] for calls_of_group in calls):
        return f"{read}, with different calls: what the others do is unknown"
    others = counted(groups - len(calls), "group")
    return f"{read}, with the same calls: the other {others} are taken to be like them"
