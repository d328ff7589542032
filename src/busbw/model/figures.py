"""The cells of a result as series: one size after the other of one type, operator, root and placement. Pure."""

from collections import Counter

from busbw.core.cells import Figure, every, figures
from busbw.core.result import Result

HALF = 0.5
DIP = 0.75
DIP_FLOOR = 0.1  # of the peak: below, a size takes as long as its latency, and twenty iterations cannot tell noise from a dip
STILL_RISING = 1.10
BANDWIDTH_BOUND = 32 << 20  # a single size from here on is judged: latency is a small part of its time


Series = list[Figure]


def sampled(result: Result) -> Series:
    """The cells of precise timing."""
    return [figure for figure in every(result) if figure.cell.stopped]


def series(result: Result) -> list[Series]:
    """Every series of the result, each in order of size, without rows that moved no bytes; of --repeats the middle one."""
    found: dict[tuple[str, str, int, str], Series] = {}
    for same in repeated(result).values():
        row, placement = same[0].row, same[0].placement
        if row.size_bytes > 0:
            found.setdefault((row.dtype, row.op, row.root, placement), []).append(same[len(same) // 2])
    return [sorted(line, key=lambda figure: figure.row.size_bytes) for line in found.values()]


def repeated(result: Result) -> dict[tuple[str, str, int, str, int, int], Series]:
    """Every cell with its repeats, quickest first. Cycles (-N) are cells of their own."""
    found: dict[tuple[str, str, int, str, int, int], Series] = {}
    cycles: Counter[tuple[str, str, int, int, int]] = Counter()
    for row in result.rows:
        one = (row.dtype, row.op, row.root, row.size_bytes, row.repeat)
        for figure in figures(row):
            key = (row.dtype, row.op, row.root, figure.placement, row.size_bytes, cycles[one])
            found.setdefault(key, []).append(figure)
        cycles[one] += 1
    return {key: sorted(same, key=lambda figure: figure.cell.time_s) for key, same in found.items()}


def half_peak(line: Series, top: Figure) -> Figure:
    """The smallest size that reaches half of the peak: N1/2, from which the time depends on bandwidth more than on latency."""
    return next(figure for figure in line if figure.busbw >= HALF * top.busbw)


def dips(line: Series) -> list[tuple[Figure, float]]:
    """Sizes whose busbw is more than a quarter below both neighbours', each with its ratio to the lower neighbour.

    Only where both neighbours reach a tenth of the peak.
    """
    found, floor = [], DIP_FLOOR * max(figure.busbw for figure in line)
    for before, here, after in zip(line, line[1:], line[2:], strict=False):
        neighbour = min(before.busbw, after.busbw)
        if neighbour > floor and here.busbw < DIP * neighbour:
            found.append((here, here.busbw / neighbour))
    return found


def still_rising(line: Series) -> bool:
    """Whether the sweep may have ended before bandwidth levelled off: a last step up of more than a tenth, or one size that is small."""
    if len(line) < 2:
        return line[-1].row.size_bytes < BANDWIDTH_BOUND
    return line[-1].busbw > STILL_RISING * line[-2].busbw
