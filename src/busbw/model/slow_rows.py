"""Rows that are slow compared with their neighbors (a sweep should be smooth), or have a wide
confidence interval.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from busbw.core.cells import Figure
from busbw.core.result import Result, Row
from busbw.model.series import Series, series, where_text

# times the time that the neighbors suggest: small sizes vary by 4 to 6 % from sample to sample
SLOWER = 1.10
WIDE = 0.05  # half of the confidence interval, as a share of the time


@dataclass(frozen=True, slots=True)
class Slow:
    """A bad figure, its time divided by the expected time, and a message."""

    figure: Figure
    ratio: float
    message: str


def slow_rows(result: Result, unusual: Callable[[Row], bool]) -> list[Slow]:
    """The bad figures among unusual rows, the worst first.

    Only rows that are not unusual count as neighbors.
    """
    found = []
    for figures in series(result):
        for index, figure in enumerate(figures):
            if unusual(figure.row) and figure.busbw > 0:
                found += _judged(figures, index, unusual)
    return sorted(found, key=lambda slow: -slow.ratio)


def _judged(figures: Series, index: int, unusual: Callable[[Row], bool]) -> list[Slow]:
    figure = figures[index]
    expected = expected_s(figures, index, unusual)
    ratio = figure.cell.time_s / expected if expected else 0.0
    where = where_text(figure)
    if ratio >= SLOWER:
        longer = (
            f"{ratio:.2g} times as long as"
            if ratio >= 2
            else f"{(ratio - 1) * 100:.0f} % longer than"
        )
        return [Slow(figure, ratio, f"{where} took {longer} its neighbors suggest")]
    half = figure.half_width if figure.half_width < math.inf else 0.0
    if figure.cell.stopped == "unstable":
        return [Slow(figure, 1 + half, f"{where} did not settle")]
    return (
        [Slow(figure, 1 + half, f"{where} has a confidence interval of +-{half * 100:.0f} %")]
        if half > WIDE
        else []
    )


def expected_s(figures: Series, index: int, unusual: Callable[[Row], bool]) -> float | None:
    """Seconds that the nearest usual rows suggest for a figure; None without any.

    Between two rows: interpolated over logarithms. After the last: at its busbw. Before the first:
    its time.
    """
    here = figures[index].row.size_bytes
    usual = [
        one if one.busbw > 0 and one.cell.time_s > 0 and not unusual(one.row) else None
        for one in figures
    ]
    before = next(filter(None, reversed(usual[:index])), None)
    after = next(filter(None, usual[index + 1 :]), None)
    if before is None or after is None:
        return (
            before.cell.time_s * here / before.row.size_bytes
            if before
            else after.cell.time_s
            if after
            else None
        )
    low, high = before.row.size_bytes, after.row.size_bytes
    share = math.log(here / low) / math.log(high / low) if high > low else 0.5
    return float(before.cell.time_s ** (1 - share) * after.cell.time_s**share)
