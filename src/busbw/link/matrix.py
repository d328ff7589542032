"""The rates of one rail as a matrix, senders by receivers, and the color of a share of the
reference rate.
"""

from collections.abc import Sequence

from busbw.link.types import Flow, LinkReport
from busbw.stats.summary import nearest_rank

Matrix = Sequence[Sequence[Flow | None]]
Color = tuple[int, int, int]
# From slow (dark, red) to fast, legible by lightness alone. Shares of the reference rate.
SCALE: tuple[tuple[float, Color], ...] = (
    (0.25, (98, 10, 30)),
    (0.6, (205, 62, 40)),
    (0.85, (247, 183, 100)),
    (1.0, (226, 242, 233)),
)


def matrix(report: LinkReport, rail: int, *, together: bool = False) -> Matrix:
    """Row: sender, column: receiver; None where nothing was measured.

    `together`: the transfers in both directions at once.
    """
    count = len(report.hosts)
    rows: list[list[Flow | None]] = [[None] * count for _ in range(count)]
    for flow in report.flows:
        if flow.rail == rail and flow.together is together:
            rows[flow.sender][flow.receiver] = flow
    return rows


def maps(report: LinkReport, rail: int) -> list[tuple[bool, Matrix, float]]:
    """The maps of a rail that have a rate: whether both directions ran at once, the matrix, and
    the reference rate.
    """
    found = []
    for together in (False, True):
        rows = matrix(report, rail, together=together)
        full = reference(rows)
        if full is not None:
            found.append((together, rows, full))
    return found


def reference(rows: Matrix) -> float | None:
    """The reference rate, which a tenth of the transfers exceed. None without any rate."""
    rates = sorted(flow.rate for row in rows for flow in row if flow is not None and flow.rate)
    return nearest_rank(rates, 90) if rates else None


def share(flow: Flow, full: float | None) -> float | None:
    """A flow's rate as a share of `full`, at most 1; None if it failed."""
    return min(1.0, flow.rate / full) if flow.rate is not None and full else None


def shade(part: float) -> Color:
    """The color of a share of the reference rate."""
    below = SCALE[0]
    for above in SCALE:
        if part <= above[0]:
            width = above[0] - below[0]
            weight = (part - below[0]) / width if width else 0.0
            red, green, blue = (
                round(x + (y - x) * weight) for x, y in zip(below[1], above[1], strict=True)
            )
            return red, green, blue
        below = above
    return SCALE[-1][1]
