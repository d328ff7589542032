"""Which ranks of a recorded application make the same calls, and which share a NIC."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from busbw.core.pattern import RECV, SEND, Pattern
from busbw.core.pattern_weights import world_of
from busbw.model.types import PredictedRow


@dataclass(frozen=True, slots=True)
class RankKind:
    """Ranks that make the same calls. Rows are indices of the pattern's rows."""

    own: tuple[int, ...]  # the rows that each of these ranks makes
    # the rows that only other ranks on the same NIC make, over this NIC
    beside: tuple[int, ...] = ()

    @property
    def rows(self) -> tuple[int, ...]:
        return self.own + self.beside


def rank_kinds(
    pattern: Pattern, rows: Mapping[int, PredictedRow], per_host: int, gpus_of_nic: int
) -> Counter[RankKind]:
    """The kinds of ranks that were read, each with its number of ranks.

    Only calls of `rows` are looked at. Hosts have `per_host` consecutive ranks, of which
    `gpus_of_nic` use the same NIC.
    """
    rows_of = _rows_by_rank(pattern, rows)
    over_nic: dict[tuple[int, int], set[int]] = defaultdict(set)
    for rank, numbers in rows_of.items():
        nic = _nic(rank, per_host, gpus_of_nic)
        over_nic[nic].update(number for number in numbers if rows[number].nic_s)
    kinds: Counter[RankKind] = Counter()
    for rank, numbers in rows_of.items():
        beside = over_nic[_nic(rank, per_host, gpus_of_nic)] - numbers
        kinds[RankKind(tuple(sorted(numbers)), tuple(sorted(beside)))] += 1
    return kinds


def _nic(rank: int, per_host: int, gpus_of_nic: int) -> tuple[int, int]:
    """The host of a rank, and the number of its NIC there."""
    return rank // per_host, rank % per_host // gpus_of_nic


def _rows_by_rank(pattern: Pattern, rows: Iterable[int]) -> dict[int, set[int]]:
    """For each rank that was read the rows that it makes.

    If the members of a communicator are unknown, the first rank stands for all.
    """
    ranks = sorted(set(pattern.header.ranks)) or range(world_of(pattern))
    if any(not pattern.comm(pattern.rows[number]).members for number in rows):
        ranks = ranks[:1]
    rows_of: dict[int, set[int]] = {rank: set() for rank in ranks}
    for number in rows:
        row = pattern.rows[number]
        known = pattern.comm(row).members
        callers: Iterable[int] = known or ranks
        if row.function in (SEND, RECV):
            caller = row.rank or 0
            callers = known[caller : caller + 1] or ranks[:1]
        for rank in callers:
            if rank in rows_of:
                rows_of[rank].add(number)
    return rows_of
