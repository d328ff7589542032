"""The result of a run: the parts that all kinds of runs share, and the result of a sweep.

Views print results, and later comparisons read them. Values are in seconds and bytes; views choose
units. A schema may gain optional fields; a change of meaning gets a new number.
"""

import itertools
import statistics
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.alltoallv import Traffic
from busbw.core.finding import RunFinding
from busbw.core.ran import LoggedConnections, NcclKernel
from busbw.core.shown import Shown, Tabular
from busbw.core.sizes import short_size
from busbw.core.sweep import SweepSpec
from busbw.core.telemetry import HostChange
from busbw.core.topology import Topology

# Values of Result.loop.
NATIVE_LOOP, PYTHON_LOOP = "native", "python"
SHARED_PROCESSORS = "shared_processors"  # a finding that comparisons repeat


class Mismatch(msgspec.Struct, frozen=True):
    """The first wrong element on a rank: `offset` counts elements from the start of its receive
    buffer; values are text.
    """

    rank: int
    offset: int
    expected: str
    got: str
    wrong: Annotated[int, Meta(description="wrong elements on this rank")]


class Cell(msgspec.Struct):
    """One placement (out of place or in place) of one row. Times are in seconds.

    The fields from `low_s` on are filled by precise timing alone.
    """

    time_s: Annotated[
        float,
        Meta(
            description="the time as nccl-tests defines it; with precise timing the median of n"
            " samples"
        ),
    ]
    algbw: Annotated[float, Meta(description="bytes per second")]
    busbw: Annotated[float, Meta(description="bytes per second")]
    wrong: Annotated[
        int | None, Meta(description="wrong elements over all ranks; null if they were not checked")
    ] = None
    cpu_time_s: Annotated[
        float | None, Meta(description="the CPU's time to enqueue one operation")
    ] = None
    skipped: int = 0
    samples_s: Annotated[
        list[float] | None, Meta(description="the largest duration of each iteration over ranks")
    ] = None
    process_samples_s: Annotated[
        list[list[float]] | None, Meta(description="the same for each process")
    ] = None
    mismatches: list[Mismatch] = []
    low_s: Annotated[
        float | None, Meta(description="low_s to high_s is the confidence interval of time_s")
    ] = None
    high_s: float | None = None
    op_s: Annotated[
        float | None,
        Meta(
            description="median of each iteration's smallest duration over ranks: the operation"
            " without waiting for a late rank; null if a rank can end before all have"
            " started (rooted and uneven collectives) and no clock shows the starts"
        ),
    ] = None
    skew_s: Annotated[
        float | None,
        Meta(description="median time between the first and the last rank's start; null as op_s"),
    ] = None
    launch_s: Annotated[
        float | None, Meta(description="time to enqueue one operation on the slowest process")
    ] = None
    launches_s: Annotated[
        list[float] | None, Meta(description="time to enqueue one operation on each process")
    ] = None
    p99_s: Annotated[
        float | None,
        Meta(
            description="the 99th percentile, with --tail; p99_low_s to p99_high_s is its interval"
        ),
    ] = None
    p99_low_s: float | None = None
    p99_high_s: float | None = None
    modes_s: Annotated[
        tuple[float, float] | None,
        Meta(description="medians of two groups of samples with a wide gap between them"),
    ] = None
    stopped: Annotated[
        str,
        Meta(
            description="why sampling ended: ok (requested precision reached), fixed (number of"
            " iterations given), budget (time limit reached), unstable (more samples"
            " would not help) or interrupted (the run ended before)"
        ),
    ] = ""
    dropped: Annotated[
        int, Meta(description="leading samples of the warm-up, which are in samples_s but not used")
    ] = 0
    late_s: Annotated[
        list[float] | None,
        Meta(description="lower quartile of each rank's lateness at the start of an operation"),
    ] = None
    tick_s: Annotated[
        float | None,
        Meta(
            description="resolution of a coarse clock; the interval includes one tick more on"
            " either side than order statistics give"
        ),
    ] = None
    n: Annotated[
        int,
        Meta(
            description="samples that these values are computed from; 0 in older files: those of"
            " samples_s after the dropped ones"
        ),
    ] = 0
    ends_s: Annotated[
        list[float] | None,
        Meta(
            description="of uneven collectives: median time from the first rank's start to each"
            " rank's end; where no clock shows the starts, each rank's median duration"
        ),
    ] = None
    visits: Annotated[
        list[int],
        Meta(
            description="numbers of samples of each visit, in the order of samples_s; the others"
            " of the sweep were measured in between; empty in older files: all samples"
            " were taken in a row"
        ),
    ] = []

    @property
    def kept_s(self) -> list[float]:
        """The samples from which the other values are computed."""
        return (self.samples_s or [])[self.dropped or self.skipped :]

    @property
    def moments_s(self) -> list[float]:
        """One observation of each moment: the median of each visit that counts.

        If the visits are not known, each sample is an observation.
        """
        return moments(self.samples_s or [], self.visits, self.dropped or self.skipped)


