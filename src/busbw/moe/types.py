"""The kind of run that measures dispatch and combine: job, result, and what rank 0 reports.

Times are in seconds, bandwidths in bytes per second.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from busbw.core.result import Cell, Mismatch, Outcome
from busbw.core.shown import Tabular
from busbw.measure.events import Event
from busbw.measure.job import Job, RunKind
from busbw.moe.volumes import COMBINE, DISPATCH

ALLTOALLV = "alltoallv"  # the backend of results that name none
PACK, EXCHANGE, UNPACK, REDUCE = "pack", "exchange", "unpack", "reduce"
PHASES = {DISPATCH: (PACK, EXCHANGE, UNPACK), COMBINE: (PACK, EXCHANGE, REDUCE)}


class MoeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    tokens: Annotated[
        tuple[int, int] | None,
        Meta(description="smallest and largest number of tokens of a rank; null: the default"),
    ] = None
    hidden: Annotated[int, Meta(description="elements of a token")] = 7168
    top_k: Annotated[int, Meta(description="experts that a token chooses")] = 8
    experts: int = 64
    routing: str = "uniform"
    seed: int = 1
    datatype: str = "bfloat16"
    backends: Annotated[
        list[str], Meta(description="what to measure in turn; empty: all that can run")
    ] = []
    max_time_s: Annotated[
        float | None, Meta(description="target time of a size and direction; null: the default")
    ] = None


class MoeTime(msgspec.Struct, kw_only=True):
    """The time of dispatch or combine, or of the exchange: from the first rank's start to the last
    rank's end. That of another phase is the longest over the ranks.
    """

    time_s: Annotated[float, Meta(description="median of n samples")]
    low_s: Annotated[
        float | None, Meta(description="low_s to high_s is the confidence interval of time_s")
    ] = None
    high_s: float | None = None
    n: int = 0
    stopped: Annotated[str, Meta(description="why sampling ended, as in the cells of a sweep")] = ""
    samples_s: list[float] = []
    dropped: Annotated[int, Meta(description="leading samples of the warm-up, not used")] = 0
    visits: Annotated[list[int], Meta(description="numbers of samples of each visit")] = []

    @classmethod
    def of(cls, cell: Cell) -> "MoeTime":
        """The time of a cell of precise timing."""
        return cls(
            time_s=cell.time_s,
            low_s=cell.low_s,
            high_s=cell.high_s,
            n=cell.n,
            stopped=cell.stopped,
            samples_s=cell.samples_s or [],
            dropped=cell.dropped,
            visits=cell.visits,
        )


class MoeRow(msgspec.Struct, kw_only=True):
    """Dispatch or combine of one number of tokens by one backend."""

    tokens: Annotated[int, Meta(description="of each rank")]
    direction: Annotated[str, Meta(description="dispatch or combine")]
    whole: Annotated[MoeTime, Meta(description="all phases, one after the other")]
    phases: Annotated[
        dict[str, MoeTime], Meta(description="each phase alone that the backend separates")
    ]
    wire_bytes: Annotated[
        int, Meta(description="bytes that leave a rank for other ranks, of the rank with the most")
    ]
    received_bytes: Annotated[
        int,
        Meta(
            description="bytes of the rows that a rank receives in dispatch, and returns in"
            " combine, its own included, of the rank with the most"
        ),
    ]
    selections_bytes: Annotated[int, Meta(description="bytes of tokens x top-k rows")]
    imbalance: Annotated[
        float,
        Meta(description="received rows of the rank with the most over the mean of all ranks"),
    ]
    bound_s: Annotated[
        float | None, Meta(description="the least time of the exchange; null if unknown")
    ] = None
    bound: Annotated[str, Meta(description="formula of the bound with its numbers")] = ""
    wrong: Annotated[int, Meta(description="wrong elements over all ranks")] = 0
    mismatches: list[Mismatch] = []
    backend: Annotated[str, Meta(description="what moved the data")] = ALLTOALLV

    @property
    def wire(self) -> float:
        return self.wire_bytes / self.whole.time_s

    @property
    def received(self) -> float:
        return self.received_bytes / self.whole.time_s

    @property
    def selections(self) -> float:
        return self.selections_bytes / self.whole.time_s

    @property
    def of_bound(self) -> float | None:
        """The bound over the time of the exchange phase."""
        return self.bound_s / self.phases[EXCHANGE].time_s if self.bound_s else None


class MoeJob(Job, frozen=True, kw_only=True, omit_defaults=True, tag="moe"):
    """Dispatch and combine over several numbers of tokens."""

    moe: MoeSpec


class MoeResult(Tabular, Outcome, tag="busbw.moe/1"):
    """The result of measuring dispatch and combine."""

    moe: MoeSpec
    rows: list[MoeRow] = msgspec.field(default_factory=list)
    no_bound: Annotated[str, Meta(description="why no bound is known; empty if one is")] = ""
    left_out: Annotated[
        dict[str, str],
        Meta(description="backends that did not run, or not at a number of tokens, and why"),
    ] = msgspec.field(default_factory=dict)

    @property
    def measured(self) -> int:
        return len(self.rows)

    def reached(self) -> str:
        """The last row: `, after dispatch of 512 tokens`; '' without rows."""
        if not self.rows:
            return ""
        return f", after {self.rows[-1].direction} of {self.rows[-1].tokens} tokens"

    def wrong(self) -> bool:
        return any(row.wrong for row in self.rows)

    def records(self) -> list[dict[str, Any]]:
        """A row for each number of tokens, backend and direction."""
        return [
            {
                "tokens": row.tokens,
                "direction": row.direction,
                "backend": row.backend,
                "time_s": row.whole.time_s,
                **{f"{name}_s": row.phases[name].time_s for name in row.phases},
                "wire": row.wire,
                "received": row.received,
                "selections": row.selections,
                "imbalance": row.imbalance,
                "bound_s": row.bound_s,
                "wrong": row.wrong,
            }
            for row in self.rows
        ]


class MoeMeasured(Event, tag="moe_measured"):
    """All rows so far; `no_bound` is why no bound is known."""

    rows: list[MoeRow]
    no_bound: str = ""

    def add_to(self, result: Outcome) -> bool:
        assert isinstance(result, MoeResult)
        result.rows, result.no_bound = self.rows, self.no_bound
        return True


MOE = RunKind(MoeJob, MoeResult, ("busbw.moe.rank", "measure"), (MoeMeasured,))
