"""Compares two results, or two sets of repeated runs: matches their cells and notes what limits the
verdicts.
"""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from busbw.core.cells import (
    PLACEMENTS,
    CellKey,
    complete_repeats,
    in_table_order,
    repeats,
    timing,
    usable,
)
from busbw.core.comparison import (
    SCHEMA,
    ComparedCell,
    ComparedSide,
    Comparison,
    ComparisonVerdict,
    SignTest,
)
from busbw.core.errors import UsageError
from busbw.core.parts import PartsResult
from busbw.core.ran import NcclKernel
from busbw.core.result import SHARED_PROCESSORS, Result
from busbw.core.sizes import counted, format_size
from busbw.stats.history import Times, spreads
from busbw.stats.judging import (
    RUNS_FREEDOM,
    Cells,
    Limits,
    RunSpread,
    by_cells,
    by_runs,
    spread_between_runs,
    undecided,
    why_overloaded,
)
from busbw.stats.rank_tests import fewest, fewest_chance, sign_test

Named = tuple[str, Result]  # a file name and its result
Sides = tuple[str, str]  # what notes call them


def compare(
    a: Sequence[Named],
    b: Sequence[Named],
    limits: Limits | None = None,
    earlier: Times | None = None,
    sides: Sides = ("A", "B"),
) -> Comparison:
    """Compare b with a, one or more runs each. Notes call them by the names of `sides`.

    Repeats in a file count as runs. UsageError if collectives or alltoallv's bytes differ, or what
    other results than sweeps measure.

    `earlier` has seconds by cell of stored runs of this machine. With a single run per side, they
    show how much runs differ.
    """
    limits = limits or Limits()
    earlier = earlier or {}
    collective = _collective([*a, *b])
    a_runs, b_runs = _runs(a), _runs(b)
    runs = [*a_runs, *b_runs]
    single = len(a_runs) == len(b_runs) == 1
    order = list(dict.fromkeys(key for run in runs for key in run))
    if not single:
        order.sort(key=in_table_order)  # repeats take the sizes in random order
    matched = [key for key in order if _is_in_all(key, runs)]
    if single:
        spread = _spread_of_runs(a[0][1], b[0][1], earlier)
        judged = _judge_single(matched, a[0][1], b[0][1], spread, limits)
    else:
        judged = by_runs(matched, a_runs, b_runs, limits)
    cells = [judged.get(key) or _unmatched(key, a_runs, b_runs) for key in order]
    notes = [*_defects(sides[0], a), *_defects(sides[1], b), *_differences(a, b, sides)]
    if single:
        notes += [*_overloaded_hosts(sides[0], a), *_overloaded_hosts(sides[1], b)]
        notes += _spread_note(len(earlier), spread.known)
        few = _too_few_samples(cells, limits) if spread.is_none() else []
        notes += few or _ambiguous_cells(cells, what(a[0][1]))
    else:
        notes += _too_few_runs(len(a_runs), len(b_runs), limits)
    return Comparison(
        SCHEMA,
        collective,
        limits.tolerance,
        limits.confidence,
        _side(a, len(a_runs)),
        _side(b, len(b_runs)),
        cells,
        _signs(cells),
        notes,
        what(a[0][1]),
    )


def what(result: Result) -> str:
    """What a result that is no sweep measures; '' for a sweep."""
    return result.what if isinstance(result, PartsResult) else ""


def _is_in_all(key: CellKey, runs: Sequence[Cells]) -> bool:
    return all(key in run and usable(run[key].time_s) for run in runs)


def _runs(files: Sequence[Named]) -> list[Cells]:
    """The cells of every run of a side."""
    return [run for _, result in files for run in complete_repeats(result)]


def _spread_of_runs(a: Result, b: Result, earlier: Times) -> RunSpread:
    """How much runs differ: what stored runs show, else what is usual for such machines."""
    usual, known = max(spread_between_runs(a), spread_between_runs(b)), spreads(earlier)
    if known:
        return RunSpread(usual, known, min(RUNS_FREEDOM, len(earlier) - 1))
    return RunSpread(usual)


