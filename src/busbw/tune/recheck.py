"""The check of what was found, with new ranks: sweeps with NCCL's choice and with the table in turn, compared as `busbw compare` does."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from busbw.core.comparison import ComparedCell, Comparison
from busbw.core.result import Result
from busbw.core.tuning import Gain
from busbw.stats.compare import compare
from busbw.stats.judging import RELEVANT, Limits
from busbw.stats.tuning import slower_than_allowed, together
from busbw.tune.jobs import Jobs

OWN, TUNED = "NCCL's choice", "tuned"
Side = Callable[[], Result]


@dataclass(frozen=True, slots=True)
class Checked:
    """One size in the check: the gain out of place, whether any placement is slower by over 2 %, and whether both are shorter together."""

    gain: Gain
    slower: bool
    shorter: bool


def in_turn(first: Side, second: Side, rounds: int) -> Comparison:
    """Both sides `rounds` times, in the order A B B A A B."""
    results: dict[Side, list[tuple[str, Result]]] = {first: [], second: []}
    for number in range(rounds):
        for side, name in ((first, OWN), (second, TUNED))[:: 1 if number % 2 == 0 else -1]:
            results[side].append((name, side()))
    return compare(results[first], results[second], Limits(tolerance=RELEVANT))


def by_size(comparison: Comparison) -> dict[int, Checked]:
    """Each size that both sides have."""
    cells: dict[int, list[ComparedCell]] = {}
    for cell in comparison.cells:
        if cell.ratio is not None:
            cells.setdefault(cell.key.size_bytes, []).append(cell)
    return {size: _checked(some) for size, some in cells.items()}


def _checked(cells: Sequence[ComparedCell]) -> Checked:
    ratios = [cell.ratio or 1.0 for cell in cells]
    first = cells[0]  # out of place
    gain = Gain(default_s=first.a_s or 0.0, choice_s=first.b_s or 0.0, ratio=ratios[0], low=first.low, high=first.high, p=first.p or 1.0)
    return Checked(gain, slower_than_allowed(ratios), together(ratios) < 1)


def check(jobs: Jobs, table: str, variables: Mapping[str, str], rounds: int) -> Comparison:
    """NCCL's choice against the table and the variables."""
    return in_turn(lambda: jobs.sweep({}), lambda: jobs.sweep(variables, table), rounds)
