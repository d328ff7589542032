"""Which numbers in the tables of a record's README are not in its files.

The numbers of a cell are traced if one of these holds. Where a line is of one size of message, so
is the cell.

* A line of the record has all of them and another number of the row; or they are at least three, or
  have at least six digits, or are several and all that the line has.
* They are two groups, each of them on a line of its own.
* A file has most cells of the column, or of the row, each on one line, and this cell too. If no
  cell of a column is found so: each number of these cells on some line.
* The column is one function of the same two others in every row: a ratio, a share, a difference, a
  change in percent, a speedup over the fastest of several.
* They stand in cells of this README that are traced.
* The cell is a sentence of five and more numbers, each of which is somewhere in the record.
"""

import bisect
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from record_lines import Line, lines

PARSER = MarkdownIt("commonmark").enable("table")
NUMBER = re.compile(r"(?<![\w.,-])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?![\w]|\.\d|-\w)")
SIZE = re.compile(r"(\d+) ?(?:bytes|B|([KMG])i?B?)\b")
SHIFT = {None: 0, "K": 10, "M": 20, "G": 30}
# columns and rows of what should be, not of what was
WANTED = re.compile(r"target|metric|expected|bound$", re.IGNORECASE)
STRONG = 6  # digits on one line that hardly match by chance
SENTENCE = 5  # numbers of a cell that is a sentence
FEWEST_ROWS = 3  # of a column for which one function is evidence


@dataclass(frozen=True)
class Figure:
    """A number as a table has it."""

    text: str
    value: float
    places: int

    @property
    def half(self) -> float:
        """Half a unit of the last digit."""
        return 0.5 * 10.0**-self.places

    @property
    def range(self) -> tuple[float, float]:
        """The values that are rounded to it."""
        return self.value - self.half, self.value + self.half


Place = tuple[int, int]  # row and column


@dataclass(frozen=True)
class Table:
    """A table below its heading. Columns of labels, and of what was wanted, have no figures."""

    heading: str
    titles: list[str]
    labels: list[str]
    cells: dict[Place, list[Figure]]

    def size(self, place: Place) -> int | None:
        """The bytes of a message that the label of the row names, or the title of the column."""
        return _size(self.labels[place[0]]) or _size(self.titles[place[1]])

    def across(self, axis: int) -> dict[int, list[Place]]:
        """The places with figures of each row (0) or column (1)."""
        lines: dict[int, list[Place]] = {}
        for place, figures in self.cells.items():
            if figures:
                lines.setdefault(place[axis], []).append(place)
        return lines


def tables(text: str) -> Iterator[Table]:
    """The tables of a page."""
    heading, rows = "", list[list[str]]()
    tokens = PARSER.parse(text)
    for token, following in zip(tokens, [*tokens[1:], tokens[-1]], strict=True):
        if token.type == "heading_open":
            heading = following.content
        elif token.type == "table_open":
            rows = []
        elif token.type == "tr_open":
            rows.append([])
        elif token.type in ("td_open", "th_open"):
            rows[-1].append(
                "".join(
                    part.content
                    for part in following.children or ()
                    if part.type in ("text", "code_inline")
                )
            )
        elif token.type == "table_close":
            yield _table(heading, rows)


def _table(heading: str, rows: list[list[str]]) -> Table:
    titles, labels = rows[0], [row[0] or row[1] for row in rows[1:]]
    cells = {
        (number, column): (
            [] if WANTED.search(titles[column]) or WANTED.match(labels[number]) else figures(cell)
        )
        for number, row in enumerate(rows[1:])
        for column, cell in enumerate(row)
        if column
    }
    return Table(heading, titles, labels, cells)


def figures(cell: str) -> list[Figure]:
    """The numbers of a cell."""
    all_figures = []
    for word in NUMBER.findall(cell):
        plain = word.replace(",", "").lstrip("+")
        all_figures.append(Figure(word, float(plain), len(plain.partition(".")[2])))
    return all_figures


def _size(label: str) -> int | None:
    match = SIZE.search(label)
    return int(match[1]) << SHIFT[match[2]] if match else None