def _judge_single(
    keys: Sequence[CellKey], a: Result, b: Result, spread: RunSpread, limits: Limits
) -> dict[CellKey, ComparedCell]:
    """The verdicts of one run per side."""
    (a_cells,), (b_cells,) = complete_repeats(a), complete_repeats(b)
    judged = by_cells(keys, a_cells, b_cells, limits, spread)
    if why_overloaded(a) or why_overloaded(b):
        return {key: undecided(cell) for key, cell in judged.items()}
    return judged


def _collective(files: Sequence[Named]) -> str:
    """The collective of all files; UsageError if they have different ones, or other bytes."""
    first_name, first = files[0]
    for name, result in files[1:]:
        measured, first_measured = (what(each) or each.spec.collective for each in (result, first))
        if measured != first_measured:
            ours, theirs = _differing(first_measured, measured)
            raise UsageError(
                f"{first_name} measures {ours}, {name} measures {theirs}",
                "compare runs of one command with the same options"
                if what(result) or what(first)
                else "compare files of one collective",
            )
        if first.traffic and result.traffic and first.traffic.source != result.traffic.source:
            raise UsageError(
                f"{first_name} has the bytes of {first.traffic.source or 'the default'},"
                f" {name} those of {result.traffic.source or 'the default'}",
                "compare runs of the same --counts",
            )
    return first.spec.collective


def _differing(first: str, second: str) -> tuple[str, str]:
    """What differs in two descriptions with as many parts: `routing uniform`, `routing zipf:1`."""
    ours, theirs = first.split(", "), second.split(", ")
    if len(ours) != len(theirs):
        return first, second
    pairs = [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]
    return ", ".join(pair[0] for pair in pairs), ", ".join(pair[1] for pair in pairs)


def _side(files: Sequence[Named], runs: int) -> ComparedSide:
    result = files[0][1]
    devices, library = result.world.devices, result.library
    return ComparedSide(
        [name for name, _ in files],
        runs,
        list(dict.fromkeys(device.host for device in devices)),
        dict(Counter(device.name or "unnamed device" for device in devices)),
        library.engine,
        library.nccl,
        result.world.ranks,
    )


def _unmatched(key: CellKey, a: Sequence[Cells], b: Sequence[Cells]) -> ComparedCell:
    return ComparedCell(
        key=key, verdict=ComparisonVerdict.UNMATCHED, a_s=_median_s(key, a), b_s=_median_s(key, b)
    )


def _median_s(key: CellKey, runs: Sequence[Cells]) -> float | None:
    times = [run[key].time_s for run in runs if key in run and usable(run[key].time_s)]
    return statistics.median(times) if times else None


def _signs(cells: Sequence[ComparedCell]) -> SignTest | None:
    ratios = [cell.ratio for cell in cells if cell.by == "means" and cell.ratio is not None]
    longer, shorter = sum(ratio > 1 for ratio in ratios), sum(ratio < 1 for ratio in ratios)
    return SignTest(longer, shorter, sign_test(longer, shorter)) if ratios else None


def _defects(letter: str, files: Sequence[Named]) -> list[str]:
    """Incomplete sweeps, wrong data, and ranks that share processors.

    On GPUs shared processors may cost nothing now, and still are a difference between the sides.
    """
    incomplete = [name for name, result in files if not result.complete]
    wrong = [name for name, result in files if result.wrong()]
    shared = [
        f"{letter}: {name}: {finding.message}"
        for name, result in files
        for finding in result.findings
        if finding.id == SHARED_PROCESSORS
    ]
    return [
        *(f"{letter}: the sweep of {name} is incomplete" for name in incomplete),
        *(f"{letter}: {name} has wrong data" for name in wrong),
        *shared,
    ]


def _differences(a: Sequence[Named], b: Sequence[Named], sides: Sides) -> list[str]:
    """How the sides measured, and what NCCL ran, where that differs."""
    first_a, first_b = a[0][1], b[0][1]
    return [
        *_timing_note(first_a, first_b, sides),
        *_loop_note(a, b, sides),
        *_connections_note(first_a, first_b, sides),
        *_kernels_note(first_a, first_b, sides),
    ]


def _timing_note(a: Result, b: Result, sides: Sides) -> list[str]:
    if timing(a) == timing(b):
        return []
    return [f"timing: {timing(a)} in {sides[0]}, {timing(b)} in {sides[1]}"]


