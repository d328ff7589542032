"""The table of rows: one line for each placement, and only those columns that have a value in
this result.

One input of a report: a result with the name of its file; and its cells as plots need them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from busbw.core.cells import Figure, every, figures
from busbw.core.result import Result, Row
from busbw.core.sizes import counted, format_size
from busbw.measure.formats.table import BY_TITLE
from busbw.ui.html.element import add, tag
from busbw.ui.number_formats import Column, time_text

SMALLEST, LARGEST = 1e-15, 1e18
LETTERS = "ABCDEFGH"  # one for each color of style.css


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


def alike(inputs: Sequence[ReportInput]) -> list[list[ReportInput]]:
    """The files in groups of one collective, engine and number of ranks.

    Each is compared with the first of its group, its baseline.
    """
    groups: list[list[ReportInput]] = []
    for source in inputs:
        group = next(
            (group for group in groups if not differences(group[0].result, source.result)), None
        )
        if group is None:
            groups.append([source])
        else:
            group.append(source)
    return groups


def differences(one: Result, other: Result) -> list[tuple[str, str]]:
    """In what two runs are too unlike to be compared: collective, engine and ranks, as words.

    A log may not say the last two.
    """
    pairs = [(one.spec.row.title, other.spec.row.title)]
    pairs += [
        (f"{a} engine", f"{b} engine")
        for a, b in [(one.library.engine, other.library.engine)]
        if a and b
    ]
    pairs += [
        (counted(a, "rank"), counted(b, "rank"))
        for a, b in [(one.world.ranks, other.world.ranks)]
        if a and b
    ]
    return [(ours, theirs) for ours, theirs in pairs if ours != theirs]


def unlike(baseline: ReportInput, source: ReportInput) -> str:
    """`C is not compared with A: sim engine against mpi engine, 8 ranks against 2 ranks`."""
    said = ", ".join(
        f"{theirs} against {ours}" for ours, theirs in differences(baseline.result, source.result)
    )
    return f"{source.letter} is not compared with {baseline.letter}: {said}"


def series(result: Result) -> dict[tuple[str, str, int, str], list[Figure]]:
    """The cells by type, operator, root and placement, each in order of size, without what
    cannot be drawn.
    """
    found: dict[tuple[str, str, int, str], list[Figure]] = {}
    for figure in every(result):
        if figure.row.size_bytes > 0 and drawable(figure.cell.time_s):
            key = (figure.row.dtype, figure.row.op, figure.row.root, figure.placement)
            found.setdefault(key, []).append(figure)
    return {
        key: sorted(line, key=lambda figure: figure.row.size_bytes) for key, line in found.items()
    }


def drawable(value: float) -> bool:
    """Whether a value (seconds, bytes per second, ratio) can be drawn on a logarithmic axis:
    above 0 and not absurdly large.
    """
    return SMALLEST < value < LARGEST


def nominal(bytes_per_s: float) -> str:
    """GB/s of a rate that is given, not measured: `450`, `3.125`."""
    return f"{bytes_per_s / 1e9:.3f}".rstrip("0").rstrip(".")


NONE = "–"
MAX_MISMATCHES = 20
WORDS = {"type", "op", "placement", "stop"}  # columns that are aligned to the left
# hidden on narrow screens
EXTRA = {"type", "repeat", "interval", "n", "stop", "launch", "skew", "p99", "algbw"}


def _interval(result: Result, figure: Figure) -> str:
    """`17.30 – 17.52 us`; both units where they differ."""
    low, high = figure.cell.low_s, figure.cell.high_s
    if low is None or high is None:
        return NONE
    first, last = time_text(low), time_text(high)
    number, unit = first.split(" ")
    return f"{number if last.endswith(f' {unit}') else first} – {last}"


ROW_COLUMNS = tuple(BY_TITLE[title] for title in ("type", "op", "root", "repeat"))
CELL_COLUMNS: tuple[Column, ...] = (
    Column(title="placement", value=lambda result, figure: figure.placement),
    BY_TITLE["time"],
    BY_TITLE["cputime"],
    Column(title="interval", value=_interval),
    Column(title="n", value=lambda result, figure: figure.n or NONE),
    *(BY_TITLE[title] for title in ("stop", "launch", "skew")),
    Column(
        title="p99",
        value=lambda result, figure: (
            NONE if figure.cell.p99_s is None else time_text(figure.cell.p99_s)
        ),
    ),
    *(BY_TITLE[title] for title in ("algbw", "busbw", "ideal")),
    Column(
        title="wrong",
        value=lambda result, figure: "N/A" if figure.cell.wrong is None else figure.cell.wrong,
    ),
)


def _shown(result: Result, columns: Sequence[Column]) -> list[Column]:
    """The columns that this result's table has and that are not empty."""
    empty = ("", "-", NONE)
    return [
        column
        for column in columns
        if column.shown(result)
        and any(column.text(result, one) not in empty for one in every(result))
    ]