def changed(table: Table, place: Place, units: int) -> Table:
    """The table with the longest number of a cell changed by units of its last digit."""
    figures = list(table.cells[place])
    at = max(range(len(figures)), key=lambda number: len(figures[number].text))
    value = round(figures[at].value + units * 10.0 ** -figures[at].places, figures[at].places)
    figures[at] = Figure(f"{value:.{figures[at].places}f}", value, figures[at].places)
    return replace(table, cells={**table.cells, place: figures})


class Index:
    """Finds the lines that have a number."""

    def __init__(self, record: Path) -> None:
        self.lines: list[Line] = lines(record)
        self._values = sorted(
            (value, places, at)
            for at, line in enumerate(self.lines)
            for value, places in line.values
        )

    def matching(self, figure: Figure) -> set[int]:
        """The lines with a value that is rounded to the figure."""
        value, slack = abs(figure.value), 1e-9 * max(abs(figure.value), 1.0)
        first = bisect.bisect_left(self._values, (value - figure.half - slack,))
        last = bisect.bisect_right(self._values, (value + figure.half + slack,))
        return {
            at
            for number, places, at in self._values[first:last]
            if places > figure.places or (places == figure.places and abs(number - value) <= slack)
        }


@cache
def index(record: Path) -> Index:
    """The index of a record's files, made once."""
    return Index(record)


def untraced(record: Path) -> list[tuple[Table, Place, list[str]]]:
    """The cells of a record's README whose numbers its files do not have, with these numbers."""
    lacking = [
        (table, missing(table, index(record)))
        for table in tables((record / "README.md").read_text(encoding="utf-8"))
    ]
    known = {
        figure.text
        for table, missing_texts in lacking
        for place, figures in table.cells.items()
        if place not in missing_texts
        for figure in figures
    }
    cells = (
        (table, place, texts)
        for table, missing_texts in lacking
        for place, texts in missing_texts.items()
    )
    return [
        (table, place, unknown)
        for table, place, texts in cells
        if (unknown := [text for text in texts if text not in known])
    ]


def missing(table: Table, index: Index) -> dict[Place, list[str]]:
    """The cells of a table that are not traced by the files or by other columns, and their
    numbers.
    """
    line_sets = {place: _matching(table, place, index) for place in table.cells}
    traced = _traced(table, line_sets, index)
    missing_texts: dict[Place, list[str]] = {}
    for place, figures in table.cells.items():
        somewhere = line_sets[place] if len(figures) >= SENTENCE else [set()] * len(figures)
        unmatched = [
            figure.text
            for figure, lines in zip(figures, somewhere, strict=True)
            if place not in traced and not lines
        ]
        if unmatched and place[0] not in _computed(table, place[1]):
            missing_texts[place] = unmatched
    return missing_texts


def _traced(table: Table, line_sets: dict[Place, list[set[int]]], index: Index) -> set[Place]:
    """The places whose numbers are on lines of the record, given the lines that have each number
    of a place.
    """
    common_lines = {place: set.intersection(*sets) for place, sets in line_sets.items() if sets}
    traced = {
        place
        for place in common_lines
        if _has_another(place, common_lines[place], line_sets) or _in_two_lines(line_sets[place])
    }
    traced |= {
        place
        for place, line_numbers in common_lines.items()
        if line_numbers and _digits(table.cells[place]) >= STRONG
    }
    traced |= {
        place
        for place, line_numbers in common_lines.items()
        if any(1 < len(table.cells[place]) == len(index.lines[at].values) for at in line_numbers)
    }
    sources = {
        place: {index.lines[at].source for at in line_numbers}
        for place, line_numbers in common_lines.items()
    }
    for axis in (0, 1):
        for places in table.across(axis).values():
            traced |= _of_one_source(places, sources, traced)
    spread = {place: _spread(sets, index) for place, sets in line_sets.items() if sets}
    for places in table.across(1).values():
        if not traced & set(places):
            traced |= _of_one_source(places, spread, traced)
    return traced


def _matching(table: Table, place: Place, index: Index) -> list[set[int]]:
    """For each number of a cell the lines that have it, and are not of another size."""
    size = table.size(place)
    return [
        {at for at in index.matching(figure) if size in (None, index.lines[at].size or size)}
        for figure in table.cells[place]
    ]


