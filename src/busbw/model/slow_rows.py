"""Rows that are slow or uncertain: against their neighbours in a sweep, which should be smooth, and by their own interval. Pure."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from busbw.core.cells import IN_PLACE, Figure
from busbw.core.result import Result, Row
from busbw.core.sizes import format_size
from busbw.model.figures import Series, series

SLOWER = 1.10  # of the time that the neighbours suggest: small sizes vary by 4 to 6 % from sample to sample
WIDE = 0.05  # half of the confidence interval, of the time


@dataclass(frozen=True, slots=True)
class Slow:
    """A figure that is bad, by how much (1.2: a fifth longer than it should take), and that in words."""

    figure: Figure
    ratio: float
    words: str


def slow_rows(result: Result, unusual: Callable[[Row], bool]) -> list[Slow]:
    """The bad figures among unusual rows, the worst first. Only rows that are not unusual serve as neighbours."""
    found = []
    for figures in series(result):
        for place, figure in enumerate(figures):
            if unusual(figure.row) and figure.busbw > 0:
                found += _judged(figures, place, unusual)
    return sorted(found, key=lambda slow: -slow.ratio)


def _judged(figures: Series, place: int, unusual: Callable[[Row], bool]) -> list[Slow]:
    figure = figures[place]
    expected = expected_s(figures, place, unusual)
    ratio = figure.cell.time_s / expected if expected else 0.0
    where = format_size(figure.row.size_bytes) + (f" {IN_PLACE}" if figure.placement == IN_PLACE else "")
    if ratio >= SLOWER:
        longer = f"{ratio:.2g} times as long as" if ratio >= 2 else f"{(ratio - 1) * 100:.0f} % longer than"
        return [Slow(figure, ratio, f"{where} took {longer} its neighbours suggest")]
    half = figure.reach if figure.reach < math.inf else 0.0
    if figure.cell.stopped == "unstable":
        return [Slow(figure, 1 + half, f"{where} did not settle")]
    return [Slow(figure, 1 + half, f"{where} is known to {half * 100:.0f} % only")] if half > WIDE else []


def expected_s(figures: Series, place: int, unusual: Callable[[Row], bool]) -> float | None:
    """Seconds the nearest usual rows suggest for a figure; None without any.

    Between two: interpolated over logarithms. Behind the last: as at the busbw of the one before. Ahead of the first: no more than it.
    """
    here = figures[place].row.size_bytes
    before = next((one for one in reversed(figures[:place]) if _serves(one, unusual)), None)
    after = next((one for one in figures[place + 1 :] if _serves(one, unusual)), None)
    if before is None or after is None:
        return before.cell.time_s * here / before.row.size_bytes if before else after.cell.time_s if after else None
    low, high = before.row.size_bytes, after.row.size_bytes
    share = math.log(here / low) / math.log(high / low) if high > low else 0.5
    return float(before.cell.time_s ** (1 - share) * after.cell.time_s**share)


def _serves(figure: Figure, unusual: Callable[[Row], bool]) -> bool:
    return figure.busbw > 0 and figure.cell.time_s > 0 and not unusual(figure.row)
