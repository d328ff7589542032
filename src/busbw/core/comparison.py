"""The outcome of a comparison: `busbw.comparison/1`, cell by cell.

Seconds and fractions; b is compared with a.
"""

from enum import Enum

import msgspec

from busbw.core.cells import CellKey

SCHEMA = "busbw.comparison/1"


class Verdict(Enum):
    """The outcome for b compared with a."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    AMBIGUOUS = "ambiguous"
    UNMATCHED = "unmatched"


class Side(msgspec.Struct, frozen=True):
    """One side: its files, the runs in them, and the machine according to the first file."""

    files: list[str]
    runs: int
    hosts: list[str]
    devices: dict[str, int]  # how many of each name
    engine: str
    nccl: int
    ranks: int


class ComparedCell(msgspec.Struct, frozen=True, kw_only=True):
    """One cell on both sides: its times (None if a side has none), their ratio b / a with its
    interval, and the verdict.

    `by` is what was compared (runs, the spread of few runs, samples or means), `a_count` and
    `b_count` the number that the times are computed from, `a_effective` and `b_effective` the
    number of independent samples in the test. The interval is of this cell alone, None for too few
    samples or runs. `p` is adjusted for all cells of the comparison, None where nothing could be
    tested.
    """

    key: CellKey
    verdict: Verdict
    a_s: float | None = None
    b_s: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    by: str = ""
    a_count: int = 0
    b_count: int = 0
    a_effective: int = 0
    b_effective: int = 0


class Signs(msgspec.Struct, frozen=True):
    """The sign test over cells that are single means: the number in which b took longer, the
    number in which it took less time, and the p-value.
    """

    longer: int
    shorter: int
    p: float


class Comparison(msgspec.Struct, frozen=True):
    """All cells in the order of a's table, then those that only b has."""

    schema: str
    collective: str
    tolerance: float
    confidence: float
    a: Side
    b: Side
    cells: list[ComparedCell]
    signs: Signs | None
    notes: list[str]

    def of(self, verdict: Verdict) -> list[ComparedCell]:
        return [cell for cell in self.cells if cell.verdict is verdict]

    def beyond(self) -> list[ComparedCell]:
        """The cells that are slower by more than the tolerance."""
        return [
            cell
            for cell in self.of(Verdict.SLOWER)
            if cell.ratio is not None and cell.ratio > 1 + self.tolerance
        ]

    def has_verdict(self) -> bool:
        return any(
            cell.verdict not in (Verdict.AMBIGUOUS, Verdict.UNMATCHED) for cell in self.cells
        )

    def is_judged(self) -> bool:
        return any(cell.verdict is not Verdict.UNMATCHED for cell in self.cells)
