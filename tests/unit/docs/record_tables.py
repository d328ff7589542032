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

    def across(self, which: int) -> dict[int, list[Place]]:
        """The places with figures of each row (0) or column (1)."""
        found: dict[int, list[Place]] = {}
        for place, figures in self.cells.items():
            if figures:
                found.setdefault(place[which], []).append(place)
        return found


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
    found = []
    for word in NUMBER.findall(cell):
        plain = word.replace(",", "").lstrip("+")
        found.append(Figure(word, float(plain), len(plain.partition(".")[2])))
    return found


def _size(label: str) -> int | None:
    found = SIZE.search(label)
    return int(found[1]) << SHIFT[found[2]] if found else None


def changed(table: Table, place: Place, units: int) -> Table:
    """The table with the longest number of a cell changed by units of its last digit."""
    its = list(table.cells[place])
    at = max(range(len(its)), key=lambda number: len(its[number].text))
    value = round(its[at].value + units * 10.0 ** -its[at].places, its[at].places)
    its[at] = Figure(f"{value:.{its[at].places}f}", value, its[at].places)
    return replace(table, cells={**table.cells, place: its})


class Index:
    """Finds the lines that have a number."""

    def __init__(self, record: Path) -> None:
        self.lines: list[Line] = lines(record)
        self._values = sorted(
            (value, places, at)
            for at, line in enumerate(self.lines)
            for value, places in line.values
        )

    def having(self, figure: Figure) -> set[int]:
        """The lines with a value that is rounded to the figure."""
        value, slack = abs(figure.value), 1e-9 * max(abs(figure.value), 1.0)
        first = bisect.bisect_left(self._values, (value - figure.half - slack,))
        last = bisect.bisect_right(self._values, (value + figure.half + slack,))
        return {
            at
            for known, places, at in self._values[first:last]
            if places > figure.places or (places == figure.places and abs(known - value) <= slack)
        }


@cache
def index(record: Path) -> Index:
    """The index of a record's files, made once."""
    return Index(record)


def untraced(record: Path) -> list[tuple[Table, Place, list[str]]]:
    """The cells of a record's README whose numbers its files do not have, with these numbers."""
    found = [
        (table, missing(table, index(record)))
        for table in tables((record / "README.md").read_text(encoding="utf-8"))
    ]
    known = {
        figure.text
        for table, lacking in found
        for place, its in table.cells.items()
        if place not in lacking
        for figure in its
    }
    every = ((table, place, texts) for table, lacking in found for place, texts in lacking.items())
    return [
        (table, place, rest)
        for table, place, texts in every
        if (rest := [text for text in texts if text not in known])
    ]


def missing(table: Table, index: Index) -> dict[Place, list[str]]:
    """The cells of a table that are not traced by the files or by other columns, and their
    numbers.
    """
    having = {place: _matching(table, place, index) for place in table.cells}
    traced = _traced(table, having, index)
    left: dict[Place, list[str]] = {}
    for place, its in table.cells.items():
        somewhere = having[place] if len(its) >= SENTENCE else [set()] * len(its)
        rest = [
            figure.text
            for figure, found in zip(its, somewhere, strict=True)
            if place not in traced and not found
        ]
        if rest and place[0] not in _computed(table, place[1]):
            left[place] = rest
    return left


def _traced(table: Table, having: dict[Place, list[set[int]]], index: Index) -> set[Place]:
    """The places whose numbers are on lines of the record, given the lines that have each number
    of a place.
    """
    whole = {place: set.intersection(*sets) for place, sets in having.items() if sets}
    traced = {
        place
        for place in whole
        if _has_another(place, whole[place], having) or _in_two_lines(having[place])
    }
    traced |= {
        place for place, its in whole.items() if its and _digits(table.cells[place]) >= STRONG
    }
    traced |= {
        place
        for place, its in whole.items()
        if any(1 < len(table.cells[place]) == len(index.lines[at].values) for at in its)
    }
    sources = {place: {index.lines[at].source for at in its} for place, its in whole.items()}
    for which in (0, 1):
        for places in table.across(which).values():
            traced |= _of_one_source(places, sources, traced)
    spread = {place: _spread(sets, index) for place, sets in having.items() if sets}
    for places in table.across(1).values():
        if not traced & set(places):
            traced |= _of_one_source(places, spread, traced)
    return traced


