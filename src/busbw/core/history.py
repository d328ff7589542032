"""Stored runs, and the check of a run against them."""

from collections import Counter
from enum import Enum

import msgspec

from busbw.core.cells import CellKey
from busbw.core.result import Result

# runs to judge a new one by; with 2 a single degree of freedom finds only changes of several times
EARLIEST = 3


class StoredRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the history, without its samples.

    `start` is its start in local time as `YYYY-mm-dd HH:MM:SS`, or else when it was added;
    `peak_busbw` is in bytes per second. `counts` is the source of alltoallv's bytes, as in
    core.traffic.
    """

    id: int
    start: str
    machine: str
    collective: str
    nccl: int
    timing: str
    min_bytes: int
    max_bytes: int
    peak_busbw: float
    complete: bool
    wrong: bool
    counts: str = ""


class StoredTime(msgspec.Struct, frozen=True):
    """One cell of one stored run: seconds, and busbw in bytes per second."""

    run: StoredRun
    key: CellKey
    time_s: float
    busbw: float


class CheckedCell(msgspec.Struct, frozen=True, kw_only=True):
    """One cell compared with earlier runs: its time, their median, minimum and maximum (seconds),
    and the adjusted p-value.

    `most` is the upper limit of its time over that of earlier runs, where few runs are judged by
    their spread and have one. `far` says whether the time is far above the median, and few stored
    runs were as unusual.
    """

    key: CellKey
    time_s: float
    median_s: float
    low_s: float
    high_s: float
    p: float
    slower: bool
    most: float | None = None
    far: bool = False

    @property
    def ratio(self) -> float:
        """Its time over their median."""
        return self.time_s / self.median_s

    def within(self, tolerance: float) -> bool:
        """Whether it cannot be slower by more than the tolerance, a fraction."""
        return self.most is not None and self.most <= 1 + tolerance


class Basis(Enum):
    """What a check rests on: the order of many runs, the spread of few, or nothing."""

    ORDER = "order"
    SPREAD = "spread"
    NONE = "none"


class Standing(Enum):
    """The outcome of a check; unknown if there are too few runs to compare with."""

    FINE = "fine"
    SLOWER = "slower"
    UNKNOWN = "unknown"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A run compared with the last runs of its machine.

    `alarm` is the probability that a run like them is called slower in any cell.

    By order it holds for any distribution of times, by spread if their logarithms are normal.
    `needed` runs allow a check by order. `unusual` are the few stored runs with a time far from the
    median, which can hide a slow cell.
    """

    machine: str
    runs: list[int]
    unusual: list[int]
    needed: int
    confidence: float
    tolerance: float
    alarm: float
    basis: Basis
    cells: list[CheckedCell]
    standing: Standing


def machine(result: Result) -> str:
    """The machine of a result: sorted host names, devices by name, and engine.

    `host1+host2: 16 x NVIDIA H20, nccl`.
    """
    devices = result.world.devices
    hosts = "+".join(sorted({device.host for device in devices})) or "unnamed host"
    names = sorted(Counter(device.name or "unnamed device" for device in devices).items())
    kinds = ", ".join(
        [*(f"{count} x {name}" for name, count in names), result.library.engine or "unnamed engine"]
    )
    return f"{hosts}: {kinds}"
