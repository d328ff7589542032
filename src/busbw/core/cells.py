"""The cells of a result.

A cell has a key, which says what it measures, so that results can be compared. A Figure has the
values that every view prints for it. Values are seconds and fractions.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from busbw.core.parts import PartRow
from busbw.core.ran import NcclKernel
from busbw.core.result import Cell, Result, ResultRow

PLACEMENTS = ("out_of_place", "in_place")
OUT_OF_PLACE, IN_PLACE = "out of place", "in place"
# The largest busbw of an interval is at most so many times the smallest: else it says nothing.
VAGUE = 10
UNKNOWN_STOP = "unknown"  # why sampling ended, where a saved table does not say


class CellKey(msgspec.Struct, frozen=True, order=True):
    """What a cell measures, apart from the collective.

    `placement` is one of PLACEMENTS; in a result that is no sweep it says what was timed. `cycle`
    numbers the rows of a run that are otherwise equal, from 0.
    """

    dtype: str
    op: str
    root: int
    size_bytes: int
    placement: str
    cycle: int = 0


@dataclass(frozen=True, slots=True)
class Figure:
    """One cell with its row and its placement in words.

    Views print its time, interval and n, and never compute them from samples.
    """

    row: ResultRow
    placement: str
    cell: Cell

    @property
    def time_s(self) -> float:
        """Seconds: median of `n` samples if timed precisely, else the mean of `n` iterations."""
        return self.cell.time_s

    @property
    def ran(self) -> NcclKernel | None:
        """What NCCL ran; None if it is not known."""
        in_place = self.row.ran_in_place if self.placement == IN_PLACE else None
        return in_place or self.row.ran

    @property
    def n(self) -> int:
        """The number of samples or iterations from which the time is computed."""
        if self.cell.n:
            return self.cell.n
        samples = len(self.cell.kept_s) if self.cell.stopped else 0
        return samples or self.row.iters

    @property
    def half_width(self) -> float:
        """The wider side of the confidence interval as a fraction of the time; inf without one."""
        low_s, high_s = self.cell.low_s, self.cell.high_s
        if low_s is None or high_s is None or self.time_s <= 0:
            return math.inf
        return max(high_s - self.time_s, self.time_s - low_s) / self.time_s

    @property
    def busbw(self) -> float:
        """Bytes per second; 0 if nothing was measured."""
        return self.cell.busbw if math.isfinite(self.cell.busbw) else 0.0

    @property
    def busbw_range(self) -> tuple[float, float]:
        """The busbw at both ends of the confidence interval of the time, the lower one first.

        Without an interval: of a mean (classic timing) the busbw twice, of samples 0 and inf.
        """
        low_s, high_s = self.cell.low_s, self.cell.high_s
        if low_s is None or high_s is None:
            return (0.0, math.inf) if self.cell.stopped else (self.busbw, self.busbw)
        least = self.busbw * self.time_s / high_s if usable(high_s) else 0.0
        most = self.busbw * self.time_s / low_s if usable(low_s) else math.inf
        return least, most

    @property
    def is_vague(self) -> bool:
        """Whether the ends of the interval are so far apart that it says nothing of the busbw."""
        low, high = self.busbw_range
        return self.cell.low_s is not None and high > VAGUE * low

    def reaches(self, least: float) -> bool | None:
        """Whether busbw is at least so many bytes per second over its whole interval; None if the
        interval has values on both sides.
        """
        low, high = self.busbw_range
        if low >= least:
            return True
        return False if high < least else None


def figures(row: ResultRow) -> list[Figure]:
    """The cells of a row, out of place first."""
    both = ((OUT_OF_PLACE, row.out_of_place), (IN_PLACE, row.in_place))
    return [Figure(row, placement, cell) for placement, cell in both if cell is not None]


def all_figures(result: Result) -> Iterator[Figure]:
    """All cells in table order."""
    for row in result.rows:
        yield from figures(row)


def unchecked_sizes(result: Result) -> list[int]:
    """The bytes of the sizes of which a row has no verified data; rising, each once."""
    unchecked = set()
    for row in result.rows:
        if all(figure.cell.wrong is None for figure in figures(row)):
            unchecked.add(row.size_bytes)
    return sorted(unchecked)


def cells(result: Result) -> Iterator[tuple[CellKey, Figure]]:
    """All cells in table order, each with its key."""
    cycles: Counter[CellKey] = Counter()
    for figure in all_figures(result):
        row = figure.row
        placement = PLACEMENTS[figure.placement == IN_PLACE]
        if isinstance(row, PartRow):
            placement = row.what
        key = CellKey(row.dtype, row.op, row.root, row.size_bytes, placement)
        yield msgspec.structs.replace(key, cycle=cycles[key]), figure
        cycles[key] += 1


def precise_figures(result: Result) -> list[Figure]:
    """The cells that are as precise as requested, in table order.

    Classic timing and a given number of iterations request no precision. A cell with two modes or a
    throttled GPU is not settled.
    """
    return [figure for figure in all_figures(result) if is_precise(result, figure)]


def is_precise(result: Result, figure: Figure) -> bool:
    """Whether a cell is as precise as requested."""
    if figure.cell.stopped == "budget":  # also where only --tail had too few samples
        precision = result.spec.sampling.precision if result.spec.sampling else 0.0
        return figure.half_width <= precision
    return figure.cell.stopped in ("", "ok", "fixed")


def headline(result: Result) -> Figure | None:
    """The cell that represents the sweep; None if nothing was measured."""
    return surest_peak(result, all_figures(result))


def larger_uncertain(result: Result) -> Figure | None:
    """The largest of the cells above the headline, all of which are less certain than it."""
    peak = headline(result)
    larger = [figure for figure in all_figures(result) if peak and figure.busbw > peak.busbw]
    return max(larger, key=lambda figure: figure.busbw, default=None)


def surest_peak(result: Result, figures: Iterable[Figure]) -> Figure | None:
    """The figure with the highest busbw; None if no busbw is a number.

    Of a cell that is less precise than requested the lower end of the interval counts: a few
    samples can have a high median by chance. One with two modes or a throttled GPU counts only if
    there is no other.
    """

    def sure(figure: Figure) -> tuple[float, float]:
        least = figure.busbw if is_precise(result, figure) else figure.busbw_range[0]
        return least, figure.busbw

    finite = [figure for figure in figures if math.isfinite(figure.cell.busbw)]
    settled = [figure for figure in finite if figure.cell.stopped != "unstable"]
    return max(settled or finite, key=sure, default=None)


def decisive(figures: Iterable[Figure], peak: Figure, least: float) -> Figure:
    """The figure by which to judge whether a busbw of so many bytes per second is reached: the peak
    if it is, or if no other can be; else one that is, else one with values on both sides.

    One without an interval may have any busbw, so it counts only if its own value is enough.
    """
    by_answer: dict[bool | None, Figure] = {peak.reaches(least): peak}
    for figure in sorted(figures, key=lambda figure: figure.busbw, reverse=True):
        if figure.half_width < math.inf or figure.busbw >= least:
            by_answer.setdefault(figure.reaches(least), figure)
    return next(by_answer[answer] for answer in (True, None, False) if answer in by_answer)


def repeats(result: Result) -> list[dict[CellKey, Figure]]:
    """The cells of each repeat of the sweep; each repeat has its own communicators."""
    rows_by_repeat: dict[int, list[ResultRow]] = {}
    for row in result.rows:
        rows_by_repeat.setdefault(row.repeat, []).append(row)
    return [
        dict(cells(msgspec.structs.replace(result, rows=rows)))
        for _, rows in sorted(rows_by_repeat.items())
    ]


def complete_repeats(result: Result) -> list[dict[CellKey, Figure]]:
    """The repeats, without an incomplete one if there are others."""
    all_repeats = repeats(result) or [{}]
    if len(all_repeats) > 1 and not result.complete:
        return all_repeats[:-1]
    return all_repeats


def medians(times_s: Iterable[tuple[CellKey, float]]) -> dict[CellKey, float]:
    """One time per cell in seconds: the median over its cycles; nan if one is not usable."""
    by_cell: dict[CellKey, list[float]] = {}
    for key, time_s in times_s:
        by_cell.setdefault(msgspec.structs.replace(key, cycle=0), []).append(time_s)
    return {
        key: statistics.median(times) if all(map(usable, times)) else math.nan
        for key, times in by_cell.items()
    }


def in_table_order(key: CellKey) -> tuple[str, str, int, int, bool, str, int]:
    """Sort key: by size within type, operator and root, out of place first."""
    in_place = key.placement == PLACEMENTS[1]
    return key.dtype, key.op, key.root, key.size_bytes, in_place, key.placement, key.cycle


def usable(seconds: float) -> bool:
    """Whether a duration is finite and above 0."""
    return math.isfinite(seconds) and seconds > 0


def timing(result: Result) -> str:
    """`precise` (medians of single operations) or `classic` (means over operations in a row)."""
    return "precise" if result.spec.sampling else "classic"