def rows(result: Result) -> Element:
    """The table in a box that scrolls, and the wrong elements."""
    if not result.rows:
        return tag("p", "No size was measured.", class_="note")
    above, columns = _shown(result, ROW_COLUMNS), _shown(result, CELL_COLUMNS)
    head = tag(
        "tr",
        tag("th", "size", scope="col"),
        *(_title(result, column) for column in above + columns),
    )
    bodies = [_body(result, row, above, columns) for row in result.rows]
    note = tag("p", "A wider window shows more columns.", class_="note narrow-only")
    return tag(
        "div",
        note,
        scroll(tag("table", tag("thead", head), *bodies, class_="rows"), "Rows"),
        _mismatches(result),
    )


def scroll(table: Element, name: str) -> Element:
    """A box that scrolls sideways, reachable by keyboard, so that the page itself never does."""
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=name)


def _title(result: Result, column: Column) -> Element:
    sampling = result.spec.sampling
    unit = (
        f"{sampling.confidence * 100:g} %"
        if sampling and column.title == "interval"
        else column.unit
    )
    title = tag("th", column.title, scope="col", class_=_class(column))
    return add(title, " ", tag("small", unit)) if unit else title


def _body(result: Result, row: Row, above: list[Column], columns: list[Column]) -> Element:
    body, lines = tag("tbody"), figures(row)
    for number, figure in enumerate(lines):
        line = tag("tr", class_="wrong" if figure.cell.wrong else None)
        if number == 0:
            span = len(lines) if len(lines) > 1 else None
            add(line, tag("th", format_size(row.size_bytes), scope="rowgroup", rowspan=span))
            add(line, *(_cell(result, figure, column, span) for column in above))
        add(body, add(line, *(_cell(result, figure, column) for column in columns)))
    return body


def _cell(result: Result, figure: Figure, column: Column, span: int | None = None) -> Element:
    warn = column.title == "stop" and figure.cell.stopped in ("budget", "unstable")
    return tag("td", column.text(result, figure), rowspan=span, class_=_class(column, warn=warn))


def _class(column: Column, *, warn: bool = False) -> str | None:
    names = (
        "words" if column.title in WORDS else "",
        "extra" if column.title in EXTRA else "",
        "warn" if warn else "",
    )
    return " ".join(filter(None, names)) or None


def _mismatches(result: Result) -> Element | None:
    """The first wrong element that each rank saw, as far as they were kept."""
    found = [
        f"{format_size(figure.row.size_bytes)} {figure.row.dtype} {figure.placement}: rank"
        f" {wrong.rank} got {wrong.got} instead of {wrong.expected} at element {wrong.offset};"
        f" {wrong.wrong} wrong on this rank"
        for figure in every(result)
        for wrong in figure.cell.mismatches
    ]
    if not found:
        return None
    more = [f"and {len(found) - MAX_MISMATCHES} more"] if len(found) > MAX_MISMATCHES else []
    items = (tag("li", text) for text in found[:MAX_MISMATCHES] + more)
    return tag("ul", *items, class_="mismatches")
