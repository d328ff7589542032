"""Stored runs, and the check of a run against them."""

from collections import Counter
from enum import Enum
from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.cells import CellKey
from busbw.core.host_ranges import MOST_LISTED, fold
from busbw.core.result import Outcome

# The fewest runs to judge a new one by: with 2, a single degree of freedom, only changes by several
# times would be found.
MIN_RUNS = 3
HOST_SEPARATOR = "+"  # between the host names of a machine


class StoredRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the history, without its samples."""

    id: int
    # local, as `YYYY-mm-dd HH:MM:SS`; that of its addition if its own start is not known
    start: str
    machine: str
    nccl: int
    complete: bool
    wrong: bool
    collective: str = ""
    timing: str = ""
    min_bytes: int = 0
    max_bytes: int = 0
    peak_busbw: float = 0.0  # bytes per second
    # of the largest cell above the peak, all of which are less certain; 0 if there is none
    uncertain_busbw: float = 0.0
    counts: str = ""  # source of alltoallv's bytes, as in core.alltoallv.Traffic
    # names a run that is no sweep, such as a training; it has no collective and no sizes
    what: str = ""
    # NCCL's, UCX' and Open MPI's variables, without those for files, addresses and logging; also
    # the sim engine's parameters
    settings: str = ""
    kept: bool = False  # not added by the user: it may be removed to make room


class StoredTime(msgspec.Struct, frozen=True):
    """One cell of one stored run: seconds, and busbw in bytes per second."""

    run: StoredRun
    key: CellKey
    time_s: float
    busbw: float


class CheckedCell(msgspec.Struct, frozen=True, kw_only=True):
    """One cell compared with earlier runs; times are in seconds."""

    key: CellKey
    time_s: float
    median_s: Annotated[
        float,
        Meta(
            description="median of the earlier runs; low_s and high_s are their least and largest"
        ),
    ]
    low_s: float
    high_s: float
    p: Annotated[float, Meta(description="adjusted for all cells")]
    slower: bool
    most: Annotated[
        float | None,
        Meta(
            description="upper limit of the ratio of its time to that of earlier runs; null"
            " unless runs are judged by their spread, and have one"
        ),
    ] = None
    far: Annotated[
        bool,
        Meta(
            description="whether the time is far above the median while few stored runs were as"
            " unusual"
        ),
    ] = False

    @property
    def ratio(self) -> float:
        return self.time_s / self.median_s

    def within(self, tolerance: float) -> bool:
        """Whether the cell cannot be slower by more than the tolerance, a fraction."""
        return self.most is not None and self.most <= 1 + tolerance


class HistoryBasis(Enum):
    """The evidence of a check: the order of many runs, the spread of few, or nothing."""

    ORDER = "order"
    SPREAD = "spread"
    NONE = "none"


class Standing(Enum):
    """The outcome of a check; unknown if there are too few runs to compare with."""

    FINE = "fine"
    SLOWER = "slower"
    UNKNOWN = "unknown"


class HistoryCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A run compared with the last runs of its machine."""

    machine: str
    runs: list[int]
    unusual: Annotated[
        list[int],
        Meta(
            description="the few stored runs with a time far from the median, which can hide a"
            " slow cell"
        ),
    ]
    needed: Annotated[int, Meta(description="runs for a check by order")]
    confidence: float
    tolerance: float
    alarm: Annotated[
        float,
        Meta(
            description="probability that a run like these is called slower in any cell; a check"
            " by order holds it for any distribution of times, one by spread if their"
            " logarithms are normal"
        ),
    ]
    basis: HistoryBasis
    cells: list[CheckedCell]
    standing: Standing


def machine(result: Outcome) -> str:
    """The machine of a result: sorted host names, devices by name, and engine.

    `host1+host2: 16 x NVIDIA H20, nccl`.
    """
    devices = result.world.devices
    names = sorted({device.host for device in devices})
    hosts = HOST_SEPARATOR.join(names) or "unnamed host"
    counts = Counter(device.name or "unnamed device" for device in devices)
    parts = [f"{count} x {name}" for name, count in sorted(counts.items())]
    parts.append(result.library.engine or "unnamed engine")
    return f"{hosts}: {', '.join(parts)}"


def machine_text(machine: str) -> str:
    """A machine for display: many hosts are folded, as in `gpu[001-064]: 512 x NVIDIA H20, nccl`.

    Runs are stored, found and compared by the whole text.
    """
    hosts, colon, rest = machine.partition(": ")
    names = hosts.split(HOST_SEPARATOR)
    return f"{fold(names)}{colon}{rest}" if len(names) > MOST_LISTED else machine
