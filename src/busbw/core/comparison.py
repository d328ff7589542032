"""The outcome of a comparison: `busbw.comparison/1`, cell by cell.

Seconds and fractions; b is compared with a.
"""

from enum import Enum
from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.cells import CellKey
from busbw.core.finding import Verdict
from busbw.core.shown import Tabular

SCHEMA = "busbw.comparison/1"


class ComparisonVerdict(Enum):
    """The outcome for b compared with a."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    AMBIGUOUS = "ambiguous"
    UNMATCHED = "unmatched"


class ComparedSide(msgspec.Struct, frozen=True):
    """One side: its files, the runs in them, and the machine according to the first file."""

    files: list[str]
    runs: int
    hosts: list[str]
    devices: dict[str, int]  # how many of each name
    engine: str
    nccl: int
    ranks: int


class ComparedCell(msgspec.Struct, frozen=True, kw_only=True):
    """One cell on both sides: its times, their ratio, and the verdict."""

    key: CellKey
    verdict: ComparisonVerdict
    a_s: Annotated[float | None, Meta(description="null if the side has none")] = None
    b_s: float | None = None
    ratio: Annotated[float | None, Meta(description="b_s / a_s")] = None
    low: Annotated[
        float | None,
        Meta(
            description="low to high is the interval of the ratio that decided the verdict. Of"
            " same: of this cell's measurements alone, within the tolerance. Else over all cells"
            " together, with what equal runs differ by: slower and faster exclude 1. null for too"
            " few samples or runs, and where one run a side says too little"
        ),
    ] = None
    high: float | None = None
    p: Annotated[
        float | None,
        Meta(
            description="adjusted for all cells of the comparison; null where nothing could be"
            " tested"
        ),
    ] = None
    by: Annotated[
        str, Meta(description="what was compared: runs, the spread of few runs, samples or means")
    ] = ""
    a_count: Annotated[int, Meta(description="what a_s is computed from")] = 0
    b_count: Annotated[int, Meta(description="what b_s is computed from")] = 0
    a_effective: Annotated[int, Meta(description="independent samples of A in the test")] = 0
    b_effective: Annotated[int, Meta(description="independent samples of B in the test")] = 0


class SignTest(msgspec.Struct, frozen=True):
    """The sign test over cells that are single means: the number in which b took longer, the
    number in which it took less time, and the p-value.
    """

    longer: int
    shorter: int
    p: float


class Comparison(Tabular, msgspec.Struct, frozen=True):
    """All cells in the order of a's table, then those that only b has."""

    schema: str
    collective: str
    tolerance: float
    confidence: float
    a: ComparedSide
    b: ComparedSide
    cells: list[ComparedCell]
    signs: SignTest | None
    notes: list[str]
    what: Annotated[
        str,
        Meta(
            description="what was compared, if these are no sweeps; a cell's placement then says"
            " what was timed"
        ),
    ] = ""

    def of(self, verdict: ComparisonVerdict) -> list[ComparedCell]:
        return [cell for cell in self.cells if cell.verdict is verdict]

    def beyond(self) -> list[ComparedCell]:
        """The cells that are slower by more than the tolerance."""
        return [
            cell
            for cell in self.of(ComparisonVerdict.SLOWER)
            if cell.ratio is not None and cell.ratio > 1 + self.tolerance
        ]

    def undecided(self) -> list[ComparedCell]:
        """The ambiguous cells that would be slower by more than the tolerance. Where no cell has a
        verdict, all.
        """
        ambiguous = self.of(ComparisonVerdict.AMBIGUOUS)
        if len(ambiguous) + len(self.of(ComparisonVerdict.UNMATCHED)) == len(self.cells):
            return self.cells
        return [cell for cell in ambiguous if (cell.ratio or 0.0) > 1 + self.tolerance]

    def verdicts(self) -> list[Verdict]:
        """Fail if a cell is slower by more than the tolerance, unknown if one may be."""
        found = [Verdict.FAIL] if self.beyond() else [Verdict.PASS]
        return [*found, Verdict.UNKNOWN] if self.undecided() or not self.cells else found

    def has_verdict(self) -> bool:
        return self.undecided() != self.cells
