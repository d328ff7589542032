"""A collective and a load at the same time: the job, what rank 0 reports, and the result.

Times are in seconds, sizes in bytes.
"""

from statistics import median
from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.result import Outcome
from busbw.core.sweep import SweepSpec
from busbw.measure.events import Event
from busbw.measure.job import RunKind, SweepJob
from busbw.stats.judging import Limits, independent
from busbw.stats.rank_tests import Shift, shift

GEMM, COPY = "gemm", "copy"
LIMITS = Limits()
UNCOVERED_SHARE = 0.2  # of the samples: the median is of covered ones


class OverlapJob(SweepJob, frozen=True, kw_only=True, omit_defaults=True, tag="overlap"):
    """Measure the collective and `load` alone and together: gemm, copy, or a collective on a
    communicator of its own.

    `ctas` are the largest numbers of NCCL's CTAs, that is of SMs that it occupies; 0: its choice.
    """

    load: str = GEMM
    ctas: list[int] = msgspec.field(default_factory=lambda: [0])
    rounds: int = 20


class OverlapSide(msgspec.Struct, frozen=True, kw_only=True):
    """The collective, or the load. A time is that of `operations` operations on the slowest rank.

    In `beside_s` the other side starts before them and ends after them. In the `uncovered` samples
    it ended first.
    """

    operations: int
    alone_s: list[float]
    beside_s: list[float]
    uncovered: int = 0

    @property
    def is_covered(self) -> bool:
        """Whether the other side ran all the time in nearly all samples."""
        return self.uncovered <= UNCOVERED_SHARE * len(self.beside_s)

    @property
    def operation_s(self) -> float:
        """Of one operation alone."""
        return median(self.alone_s) / self.operations

    @property
    def slowdown(self) -> Shift:
        """The time beside the other over that alone, with its interval."""
        return shift(independent(self.alone_s), independent(self.beside_s), LIMITS.confidence)


class OverlapRow(msgspec.Struct, kw_only=True):
    """One size, with one limit of CTAs."""

    size_bytes: int
    ctas: Annotated[int, Meta(description="at most; 0: NCCL's choice")]
    collective: OverlapSide
    load: OverlapSide

    @property
    def gain(self) -> float:
        """How much is done in a time in which one of both would be done alone: 2 if they do not
        disturb each other, 1 if running one after the other is as fast.
        """
        return 1 / self.collective.slowdown.ratio + 1 / self.load.slowdown.ratio


class OverlapResult(Outcome, kw_only=True, tag="busbw.overlap/1"):
    """The result of a run."""

    spec: SweepSpec
    load: str = GEMM
    load_text: Annotated[str, Meta(description="what an operation of the load is")] = ""
    rows: list[OverlapRow] = msgspec.field(default_factory=list)
    is_wrong: Annotated[
        bool, Meta(description="whether the collective gave wrong data beside the load")
    ] = False

    @property
    def measured(self) -> int:
        return len(self.rows)

    def wrong(self) -> bool:
        return self.is_wrong

    def reached(self) -> str:
        return f", after {self.rows[-1].size_bytes} B" if self.rows else ""


class OverlapMeasured(Event, tag="overlap"):
    """A size was measured; `wrong` is the number of wrong elements over all ranks."""

    row: OverlapRow
    wrong: int

    def add_to(self, result: Outcome) -> bool:
        assert isinstance(result, OverlapResult)
        result.rows.append(self.row)
        result.is_wrong |= bool(self.wrong)
        return True


OVERLAP = RunKind(OverlapJob, OverlapResult, ("busbw.overlap.job", "measure"), (OverlapMeasured,))
