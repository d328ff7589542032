"""The cells of a result as series: all sizes of one type, operator, root and placement."""

from busbw.core.cells import IN_PLACE, CellKey, Figure, every, repeats
from busbw.core.result import Result
from busbw.core.sizes import format_size

HALF = 0.5
DIP = 0.75
# of the peak: below, latency dominates, and twenty iterations cannot tell noise from a dip
DIP_FLOOR = 0.1
STILL_RISING = 1.10
# a single size is judged from here on: latency is a small part of its time
BANDWIDTH_BOUND = 32 << 20

Series = list[Figure]


def where_text(figure: Figure) -> str:
    """`8 B`, or `8 B in place`: out of place is the table's main column."""
    return format_size(figure.row.size_bytes) + (
        f" {IN_PLACE}" if figure.placement == IN_PLACE else ""
    )


def duration(seconds: float) -> str:
    """`8.22 us`, `3.99 ms` or `1.5 s`: three digits, without an exponent below 1,000 s."""
    for unit, scale in (("us", 1e6), ("ms", 1e3)):
        if seconds * scale < 999.5:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def sampled(result: Result) -> Series:
    """The cells of precise timing."""
    return [figure for figure in every(result) if figure.cell.stopped]


def series(result: Result) -> list[Series]:
    """Every series of the result, sorted by size, without rows that moved no bytes; of --repeats
    the middle one.
    """
    found: dict[tuple[str, str, int, str], Series] = {}
    for key, same in repeated(result).items():
        if key.size_bytes > 0:
            found.setdefault((key.dtype, key.op, key.root, key.placement), []).append(
                same[len(same) // 2]
            )
    return [sorted(line, key=lambda figure: figure.row.size_bytes) for line in found.values()]


def repeated(result: Result) -> dict[CellKey, Series]:
    """Every cell with its repeats, the fastest first. Cycles (-N) are separate cells."""
    found: dict[CellKey, Series] = {}
    for key, figure in (item for repeat in repeats(result) for item in repeat.items()):
        found.setdefault(key, []).append(figure)
    return {key: sorted(same, key=lambda figure: figure.cell.time_s) for key, same in found.items()}


def half_peak(line: Series, top: Figure) -> Figure:
    """The smallest size that reaches half of the peak: from there on time depends more on
    bandwidth than on latency.
    """
    return next(figure for figure in line if figure.busbw >= HALF * top.busbw)


def dips(line: Series) -> list[tuple[Figure, float]]:
    """Sizes whose busbw is more than a quarter below both neighbors', each with its ratio to the
    lower neighbor.

    Both neighbors must reach a tenth of the peak.
    """
    found, floor = [], DIP_FLOOR * max(figure.busbw for figure in line)
    for before, here, after in zip(line, line[1:], line[2:], strict=False):
        neighbour = min(before.busbw, after.busbw)
        if neighbour > floor and here.busbw < DIP * neighbour:
            found.append((here, here.busbw / neighbour))
    return found


def still_rising(line: Series) -> bool:
    """Whether bandwidth may not have leveled off: a last step up of more than a tenth, or a
    single small size.
    """
    if len(line) < 2:
        return line[-1].row.size_bytes < BANDWIDTH_BOUND
    return line[-1].busbw > STILL_RISING * line[-2].busbw
