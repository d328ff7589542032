"""Releases of NCCL compared, as text, Markdown and JSON: a line for each comparison, then every
cell that is slower than the tolerance allows.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from busbw.core.comparison import ComparedCell, ComparisonVerdict
from busbw.core.release_matrix import ReleaseComparison, ReleaseMatrix
from busbw.core.sizes import counted, format_size, short_size
from busbw.history.comparison_text import COLUMNS, METHODS, ratio_text, side_facts, warnings
from busbw.measure.formats.markdown import plain, table_head, table_line
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import percent

CELL_COLUMNS = {column.title: column for column in COLUMNS}


def _count(verdict: ComparisonVerdict) -> Callable[[ReleaseComparison], int]:
    return lambda each: len(each.comparison.of(verdict))


def _slowest(each: ReleaseComparison) -> str:
    """`1.081x at 1 MiB`: the largest of the ratios that are called slower."""
    slower = each.comparison.of(ComparisonVerdict.SLOWER)
    if not slower:
        return "-"
    worst = max(slower, key=lambda cell: cell.ratio or 0.0)
    return f"{ratio_text(worst.ratio)} at {format_size(worst.key.size_bytes)}"


SUMMARY: tuple[Column, ...] = (
    Column(title="collective", value=lambda each: each.comparison.collective, left=True),
    Column(title="NCCL", value=lambda each: each.release, left=True),
    Column(title="slower", value=_count(ComparisonVerdict.SLOWER)),
    Column(title="faster", value=_count(ComparisonVerdict.FASTER)),
    Column(title="same", value=_count(ComparisonVerdict.SAME)),
    Column(title="ambiguous", value=_count(ComparisonVerdict.AMBIGUOUS)),
    Column(title="slowest", value=_slowest, left=True),
)


def _columns(matrix: ReleaseMatrix, each: ReleaseComparison) -> list[Column]:
    """The columns of regressions; type, operator, root and cycle if they differ between cells."""
    varying = ("type", "op", "root", "cycle")
    times = {
        "time A": replace(CELL_COLUMNS["time A"], title=matrix.baseline),
        "time B": replace(CELL_COLUMNS["time B"], title=each.release),
        "B / A": replace(CELL_COLUMNS["B / A"], title="ratio"),
    }
    shown = [
        column
        for title, column in (CELL_COLUMNS | times).items()
        if title not in varying or len({column.text(cell) for cell in each.comparison.cells}) > 1
    ]
    return shown[:-1]  # the verdict is the table's title


def _regressions(matrix: ReleaseMatrix) -> list[tuple[ReleaseComparison, list[ComparedCell]]]:
    """The comparisons with cells that are slower than the tolerance allows."""
    beyond = [(each, each.comparison.beyond()) for each in matrix.comparisons]
    return [(each, cells) for each, cells in beyond if cells]


def _of_comparison(matrix: ReleaseMatrix, each: ReleaseComparison) -> str:
    """`all_reduce with NCCL 2.32.3: slower by more than 5 %`."""
    name = each.comparison.collective
    return f"{name} with NCCL {each.release}: slower by more than {percent(matrix.tolerance)}"


def _title(matrix: ReleaseMatrix) -> str:
    return f"NCCL {', '.join(matrix.releases[1:])} against {matrix.baseline}"


def _machine(matrix: ReleaseMatrix) -> str:
    """`4 x NVIDIA H200 on 1 host, nccl engine; 5 runs of each, in turn`."""
    runs = f"{counted(matrix.rounds, 'run')} of each, in turn"
    if not matrix.comparisons:
        return runs
    facts = side_facts(msgspec.structs.replace(matrix.comparisons[0].comparison.a, nccl=0))
    return "; ".join(filter(None, (facts, runs)))


def summary(matrix: ReleaseMatrix) -> str:
    """How many cells are slower than the tolerance allows, in how many comparisons."""
    tolerance = percent(matrix.tolerance)
    if not matrix.comparisons:
        return "nothing could be compared"
    regressions = _regressions(matrix)
    if not regressions:
        return f"no size is slower by more than {tolerance}"
    releases = list(dict.fromkeys(each.release for each, _ in regressions))
    count = counted(sum(len(cells) for _, cells in regressions), "cell")
    return f"{count} slower by more than {tolerance}, with NCCL {' and '.join(releases)}"


def _problems(matrix: ReleaseMatrix) -> list[str]:
    """What is worse than slow: wrong data, and what did not run."""
    wrong = [
        f"{each.comparison.collective}: wrong data with {each.release} at"
        f" {', '.join(map(short_size, each.wrong))}"
        for each in matrix.comparisons
        if each.wrong
    ]
    return wrong + [
        f"{failure.collective}: {failure.release} did not run: {failure.message}"
        for failure in matrix.failures
    ]


def closing(matrix: ReleaseMatrix) -> list[str]:
    """What the verdicts rest on, and the notes and warnings of all comparisons, once."""
    comparisons = [each.comparison for each in matrix.comparisons]
    methods = {cell.by for comparison in comparisons for cell in comparison.cells if cell.by}
    lines = [
        f"judged by {METHODS[by]}, {percent(matrix.confidence)} confidence over all collectives,"
        " releases and sizes together"
        for by in sorted(methods)
    ]
    warned = [f"warning: {text}" for comparison in comparisons for text in warnings(comparison)]
    noted = [f"note: {text}" for comparison in comparisons for text in comparison.notes]
    return lines + list(dict.fromkeys(warned + noted))


def text(matrix: ReleaseMatrix, width: int | None = None) -> str:
    """The matrix for a terminal of `width` characters; None does not wrap lines."""
    parts = [_wrapped([_title(matrix), _machine(matrix)], width)]
    if matrix.comparisons:
        parts.append(aligned(SUMMARY, matrix.comparisons, width, ("slowest", "ambiguous")))
    for each, cells in _regressions(matrix):
        dropped = (each.release, matrix.baseline)
        table = aligned(_columns(matrix, each), cells, width, dropped)
        parts.append(f"{_of_comparison(matrix, each)}\n{table}")
    errors = [f"error: {problem}" for problem in _problems(matrix)]
    parts.append(_wrapped([summary(matrix), *errors, *closing(matrix)], width))
    return "\n".join(parts)


def _wrapped(lines: Sequence[str], width: int | None) -> str:
    return wrapped("".join(f"{line}\n" for line in lines), width)


def markdown(matrix: ReleaseMatrix) -> str:
    """The matrix for an issue or a pull request."""
    parts = [f"**{plain(_title(matrix))}: {plain(summary(matrix))}**", plain(_machine(matrix))]
    parts += [f"**{plain(problem)}**" for problem in _problems(matrix)]
    if matrix.comparisons:
        parts.append(_table(SUMMARY, matrix.comparisons))
    for each, cells in _regressions(matrix):
        parts += [f"{plain(_of_comparison(matrix, each))}", _table(_columns(matrix, each), cells)]
    parts.append("".join(f"- {plain(line)}\n" for line in closing(matrix)))
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _table(columns: Sequence[Column], items: Sequence[object]) -> str:
    lines = (table_line(plain(column.text(item)) for column in columns) for item in items)
    return table_head(columns) + "".join(lines)
