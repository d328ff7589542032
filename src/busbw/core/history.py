"""What is kept of past runs, and which of them are of one machine."""

from collections import Counter
from enum import Enum

import msgspec

from busbw.core.cells import CellKey
from busbw.core.result import Result


class StoredRun(msgspec.Struct, frozen=True):
    """One run of the history, without its samples. `start` is when it began, or was added where it does not say (`YYYY-mm-dd HH:MM:SS`,

    local); `peak_busbw` in bytes per second.
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


class StoredTime(msgspec.Struct, frozen=True):
    """One cell of one stored run: seconds, and busbw in bytes per second."""

    run: StoredRun
    key: CellKey
    time_s: float
    busbw: float


class CheckedCell(msgspec.Struct, frozen=True):
    """One cell beside the same cell of earlier runs: its time, their median, least and largest (seconds), and the adjusted p-value."""

    key: CellKey
    time_s: float
    median_s: float
    low_s: float
    high_s: float
    p: float
    slower: bool

    @property
    def ratio(self) -> float:
        """Its time over their median."""
        return self.time_s / self.median_s


class Standing(Enum):
    """What a check concludes; too few runs to compare with are no evidence."""

    FINE = "fine"
    SLOWER = "slower"
    UNKNOWN = "unknown"


class Check(msgspec.Struct, frozen=True):
    """A run beside the last runs of its machine. `alarm` is the chance that a run like them is called slower anywhere in the sweep."""

    machine: str
    runs: list[int]
    needed: int
    confidence: float
    alarm: float
    cells: list[CheckedCell]
    standing: Standing


def machine(result: Result) -> str:
    """Who was measured: sorted host names, the devices of each name and the engine. `host1+host2: 16 x NVIDIA H20, nccl`."""
    devices = result.world.devices
    hosts = "+".join(sorted({device.host for device in devices})) or "unnamed host"
    names = sorted(Counter(device.name or "unnamed device" for device in devices).items())
    kinds = ", ".join([*(f"{count} x {name}" for name, count in names), result.library.engine or "unnamed engine"])
    return f"{hosts}: {kinds}"
