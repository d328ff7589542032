"""The cells of results by what was measured, so that one run's can be put beside another's."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from busbw.core.result import Cell, Result, Row

PLACEMENTS = ("out_of_place", "in_place")
OUT_OF_PLACE, IN_PLACE = "out of place", "in place"


class CellKey(msgspec.Struct, frozen=True, order=True):
    """What a cell measures, besides the collective. `cycle` counts the rows of a run that are alike in all else, from 0."""

    dtype: str
    op: str
    root: int
    size_bytes: int
    placement: str
    cycle: int = 0


def cells(result: Result) -> Iterator[tuple[CellKey, Cell]]:
    """Every cell in the order of the table."""
    seen: Counter[CellKey] = Counter()
    for row in result.rows:
        for placement in PLACEMENTS:
            cell: Cell | None = getattr(row, placement)
            if cell is not None:
                key = CellKey(row.dtype, row.op, row.root, row.size_bytes, placement)
                yield msgspec.structs.replace(key, cycle=seen[key]), cell
                seen[key] += 1


@dataclass(frozen=True, slots=True)
class Figure:
    """One cell, the row it stands in, and its placement in words."""

    row: Row
    placement: str
    cell: Cell

    @property
    def busbw(self) -> float:
        """Bytes per second; 0 where nothing was measured."""
        return self.cell.busbw if math.isfinite(self.cell.busbw) else 0.0


def figures(row: Row) -> list[Figure]:
    """The cells of a row, out of place first."""
    both = ((OUT_OF_PLACE, row.out_of_place), (IN_PLACE, row.in_place))
    return [Figure(row, placement, cell) for placement, cell in both if cell is not None]


def every(result: Result) -> Iterator[Figure]:
    """All cells in the order of the table."""
    for row in result.rows:
        yield from figures(row)


def peak(found: Iterable[Figure]) -> Figure | None:
    """The figure with the highest busbw; None where no busbw is a number."""
    return max((figure for figure in found if math.isfinite(figure.cell.busbw)), key=lambda figure: figure.busbw, default=None)


def runs(result: Result) -> list[dict[CellKey, Cell]]:
    """The cells of each repeat, for which communicators were made anew: runs of their own.

    A repeat that broke off is left out where there are others.
    """
    repeats = sorted({row.repeat for row in result.rows})
    whole = repeats[:-1] if len(repeats) > 1 and not result.complete else repeats
    parts = ([row for row in result.rows if row.repeat == repeat] for repeat in whole)
    return [dict(cells(msgspec.structs.replace(result, rows=rows))) for rows in parts] or [{}]


def medians(times_s: Iterable[tuple[CellKey, float]]) -> dict[CellKey, float]:
    """One time a cell, in seconds: the median over its cycles; nan where any of them is no time."""
    found: dict[CellKey, list[float]] = {}
    for key, time_s in times_s:
        found.setdefault(msgspec.structs.replace(key, cycle=0), []).append(time_s)
    return {key: statistics.median(times) if all(map(usable, times)) else math.nan for key, times in found.items()}


def in_table_order(key: CellKey) -> tuple[str, str, int, int, int, int]:
    """Sorts cells by size within type, operator and root, out of place first."""
    return key.dtype, key.op, key.root, key.size_bytes, PLACEMENTS.index(key.placement), key.cycle


def usable(seconds: float) -> bool:
    """Whether a duration is one: finite and above 0."""
    return math.isfinite(seconds) and seconds > 0


def timing(result: Result) -> str:
    """How its times came about: `precise` are medians of single operations, `classic` means over operations back to back."""
    return "precise" if result.spec.sampling else "classic"