def _digits(figures: list[Figure]) -> int:
    """The number of digits in the numbers of a cell, without leading zeros."""
    return sum(len(re.sub(r"\D", "", figure.text).lstrip("0")) for figure in figures)


def _spread(line_sets: list[set[int]], index: Index) -> set[str]:
    """The sources in which each number of a cell is on some line."""
    return set.intersection(
        *({index.lines[at].source for at in lines_of_one} for lines_of_one in line_sets)
    )


def _has_another(place: Place, own_lines: set[int], line_sets: dict[Place, list[set[int]]]) -> bool:
    """Whether a line that has a cell has another number of its row, or the cell has three and
    more.
    """
    other_lines = [
        numbers
        for other, sets in line_sets.items()
        if other[0] == place[0] and other != place
        for numbers in sets
    ]
    return any(own_lines & numbers for numbers in other_lines) or (
        bool(own_lines) and len(line_sets[place]) > 2
    )


def _in_two_lines(line_sets: list[set[int]]) -> bool:
    """Whether a cell of four and more numbers consists of two groups, each on a line of its own."""
    return any(
        set.intersection(*line_sets[:cut]) and set.intersection(*line_sets[cut:])
        for cut in range(2, len(line_sets) - 1)
    )


def _of_one_source(
    places: list[Place], sources: dict[Place, set[str]], traced: set[Place]
) -> set[Place]:
    """The places that the source with most of them has, if these are at least two and half of
    them; and so on for the others.
    """
    by_source: dict[str, set[Place]] = {}
    for place in places:
        for source in sources[place]:
            by_source.setdefault(source, set()).add(place)
    covered: set[Place] = set()
    while by_source:
        uncovered = set(places) - covered
        best = max(
            by_source.values(),
            key=lambda candidates: (len(candidates & uncovered), len(candidates - traced)),
        )
        if len(best & uncovered) < max(2, len(uncovered) / 2):
            break
        covered |= best
    return covered


Range = tuple[float, float]
Function = Callable[[Range, Range], Range]


def _computed(table: Table, column: int) -> set[int]:
    """The rows of a column whose numbers are all functions of the same two columns, wherever it
    has some.
    """
    rows = {
        number for (number, column_at), cell in table.cells.items() if column_at == column and cell
    }
    other_columns = [other for other in range(1, len(table.titles)) if other != column]
    if len(rows) < FEWEST_ROWS:
        return set()
    for a, b in itertools.permutations(other_columns, 2):
        for kinds in FUNCTIONS:
            for of in (_first, _least):
                if all(
                    _fits(
                        table,
                        (number, column),
                        of(table, number, a, b),
                        _first(table, number, b, b),
                        kinds,
                    )
                    for number in rows
                ):
                    return rows
    return set()


def _first(table: Table, number: int, a: int, b: int) -> Range | None:
    """The first number of a cell."""
    cell = table.cells[number, a]
    return cell[0].range if cell else None


def _least(table: Table, number: int, a: int, b: int) -> Range | None:
    """The least of the first numbers of columns a to b."""
    return min(
        (cell_range for column in range(a, b) if (cell_range := _first(table, number, column, b))),
        default=None,
    )


def _fits(
    table: Table,
    place: Place,
    of: Range | None,
    over: Range | None,
    functions: tuple[Function, ...],
) -> bool:
    if of is None or over is None or 0 in over:
        return False
    ranges = [function(of, over) for function in functions]
    return all(
        any(least <= high and highest >= low for least, highest in ranges)
        for low, high in (figure.range for figure in table.cells[place])
    )


def _ratio(of: Range, over: Range) -> Range:
    values = [numerator / other for numerator in of for other in over]
    return min(values), max(values)


def _share(of: Range, over: Range) -> Range:
    least, highest = _ratio(of, over)
    return 100 * least, 100 * highest


def _change(of: Range, over: Range) -> Range:
    least, highest = _share(of, over)
    return least - 100, highest - 100


def _difference(of: Range, over: Range) -> Range:
    return of[0] - over[1], of[1] - over[0]


FUNCTIONS: tuple[tuple[Function, ...], ...] = ((_ratio,), (_share,), (_change, _difference))