def moments(samples: Sequence[float], visits: Sequence[int], dropped: int) -> list[float]:
    """The median of each visit behind the first `dropped` samples, or these samples if the visits
    are not known.
    """
    if not all(visits) or sum(visits) != len(samples):
        return list(samples[dropped:])
    ends = itertools.accumulate(visits)
    of_visits = zip(ends, parts(samples, visits), strict=True)
    return [statistics.median(visit) for end, visit in of_visits if end > dropped]


def parts(samples: Sequence[float], lengths: Sequence[int]) -> list[list[float]]:
    """The samples of each visit, given the number of each."""
    ends = list(itertools.accumulate(lengths))
    return [list(samples[end - length : end]) for end, length in zip(ends, lengths, strict=True)]


class ResultRow(msgspec.Struct):
    """One row of the table."""

    size_bytes: int
    count: int
    dtype: str
    op: Annotated[str, Meta(description="empty if the collective has no operator")]
    root: Annotated[int, Meta(description="-1 if the collective has none")]
    out_of_place: Cell | None
    in_place: Cell | None
    iters: int
    timestamp: str = ""
    machine: Annotated[
        list[HostChange] | None,
        Meta(
            description="what changed on each host while both placements were measured; null if"
            " hosts were not sampled"
        ),
    ] = None
    repeat: Annotated[
        int, Meta(description="number of the repeat, from 0, each with newly created communicators")
    ] = 0
    operations: Annotated[
        int,
        Meta(
            description="operations of each rank in that time, the untimed ones included; 0 if"
            " they were not counted"
        ),
    ] = 0
    ran: Annotated[
        NcclKernel | None,
        Meta(
            description="what NCCL ran out of place, and without `ran_in_place` also in place; null"
            " if it is not known"
        ),
    ] = None
    ran_in_place: Annotated[
        NcclKernel | None,
        Meta(
            description="what NCCL ran in place, if that is known and differs from `ran`; null:"
            " as `ran`, or not known"
        ),
    ] = None


class RankDevice(msgspec.Struct):
    """The GPU or CPU that one rank runs on."""

    rank: int
    pid: int
    host: str
    index: int
    bus: Annotated[
        str, Meta(description='"0000:00:06", as in the header of nccl-tests; empty for a CPU')
    ]
    name: str
    group: int = 0
    memory_bytes: int = 0
    process: int = 0
    cpus: Annotated[
        str,
        Meta(description="processors on which its process may run, like 0-7,16; empty if unknown"),
    ] = ""


class Ideal(msgspec.Struct, frozen=True):
    """A bound on busbw in bytes per second, with its algorithm, the limiting link, and the
    formula with its inputs.
    """

    busbw: float
    algorithm: str
    link: str
    why: str


class PairLink(msgspec.Struct, frozen=True):
    """An exchange between two ranks while all others were idle: seconds, and bytes per second in
    each direction.
    """

    a: int
    b: int
    time_s: float
    bandwidth: float


class EngineLibrary(msgspec.Struct):
    """The engine and the versions it reports."""

    engine: str
    nccl: Annotated[int, Meta(description="as an integer, such as 22809")] = 0
    versions: dict[str, str] = {}
    network: Annotated[
        str,
        Meta(
            description="NCCL's name for its network between hosts (Socket, IB, busbw or another"
            " plugin), also if all ranks are on one host and it is not used; empty"
            " without NCCL, and if the user's NCCL_DEBUG keeps it out of NCCL's log"
        ),
    ] = ""


