"""Groups the results of a report by what they have in common, and builds the table of their rows.

An input is a result with the name of its file. Inputs that are alike are grouped, and `series` has
their cells as plots need them. The table has one line for each placement, and only those columns
that have a value in the result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from busbw.core.cells import Figure, all_figures, figures
from busbw.core.host_ranges import fold
from busbw.core.result import Result, ResultRow
from busbw.core.sizes import counted, format_size
from busbw.measure.formats.table import BY_TITLE
from busbw.ui.columns import Column
from busbw.ui.html.element import add, tag
from busbw.ui.html.table import scroll
from busbw.ui.number_formats import time_text

SMALLEST, LARGEST = 1e-15, 1e18  # what can be drawn: seconds, bytes per second, ratios
LETTERS = "ABCDEFGH"  # one for each color of style.css
NO_VALUE = "–"
MAX_MISMATCHES = 20
WORDS = {"type", "op", "placement", "stop"}  # columns that are aligned to the left
# columns that are hidden on narrow screens
EXTRA_TITLES = {"type", "repeat", "interval", "n", "stop", "launch", "skew", "p99", "algbw"}
ROW_COLUMNS = tuple(BY_TITLE[title] for title in ("type", "op", "root", "repeat"))


@dataclass(frozen=True, slots=True)
class ReportInput:
    """One file: `index` chooses its letter and its color."""

    index: int
    name: str
    result: Result

    @property
    def letter(self) -> str:
        """`A` for the first file."""
        return LETTERS[self.index]

    @property
    def title(self) -> str:
        """`A run.json`."""
        return f"{self.letter} {self.name}"


def of_one_kind(inputs: Sequence[ReportInput]) -> list[list[ReportInput]]:
    """The files in groups that share plots: of one collective, engine and number of ranks."""
    return _grouped(inputs, lambda first, second: not _kinds(first, second))


def alike(inputs: Sequence[ReportInput]) -> list[list[ReportInput]]:
    """The files in groups that can be compared: of one kind and machine, with a size in common.

    The first file of a group is its baseline, with which the others are compared.
    """
    return _grouped(inputs, lambda first, second: not differences(first, second))


def _grouped(
    inputs: Sequence[ReportInput], belongs: Callable[[Result, Result], bool]
) -> list[list[ReportInput]]:
    """Each file in the first group whose first file it belongs to, or in one of its own."""
    groups: list[list[ReportInput]] = []
    for source in inputs:
        for group in groups:
            if belongs(group[0].result, source.result):
                group.append(source)
                break
        else:
            groups.append([source])
    return groups


def differences(first: Result, second: Result) -> list[tuple[str, str]]:
    """What makes two runs too unlike to be compared, in words for each: `8 ranks`, `2 ranks`.

    These are the collective, the engine, the number of ranks, the hosts, the devices, and sizes or
    types of which none is in both. A log may not have all of them.
    """
    pairs = [(_hosts(first), _hosts(second)), (_devices(first), _devices(second))]
    if not {row.size_bytes for row in first.rows} & {row.size_bytes for row in second.rows}:
        pairs.append((_sizes(first), _sizes(second)))
    elif first.spec.row is second.spec.row and not _types(first) & _types(second):
        pairs.append((", ".join(sorted(_types(first))), ", ".join(sorted(_types(second)))))
    known = [pair for pair in pairs if all(pair) and pair[0] != pair[1]]
    return [*_kinds(first, second), *known]


def _hosts(result: Result) -> str:
    names = {device.host for device in result.world.devices} - {""}
    return f"host{'s' if len(names) > 1 else ''} {fold(names)}" if names else ""


def _devices(result: Result) -> str:
    return ", ".join(sorted({device.name for device in result.world.devices} - {""}))


def _sizes(result: Result) -> str:
    """The smallest and the largest size: `1 MiB to 4 MiB`."""
    sizes = [row.size_bytes for row in result.rows]
    ends = dict.fromkeys(map(format_size, (min(sizes), max(sizes)))) if sizes else ()
    return " to ".join(ends)


def _types(result: Result) -> set[str]:
    return {f"{row.dtype} {row.op}".strip() for row in result.rows}


def _kinds(first: Result, second: Result) -> list[tuple[str, str]]:
    pairs = [(first.spec.row.title, second.spec.row.title)]
    if first.library.engine and second.library.engine:
        pairs.append((f"{first.library.engine} engine", f"{second.library.engine} engine"))
    if first.world.ranks and second.world.ranks:
        pairs.append((counted(first.world.ranks, "rank"), counted(second.world.ranks, "rank")))
    return [pair for pair in pairs if pair[0] != pair[1]]


def unlike(baseline: ReportInput, source: ReportInput) -> str:
    """`C is not compared with A: sim engine against mpi engine, 8 ranks against 2 ranks`."""
    pairs = differences(baseline.result, source.result)
    reasons = ", ".join(f"{of_source} against {of_baseline}" for of_baseline, of_source in pairs)
    return f"{source.letter} is not compared with {baseline.letter}: {reasons}"


def series(result: Result) -> dict[tuple[str, str, int, str], list[Figure]]:
    """The figures that can be drawn, in order of size, by type, operator, root and placement."""
    by_key: dict[tuple[str, str, int, str], list[Figure]] = {}
    for figure in all_figures(result):
        row = figure.row
        if row.size_bytes > 0 and drawable(figure.cell.time_s):
            key = (row.dtype, row.op, row.root, figure.placement)
            by_key.setdefault(key, []).append(figure)
    for figures_of_key in by_key.values():
        figures_of_key.sort(key=lambda figure: figure.row.size_bytes)
    return by_key


def drawable(value: float) -> bool:
    """Whether a value can be drawn on a logarithmic axis: above 0 and not absurdly large."""
    return SMALLEST < value < LARGEST


def _interval(result: Result, figure: Figure) -> str:
    """`17.30 – 17.52 us`; with both units if they differ."""
    low, high = figure.cell.low_s, figure.cell.high_s
    if low is None or high is None:
        return NO_VALUE
    low_text, high_text = time_text(low), time_text(high)
    number, unit = low_text.split(" ")
    if high_text.endswith(f" {unit}"):
        low_text = number
    return f"{low_text} – {high_text}"


CELL_COLUMNS: tuple[Column, ...] = (
    Column(title="placement", value=lambda result, figure: figure.placement),
    BY_TITLE["time"],
    BY_TITLE["cputime"],
    Column(title="interval", value=_interval),
    Column(title="n", value=lambda result, figure: figure.n or NO_VALUE),
    *(BY_TITLE[title] for title in ("stop", "launch", "skew")),
    Column(
        title="p99",
        value=lambda result, figure: (
            NO_VALUE if figure.cell.p99_s is None else time_text(figure.cell.p99_s)
        ),
    ),
    *(BY_TITLE[title] for title in ("algbw", "busbw", "ideal")),
    Column(
        title="wrong",
        value=lambda result, figure: "N/A" if figure.cell.wrong is None else figure.cell.wrong,
    ),
)


def _shown(result: Result, columns: Sequence[Column]) -> list[Column]:
    """The columns that the table of this result has and that are not empty."""

    def filled(column: Column) -> bool:
        texts = {column.text(result, figure) for figure in all_figures(result)}
        return not texts <= {"", "-", NO_VALUE}

    return [column for column in columns if column.shown(result) and filled(column)]


def rows(result: Result) -> Element:
    """The table in a box that scrolls, and the wrong elements."""
    if not result.rows:
        return tag("p", "No size was measured.", class_="note")
    of_row, of_cell = _shown(result, ROW_COLUMNS), _shown(result, CELL_COLUMNS)
    titles = [_title(result, column) for column in of_row + of_cell]
    head = tag("tr", tag("th", "size", scope="col"), *titles)
    bodies = [_body(result, row, of_row, of_cell) for row in result.rows]
    note = tag("p", "A wider window shows more columns.", class_="note narrow-only")
    return tag(
        "div",
        note,
        scroll(tag("table", tag("thead", head), *bodies, class_="rows"), "Rows"),
        _mismatches(result),
    )


def _title(result: Result, column: Column) -> Element:
    sampling, unit = result.spec.sampling, column.unit
    if sampling and column.title == "interval":
        unit = f"{sampling.confidence * 100:g} %"
    title = tag("th", column.title, scope="col", class_=_class(column))
    return add(title, " ", tag("small", unit)) if unit else title


def _body(result: Result, row: ResultRow, of_row: list[Column], of_cell: list[Column]) -> Element:
    """A line for each placement; the columns of the row span all of them."""
    body, figures_of_row = tag("tbody"), figures(row)
    for number, figure in enumerate(figures_of_row):
        line = tag("tr", class_="wrong" if figure.cell.wrong else None)
        if number == 0:
            span = len(figures_of_row) if len(figures_of_row) > 1 else None
            add(line, tag("th", format_size(row.size_bytes), scope="rowgroup", rowspan=span))
            add(line, *(_cell(result, figure, column, span) for column in of_row))
        add(body, add(line, *(_cell(result, figure, column) for column in of_cell)))
    return body


def _cell(result: Result, figure: Figure, column: Column, span: int | None = None) -> Element:
    warn = column.title == "stop" and figure.cell.stopped in ("budget", "unstable")
    return tag("td", column.text(result, figure), rowspan=span, class_=_class(column, warn=warn))


def _class(column: Column, *, warn: bool = False) -> str | None:
    names = (
        "words" if column.title in WORDS else "",
        "extra" if column.title in EXTRA_TITLES else "",
        "warn" if warn else "",
    )
    return " ".join(filter(None, names)) or None


def _mismatches(result: Result) -> Element | None:
    """The first wrong element that each rank saw, as far as the result has them."""
    texts = []
    for figure in all_figures(result):
        cell = f"{format_size(figure.row.size_bytes)} {figure.row.dtype} {figure.placement}"
        texts += [
            f"{cell}: rank {mismatch.rank} got {mismatch.got} instead of {mismatch.expected}"
            f" at element {mismatch.offset}; {mismatch.wrong} wrong on this rank"
            for mismatch in figure.cell.mismatches
        ]
    if not texts:
        return None
    if len(texts) > MAX_MISMATCHES:
        texts[MAX_MISMATCHES:] = [f"and {len(texts) - MAX_MISMATCHES} more"]
    return tag("ul", *(tag("li", text) for text in texts), class_="mismatches")
