"""The progress of a rank, recorded at no cost. Pace says how long it may take until the next
progress.
"""

import math
from collections.abc import Callable

# How many times longer than expected from the previous size a step may take, if that exceeds
# --limit.
LIMIT_FACTOR = 3.0
SLOWEST_BYTES_S = 1e8  # assumed before the first measurement: 0.8 Gbit/s


def no_batch() -> int:
    """The count while no batch runs."""
    return 0


class Progress:
    """What a rank has completed of one phase at one size: `done` steps of `operations` operations
    each, awaited together.

    `left_s` is the estimated time from the start of the phase until the sweep ends. `batch_count`
    counts the operations of the running batch, up or down, for the watchdog's thread. It reads what
    the timed loop fills or drains anyway.
    """

    __slots__ = ("batch_count", "done", "left_s", "operations", "size_bytes")

    def __init__(self, size_bytes: int, operations: int = 1, left_s: float | None = None) -> None:
        self.size_bytes, self.operations, self.left_s = size_bytes, operations, left_s
        self.done = 0
        self.batch_count: Callable[[], int] = no_batch

    def completed(self) -> tuple[int, int]:
        """A value that changes with every progress."""
        return self.done, self.batch_count()


class Pace:
    """How long a step may take: `limit_s`, or more if steps of the previous size were slow."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._operation_s: dict[str, dict[int, float]] = {}  # by phase and size in bytes

    def learn(self, phase: str, progress: Progress | None, took_s: float) -> None:
        """A phase ended after `took_s`."""
        if progress is None or not progress.done:
            return
        each_s = took_s / (progress.done * progress.operations)
        sizes = self._operation_s.setdefault(phase, {})
        sizes[progress.size_bytes] = max(each_s, sizes.get(progress.size_bytes, 0.0))

    def allowed_s(self, phase: str, progress: Progress | None) -> float:
        """Seconds from one completed step to the next; infinity without a limit."""
        if not self.limit_s:
            return math.inf
        if progress is None:
            return self.limit_s
        size = progress.size_bytes
        if phase in self._operation_s:
            each_s = LIMIT_FACTOR * _likely_s(self._operation_s[phase], size)
        else:
            slowest_s = size / SLOWEST_BYTES_S
            of_phases = [
                LIMIT_FACTOR * _likely_s(sizes, size) for sizes in self._operation_s.values()
            ]
            each_s = max(of_phases, default=slowest_s)
            if phase == "verify":  # it also generates and compares data
                each_s = max(each_s, slowest_s)
        return max(self.limit_s, each_s * progress.operations)


def _likely_s(known: dict[int, float], size: int) -> float:
    """Seconds of an operation of a size, scaled from the largest known size that is not larger."""
    smaller = [known_size for known_size in known if known_size <= size]
    nearest = max(smaller, default=min(known))
    return known[nearest] * max(size / max(nearest, 1), 1.0)