def _connections_note(a: Result, b: Result, sides: Sides) -> list[str]:
    """The transports that connect the ranks, where both sides state them and they differ. Their
    numbers say little: a sweep of more sizes uses more algorithms, which make more connections.
    """
    if a.ran is None or b.ran is None:
        return []
    of_a, of_b = sorted(a.ran.transports()), sorted(b.ran.transports())
    if of_a == of_b:
        return []
    in_a, in_b = (
        f"{' and '.join(names)} in {side}" for names, side in zip((of_a, of_b), sides, strict=True)
    )
    return [f"ranks are connected by {in_a}, {in_b}"]


def _kernels_note(a: Result, b: Result, sides: Sides) -> list[str]:
    """The cells that NCCL ran with other kernels, where both sides state them."""
    of_a, of_b = _kernels(a), _kernels(b)
    shared = [key for key in of_a if key in of_b]
    differ = [key for key in shared if not of_a[key].same(of_b[key])]
    if not differ:
        return []
    first = differ[0]
    in_place = " in place" if first.placement == PLACEMENTS[1] else ""
    return [
        f"NCCL ran {len(differ)} of {counted(len(shared), 'cell')} differently: at"
        f" {format_size(first.size_bytes)}{in_place} {of_a[first]} in {sides[0]};"
        f" {of_b[first]} in {sides[1]}"
    ]


def _kernels(result: Result) -> dict[CellKey, NcclKernel]:
    """What NCCL ran each cell of the first repeat with."""
    first = next(iter(repeats(result)), {})
    return {key: figure.ran for key, figure in first.items() if figure.ran}


def _loop_note(a: Sequence[Named], b: Sequence[Named], sides: Sides) -> list[str]:
    """That the sides called NCCL by different loops; older files do not say by which."""
    a_loops, b_loops = ({result.loop for _, result in side if result.loop} for side in (a, b))
    if len(a_loops | b_loops) < 2:
        return []
    texts = [" and ".join(sorted(loops)) or "unknown" for loops in (a_loops, b_loops)]
    return [
        f"loop: {texts[0]} in {sides[0]}, {texts[1]} in {sides[1]}; Python's adds to small sizes"
    ]


def _overloaded_hosts(letter: str, files: Sequence[Named]) -> list[str]:
    reasons = ((name, why_overloaded(result)) for name, result in files)
    return [f"{letter}: {name}: {reason}" for name, reason in reasons if reason]


def _too_few_samples(cells: Sequence[ComparedCell], limits: Limits) -> list[str]:
    tested = [cell for cell in cells if cell.by == "samples"]
    counts = ((cell.a_effective, cell.b_effective) for cell in tested)
    few = sum(2 * len(tested) / math.comb(a + b, a) > limits.level for a, b in counts)
    if not few:
        return []
    return [
        f"{few} of {len(tested)} cells have too few independent samples to be called slower or"
        f" faster at {100 * limits.confidence:g} % over all cells:"
        f" {fewest(len(tested), limits.level)} per side are needed"
    ]


def _spread_note(runs: int, known_spreads: Mapping[CellKey, float]) -> list[str]:
    if not known_spreads:
        return []
    spread = statistics.median(known_spreads.values())
    return [
        f"{counted(runs, 'stored run')} of this machine and sweep differ by {100 * spread:.1f} %"
        " (standard deviation, median of the cells): a difference must be larger than that explains"
    ]


def _ambiguous_cells(cells: Sequence[ComparedCell], what: str) -> list[str]:
    count = sum(cell.verdict is ComparisonVerdict.AMBIGUOUS for cell in cells)
    if not count:
        return []
    decides = "busbw run --repeats 4 on each side decides, or busbw compare --run"
    if what:
        decides = "a folder with four runs on each side decides: busbw compare A/ B/"
    return [
        f"{count} of {len(cells)} cells are ambiguous: one run a side does not show how much"
        f" runs differ; {decides}"
    ]


def _too_few_runs(a_runs: int, b_runs: int, limits: Limits) -> list[str]:
    if fewest_chance(a_runs, b_runs, two_sided=True) <= limits.level:
        return []
    return [
        f"{a_runs} and {b_runs} runs are judged by their spread, as if times varied like a normal"
        f" distribution; {fewest(1, limits.level)} per side need no such assumption"
    ]