class World(msgspec.Struct):
    """The participants: devices in order of rank, and the number of groups from NCCL_TESTS_SPLIT
    (1 without it).
    """

    devices: list[RankDevice]
    processes: int
    groups: int = 1

    @property
    def ranks(self) -> int:
        """Number of ranks in the communicator of rank 0, which is the one that is printed."""
        return sum(device.group == self.devices[0].group for device in self.devices)


class Outcome(Shown, msgspec.Struct, kw_only=True, tag_field="schema"):
    """What the results of all kinds of runs share. `schema` is the first key of the file."""

    tool: str = "busbw"
    argv: list[str] = []
    program: str = ""
    start: str = ""
    end: str = ""
    library: EngineLibrary = msgspec.field(default_factory=lambda: EngineLibrary(engine=""))
    world: World = msgspec.field(default_factory=lambda: World(devices=[], processes=0))
    topology: Topology = msgspec.field(default_factory=lambda: Topology(hosts=[]))
    environment: dict[str, str] = {}
    findings: list[RunFinding] = []
    memory: dict[str, int] = {}
    errors: list[str] = []
    complete: Annotated[
        bool, Meta(description="false until the run has ended; what is present by then is valid")
    ] = False
    ran: Annotated[
        LoggedConnections | None,
        Meta(description="how NCCL connected the ranks; null if no log of NCCL states it"),
    ] = None

    @property
    def measured(self) -> int:
        """How many rows, trainings or exchanges have been measured."""
        return 0

    def reached(self) -> str:
        """How far a run that ended early came: `, after the row of 1M`; '' if unknown."""
        return ""

    def wrong(self) -> bool:
        """Whether any check saw a wrong element, in runs that check data."""
        return False


class Result(Tabular, Outcome, tag="busbw.result/1"):
    """The result of a sweep over sizes of one collective."""

    spec: SweepSpec
    reduced_max_bytes: int | None = None
    rows: list[ResultRow] = []
    ideal: Ideal | None = None
    endpoint_ideal: Ideal | None = None
    links: list[PairLink] = []
    traffic: Annotated[
        Traffic | None, Meta(description="of alltoallv: what moves between its ranks")
    ] = None
    out_of_bounds: int = 0
    ran_unknown: Annotated[
        str,
        Meta(description="why rows do not state what NCCL ran; empty if they do, or without NCCL"),
    ] = ""
    nvls: Annotated[
        bool | None,
        Meta(description="whether NCCL could use NVLink SHARP; null if no log of NCCL states it"),
    ] = None
    loop: Annotated[
        str,
        Meta(
            description="what called NCCL for timed operations: native (busbw-native), or python,"
            " which adds to small sizes; empty for an engine without a choice, and in older files"
        ),
    ] = ""

    @property
    def measured(self) -> int:
        return len(self.rows)

    def reached(self) -> str:
        """The size of the last row: `, after the row of 1M`; '' without rows."""
        return f", after the row of {short_size(self.rows[-1].size_bytes)}" if self.rows else ""

    def average_busbw(self) -> float:
        """Plain mean of busbw over all cells, bytes per second, as nccl-tests has it, or nan."""
        cells = self._cells()
        return sum(cell.busbw for cell in cells) / len(cells) if cells else float("nan")

    def wrong(self) -> bool:
        return self.out_of_bounds > 0 or any(cell.wrong for cell in self._cells())

    def wrong_sizes(self) -> set[int]:
        """The sizes in bytes with wrong data; all if ranks have written out of bounds."""
        sizes = set[int]()
        for row in self.rows:
            wrong = any(cell and cell.wrong for cell in (row.out_of_place, row.in_place))
            if wrong or self.out_of_bounds:
                sizes.add(row.size_bytes)
        return sizes

    def _cells(self) -> list[Cell]:
        placements = (cell for row in self.rows for cell in (row.out_of_place, row.in_place))
        return [cell for cell in placements if cell is not None]
