"""A result beside the runs of its system, and beside what is expected of it."""

from collections.abc import Sequence

import msgspec

from busbw.core.cells import Figure, all_figures
from busbw.core.errors import UsageError
from busbw.core.result import Result
from busbw.core.shown import Shown
from busbw.core.sizes import format_size
from busbw.model.reference.compared import Compared, ComparedRun, compare, why_none
from busbw.model.reference.curves import Reference
from busbw.model.reference.expected import ExpectedBasis
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import bandwidth_text, percent_text, text_or_unknown

DROP_ORDER = ("runs", "from")
ALLTOALLV = "alltoallv"  # its bytes for each pair of ranks are those of one job
PLOT_WIDTH = 50  # characters of the scale of a plot
SCALE = 1.5  # where it ends, as a part of the reference or the expected busbw
SMALL_SIZE = 9  # characters before a plot


class ReferenceComparison(
    Shown, msgspec.Struct, tag="busbw.reference-comparison/1", tag_field="schema", kw_only=True
):
    """The sizes of a result, each beside its reference. `missing` says why none has one, or is
    empty; `coverage` is the share of runs that an expected range is made to hold.
    """

    source: str
    collective: str
    system: str
    rows: list[Compared]
    missing: str = ""
    coverage: float = 0.0


# The values take a Compared.
COLUMNS: tuple[Column, ...] = (
    Column(title="size", value=lambda row: format_size(row.size_bytes)),
    Column(title="type", value=lambda row: row.dtype, left=True),
    Column(title="measured", value=lambda row: bandwidth_text(row.busbw)),
    Column(title="reference", value=lambda row: text_or_unknown(row.median, bandwidth_text)),
    Column(title="runs", value=lambda row: len(row.runs)),
    Column(title="%", value=lambda row: percent_text(row.busbw, row.median)),
    Column(title="expected", value=lambda row: _range(row)),
    Column(title="", value=lambda row: _place(row), left=True),
    Column(title="from", value=lambda row: _basis(row), left=True),
)


def compared_with(
    result: Result, ran: ComparedRun, known: Reference, name: str
) -> ReferenceComparison:
    """Every size of a result beside its reference, out of place, or in place where only that was
    measured. UsageError for an alltoallv, whose bytes are those of one job.
    """
    if result.spec.collective == ALLTOALLV:
        raise UsageError(
            f"{name}: alltoallv, whose bytes are its own for each pair of ranks, has no reference",
            f"busbw explain {name}",
        )
    figures: dict[tuple[int, str], Figure] = {}
    for figure in all_figures(result):
        if figure.row.size_bytes > 0 and figure.busbw > 0:
            figures.setdefault((figure.row.size_bytes, figure.row.dtype), figure)
    rows = [compare(ran, figure, known) for figure in figures.values()]
    has_runs = any(row.runs for row in rows)
    missing = "" if has_runs else why_none(ran, known, list(figures.values()))
    coverage = next((row.expected.coverage for row in rows if row.expected), 0.0)
    return ReferenceComparison(
        source=name,
        collective=result.spec.collective,
        system=ran.text,
        rows=rows,
        missing=missing,
        coverage=coverage,
    )


def comparison_text(
    comparison: ReferenceComparison, width: int | None = None, *, plot: bool = False
) -> str:
    """The table of sizes, what it means, and the plot if asked for."""
    parts = [
        wrapped(head(comparison), width),
        aligned(columns(comparison), comparison.rows, width, DROP_ORDER),
        wrapped(meaning(comparison), width),
    ]
    if plot:
        parts.append(plot_text(comparison.rows, width))
    return "\n".join(parts)


def head(comparison: ReferenceComparison) -> str:
    """What was measured, and why there is no reference."""
    text = f"{comparison.source}: {comparison.collective} on {comparison.system}\n"
    if comparison.missing:
        bases = dict.fromkeys(map(_basis, comparison.rows))
        text += f"no reference: {comparison.missing}; expected is by {' and '.join(bases)}\n"
    return text


def columns(comparison: ReferenceComparison) -> list[Column]:
    """The columns shown: the type if there are several, and what expected rests on if known."""
    left_out = set()
    if len({row.dtype for row in comparison.rows}) < 2:
        left_out.add("type")
    if not any(row.expected and _basis(row) != "-" for row in comparison.rows):
        left_out.add("from")
    return [column for column in COLUMNS if column.title not in left_out]


def meaning(comparison: ReferenceComparison) -> str:
    """What the columns mean, and the runs of the reference."""
    runs = list(dict.fromkeys(run for row in comparison.rows for run in row.runs))
    own = any(row.own for row in comparison.rows)
    text = "busbw in GB/s, out of place"
    if runs:
        whose = "your own runs" if own else "published runs"
        text += f"; reference = median of {whose} of the same system that measured the size"
    if comparison.coverage:
        text += f"; {100 * comparison.coverage:.0f} % of runs are between the two of expected"
    text += "\n"
    if runs:
        text += f"runs: {', '.join(runs)} (busbw reference show RUN: who measured)\n"
    return text


def plot_text(rows: Sequence[Compared], width: int | None = None) -> str:
    """A line for each size: `o` the measured busbw, `|` the reference, `-` the expected range, all
    as a part of the reference, or of what is expected where there is none.
    """
    room = PLOT_WIDTH if width is None else min(PLOT_WIDTH, width - SMALL_SIZE - 8)
    scale = max(20, room)
    whole = round(scale / SCALE)
    ruler = " " * (SMALL_SIZE + 1) + "0 %".ljust(whole) + "100 %".ljust(scale - whole)
    lines = [ruler.rstrip() + "\n"]
    lines += [_plot_line(row, scale) for row in rows]
    lines.append(
        wrapped(
            "o measured, | reference or expected, - expected range; > beyond the scale\n", width
        )
    )
    return "".join(lines)


def _plot_line(row: Compared, scale: int) -> str:
    base = row.median or (row.expected.busbw if row.expected else 0.0)
    size = format_size(row.size_bytes).rjust(SMALL_SIZE)
    if base <= 0:
        return f"{size} nothing to compare with\n"

    def at(busbw: float) -> int:
        return round(busbw / base * scale / SCALE)

    cells = [" "] * (scale + 1)
    if row.expected is not None:
        for place in range(at(row.expected.low), min(at(row.expected.high), scale) + 1):
            cells[min(place, scale)] = "-"
    cells[at(base)] = "|"
    measured = at(row.busbw)
    cells[min(measured, scale)] = "o" if measured <= scale else ">"
    return f"{size} {''.join(cells).rstrip()}\n"


def _range(row: Compared) -> str:
    if row.expected is None:
        return "-"
    return f"{bandwidth_text(row.expected.low)} to {bandwidth_text(row.expected.high)}"


def _place(row: Compared) -> str:
    """Where the measured busbw lies, if it is not within the expected range."""
    if row.expected is None:
        return ""
    if row.busbw < row.expected.low:
        return "below"
    return "above" if row.busbw > row.expected.high else ""


def _basis(row: Compared) -> str:
    if row.expected is None:
        return "-"
    if row.expected.extrapolated:
        return "extrapolated"
    if row.expected.basis == ExpectedBasis.CALIBRATION:
        return "own runs"
    return str(row.expected.basis)
