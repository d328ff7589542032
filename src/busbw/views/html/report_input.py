"""One input of a report: a result with the name of its file; and its cells as plots need them."""

from dataclasses import dataclass

from busbw.core.cells import Figure, every
from busbw.core.result import Result

SMALLEST, LARGEST = 1e-15, 1e18
LETTERS = "ABCDEFGH"  # one for each color of style.css


@dataclass(frozen=True, slots=True)
class ReportInput:
    """One file: `index` chooses its letter and its color."""

    index: int
    name: str
    result: Result

    @property
    def letter(self) -> str:
        """`A` for the first file."""
        return LETTERS[self.index]

    @property
    def title(self) -> str:
        """`A run.json`."""
        return f"{self.letter} {self.name}"


def series(result: Result) -> dict[tuple[str, str, int, str], list[Figure]]:
    """The cells by type, operator, root and placement, each in order of size, without what cannot be drawn."""
    found: dict[tuple[str, str, int, str], list[Figure]] = {}
    for figure in every(result):
        if figure.row.size_bytes > 0 and drawable(figure.cell.time_s):
            key = (figure.row.dtype, figure.row.op, figure.row.root, figure.placement)
            found.setdefault(key, []).append(figure)
    return {key: sorted(line, key=lambda figure: figure.row.size_bytes) for key, line in found.items()}


def drawable(value: float) -> bool:
    """Whether a value (seconds, bytes per second, ratio) can be drawn on a logarithmic axis: above 0 and not absurdly large."""
    return SMALLEST < value < LARGEST


def nominal(bytes_per_s: float) -> str:
    """GB/s of a rate that is given, not measured: `450`, `3.125`."""
    return f"{bytes_per_s / 1e9:.3f}".rstrip("0").rstrip(".")
