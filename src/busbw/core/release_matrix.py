"""Releases of NCCL compared with the first of them, collective by collective:
`busbw.versions/1`.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.comparison import Comparison
from busbw.core.shown import Shown


class ReleaseComparison(msgspec.Struct, frozen=True):
    """A release compared with the baseline in one collective. `wrong` are the sizes in bytes at
    which its ranks received wrong data.
    """

    release: str
    comparison: Comparison
    wrong: list[int] = []


class ReleaseFailure(msgspec.Struct, frozen=True):
    """A release that did not run a collective, and why: a message."""

    release: str
    collective: str
    message: str


class ReleaseMatrix(
    Shown, msgspec.Struct, frozen=True, kw_only=True, tag="busbw.versions/1", tag_field="schema"
):
    """All comparisons: for each collective the releases in their order."""

    releases: Annotated[list[str], Meta(description="the first one is the baseline")]
    collectives: list[str]
    rounds: int
    tolerance: float
    confidence: Annotated[
        float, Meta(description="over all comparisons together; each of them has a higher one")
    ]
    comparisons: list[ReleaseComparison]
    failures: list[ReleaseFailure] = []

    @property
    def baseline(self) -> str:
        """The release that the others are compared with."""
        return self.releases[0]

    def is_worse(self) -> bool:
        """Whether a release is too slow, has wrong data, or does not run what the baseline runs."""
        compared = any(each.comparison.beyond() or each.wrong for each in self.comparisons)
        return compared or any(failure.release != self.baseline for failure in self.failures)

    def is_judged(self) -> bool:
        """Whether every release was compared in every collective, and no size may be too slow."""
        complete = not self.failures and bool(self.comparisons)
        undecided = (each.comparison.undecided() for each in self.comparisons)
        return complete and not any(undecided)
