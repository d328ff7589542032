"""The table of rows: one line for each placement, and only those columns that this result has something for."""

from collections.abc import Callable
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from busbw.core.cells import Figure, every, figures
from busbw.core.result import Result, Row
from busbw.core.sizes import format_size
from busbw.views.html.tree import add, tag
from busbw.views.words import bandwidth_text, op_column, percent_text, time_text

NONE = "–"
MOST_MISMATCHES = 20


@dataclass(frozen=True, slots=True)
class Column:
    """Title, unit, the text of a cell, and whether a result has anything for it. `words` are read, not compared: set to the left."""

    title: str
    unit: str
    text: Callable[[Result, Figure], str]
    shown: Callable[[Result], bool] = lambda result: True
    words: bool = False


def _has(field: str) -> Callable[[Result], bool]:
    return lambda result: any(getattr(figure.cell, field) not in (None, "") for figure in every(result))


def _seconds(field: str) -> Callable[[Result, Figure], str]:
    def text(result: Result, figure: Figure) -> str:
        value = getattr(figure.cell, field)
        return NONE if value is None else time_text(value)

    return text


def _interval(result: Result, figure: Figure) -> str:
    """`17.30 – 17.52 us`; both units where they differ."""
    low, high = figure.cell.low_s, figure.cell.high_s
    if low is None or high is None:
        return NONE
    first, last = time_text(low), time_text(high)
    number, unit = first.split(" ")
    return f"{number if last.endswith(f' {unit}') else first} – {last}"


def _samples(result: Result, figure: Figure) -> str:
    return str(figure.n or NONE)


def _skew(result: Result, figure: Figure) -> str:
    skew_s = figure.cell.skew_s
    return NONE if skew_s is None else time_text(skew_s)


def _share(result: Result, figure: Figure) -> str:
    return percent_text(figure.cell.busbw, result.ideal.busbw if result.ideal else None)


def _wrong(result: Result, figure: Figure) -> str:
    return "N/A" if figure.cell.wrong is None else str(figure.cell.wrong)


def _reduces(result: Result) -> bool:
    return result.spec.row.reduces or result.spec.row.redop_column == "op"


def _confidence(result: Result) -> str:
    return f"{result.spec.sampling.confidence * 100:g} %" if result.spec.sampling else ""


ROW_COLUMNS: tuple[Column, ...] = (
    Column("count", "", lambda result, figure: str(figure.row.count)),
    Column("type", "", lambda result, figure: figure.row.dtype, words=True),
    Column("op", "", lambda result, figure: op_column(result.spec.row, figure.row), _reduces, words=True),
    Column("root", "", lambda result, figure: str(figure.row.root), lambda result: result.spec.row.rooted),
    Column("repeat", "", lambda result, figure: str(figure.row.repeat), lambda result: any(row.repeat for row in result.rows)),
)
CELL_COLUMNS: tuple[Column, ...] = (
    Column("placement", "", lambda result, figure: figure.placement, words=True),
    Column("time", "", lambda result, figure: time_text(figure.time_s)),
    Column("cputime", "", _seconds("cpu_time_s"), _has("cpu_time_s")),
    Column("interval", "", _interval, _has("low_s")),
    Column("n", "", _samples),
    Column("stopped", "", lambda result, figure: figure.cell.stopped or NONE, _has("stopped"), words=True),
    Column("launch", "", _seconds("launch_s"), _has("launch_s")),
    Column("skew", "", _skew, _has("skew_s")),
    Column("p99", "", _seconds("p99_s"), _has("p99_s")),
    Column("algbw", "GB/s", lambda result, figure: bandwidth_text(figure.cell.algbw)),
    Column("busbw", "GB/s", lambda result, figure: bandwidth_text(figure.cell.busbw)),
    Column("ideal", "%", _share, lambda result: result.ideal is not None),
    Column("wrong", "", _wrong),
)


def rows(result: Result) -> Element:
    """The table in a box that scrolls, and what is wrong where data is wrong."""
    if not result.rows:
        return tag("p", "No size was measured.", class_="note")
    above = [column for column in ROW_COLUMNS if column.shown(result)]
    columns = [column for column in CELL_COLUMNS if column.shown(result)]
    head = tag("tr", tag("th", "size", scope="col"), *(_title(result, column) for column in above + columns))
    bodies = [_body(result, row, above, columns) for row in result.rows]
    return tag("div", scroll(tag("table", tag("thead", head), *bodies, class_="rows"), "Rows"), _mismatches(result))


def scroll(table: Element, name: str) -> Element:
    """A box that scrolls sideways, reachable by keyboard, so that the page itself never does."""
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=name)


def _title(result: Result, column: Column) -> Element:
    unit = _confidence(result) if column.title == "interval" else column.unit
    title = tag("th", column.title, scope="col", class_="words" if column.words else None)
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
    kind = "words" if column.words else None
    if column.title == "stopped" and figure.cell.stopped in ("budget", "unstable"):
        kind = "words warn"
    return tag("td", column.text(result, figure), rowspan=span, class_=kind)


def _mismatches(result: Result) -> Element | None:
    """The first wrong element that each rank saw, as far as they were kept."""
    found = [
        f"{format_size(figure.row.size_bytes)} {figure.row.dtype} {figure.placement}: rank {wrong.rank} got {wrong.got} "
        f"instead of {wrong.expected} at element {wrong.offset}; {wrong.wrong} wrong on this rank"
        for figure in every(result)
        for wrong in figure.cell.mismatches
    ]
    if not found:
        return None
    more = [f"and {len(found) - MOST_MISMATCHES} more"] if len(found) > MOST_MISMATCHES else []
    items = (tag("li", words) for words in found[:MOST_MISMATCHES] + more)
    return tag("ul", *items, class_="mismatches")
