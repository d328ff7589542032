"""No hardware: an alpha-beta model of time with noise and injected faults.

Up to `data_bytes`, real data is moved by the collective's own moves; larger operations only take
time. The engine is for documentation, for tests of views and findings, and for learning what a
fault looks like. All ranks live in this process; the clock is virtual, so that a sweep takes no
time.
"""

import os
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from busbw.core.env import TUNER
from busbw.core.networks import CHANNEL_VARIABLES
from busbw.core.result import EngineLibrary, RankDevice
from busbw.engines.base import CollectiveCall, Engine, Launch, Probe, Region, buffer_slice
from busbw.engines.host_memory import HostMemory
from busbw.engines.host_probe import scalar_type
from busbw.engines.sim_parameters import PARAMETERS, value_text

if TYPE_CHECKING:
    from busbw.engines.sim_tuner import SimTuner

_UFUNCS = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "avg": np.add,
    "mulsum": np.add,
}
# What changes how long NCCL's choice takes, or what it chooses: SimTuner.
OF_TUNER = ("ll", "channel_us", "channels", "dies_algo")
TUNER_VARIABLES = (TUNER.table, "NCCL_ALGO", "NCCL_PROTO", "NCCL_NVLS_ENABLE", *CHANNEL_VARIABLES)
BUFFERS = ("send", "recv")
PARTS = 8  # of a rank's share of the memory: the buffers, copies of what is sent, and room


class _Memory(HostMemory):
    """Remembers that new input was written, so that the next operation moves data."""

    def __init__(self, engine: "SimEngine", rank: int) -> None:
        super().__init__(lambda call, buffer: engine.view(call, buffer, rank))
        self._engine = engine

    def write(
        self, call: CollectiveCall, buffer: str, regions: Sequence[Region], probe: Probe
    ) -> None:
        super().write(call, buffer, regions, probe)
        self._engine.fresh.add((call.in_place, call.shift_bytes))


