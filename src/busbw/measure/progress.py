"""The progress of a rank, and what is expected of it.

Progress is recorded at no cost. Pace says how long it may take until the next progress. Forecast
estimates the remaining time of a sweep from the cells measured so far.
"""

import math
import operator
from collections.abc import Hashable, Sequence

# How many times longer than expected from the previous size a step may take, if that exceeds
# --limit.
SLACK = 3.0
SLOWEST_BYTES_S = 1e8  # assumed before the first measurement: 0.8 Gbit/s


class Progress:
    """What a rank has completed of one phase at one size: `done` steps of `operations` operations
    each, awaited together.

    `left_s` is the estimated time from the start of the phase until the sweep ends. `batch` is a
    container that the timed loop fills or drains anyway, one item per operation; the watchdog's
    thread reads its length.
    """

    __slots__ = ("batch", "done", "left_s", "operations", "size_bytes")

    def __init__(self, size_bytes: int, operations: int = 1, left_s: float | None = None) -> None:
        self.size_bytes, self.operations, self.left_s = size_bytes, operations, left_s
        self.done = 0
        self.batch: object = ()

    def completed(self) -> tuple[int, int]:
        """A value that changes with every progress."""
        return self.done, operator.length_hint(self.batch)


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
            each_s = SLACK * _likely_s(self._operation_s[phase], size)
        else:
            slowest_s = size / SLOWEST_BYTES_S
            of_phases = [SLACK * _likely_s(sizes, size) for sizes in self._operation_s.values()]
            each_s = max(of_phases, default=slowest_s)
            if phase == "verify":  # it also generates and compares data
                each_s = max(each_s, slowest_s)
        return max(self.limit_s, each_s * progress.operations)


def _likely_s(known: dict[int, float], size: int) -> float:
    """Seconds of an operation of a size, scaled from the largest known size that is not larger."""
    smaller = [known_size for known_size in known if known_size <= size]
    nearest = max(smaller, default=min(known))
    return known[nearest] * max(size / max(nearest, 1), 1.0)


PLACEMENTS = 2


class Forecast:
    """Estimates the remaining time of a sweep.

    `sizes` are the bytes of all rows in order. Each row has two cells, which are visited `visits`
    times or more. A visit is expected to take as long as the latest, or as `operations` operations,
    which take longer at larger sizes.
    """

    def __init__(self, sizes: Sequence[int], visits: int = 1, operations: int = 1) -> None:
        self._unknown = [size for size in sizes for _ in range(PLACEMENTS)]
        self._visits, self._operations = visits, operations
        self._begun: dict[Hashable, tuple[int, float]] = {}  # visits left, and seconds of each
        self._check_s_byte = self._visit_s = self._operation_s_byte = 0.0

    def learn(
        self,
        cell: Hashable,
        size: int,
        check_s: float,
        visit_s: float,
        operation_s: float,
        *,
        last: bool,
    ) -> None:
        """A visit of a cell of `size` bytes has ended: seconds of its check, of this visit, and
        of one operation.
        """
        visits_left = self._visits
        if cell in self._begun:
            visits_left, _ = self._begun[cell]
        elif size in self._unknown:
            self._unknown.remove(size)
        self._begun[cell] = (0 if last else max(visits_left - 1, 1), visit_s)
        self._check_s_byte = check_s / max(size, 1)
        self._operation_s_byte = operation_s / max(size, 1)
        self._visit_s = visit_s

    def left_s(self) -> float | None:
        """Seconds until the sweep ends, with checks and operations proportional to bytes; None
        before the first cell.
        """
        if not self._begun:
            return None
        begun_s = sum(visits_left * visit_s for visits_left, visit_s in self._begun.values())
        return begun_s + sum(self._cell_s(size) for size in self._unknown)

    def _cell_s(self, size: int) -> float:
        """Seconds of the check and all visits of a cell that has not begun."""
        visit_s = max(self._visit_s, self._operation_s_byte * size * self._operations)
        return self._check_s_byte * size + self._visits * visit_s
