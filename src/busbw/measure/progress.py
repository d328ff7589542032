"""How far a rank has come, noted where that costs nothing, and how long it may take until it comes further."""

import math
import operator

SLACK = 3.0  # how much longer than the same step of the size before it a step may take, where that is more than --limit
SLOWEST_BYTES_S = 1e8  # before anything is known of a size: 0.8 Gbit/s


class Progress:
    """What a rank has completed of one phase at one size: `done` steps, each of `operations` that it waits for at once.

    `left_s` is the estimated time until the sweep ends, from the start of the phase. `batch` is what a timed loop fills or drains anyway,
    operation by operation; the watchdog's thread reads its length.
    """

    __slots__ = ("batch", "done", "left_s", "operations", "size_bytes")

    def __init__(self, size_bytes: int, operations: int = 1, left_s: float | None = None) -> None:
        self.size_bytes, self.operations, self.left_s = size_bytes, operations, left_s
        self.done = 0
        self.batch: object = ()

    def completed(self) -> tuple[int, int]:
        """Differs from what it was before where the rank came further."""
        return self.done, operator.length_hint(self.batch)


class Pace:
    """How long a step may take: `limit_s`, or more where steps of the size before it took that long."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._known: dict[str, dict[int, float]] = {}  # seconds an operation, by phase and size

    def learn(self, phase: str, progress: Progress | None, took_s: float) -> None:
        """A phase was left after `took_s`."""
        if progress is None or not progress.done:
            return
        sizes, each_s = self._known.setdefault(phase, {}), took_s / (progress.done * progress.operations)
        sizes[progress.size_bytes] = max(each_s, sizes.get(progress.size_bytes, 0.0))

    def allowed_s(self, phase: str, progress: Progress | None) -> float:
        """Seconds from one completed step to the next; infinity without a limit."""
        if not self.limit_s:
            return math.inf
        if progress is None:
            return self.limit_s
        size, slowest_s = progress.size_bytes, progress.size_bytes / SLOWEST_BYTES_S
        if phase in self._known:
            each_s = SLACK * _likely_s(self._known[phase], size)
        else:
            each_s = max((SLACK * _likely_s(sizes, size) for sizes in self._known.values()), default=slowest_s)
            each_s = max(each_s, slowest_s) if phase == "verify" else each_s  # data is made and compared, which takes longer
        return max(self.limit_s, each_s * progress.operations)


def _likely_s(known: dict[int, float], size: int) -> float:
    """From the size before it: as much longer as it is larger."""
    before = max((one for one in known if one <= size), default=min(known))
    return known[before] * max(size / max(before, 1), 1.0)
