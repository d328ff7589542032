"""The check of what was found, with new ranks: sweeps with NCCL's choice and with the table in
turn, compared as `busbw compare` does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from busbw.core.comparison import ComparedCell, Comparison
from busbw.core.finding import Verdict
from busbw.core.result import Result
from busbw.stats.compare import compare
from busbw.stats.judging import RELEVANT, Limits
from busbw.tune.gains import slower_than_allowed, together
from busbw.tune.jobs import Jobs
from busbw.tune.types import Gain

OWN, TUNED = "NCCL's choice", "tuned"
# findings that make a tuning worth little
CONDITIONS = ("tcp_congestion", "machine_xid", "machine_fault", "machine", "crowded")
Side = Callable[[], Result]


@dataclass(frozen=True, slots=True)
class Checked:
    """One size in the check: the gain out of place, whether any placement is slower by over 2 %,
    whether both are shorter together, and whether ranks received wrong data with what was found.
    """

    gain: Gain
    slower: bool
    shorter: bool
    wrong: bool


@dataclass(frozen=True, slots=True)
class Check:
    """All runs, and the sizes at which ranks received wrong data with what was found."""

    comparison: Comparison
    wrong: frozenset[int]


def in_turn(jobs: Jobs, tuned: Side, rounds: int) -> Check:
    """NCCL's choice and `tuned`, each `rounds` times, in the order A B B A A B.

    `jobs.findings` gets what is unusual about the machines.
    """
    results: dict[str, list[tuple[str, Result]]] = {OWN: [], TUNED: []}
    for number in range(rounds):
        for name, side in ((OWN, jobs.own), (TUNED, tuned))[:: 1 if number % 2 == 0 else -1]:
            results[name].append((name, side()))
    wrong = frozenset(size for _, result in results[TUNED] for size in _wrong(result))
    found = (one for side in results.values() for _, result in side for one in result.findings)
    jobs.findings.update(
        {
            one.id: one
            for one in found
            if one.id in CONDITIONS and one.verdict in (Verdict.WARN, Verdict.FAIL)
        }
    )
    return Check(compare(results[OWN], results[TUNED], Limits(tolerance=RELEVANT)), wrong)


def _wrong(result: Result) -> set[int]:
    """The sizes with wrong data; all if ranks have written out of bounds."""
    cells = (
        (row.size_bytes, cell) for row in result.rows for cell in (row.out_of_place, row.in_place)
    )
    return {size for size, cell in cells if result.out_of_bounds or (cell and cell.wrong)}


def by_size(checked: Check) -> dict[int, Checked]:
    """Each size that both sides have."""
    cells: dict[int, list[ComparedCell]] = {}
    for cell in checked.comparison.cells:
        if cell.ratio is not None:
            cells.setdefault(cell.key.size_bytes, []).append(cell)
    return {size: _checked(some, wrong=size in checked.wrong) for size, some in cells.items()}


def _checked(cells: Sequence[ComparedCell], *, wrong: bool) -> Checked:
    ratios = [cell.ratio or 1.0 for cell in cells]
    first = cells[0]  # out of place
    gain = Gain(
        default_s=first.a_s or 0.0,
        choice_s=first.b_s or 0.0,
        ratio=ratios[0],
        low=first.low,
        high=first.high,
        p=first.p or 1.0,
    )
    return Checked(gain, slower_than_allowed(ratios), together(ratios) < 1, wrong)


def check(jobs: Jobs, table: str, variables: Mapping[str, str], rounds: int) -> Check:
    """NCCL's choice against the table and the variables."""
    return in_turn(jobs, lambda: jobs.sweep(variables, table), rounds)
