"""What is kept of past runs, which of them are of one machine, and whether a run differs from them."""

import hashlib
import math
import statistics
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from enum import Enum

import msgspec

from busbw.core import wire
from busbw.core.cells import CellKey, cells, every, medians, peak, timing, usable
from busbw.core.judging import RELEVANT
from busbw.core.rank_tests import level
from busbw.core.result import Result
from busbw.core.run_tests import ROUNDING, fewest_chance, sweep_test


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


def digest(result: Result) -> str:
    """The result's content as a SHA-256; the file's spacing and name do not count."""
    return hashlib.sha256(wire.encode(result)).hexdigest()


def stored(result: Result, now: datetime) -> StoredRun:
    """The facts of a result by which it is listed and found; it has no id yet."""
    sizes = [row.size_bytes for row in result.rows]
    top = peak(every(result))
    return StoredRun(
        0, _when(result.start, now), machine(result), result.spec.collective, result.library.nccl, timing(result), min(sizes, default=0),
        max(sizes, default=0), top.busbw if top else 0.0, result.complete, result.wrong(),
    )  # fmt: skip


def _when(start: str, now: datetime) -> str:
    try:
        when = datetime.fromisoformat(start)
    except ValueError:
        when = now
    return when.strftime("%Y-%m-%d %H:%M:%S")


def needed(confidence: float) -> int:
    """Earlier runs from which a check can be this sure: 19 for 95 %. n runs and a new one make n + 1 places for the slowest."""
    count = 2
    while fewest_chance(count, 1, two_sided=False) > level(confidence):
        count += 1
    return count


def check(result: Result, earlier: Mapping[int, Mapping[CellKey, float]], confidence: float) -> Check:
    """Whether the run is slower anywhere than `earlier` runs of its machine (times in seconds by run and cell).

    Runs that lack one of its cells do not count. If it is like them, each of all these runs is as likely to be the one that stands out
    most; so the chance of a false alarm over the whole sweep is `alarm`, whatever the times' distribution.
    """
    new = {key: time_s for key, time_s in medians((key, cell.time_s) for key, cell in cells(result)).items() if usable(time_s)}
    runs = {run: times for run, times in earlier.items() if all(usable(times.get(key, 0.0)) for key in new)}
    enough = bool(new) and len(runs) >= needed(confidence)
    logs = [[math.log(times[key]) for times in [*runs.values(), new]] for key in new]
    ps = sweep_test(logs, len(runs), two_sided=False) if runs else [1.0] * len(new)
    checked = []
    for (key, time_s), p in zip(new.items(), ps, strict=True):
        times = [run[key] for run in runs.values()] or [time_s]
        middle = statistics.median(times)
        slower = enough and p <= level(confidence) and time_s >= middle * (1 + RELEVANT)
        checked.append(CheckedCell(key, time_s, middle, min(times), max(times), p, slower))
    standing = Standing.SLOWER if any(cell.slower for cell in checked) else Standing.FINE if enough else Standing.UNKNOWN
    alarm = math.floor(level(confidence) * (len(runs) + 1) + ROUNDING) / (len(runs) + 1)
    return Check(machine(result), list(runs), needed(confidence), confidence, alarm, checked, standing)


def alike(run: StoredRun, result: Result) -> bool:
    """Whether a stored run can be held against the result: whole, right, and of the same machine, collective and timing."""
    same = (run.machine, run.collective, run.timing) == (machine(result), result.spec.collective, timing(result))
    return same and run.complete and not run.wrong
