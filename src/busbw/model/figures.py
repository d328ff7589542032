"""The cells of a result as series: one size after the other of one type, operator, root and placement. Pure."""

import math
from collections import Counter
from dataclasses import dataclass

from busbw.core.result import Cell, Result, Row

OUT_OF_PLACE, IN_PLACE = "out of place", "in place"
HALF = 0.5
DIP = 0.75
DIP_FLOOR = 0.1  # of the peak: below, a size takes as long as its latency, and twenty iterations cannot tell noise from a dip
STILL_RISING = 1.10
BANDWIDTH_BOUND = 32 << 20  # a single size from here on is judged: latency is a small part of its time


@dataclass(frozen=True, slots=True)
class Figure:
    """One cell and the row it stands in."""

    row: Row
    cell: Cell
    placement: str

    @property
    def busbw(self) -> float:
        """Bytes per second; 0 where nothing was measured."""
        return self.cell.busbw if math.isfinite(self.cell.busbw) else 0.0


Series = list[Figure]


def every(result: Result) -> Series:
    """Every cell in the order of the table."""
    both = (
        (row, cell, placement) for row in result.rows for cell, placement in ((row.out_of_place, OUT_OF_PLACE), (row.in_place, IN_PLACE))
    )
    return [Figure(row, cell, placement) for row, cell, placement in both if cell is not None]


def sampled(result: Result) -> Series:
    """The cells of precise timing."""
    return [figure for figure in every(result) if figure.cell.stopped]


def series(result: Result) -> list[Series]:
    """Every series of the result, each in order of size, without rows that moved no bytes; of --repeats the middle one."""
    found: dict[tuple[str, str, int, str], Series] = {}
    for figures in repeated(result).values():
        row, placement = figures[0].row, figures[0].placement
        if row.size_bytes > 0:
            found.setdefault((row.dtype, row.op, row.root, placement), []).append(figures[len(figures) // 2])
    return [sorted(figures, key=lambda figure: figure.row.size_bytes) for figures in found.values()]


def repeated(result: Result) -> dict[tuple[str, str, int, str, int, int], Series]:
    """Every cell with its repeats, quickest first. Cycles (-N) are cells of their own."""
    found: dict[tuple[str, str, int, str, int, int], Series] = {}
    cycles: Counter[tuple[str, str, int, int, int]] = Counter()
    for row in result.rows:
        one = (row.dtype, row.op, row.root, row.size_bytes, row.repeat)
        for cell, placement in ((row.out_of_place, OUT_OF_PLACE), (row.in_place, IN_PLACE)):
            if cell is not None:
                key = (row.dtype, row.op, row.root, placement, row.size_bytes, cycles[one])
                found.setdefault(key, []).append(Figure(row, cell, placement))
        cycles[one] += 1
    return {key: sorted(figures, key=lambda figure: figure.cell.time_s) for key, figures in found.items()}


def peak(figures: Series) -> Figure:
    """The figure with the highest busbw."""
    return max(figures, key=lambda figure: figure.busbw)


def half_peak(figures: Series) -> Figure:
    """The smallest size that reaches half of the peak: N1/2, from which the time depends on bandwidth more than on latency."""
    top = peak(figures).busbw
    return next(figure for figure in figures if figure.busbw >= HALF * top)


def dips(figures: Series) -> list[tuple[Figure, float]]:
    """Sizes whose busbw is more than a quarter below both neighbours', each with its ratio to the lower neighbour.

    Only where both neighbours reach a tenth of the peak.
    """
    found, floor = [], DIP_FLOOR * peak(figures).busbw
    for before, here, after in zip(figures, figures[1:], figures[2:], strict=False):
        neighbour = min(before.busbw, after.busbw)
        if neighbour > floor and here.busbw < DIP * neighbour:
            found.append((here, here.busbw / neighbour))
    return found


def still_rising(figures: Series) -> bool:
    """Whether the sweep may have ended before bandwidth levelled off: a last step up of more than a tenth, or one size that is small."""
    if len(figures) < 2:
        return figures[-1].row.size_bytes < BANDWIDTH_BOUND
    return figures[-1].busbw > STILL_RISING * figures[-2].busbw
