"""Two results, or two sets of repeated runs, side by side: which cells belong together, and what limits the verdicts on them."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence

from busbw.core.cells import CellKey, in_table_order, runs, timing, usable
from busbw.core.comparison import SCHEMA, ComparedCell, Comparison, Side, Signs, Verdict
from busbw.core.errors import UsageError
from busbw.core.result import Result
from busbw.stats.judging import Cells, Limits, by_cells, by_runs
from busbw.stats.rank_tests import fewest, sign_test
from busbw.stats.run_tests import fewest_chance

Named = tuple[str, Result]  # a file, and what is in it


def compare(a: Sequence[Named], b: Sequence[Named], limits: Limits | None = None) -> Comparison:
    """b held against a, each one run or more: the repeats of a file are runs. UsageError where the files are of different collectives."""
    limits = limits or Limits()
    collective = _collective([*a, *b])
    first, second = ([run for _, result in side for run in runs(result)] for side in (a, b))
    every = [*first, *second]
    order = list(dict.fromkeys(key for run in every for key in run))
    one_each = len(first) == len(second) == 1
    if not one_each:
        order.sort(key=in_table_order)  # repeats take the sizes in random order
    matched = [key for key in order if all(key in run and usable(run[key].time_s) for run in every)]
    judged = by_cells(matched, first[0], second[0], limits) if one_each else by_runs(matched, first, second, limits)
    compared = [judged.get(key) or _unmatched(key, first, second) for key in order]
    notes = [*_states("A", a), *_states("B", b), *_differences(a[0][1], b[0][1])]
    notes += _too_few_samples(compared, limits) if one_each else _too_few_runs(len(first), len(second), limits)
    sides = (_side(a, len(first)), _side(b, len(second)))
    return Comparison(SCHEMA, collective, limits.tolerance, limits.confidence, *sides, compared, _signs(compared), notes)


def _collective(files: Sequence[Named]) -> str:
    name, result = files[0]
    for other, its in files[1:]:
        if its.spec.collective != result.spec.collective:
            raise UsageError(f"{name} is of {result.spec.collective}, {other} of {its.spec.collective}", "compare files of one collective")
    return result.spec.collective


def _side(files: Sequence[Named], runs: int) -> Side:
    result = files[0][1]
    devices = result.world.devices
    names = Counter(device.name or "unnamed device" for device in devices)
    hosts = list(dict.fromkeys(device.host for device in devices))
    return Side([name for name, _ in files], runs, hosts, dict(names), result.library.engine, result.library.nccl)


def _unmatched(key: CellKey, a: Sequence[Cells], b: Sequence[Cells]) -> ComparedCell:
    first, second = ([run[key].time_s for run in side if key in run and usable(run[key].time_s)] for side in (a, b))
    return ComparedCell(key, Verdict.UNMATCHED, statistics.median(first) if first else None, statistics.median(second) if second else None)


def _signs(compared: Sequence[ComparedCell]) -> Signs | None:
    ratios = [cell.ratio for cell in compared if cell.by == "means" and cell.ratio is not None]
    longer, shorter = sum(ratio > 1 for ratio in ratios), sum(ratio < 1 for ratio in ratios)
    return Signs(longer, shorter, sign_test(longer, shorter)) if ratios else None


def _states(letter: str, files: Sequence[Named]) -> list[str]:
    broken = [f"{letter}: {name} is of a sweep that did not end" for name, result in files if not result.complete]
    return broken + [f"{letter}: {name} had wrong data" for name, result in files if result.wrong()]


def _differences(a: Result, b: Result) -> list[str]:
    """What else differs, and would explain a ratio: the ranks, and how the times were taken."""
    facts = (("ranks", a.world.ranks, b.world.ranks), ("timing", timing(a), timing(b)))
    return [f"{name}: {ours} in A, {theirs} in B" for name, ours, theirs in facts if ours and theirs and ours != theirs]


def _too_few_samples(judged: Sequence[ComparedCell], limits: Limits) -> list[str]:
    tested = [cell for cell in judged if cell.by == "samples"]
    few = sum(2 * len(tested) / math.comb(cell.a_count + cell.b_count, cell.a_count) > limits.level for cell in tested)
    if not few:
        return []
    return [
        f"{few} of {len(tested)} cells have too few samples to be called slower or faster at {100 * limits.confidence:g} % over all: "
        f"{fewest(len(tested), limits.level)} a side are needed"
    ]


def _too_few_runs(first: int, second: int, limits: Limits) -> list[str]:
    chance = fewest_chance(first, second, two_sided=True)
    if chance <= limits.level:
        return []
    return [
        f"{first} and {second} runs cannot show a difference at {100 * limits.confidence:g} %, at most at {100 * (1 - chance):.3g} %: "
        f"{fewest(1, limits.level)} a side can"
    ]