class SimEngine(Engine):
    """Simulates `ranks` ranks with the parameters of sim_parameters."""

    name = "sim"
    asynchronous = True

    def __init__(self, ranks: int, parameters: dict[str, float]) -> None:
        self.size = ranks
        self.ranks: Sequence[int] = range(ranks)
        self._p = {name: row.default for name, row in PARAMETERS.items()} | parameters
        self._random = random.Random(int(self._p["seed"]))
        self._noise_share, self._outliers = self._p["noise"], self._p["outlier"]
        self._now = 0.0
        self._waited_s = 0.0  # for the late rank, so far
        self._marks: dict[int, tuple[float, float]] = {}
        self._buffers: dict[str, list[Any]] = {}
        self.fresh: set[tuple[bool, int]] = set()
        self._tuner: SimTuner | None = None
        changed = any(self._p[name] != PARAMETERS[name].default for name in OF_TUNER)
        if changed or any(name in os.environ for name in TUNER_VARIABLES):
            self.tuner()

    def tuner(self) -> "SimTuner":
        """A tuner by NCCL's model. Without one all operations take the time of NCCL's choice."""
        if self._tuner is None:
            from busbw.engines import sim_tuner

            self._tuner = sim_tuner.SimTuner(self.size, self._p)
        return self._tuner

    def clock(self) -> float:
        return self._now

    def devices(self) -> list[RankDevice]:
        return [
            RankDevice(rank, os.getpid(), "sim", rank, "", "simulated GPU") for rank in self.ranks
        ]

    def library(self) -> EngineLibrary:
        """The parameters, instead of versions."""
        return EngineLibrary("sim", 0, {name: value_text(value) for name, value in self._p.items()})

    def memory_bytes(self) -> int | None:
        """None: sizes whose data is not moved need no memory."""
        return None

    def moves_data(self, call: CollectiveCall) -> bool:
        """Whether the call is not larger than `data_bytes`, and fits in memory."""
        return _bytes(call) <= min(self._p["data_bytes"], _memory_bytes() // PARTS // self.size)

    def allocate(self, send_bytes: int, recv_bytes: int) -> None:
        """Make all ranks' buffers; `view` lets them grow, as most sizes need none."""
        self._buffers = {name: [np.zeros(0, np.uint8) for _ in self.ranks] for name in BUFFERS}

    def memories(self) -> Sequence[HostMemory]:
        return [_Memory(self, rank) for rank in self.ranks]

    def view(self, call: CollectiveCall, buffer: str, rank: int) -> Any:
        name, used_bytes = buffer_slice(call, rank, buffer)
        memory = self._buffers[name][rank]
        missing = used_bytes.stop - len(memory)
        if missing > 0:
            memory = np.concatenate([memory, np.zeros(missing, np.uint8)])
            self._buffers[name][rank] = memory
        return memory[used_bytes]

    def bind(self, call: CollectiveCall) -> Launch:
        """A thunk that advances the clock, and moves data if new input was written."""
        seconds, name = self._seconds(call), call.collective.name
        size = _bytes(call)
        late_s = self._p["late_us"] * 1e-6 if _moves(call, int(self._p["late_rank"])) else 0.0

        def run() -> None:
            factor = self._tuner.factor(name, size) if self._tuner else 1.0
            self._now += seconds * factor * self._noise() + late_s
            self._waited_s += late_s
            if (call.in_place, call.shift_bytes) in self.fresh:
                self.fresh.discard((call.in_place, call.shift_bytes))
                self._move(call)

        return run

    def fence(self) -> Launch:
        """A thunk that does nothing, because ranks are always in step."""
        return lambda: None

    def mark(self, index: int) -> None:
        self._marks[index] = self._now, self._waited_s

    def elapsed_s(self, first: int, last: int) -> list[float]:
        """Seconds between two marks; a late rank does not wait for itself."""
        (start, before), (end, after) = self._marks[first], self._marks[last]
        of_late_rank = end - start - (after - before)
        late_rank = self._p["late_rank"]
        return [of_late_rank if rank == late_rank else end - start for rank in self.ranks]

    def close(self, *, abort: bool = False) -> None:
        self._buffers.clear()

    def _seconds(self, call: CollectiveCall) -> float:
        moved = _bytes(call)
        gbps = self._p["gbps"]
        if _moves(call, int(self._p["slow_rank"])):
            gbps = min(gbps, self._p["slow_gbps"])
        wire = moved * float(call.collective.bus_factor(self.size)) / (gbps * 1e9)
        slow = 2.0 if moved and moved == self._p["dip_bytes"] else 1.0
        return slow * (self._p["alpha_us"] * 1e-6 + wire)

    def _noise(self) -> float:
        factor = max(0.2, self._random.gauss(1.0, self._noise_share))
        return factor * 10 if self._random.random() < self._outliers else factor

    def _move(self, call: CollectiveCall) -> None:
        """Run the reference moves on the ranks' data.

        What was sent is read before anything is written.
        """
        scalar = scalar_type(call.dtype)
        sent = [self.view(call, "send", rank).view(scalar).copy() for rank in self.ranks]
        if call.op and call.op.name == "mulsum":
            sent = [np.multiply(data, scalar.type(1 + rank % 2)) for rank, data in enumerate(sent)]
        with np.errstate(all="ignore"):
            for rank in self.ranks:
                target = self.view(call, "recv", rank).view(scalar)
                for move in call.collective.moves(call.layout, rank):
                    result = _combine(call, sent, move.sources, move.length)
                    target[move.dst : move.dst + move.length] = result
        self._corrupt(call)

    def _corrupt(self, call: CollectiveCall) -> None:
        rank, offset = int(self._p["corrupt_rank"]), int(self._p["corrupt_offset"])
        if 0 <= rank < self.size:
            data = self.view(call, "recv", rank)
            start = offset * call.dtype.itemsize
            if start < len(data):
                data[start] ^= 1


def _bytes(call: CollectiveCall) -> int:
    """The size of the call: the bytes of its larger buffer."""
    return max(call.send, call.recv) * call.dtype.itemsize


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _moves(call: CollectiveCall, rank: int) -> bool:
    """Whether the rank exists and moves any data: no rank waits for one that moves nothing."""
    matrix = call.layout.matrix
    if not 0 <= rank < call.layout.ranks:
        return False
    return not matrix or any(matrix[rank]) or any(row[rank] for row in matrix)


def _combine(
    call: CollectiveCall, sent: list[Any], sources: Sequence[tuple[int, int]], length: int
) -> Any:
    parts = [sent[rank][offset : offset + length] for rank, offset in sources]
    total = parts[0]
    for part in parts[1:]:
        total = _UFUNCS[call.op.name if call.op else "sum"](total, part)
    if call.op and call.op.name == "avg" and call.collective.reduces:
        ranks = call.layout.ranks
        if total.dtype.kind in "iu":
            return total // ranks
        return (total.astype(np.float64) / ranks).astype(total.dtype)
    return total
