"""One input of a report: a result with the name of its file; and its cells as plots need them."""

from collections.abc import Sequence
from dataclasses import dataclass

from busbw.core.cells import Figure, every
from busbw.core.result import Result
from busbw.core.sizes import counted

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


def alike(inputs: Sequence[ReportInput]) -> list[list[ReportInput]]:
    """The files in groups of one collective, engine and number of ranks.

    Each is compared with the first of its group, its baseline.
    """
    groups: list[list[ReportInput]] = []
    for source in inputs:
        group = next(
            (group for group in groups if not differences(group[0].result, source.result)), None
        )
        if group is None:
            groups.append([source])
        else:
            group.append(source)
    return groups


def differences(one: Result, other: Result) -> list[tuple[str, str]]:
    """In what two runs are too unlike to be compared: collective, engine and ranks, as words.

    A log may not say the last two.
    """
    pairs = [(one.spec.row.title, other.spec.row.title)]
    pairs += [
        (f"{a} engine", f"{b} engine")
        for a, b in [(one.library.engine, other.library.engine)]
        if a and b
    ]
    pairs += [
        (counted(a, "rank"), counted(b, "rank"))
        for a, b in [(one.world.ranks, other.world.ranks)]
        if a and b
    ]
    return [(ours, theirs) for ours, theirs in pairs if ours != theirs]


def unlike(baseline: ReportInput, source: ReportInput) -> str:
    """`C is not compared with A: sim engine against mpi engine, 8 ranks against 2 ranks`."""
    said = ", ".join(
        f"{theirs} against {ours}" for ours, theirs in differences(baseline.result, source.result)
    )
    return f"{source.letter} is not compared with {baseline.letter}: {said}"


def series(result: Result) -> dict[tuple[str, str, int, str], list[Figure]]:
    """The cells by type, operator, root and placement, each in order of size, without what
    cannot be drawn.
    """
    found: dict[tuple[str, str, int, str], list[Figure]] = {}
    for figure in every(result):
        if figure.row.size_bytes > 0 and drawable(figure.cell.time_s):
            key = (figure.row.dtype, figure.row.op, figure.row.root, figure.placement)
            found.setdefault(key, []).append(figure)
    return {
        key: sorted(line, key=lambda figure: figure.row.size_bytes) for key, line in found.items()
    }


def drawable(value: float) -> bool:
    """Whether a value (seconds, bytes per second, ratio) can be drawn on a logarithmic axis:
    above 0 and not absurdly large.
    """
    return SMALLEST < value < LARGEST


def nominal(bytes_per_s: float) -> str:
    """GB/s of a rate that is given, not measured: `450`, `3.125`."""
    return f"{bytes_per_s / 1e9:.3f}".rstrip("0").rstrip(".")
