"""Two results, or two sets of repeated runs, compared: which cells match, and what limits the
verdicts.
"""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from busbw.core.cells import (
    SCHEMA,
    CellKey,
    ComparedCell,
    Comparison,
    Side,
    Signs,
    Verdict,
    complete_repeats,
    in_table_order,
    timing,
    usable,
)
from busbw.core.errors import UsageError
from busbw.core.result import SHARED_PROCESSORS, Result
from busbw.core.sizes import counted
from busbw.stats.history import Times, spreads
from busbw.stats.judging import Cells, Limits, by_cells, by_runs, overloaded, runs_apart, undecided
from busbw.stats.rank_tests import fewest, fewest_chance, sign_test

Named = tuple[str, Result]  # a file name and its result


def compare(
    a: Sequence[Named],
    b: Sequence[Named],
    limits: Limits | None = None,
    earlier: Times | None = None,
) -> Comparison:
    """Compare b with a, one or more runs each.

    Repeats in a file count as runs. UsageError if collectives or alltoallv's bytes differ.

    `earlier` has seconds by stored run of this machine and cell; it shows how much runs differ
    where there is one run a side.
    """
    limits = limits or Limits()
    collective = _collective([*a, *b])
    first, second = (
        [run for _, result in side for run in complete_repeats(result)] for side in (a, b)
    )
    every = [*first, *second]
    order = list(dict.fromkeys(key for run in every for key in run))
    one_each = len(first) == len(second) == 1
    if not one_each:
        order.sort(key=in_table_order)  # repeats take the sizes in random order
    matched = [key for key in order if all(key in run and usable(run[key].time_s) for run in every)]
    if one_each:
        known = spreads(earlier or {})
        usual = max(runs_apart(result) for _, result in (a[0], b[0]))
        apart = {key: known.get(msgspec.structs.replace(key, cycle=0), usual) for key in matched}
        found = by_cells(matched, first[0], second[0], limits, apart)
        if any(overloaded(result) for _, result in (a[0], b[0])):
            found = {key: undecided(cell) for key, cell in found.items()}
    else:
        found = by_runs(matched, first, second, limits)
    compared = [found.get(key) or _unmatched(key, first, second) for key in order]
    timings = timing(a[0][1]), timing(b[0][1])
    notes = [*_states("A", a), *_states("B", b)]
    notes += [f"timing: {timings[0]} in A, {timings[1]} in B"] if timings[0] != timings[1] else []
    if one_each:
        notes += [
            *_busy("A", a),
            *_busy("B", b),
            *_stored(earlier or {}, known),
            *(_too_few_samples(compared, limits) or _undecided(compared)),
        ]
    else:
        notes += _too_few_runs(len(first), len(second), limits)
    sides = (_side(a, len(first)), _side(b, len(second)))
    return Comparison(
        SCHEMA,
        collective,
        limits.tolerance,
        limits.confidence,
        *sides,
        compared,
        _signs(compared),
        notes,
    )


def _collective(files: Sequence[Named]) -> str:
    name, result = files[0]
    for other, second in files[1:]:
        if second.spec.collective != result.spec.collective:
            both = (
                f"{name} measures {result.spec.collective}, {other} measures"
                f" {second.spec.collective}"
            )
            raise UsageError(both, "compare files of one collective")
        if result.traffic and second.traffic and result.traffic.source != second.traffic.source:
            sources = (
                one.traffic.source or "the default" for one in (result, second) if one.traffic
            )
            both = "{name} has the bytes of {}, {other} those of {}".format(
                *sources, name=name, other=other
            )
            raise UsageError(both, "compare runs of the same --counts")
    return result.spec.collective


def _side(files: Sequence[Named], runs: int) -> Side:
    result = files[0][1]
    devices = result.world.devices
    names, hosts = (
        Counter(device.name or "unnamed device" for device in devices),
        dict.fromkeys(device.host for device in devices),
    )
    library, ranks = result.library, result.world.ranks
    return Side(
        [name for name, _ in files],
        runs,
        list(hosts),
        dict(names),
        library.engine,
        library.nccl,
        ranks,
    )


def _unmatched(key: CellKey, a: Sequence[Cells], b: Sequence[Cells]) -> ComparedCell:
    times = (
        [run[key].time_s for run in side if key in run and usable(run[key].time_s)]
        for side in (a, b)
    )
    a_s, b_s = (statistics.median(side) if side else None for side in times)
    return ComparedCell(key=key, verdict=Verdict.UNMATCHED, a_s=a_s, b_s=b_s)


def _signs(compared: Sequence[ComparedCell]) -> Signs | None:
    ratios = [cell.ratio for cell in compared if cell.by == "means" and cell.ratio is not None]
    longer, shorter = sum(ratio > 1 for ratio in ratios), sum(ratio < 1 for ratio in ratios)
    return Signs(longer, shorter, sign_test(longer, shorter)) if ratios else None


def _states(letter: str, files: Sequence[Named]) -> list[str]:
    broken = [
        f"{letter}: the sweep of {name} is incomplete"
        for name, result in files
        if not result.complete
    ]
    wrong = [f"{letter}: {name} has wrong data" for name, result in files if result.wrong()]
    return [*broken, *wrong, *_bindings(letter, files)]


def _bindings(letter: str, files: Sequence[Named]) -> list[str]:
    """Ranks that share processors: on GPUs it may cost nothing now, and still is a difference
    between the sides.
    """
    return [
        f"{letter}: {name}: {finding.message}"
        for name, result in files
        for finding in result.findings
        if finding.id == SHARED_PROCESSORS
    ]


def _busy(letter: str, files: Sequence[Named]) -> list[str]:
    return [
        f"{letter}: {name}: {reason}" for name, result in files if (reason := overloaded(result))
    ]


def _too_few_samples(compared: Sequence[ComparedCell], limits: Limits) -> list[str]:
    tested = [cell for cell in compared if cell.by == "samples"]
    counts = ((cell.a_effective, cell.b_effective) for cell in tested)
    few = sum(2 * len(tested) / math.comb(a + b, a) > limits.level for a, b in counts)
    if not few:
        return []
    return [
        f"{few} of {len(tested)} cells have too few independent samples to be called slower or"
        f" faster at {100 * limits.confidence:g} % over all cells:"
        f" {fewest(len(tested), limits.level)} per side are needed"
    ]


def _stored(earlier: Times, known: Mapping[CellKey, float]) -> list[str]:
    if not known:
        return []
    return [
        f"{counted(len(earlier), 'stored run')} of this machine and sweep differ by"
        f" {100 * statistics.median(known.values()):.1f} % (standard deviation, median of the"
        " cells): a difference must be larger than that explains"
    ]


def _undecided(compared: Sequence[ComparedCell]) -> list[str]:
    count = sum(cell.verdict is Verdict.AMBIGUOUS for cell in compared)
    if not count:
        return []
    return [
        f"{count} of {len(compared)} cells are ambiguous: one run a side does not show how much"
        " runs differ; busbw run --repeats 4 on each side decides, or busbw compare --run"
    ]


def _too_few_runs(first: int, second: int, limits: Limits) -> list[str]:
    chance = fewest_chance(first, second, two_sided=True)
    if chance <= limits.level:
        return []
    return [
        f"{first} and {second} runs cannot show a difference at {100 * limits.confidence:g} %"
        f" confidence, only at {100 * (1 - chance):.3g} %: {fewest(1, limits.level)} per side can"
    ]
