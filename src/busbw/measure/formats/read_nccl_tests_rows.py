"""The titles and the rows of nccl-tests' table, of every release and of programs like it.

The line of titles says which columns there are, and in which units. Rows are recognized by their
shape: the words that the titles ask for, at the end of the line.

Releases differ in the left columns (the oldest leave out redop or root), in the last of each side
(`error`, `#wrong`), in the per-iteration and bitwise columns and in what follows both sides
(`timestamp`, `#iters`, what -U adds). Units stand in brackets behind a title (`time(us)`),
or in the line below; the oldest releases print milliseconds and state no unit.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from busbw.core.collectives import Collective
from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.core.result import Cell, ResultRow
from busbw.measure.formats import nccl_kernels, reading
from busbw.ui.number_formats import op_of_column

TIMES = ("time", "cputime")
TRAILING = ("#iters", "timestamp")  # what may follow the figures of a table with one side
# The present titles, by those of NCCL 1, of the first nccl-tests, and of nccom-test.
PRESENT_TITLES = {
    "bytes": "size",
    "n": "count",
    "elements": "count",
    "dtype": "type",
    "datatype": "type",
    "op": "redop",
    "res": "error",
    "delta": "error",
    "wrong": "#wrong",
    "time:avg": "time",
    "algo_bw": "algbw",
    "bus_bw": "busbw",
}
PER_SECOND = {"ns": 1e9, "us": 1e6, "usec": 1e6, "ms": 1e3, "msec": 1e3, "s": 1.0, "sec": 1.0}
RATES = {
    "GB/s": 1e9,
    "MB/s": 1e6,
    "GiB/s": 2.0**30,
    "MiB/s": 2.0**20,
    "Gb/s": 1e9 / 8,
    "Gbps": 1e9 / 8,
    "Gbit/s": 1e9 / 8,
}
_FIRST = re.compile(r"#?[ \t]*\b(?:size|bytes)\b", re.IGNORECASE)
_BUSBW = re.compile(r"bus_?bw", re.IGNORECASE)
_WORD = re.compile(r"([^\s()]+)(?:\(([^()\s]*)\))?")
_UNITS = re.compile(r"\(([^()\s]+)\)")
WHOLE = re.compile(r"\d{1,18}$|\d{1,3}(?:[_,]\d{3}){1,5}$", re.ASCII)
NUMBER = re.compile(r"-?\d{1,9}$", re.ASCII)
WORD = re.compile(r"[A-Za-z]\w*$", re.ASCII)
FIGURE = re.compile(r"([-+]?(\d+\.?\d*(e[-+]?\d+)?|nan|inf)\*?|N/A)$", re.IGNORECASE | re.ASCII)
TEXT = re.compile(r"\S+$")
TUNING = ("implementation", "algo", "proto", "channels", "#channels")  # of -U; the words may be N/A
SHAPES = {
    "size": WHOLE,
    "count": WHOLE,
    "type": WORD,
    "redop": WORD,
    "root": NUMBER,
    "#iters": WHOLE,
    "timestamp": TEXT,
    **dict.fromkeys(TUNING, TEXT),
}
BEGINNING = re.compile(
    rf"\s*\d[\d_,]*\s+[\d.]+(?:\s|$)|.*(?:^|\s)\d+\s+\d+\s+(?:{'|'.join(DTYPES)})\s", re.ASCII
)
BLANK_SIDE = 30  # spaces in a row: one placement was not run


@dataclass(frozen=True, slots=True)
class Columns:
    """The titles of a table."""

    left: tuple[str, ...]  # left of the figures
    side: tuple[str, ...]  # of each side
    sides: int = 2  # how many placements a row has
    trailing: tuple[str, ...] = ()  # behind both sides
    label: str = field(default="", compare=False)  # what a launcher put before the line
    per_second: float | None = None  # units of time in a second; None where no line states the unit
    rate: float = 1e9  # the unit of bandwidths in bytes/s
    in_place: bool = False  # whether the first side is in place
    first: bool = False  # whether the titles are those of NCCL 1

    def shapes(self) -> Iterator[tuple[tuple[str, ...], int]]:
        """The columns that a row can have, one for each of its words, and the number of its sides.

        The largest number of columns comes first. hypercube and the first alltoall print nothing
        under redop.
        """
        trailing: list[str] = []
        for name in self.trailing:
            trailing += [name, name] if name == "timestamp" else [name]
        without_op = tuple(name for name in self.left if name != "redop")
        for sides in range(self.sides, 0, -1):
            for left in dict.fromkeys((self.left, without_op)):
                yield (*left, *self.side * sides, *trailing), sides


MODERN = Columns(
    ("size", "count", "type", "redop", "root"), ("time", "algbw", "busbw", "#wrong"), per_second=1e6
)


def columns(line: str) -> Columns | None:
    """The columns if `line` is the line of titles; else None."""
    first = _FIRST.search(line)
    if first is None or not _BUSBW.search(line):
        return None
    words = _WORD.findall(line[first.start() :].lstrip("# \t"))
    names = [PRESENT_TITLES.get(title.lower(), title.lower()) for title, _ in words]
    times = [index for index, name in enumerate(names) if name in TIMES]
    if not 1 <= len(times) <= 2 or names[0] != "size":
        return None
    start = times[0]
    if not {"algbw", "busbw"} <= set(names[start:]):
        return None
    if len(times) == 2:
        end = times[1]
        trailing = names[2 * end - start :]
    else:
        behind = (index for index in range(start, len(names)) if names[index] in TRAILING)
        end = next(behind, len(names))
        trailing = names[end:]
    titles = Columns(
        left=tuple(names[:start]),
        side=tuple(names[start:end]),
        sides=len(times),
        trailing=tuple(trailing),
        label=line[: first.start()],
        first="bytes" in first[0].lower(),
    )
    return with_units(titles, [unit for _, unit in words if unit])


def with_units(titles: Columns, units: list[str]) -> Columns:
    """The columns with the first unit of a time and of a bandwidth among `units`."""
    per_second = next((PER_SECOND[unit] for unit in units if unit in PER_SECOND), titles.per_second)
    rate = next((RATES[unit] for unit in units if unit in RATES), titles.rate)
    return replace(titles, per_second=per_second, rate=rate)


def units(line: str) -> list[str]:
    """The units in the line below the titles; [] for another line."""
    bracketed = _UNITS.findall(line)
    return bracketed if any(unit in RATES for unit in bracketed) else []


@dataclass(frozen=True, slots=True)
class Read:
    """A row of the table, and whether data was checked, out of place and in place.

    `Cell.wrong` does not say that where the table has deviations.
    """

    row: ResultRow
    checked: tuple[bool, ...]
    deviates: tuple[bool, ...]  # a deviation above 0, which only sums have


def starts_row(line: str) -> bool:
    """Whether the line may be a row.

    It begins with a size and another number, or has a size, a count and a type anywhere.
    """
    return BEGINNING.match(line) is not None


def parse(line: str, titles: Columns | None) -> Read | None:
    """The row at the end of `line`; None if there is no whole row.

    Without titles, only the modern 13 columns are recognized. Types and operators are as printed;
    `finish` completes the row. Empty texts and -1 stand for columns that the release does not have.
    """
    words = line.split()
    titles = titles or MODERN
    for names, sides in titles.shapes():
        values = words[len(words) - len(names) :]
        if len(words) < len(names) or not _fits(names, values, titles.trailing):
            continue
        if any(FIGURE.match(word) for word in words[: -len(names)]):
            continue
        facts = dict(zip(names, values, strict=True))
        try:
            read = _row(line, titles, facts, _sides(names, values, titles), sides)
        except (ValueError, KeyError):  # a time that is N/A, or the titles are damaged
            return None
        return read if _is_plausible(read.row) else None
    return None


def _is_plausible(row: ResultRow) -> bool:
    """Whether 0 bytes have no bandwidth; otherwise the line is of another table."""
    cells = [cell for cell in (row.out_of_place, row.in_place) if cell is not None]
    return row.size_bytes > 0 or not any(cell.algbw > 0 for cell in cells)


def _fits(names: Sequence[str], words: Sequence[str], trailing: Sequence[str]) -> bool:
    """Whether each word has the shape of its column; unknown columns at the end may have any."""
    shapes = dict.fromkeys(trailing, TEXT) | SHAPES
    return all(
        shapes.get(name, FIGURE).match(word) for name, word in zip(names, words, strict=True)
    )


def _sides(names: Sequence[str], words: Sequence[str], titles: Columns) -> list[dict[str, str]]:
    """The figures of each side by their titles."""
    width = len(titles.side)
    starts = [index for index, name in enumerate(names) if name == titles.side[0]]
    return [dict(zip(titles.side, words[start : start + width], strict=True)) for start in starts]


def _row(
    line: str, titles: Columns, facts: dict[str, str], figures: list[dict[str, str]], sides: int
) -> Read:
    """The row of `facts`, its values by title, and of the figures of each side."""
    first_is_blank = titles.sides == 2 and " " * BLANK_SIDE in line.strip()
    if titles.in_place and sides == 2:
        figures.reverse()
    cells: list[Cell | None] = [_cell(side, titles) for side in figures]
    if sides == 1:
        cells = [None, *cells] if first_is_blank != titles.in_place else [*cells, None]
    out_of_place, in_place = cells
    # A redop column that the row leaves blank is '' like one that does not exist;
    # log_collective.evidence_of asks the titles.
    row = ResultRow(
        _integer(facts["size"]),
        _integer(facts.get("count", "0")),
        facts.get("type", ""),
        facts.get("redop", ""),
        int(facts.get("root", "-1")),
        out_of_place,
        in_place,
        _integer(facts.get("#iters", "0")),
        _timestamp(line, titles),
        ran=nccl_kernels.kernel(
            facts.get("algo", ""), facts.get("proto", ""), facts.get("#channels", "")
        ),
    )
    wrongs = [side.get("#wrong", side.get("error", "N/A")) for side in figures]
    deviates = tuple("error" in side and _above_0(side["error"]) for side in figures)
    return Read(row, tuple(text[:1].isdigit() for text in wrongs), deviates)


def _integer(text: str) -> int:
    return int(text.replace(",", "").replace("_", ""))


def _above_0(text: str) -> bool:
    return text[:1].isdigit() and float(text.rstrip("*")) > 0


def _timestamp(line: str, titles: Columns) -> str:
    if "timestamp" not in titles.trailing:
        return ""
    words = line.split()
    after = titles.trailing[titles.trailing.index("timestamp") + 1 :]
    return " ".join(words[len(words) - len(after) - 2 : len(words) - len(after)])


def finish(read: Read, collective: Collective, iters: int, ranks: int) -> ResultRow:
    """The row in busbw's terms.

    Where the table shows the time of the CPU, the cells get the full time of an operation.
    """
    row = read.row
    row.op = op_of_column(collective, row.op)
    row.dtype = reading.element_type(row.dtype)
    row.iters = row.iters or iters
    for cell in (row.out_of_place, row.in_place):
        if cell is not None and cell.cpu_time_s is not None:
            cell.time_s = reading.full_time_s(collective, row, ranks, cell.algbw, cell.cpu_time_s)
    return row


def _cell(facts: dict[str, str], titles: Columns) -> Cell:
    per_second = 1e6 if titles.per_second is None else titles.per_second
    cpu_time_s = _number(facts["cputime"]) / per_second if "cputime" in facts else None
    time_s = _number(facts["time"]) / per_second if cpu_time_s is None else cpu_time_s
    return Cell(
        time_s,
        _number(facts["algbw"]) * titles.rate,
        _number(facts["busbw"]) * titles.rate,
        _wrong(facts),
        cpu_time_s,
    )


def _number(text: str) -> float:
    return float(text.rstrip("*"))


def _wrong(facts: dict[str, str]) -> int | None:
    text = facts.get("#wrong", facts.get("error", "N/A"))
    if not text[:1].isdigit():
        return None
    value = _number(text)
    # The oldest releases print the largest deviation under `error`: above 0 it does not say whether
    # elements are wrong.
    return int(value) if math.isfinite(value) and ("#wrong" in facts or value == 0) else None
