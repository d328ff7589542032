"""The rows of nccl-tests' table, of every release: the line of titles says which columns there are.

Releases differ in the left columns (the oldest leave out redop or root), in the last of each side (`error`, `#wrong`), in the per-iteration
and bitwise columns and in spaces; hypercube prints nothing under redop.
"""

import re
from dataclasses import dataclass

from busbw.core.collectives import Collective
from busbw.core.result import Cell, Row
from busbw.views import reading
from busbw.views.formats import op_of_column

TIMES = ("time", "cputime")
FIGURE = re.compile(r"[-+]?(\d+\.?\d*(e[-+]?\d+)?|nan|inf)$|N/A$", re.IGNORECASE)
BLANK_SIDE = 30  # spaces in a row: one placement was not run


@dataclass(frozen=True, slots=True)
class Columns:
    """The titles: left of the figures, and of each side."""

    left: tuple[str, ...]
    side: tuple[str, ...]
    timestamp: bool = False


MODERN = Columns(("size", "count", "type", "redop", "root"), ("time", "algbw", "busbw", "#wrong"))


def columns(line: str) -> Columns | None:
    """The columns when `line` is the line of titles, else None."""
    words = line.lstrip("# ").split()
    times = [index for index, word in enumerate(words) if word in TIMES]
    if words[:2] != ["size", "count"] or len(times) != 2 or "busbw" not in words:
        return None
    return Columns(tuple(words[: times[0]]), tuple(words[times[0] : times[1]]), "timestamp" in words)


def starts_row(line: str) -> bool:
    """Whether the line begins as rows do: a size and a count."""
    words = line.split(maxsplit=2)
    return len(words) >= 2 and words[0].isdigit() and words[1].isdigit()


def parse(line: str, titles: Columns | None) -> Row | None:
    """The row that `line` holds, None when it holds no whole one. Without titles only the modern 13 columns are taken.

    Types and operators are as printed; `finish` completes the row. Empty and -1 stand for columns that its release does not have.
    """
    words = line.split()
    if titles is None:
        if len(words) != len(MODERN.left) + 2 * len(MODERN.side):
            return None
        titles = MODERN
    timestamp = " ".join(words[-2:]) if titles.timestamp else ""
    words = words[:-2] if titles.timestamp else words
    width = len(titles.side)
    sides = _figures(words, width)
    left = words[: len(words) - width * sides]
    # The redop column is blank in hypercube.
    names = titles.left if len(left) == len(titles.left) else tuple(name for name in titles.left if name != "redop")
    if not sides or len(left) != len(names):
        return None
    blank_first = sides == 1 and " " * BLANK_SIDE in line.rstrip()
    facts = dict(zip(names, left, strict=True))
    try:
        cells = [_cell(dict(zip(titles.side, words[len(left) + width * index :][:width], strict=True))) for index in range(sides)]
        out_of_place, in_place = None if blank_first else cells[0], cells[-1] if sides == 2 or blank_first else None
        numbers = int(facts["size"]), int(facts["count"]), int(facts.get("root", "-1"))
    except (ValueError, KeyError):  # a word is no number, or the titles are damaged
        return None
    return Row(*numbers[:2], facts.get("type", ""), facts.get("redop", ""), numbers[2], out_of_place, in_place, 0, timestamp)


def finish(row: Row, collective: Collective, iters: int, ranks: int) -> Row:
    """The row in busbw's terms, with the full time of an operation where the table shows the CPU's."""
    row.op, row.dtype, row.iters = op_of_column(collective, row.op), reading.element_type(row.dtype), iters
    for cell in (row.out_of_place, row.in_place):
        if cell is not None and cell.cpu_time_s is not None:
            cell.time_s = reading.full_time_s(collective, row, ranks, cell.algbw, cell.cpu_time_s)
    return row


def _figures(words: list[str], width: int) -> int:
    """How many sides of `width` figures the words end with, besides at least size, count and type."""
    for sides in (2, 1):
        tail = words[-width * sides :]
        if len(words) >= width * sides + 3 and all(FIGURE.match(word) for word in tail):
            return sides
    return 0


def _cell(facts: dict[str, str]) -> Cell:
    cpu_time_s = float(facts["cputime"]) / 1e6 if "cputime" in facts else None
    time_s = float(facts["time"]) / 1e6 if cpu_time_s is None else cpu_time_s
    return Cell(time_s, float(facts["algbw"]) * 1e9, float(facts["busbw"]) * 1e9, _wrong(facts), cpu_time_s)


def _wrong(facts: dict[str, str]) -> int | None:
    text = facts.get("#wrong", facts.get("error", "N/A"))
    if not text[:1].isdigit():
        return None
    value = float(text)
    # The oldest releases print the largest deviation under `error`: above 0 it does not say whether elements are wrong.
    return int(value) if "#wrong" in facts or value == 0 else None
