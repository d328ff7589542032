"""Estimates the remaining time of a sweep from the cells measured so far."""

from collections.abc import Sequence

from busbw.core.sweep import Sampling

PLACEMENTS = 2


class Forecast:
    """`sizes` are the bytes of all rows in order; `sampling` is None for classic timing."""

    def __init__(self, sizes: Sequence[int], sampling: Sampling | None, min_samples: int) -> None:
        self._left = [size for size in sizes for _ in range(PLACEMENTS)]
        self._sampling, self._min_samples = sampling, min_samples
        self._check_s_byte = self._timing_s = self._operation_s_byte = 0.0

    def learn(self, size: int, check_s: float, timing_s: float, operation_s: float) -> None:
        """A cell of `size` bytes is measured: seconds of its check, its timing, and one operation."""
        if size in self._left:
            self._left.remove(size)
        self._check_s_byte, self._operation_s_byte = check_s / max(size, 1), operation_s / max(size, 1)
        self._timing_s = timing_s

    def left_s(self) -> float | None:
        """Seconds until the sweep ends, with checks and operations proportional to bytes; None before the first cell."""
        if not self._timing_s:
            return None
        return sum(self._check_s_byte * size + self._timing_of(size) for size in self._left)

    def _timing_of(self, size: int) -> float:
        least_s = self._operation_s_byte * size * self._min_samples
        if self._sampling is None:
            return least_s
        return max(min(self._timing_s, self._sampling.max_time_s), least_s)
