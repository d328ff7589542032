"""The result of a run: one versioned structure that every view prints and every later comparison reads.

Seconds and bytes throughout; views choose units. `busbw.result/1` may gain optional fields; a change of meaning gets a new number.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.finding import Finding
from busbw.core.planning import Plan
from busbw.core.sweep import SweepSpec
from busbw.core.topology import Topology
from busbw.core.training import Training
from busbw.core.vitals import HostChange

SCHEMA = "busbw.result/1"


class Mismatch(msgspec.Struct, frozen=True):
    """The first wrong element a rank saw: `offset` counts elements from the start of its receive buffer; values as text."""

    rank: int
    offset: int
    expected: str
    got: str
    wrong: Annotated[int, Meta(description="wrong elements on this rank")]


class Cell(msgspec.Struct):
    """One placement (out of place or in place) of one row.

    time_s is what nccl-tests calls time; algbw and busbw are bytes per second; wrong counts elements over all ranks, None where they
    were not checked. samples_s[i] is iteration i's largest duration over ranks, process_samples_s the same for each process.

    Precise timing alone: time_s is the median of samples_s and low_s to high_s its confidence interval; op_s is the median of each
    iteration's smallest duration over ranks, which is the operation without waiting for a rank that came late; skew_s is the median of
    what passed between the first rank's start and the last one's; both None where a rank may end before all have begun (rooted and
    uneven collectives) and no clock tells. launch_s is what the host takes to enqueue one operation on the slowest process, launches_s
    on each; stopped says why sampling ended: ok (as precise as asked), fixed (the number of iterations was given), budget (no more
    time) or unstable (no number of samples would help); dropped counts samples at the head that were still warming up and are left
    out, though kept in samples_s; late_s is the lower quartile of each rank's lateness at the start of an operation; modes_s are the
    medians of two groups of samples that a wide gap parts; p99_s is given where --tail asked for it. tick_s is what the clock counts in,
    where it is coarse: the interval has one tick more to either side than order statistics give it.
    """

    time_s: float
    algbw: float
    busbw: float
    wrong: int | None = None
    cpu_time_s: float | None = None
    skipped: int = 0
    samples_s: list[float] | None = None
    process_samples_s: list[list[float]] | None = None
    mismatches: list[Mismatch] = []
    low_s: float | None = None
    high_s: float | None = None
    op_s: float | None = None
    skew_s: float | None = None
    launch_s: float | None = None
    launches_s: list[float] | None = None
    p99_s: float | None = None
    p99_low_s: float | None = None
    p99_high_s: float | None = None
    modes_s: tuple[float, float] | None = None
    stopped: str = ""
    dropped: int = 0
    late_s: list[float] | None = None
    tick_s: float | None = None

    @property
    def kept_s(self) -> list[float]:
        """The samples that its figures are made of."""
        return (self.samples_s or [])[self.dropped or self.skipped :]


class Row(msgspec.Struct):
    """One line of the table. `op` and `root` are what the row was run with: '' and -1 where there is none.

    `repeat` counts the times that communicators were made anew.
    `machine` is what changed on each host while the row was measured, both placements together; None where nobody looked.
    """

    size_bytes: int
    count: int
    dtype: str
    op: str
    root: int
    out_of_place: Cell | None
    in_place: Cell | None
    iters: int
    timestamp: str = ""
    machine: list[HostChange] | None = None
    repeat: int = 0


class Device(msgspec.Struct):
    """What one rank runs on."""

    rank: int
    pid: int
    host: str
    index: int
    bus: Annotated[str, Meta(description='"0000:00:06", as the header of nccl-tests prints it; empty on a CPU')]
    name: str
    group: int = 0
    memory_bytes: int = 0
    process: int = 0


class Ideal(msgspec.Struct, frozen=True):
    """A bound on busbw in bytes per second, with the algorithm that could reach it, the link that binds and the formula's inputs."""

    busbw: float
    algorithm: str
    link: str
    why: str


class Link(msgspec.Struct, frozen=True):
    """Two ranks that exchanged data alone: seconds, and bytes per second each way."""

    a: int
    b: int
    time_s: float
    bandwidth: float


class Library(msgspec.Struct):
    """What moved the data: engine and the versions it reports (nccl as an integer such as 22809).

    network is the one that NCCL says it uses between hosts, in its own word (Socket, IB, busbw, a plugin's name); it names one even
    where all ranks are on one host and none is used. Empty where nobody could tell: without NCCL, and where the user's NCCL_DEBUG keeps
    it out of NCCL's log.
    """

    engine: str
    nccl: int = 0
    versions: dict[str, str] = {}
    network: str = ""


class World(msgspec.Struct):
    """Who took part: devices in order of rank, and the groups NCCL_TESTS_SPLIT made of them (1 without it)."""

    devices: list[Device]
    processes: int
    groups: int = 1

    @property
    def ranks(self) -> int:
        """Ranks of the communicator that is printed: rank 0's."""
        return sum(device.group == self.devices[0].group for device in self.devices) if self.devices else 0


class Result(msgspec.Struct):
    """One run. `complete` is False until it has ended; what is there by then is valid. With a `training`, planned or run, no sweep was."""

    schema: str
    tool: str
    spec: SweepSpec
    argv: list[str] = []
    program: str = ""
    start: str = ""
    end: str = ""
    library: Library = msgspec.field(default_factory=lambda: Library(engine=""))
    world: World = msgspec.field(default_factory=lambda: World(devices=[], processes=0))
    topology: Topology = msgspec.field(default_factory=lambda: Topology(hosts=[]))
    environment: dict[str, str] = {}
    reduced_max_bytes: int | None = None
    rows: list[Row] = []
    ideal: Ideal | None = None
    endpoint_ideal: Ideal | None = None
    links: list[Link] = []
    findings: list[Finding] = []
    out_of_bounds: int = 0
    memory: dict[str, int] = {}
    errors: list[str] = []
    complete: bool = False
    training: Training | None = None
    plan: Plan | None = None

    def average_busbw(self) -> float:
        """Plain mean of busbw over all cells in bytes per second, as nccl-tests prints it; nan without cells."""
        cells = [cell.busbw for row in self.rows for cell in (row.out_of_place, row.in_place) if cell is not None]
        return sum(cells) / len(cells) if cells else float("nan")

    def wrong(self) -> bool:
        """Whether any check saw a wrong element."""
        cells = (cell for row in self.rows for cell in (row.out_of_place, row.in_place))
        return self.out_of_bounds > 0 or any(cell is not None and cell.wrong for cell in cells)
