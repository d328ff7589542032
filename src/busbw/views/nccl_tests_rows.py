"""The rows of nccl-tests' table, of every release: which columns there are is read from the line of titles.

Releases differ in the left columns (the oldest leave out redop or root), in the last of each side (`error`, `#wrong`), in the per-iteration
and bitwise columns and in spaces; hypercube prints nothing under redop.
"""

import re
from dataclasses import dataclass

TIMES = ("time", "cputime")
MODERN = ["size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong"]
FIGURE = re.compile(r"[-+]?(\d+\.?\d*(e[-+]?\d+)?|nan|inf)$|N/A$", re.IGNORECASE)
BLANK_SIDE = 30  # spaces that only a placement which was not run leaves


@dataclass(frozen=True, slots=True)
class Side:
    """One placement as printed: microseconds, GB/s, and the count of wrong elements (None: not checked, or not told)."""

    time_us: float
    algbw: float
    busbw: float
    wrong: int | None
    cpu_time: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One row as printed; empty and -1 where its release has no such column."""

    size: int
    count: int
    dtype: str
    redop: str
    root: int
    out_of_place: Side | None
    in_place: Side | None
    timestamp: str


@dataclass(frozen=True, slots=True)
class Columns:
    """The titles: left of the figures, and of each side."""

    left: tuple[str, ...]
    side: tuple[str, ...]
    timestamp: bool = False


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


def parse(line: str, titles: Columns | None) -> Line | None:
    """The row that `line` holds, None when it holds no whole one. Without titles only the modern 13 columns are taken."""
    words = line.split()
    if titles is None:
        if len(words) != len(MODERN):
            return None
        titles = Columns(tuple(MODERN[:5]), tuple(MODERN[5:9]))
    timestamp = " ".join(words[-2:]) if titles.timestamp else ""
    words = words[:-2] if titles.timestamp else words
    width = len(titles.side)
    sides = _figures(words, width)
    left = words[: len(words) - width * sides]
    # The redop column is blank in hypercube, so its word is missing.
    names = titles.left if len(left) == len(titles.left) else tuple(name for name in titles.left if name != "redop")
    if not sides or len(left) != len(names):
        return None
    blank_first = sides == 1 and " " * BLANK_SIDE in line.rstrip()
    facts = dict(zip(names, left, strict=True))
    try:
        cells = [_side(words[len(left) + width * index :][:width], titles.side) for index in range(sides)]
        return Line(
            size=int(facts["size"]),
            count=int(facts["count"]),
            dtype=facts.get("type", ""),
            redop=facts.get("redop", ""),
            root=int(facts.get("root", "-1")),
            out_of_place=None if blank_first else cells[0],
            in_place=cells[-1] if sides == 2 or blank_first else None,
            timestamp=timestamp,
        )
    except ValueError:
        return None


def _figures(words: list[str], width: int) -> int:
    """How many sides of `width` figures the words end with, besides at least size, count and type."""
    for sides in (2, 1):
        tail = words[-width * sides :]
        if len(words) >= width * sides + 3 and all(FIGURE.match(word) for word in tail):
            return sides
    return 0


def _side(words: list[str], titles: tuple[str, ...]) -> Side:
    facts = dict(zip(titles, words, strict=True))
    cpu_time = "cputime" in facts
    return Side(
        time_us=float(facts["cputime" if cpu_time else "time"]),
        algbw=float(facts["algbw"]),
        busbw=float(facts["busbw"]),
        wrong=_wrong(facts),
        cpu_time=cpu_time,
    )


def _wrong(facts: dict[str, str]) -> int | None:
    text = facts.get("#wrong", facts.get("error", "N/A"))
    if not text[:1].isdigit():
        return None
    value = float(text)
    # The oldest releases print the largest deviation under `error`: not 0 does not tell how many elements are wrong, or whether any is.
    return int(value) if "#wrong" in facts or value == 0 else None
