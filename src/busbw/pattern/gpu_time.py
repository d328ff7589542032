"""Adds up what the GPUs of traces did: the time of all kernels, and of those that communicate."""

import math
from array import array
from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from busbw.core.pattern import MAX_FIGURE, GpuTime, KernelCalls, Times

Spans = list[tuple[float, float]]


class Kernels(NamedTuple):
    """What kernels of communication that are counted together have in common."""

    name: str
    library: str
    function: str
    bytes: int | None
    dtype: str | None


@dataclass(slots=True)
class _KernelsOfGpu:
    """The starts and ends of a GPU's kernels."""

    computing: Spans = field(default_factory=list)
    communicating: Spans = field(default_factory=list)


class GpuTimes:
    """Adds up kernels. A GPU is any key that its kernels have in common."""

    def __init__(self) -> None:
        self._gpus: dict[Hashable, _KernelsOfGpu] = defaultdict(_KernelsOfGpu)
        self._unlisted: dict[Kernels, array[float]] = defaultdict(lambda: array("d"))

    def has_kernels(self) -> bool:
        return bool(self._gpus)

    def add(self, gpu: Hashable, at_us: float, time_us: float, *, communicates: bool) -> None:
        if not (0 <= time_us < MAX_FIGURE and math.isfinite(at_us)):
            return
        spans = self._gpus[gpu].communicating if communicates else self._gpus[gpu].computing
        spans.append((at_us, at_us + time_us))

    def add_unlisted(self, kernels: Kernels, time_us: float) -> None:
        """Add the time of a kernel of communication whose call is not recorded."""
        if 0 <= time_us < MAX_FIGURE:
            self._unlisted[kernels].append(time_us)

    def total(self) -> GpuTime | None:
        """The sums over all GPUs; None if there was no kernel."""
        gpus = self._gpus.values()
        if not gpus:
            return None
        communication_us = sum(_sum(gpu.communicating) for gpu in gpus)
        return GpuTime(
            gpus=len(gpus),
            kernels_us=communication_us + sum(_sum(gpu.computing) for gpu in gpus),
            communication_us=communication_us,
            exposed_us=sum(
                covered(gpu.computing + gpu.communicating) - covered(gpu.computing) for gpu in gpus
            ),
            unlisted=[
                KernelCalls(gpu_us=summarize(times), **kernels._asdict())
                for kernels, times in self._unlisted.items()
            ],
        )


def summarize(durations: "array[float]") -> Times:
    """The times of calls in microseconds, of which there is one at least."""
    total, least, largest = sum(durations), min(durations), max(durations)
    return Times(len(durations), total, least, median(durations), largest)


def _sum(spans: Iterable[tuple[float, float]]) -> float:
    return sum(end - start for start, end in spans)


def covered(spans: Spans) -> float:
    """The time in which any of the spans runs."""
    total, until = 0.0, -math.inf
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total
