"""An engine of NCCL that is asked what it runs, and what asks it."""

from collections.abc import Sequence
from typing import Any

from busbw.core.errors import TimedOut
from busbw.core.ran import NcclKernel
from busbw.core.result import EngineLibrary
from busbw.engines.base import Engine
from busbw.engines.nccl_log import Log, empty_log
from busbw.launch.control import SoloControl
from busbw.measure import what_ran
from busbw.measure.process_groups import Party

RING_LL, TREE_LL = NcclKernel("Ring", "LL", 4), NcclKernel("Tree", "LL", 4)


class Asked(Engine):
    """An engine of NCCL with a profiler that takes `kernels`, and does not keep one more."""

    def __init__(
        self, kernels: Sequence[NcclKernel] = (), interface: int = 7, nccl: int = 23203
    ) -> None:
        self.kernels, self.lost, self.stopped = list(kernels), 0, 0
        self.interface, self._version = interface, nccl

    def library(self) -> EngineLibrary:
        return EngineLibrary("nccl", nccl=self._version)

    def profiler(self) -> Any:
        return self

    def start(self) -> bool:
        return True

    def stop(self) -> list[NcclKernel]:
        self.lost += 1
        self.stopped += 1
        return self.kernels

    def synchronize(self, limit_s: float) -> None:
        if limit_s < 0:
            raise TimedOut("no end", "")


def agreed(
    engine: Engine,
    ranks: Party,
    counts: what_ran.OperationCounts | None = None,
    reason: str = "",
    log: Log | None = None,
    collective: str = "all_reduce",
) -> what_ran.KernelRecorder:
    counts = counts or what_ran.OperationCounts()
    return what_ran.agreed(engine, ranks, counts, reason, log or empty_log(), collective)


def party(world: SoloControl) -> Party:
    return Party(world, SoloControl(), 0, 1, 0)