def _matching(table: Table, place: Place, index: Index) -> list[set[int]]:
    """For each number of a cell the lines that have it, and are not of another size."""
    size = table.size(place)
    return [
        {at for at in index.having(figure) if size in (None, index.lines[at].size or size)}
        for figure in table.cells[place]
    ]


def _digits(its: list[Figure]) -> int:
    """How many digits the numbers of a cell have, without zeros before them."""
    return sum(len(re.sub(r"\D", "", figure.text).lstrip("0")) for figure in its)


def _spread(having: list[set[int]], index: Index) -> set[str]:
    """The sources in which each number of a cell is on some line."""
    return set.intersection(
        *({index.lines[at].source for at in lines_of_one} for lines_of_one in having)
    )


def _has_another(place: Place, mine: set[int], having: dict[Place, list[set[int]]]) -> bool:
    """Whether a line that has a cell has another number of its row, or the cell has three and
    more.
    """
    others = [
        numbers
        for other, sets in having.items()
        if other[0] == place[0] and other != place
        for numbers in sets
    ]
    return any(mine & numbers for numbers in others) or (bool(mine) and len(having[place]) > 2)


def _in_two_lines(having: list[set[int]]) -> bool:
    """Whether a cell of four and more numbers consists of two groups, each on a line of its own."""
    return any(
        set.intersection(*having[:cut]) and set.intersection(*having[cut:])
        for cut in range(2, len(having) - 1)
    )


def _of_one_source(
    places: list[Place], sources: dict[Place, set[str]], traced: set[Place]
) -> set[Place]:
    """The places that the source with most of them has, if these are at least two and half of
    them; and so on for the others.
    """
    having: dict[str, set[Place]] = {}
    for place in places:
        for source in sources[place]:
            having.setdefault(source, set()).add(place)
    found: set[Place] = set()
    while having:
        left = set(places) - found
        best = max(having.values(), key=lambda its: (len(its & left), len(its - traced)))
        if len(best & left) < max(2, len(left) / 2):
            break
        found |= best
    return found


Range = tuple[float, float]
Function = Callable[[Range, Range], Range]


def _computed(table: Table, column: int) -> set[int]:
    """The rows of a column whose numbers are all functions of the same two columns, wherever it
    has some.
    """
    rows = {number for (number, its), found in table.cells.items() if its == column and found}
    others = [other for other in range(1, len(table.titles)) if other != column]
    if len(rows) < FEWEST_ROWS:
        return set()
    for a, b in itertools.permutations(others, 2):
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
    found = table.cells[number, a]
    return found[0].range if found else None


def _least(table: Table, number: int, a: int, b: int) -> Range | None:
    """The least of the first numbers of columns a to b."""
    return min(
        (found for column in range(a, b) if (found := _first(table, number, column, b))),
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
        any(least <= high and most >= low for least, most in ranges)
        for low, high in (one.range for one in table.cells[place])
    )


def _ratio(of: Range, over: Range) -> Range:
    values = [one / other for one in of for other in over]
    return min(values), max(values)


def _share(of: Range, over: Range) -> Range:
    least, most = _ratio(of, over)
    return 100 * least, 100 * most


def _change(of: Range, over: Range) -> Range:
    least, most = _share(of, over)
    return least - 100, most - 100


def _difference(of: Range, over: Range) -> Range:
    return of[0] - over[1], of[1] - over[0]


FUNCTIONS: tuple[tuple[Function, ...], ...] = ((_ratio,), (_share,), (_change, _difference))
