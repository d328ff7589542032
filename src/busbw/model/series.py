"""The cells of a result as series: all sizes of one type, operator, root and placement."""

from busbw.core.cells import IN_PLACE, CellKey, Figure, all_figures, repeats
from busbw.core.result import Result
from busbw.core.sizes import format_size

HALF_SHARE = 0.5
DIP = 0.75
# A share of the peak: below it latency dominates, and twenty iterations cannot distinguish a dip
# from noise.
DIP_FLOOR = 0.1
STILL_RISING = 1.10
# A single size is judged if it has so many bytes or more: latency is a small part of its time.
BANDWIDTH_BOUND = 32 << 20

Series = list[Figure]


def where_text(figure: Figure) -> str:
    """`8 B`, or `8 B in place`: out of place is the table's main column."""
    size = format_size(figure.row.size_bytes)
    return f"{size} {IN_PLACE}" if figure.placement == IN_PLACE else size


def duration(seconds: float) -> str:
    """`8.22 us`, `3.99 ms` or `1.5 s`: three digits, without an exponent below 1,000 s."""
    for unit, scale in (("us", 1e6), ("ms", 1e3)):
        if seconds * scale < 999.5:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def sampled(result: Result) -> Series:
    """The cells of precise timing."""
    return [figure for figure in all_figures(result) if figure.cell.stopped]


def series(result: Result) -> list[Series]:
    """Every series with rows that moved bytes, sorted by size; of --repeats the middle one."""
    lines: dict[tuple[str, str, int, str], Series] = {}
    for key, figures in repeated(result).items():
        if key.size_bytes > 0:
            line = lines.setdefault((key.dtype, key.op, key.root, key.placement), [])
            line.append(figures[len(figures) // 2])
    return [sorted(line, key=lambda figure: figure.row.size_bytes) for line in lines.values()]


def repeated(result: Result) -> dict[CellKey, Series]:
    """Every cell with its repeats, the fastest first. Cycles (-N) are separate cells."""
    cells: dict[CellKey, Series] = {}
    for repeat in repeats(result):
        for key, figure in repeat.items():
            cells.setdefault(key, []).append(figure)
    for figures in cells.values():
        figures.sort(key=lambda figure: figure.cell.time_s)
    return cells


def half_peak(line: Series, top: Figure) -> Figure:
    """The smallest size with half of the peak: from there, bandwidth decides more than latency."""
    return next(figure for figure in line if figure.busbw >= HALF_SHARE * top.busbw)


def dips(line: Series) -> list[tuple[Figure, float]]:
    """Sizes whose busbw is more than a quarter below both neighbors', each with its ratio to the
    lower neighbor.

    Both neighbors must reach a tenth of the peak.
    """
    floor = DIP_FLOOR * max(figure.busbw for figure in line)
    result = []
    for before, figure, after in zip(line, line[1:], line[2:], strict=False):
        neighbor = min(before.busbw, after.busbw)
        if neighbor > floor and figure.busbw < DIP * neighbor:
            result.append((figure, figure.busbw / neighbor))
    return result


def still_rising(line: Series) -> bool:
    """Whether bandwidth may still rise: the last step was over a tenth, or one small size."""
    if len(line) < 2:
        return line[-1].row.size_bytes < BANDWIDTH_BOUND
    return line[-1].busbw > STILL_RISING * line[-2].busbw
