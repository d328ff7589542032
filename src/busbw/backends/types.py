"""Backends of a collective beside each other: the job and the result.

Times are in seconds per operation, sizes in bytes.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.result import Cell, Ideal, Outcome
from busbw.core.sweep import SweepSpec
from busbw.host.rails import NicChoice
from busbw.measure.job import SweepJob

EAGER, GRAPH = "eager", "graph"
IN_GRAPH = 16  # operations of a CUDA graph: a decode step has some for each layer
ALL_RAILS = "all"  # the name of all rails, used at the same time


class BackendsJob(SweepJob, frozen=True, kw_only=True, omit_defaults=True, tag="backends"):
    """Measure several backends in turn at each size."""

    backends: list[str] = msgspec.field(default_factory=list)  # empty: all that can run
    in_graph: int = IN_GRAPH  # 0: no graphs
    copies: bool = False
    blocks: int = 0  # that a call of sendrecv has, of the size of a row; 0: a call has that size
    rails: list[NicChoice] = msgspec.field(default_factory=list)  # to use alone; empty: any
    done: list[int] = msgspec.field(default_factory=list)  # sizes to leave out
    # what has failed, with the reason: a backend, or a backend and a mode
    dropped: dict[str, str] = msgspec.field(default_factory=dict)


class MeasuredRail(NicChoice, frozen=True):
    """A NIC, or all of them, and the variables that selected it on rank 0."""

    variables: dict[str, str] = msgspec.field(default_factory=dict)


class BackendTime(msgspec.Struct, kw_only=True):
    """A backend at one size: its time, or why it has none."""

    backend: str
    mode: Annotated[str, Meta(description="eager, or graph: inside a CUDA graph")]
    cell: Cell | None = None
    operations: Annotated[
        int, Meta(description="calls in one sample: those of all replays of a graph, or 1")
    ] = 1
    why_not: str = ""


class BackendsRow(msgspec.Struct, kw_only=True):
    """All backends at one size."""

    size_bytes: int
    times: list[BackendTime]

    def of(self, backend: str, mode: str) -> BackendTime | None:
        """What was measured of a backend; None if it did not run."""
        return next((t for t in self.times if (t.backend, t.mode) == (backend, mode)), None)


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What to use from one measured size to another, for an engine to read. For a size in between
    or above, take the last choice of the mode whose `first_bytes` are not more.
    """

    mode: str
    first_bytes: int
    last_bytes: int
    backend: str
    ratio: Annotated[
        tuple[float, float] | None,
        Meta(
            description="the default's time over this one's: the smallest and the largest of these"
            " sizes; null where the default has no time"
        ),
    ]
    sure: Annotated[
        bool,
        Meta(
            description="false where the default may be as fast, which is then named, where a time"
            " is less precise than 10 %, and where one backend alone was measured"
        ),
    ] = True


class BackendsResult(Outcome, kw_only=True, tag="busbw.backends/1"):
    """The result of a run."""

    spec: SweepSpec
    default: Annotated[str, Meta(description="the backend that others are compared with")] = ""
    backends: Annotated[list[str], Meta(description="those that ran")] = msgspec.field(
        default_factory=list
    )
    left_out: Annotated[dict[str, str], Meta(description="those that did not, and why")] = (
        msgspec.field(default_factory=dict)
    )
    in_graph: int = 0
    copies: Annotated[
        bool, Meta(description="whether calls copy into symmetric memory and back")
    ] = False
    blocks: Annotated[
        int, Meta(description="that a call moves, each of the size of its row; 0: no blocks")
    ] = 0
    rails: Annotated[
        list[MeasuredRail],
        Meta(
            description="NICs that backends used alone, and all of them; their line rates are in"
            " bytes per second. A backend's name then ends in @ and that of the rail. `variables`"
            " selected it on rank 0, and are not in `environment`"
        ),
    ] = msgspec.field(default_factory=list)
    ideal: Annotated[
        Ideal | None, Meta(description="the largest bound on busbw; null where it is unknown")
    ] = None
    rows: list[BackendsRow] = msgspec.field(default_factory=list)
    choices: Annotated[
        list[Choice], Meta(description="the fastest by size; the default where it is as fast")
    ] = msgspec.field(default_factory=list)

    @property
    def measured(self) -> int:
        return len(self.rows)

    def wrong(self) -> bool:
        cells = [time.cell for row in self.rows for time in row.times]
        return any(cell.wrong for cell in cells if cell)

    def reached(self) -> str:
        return f", after {self.rows[-1].size_bytes} B" if self.rows else ""

    def add(self, row: BackendsRow) -> None:
        """Add what was measured at a size, to what other rails have there."""
        same = next((known for known in self.rows if known.size_bytes == row.size_bytes), None)
        if same is None:
            self.rows.append(row)
        else:
            same.times += row.times

    def follow(self, before: "BackendsResult") -> None:
        """Continue a result with other rails."""
        self.default, self.start = before.default, before.start
        self.backends = before.backends + self.backends
        self.rails = before.rails + self.rails
        self.left_out = before.left_out | self.left_out
        self.rows = [
            BackendsRow(size_bytes=row.size_bytes, times=list(row.times)) for row in before.rows
        ]

    @property
    def is_exchange(self) -> bool:
        """Whether data crosses a link; else no backend is faster than another."""
        return self.world.ranks != 1

    def modes(self) -> list[str]:
        """Those that were measured."""
        seen = {time.mode for row in self.rows for time in row.times if time.cell}
        return [mode for mode in (EAGER, GRAPH) if mode in seen]
