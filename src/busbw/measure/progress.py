"""The progress of a rank, recorded at no cost, and how long it may take until the next progress.

Estimates the remaining time of a sweep from the cells measured so far.
"""

import math
import operator
from collections.abc import Hashable, Sequence

# how many times longer than expected from the previous size a step may take, if that exceeds
# --limit
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
        self._known: dict[str, dict[int, float]] = {}  # seconds per operation, by phase and size

    def learn(self, phase: str, progress: Progress | None, took_s: float) -> None:
        """A phase ended after `took_s`."""
        if progress is None or not progress.done:
            return
        sizes, each_s = (
            self._known.setdefault(phase, {}),
            took_s / (progress.done * progress.operations),
        )
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
            each_s = max(
                (SLACK * _likely_s(sizes, size) for sizes in self._known.values()),
                default=slowest_s,
            )
            # data is generated and compared
            each_s = max(each_s, slowest_s) if phase == "verify" else each_s
        return max(self.limit_s, each_s * progress.operations)


def _likely_s(known: dict[int, float], size: int) -> float:
    """Scaled from the largest known size that is not larger."""
    before = max((one for one in known if one <= size), default=min(known))
    return known[before] * max(size / max(before, 1), 1.0)


PLACEMENTS = 2


class Forecast:
    """`sizes` are the bytes of all rows in order, each with two cells that are visited `visits`
    times or more.

    A visit takes as long as the latest, or as `operations` operations, which take longer at larger
    sizes.
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
        left = self._visits
        if cell in self._begun:
            left, _ = self._begun[cell]
        elif size in self._unknown:
            self._unknown.remove(size)
        self._begun[cell] = (0 if last else max(left - 1, 1), visit_s)
        self._check_s_byte, self._operation_s_byte = (
            check_s / max(size, 1),
            operation_s / max(size, 1),
        )
        self._visit_s = visit_s

    def left_s(self) -> float | None:
        """Seconds until the sweep ends, with checks and operations proportional to bytes; None
        before the first cell.
        """
        if not self._begun:
            return None
        begun_s = sum(left * each_s for left, each_s in self._begun.values())
        return begun_s + sum(
            self._check_s_byte * size + self._visits * self._visit_of(size)
            for size in self._unknown
        )

    def _visit_of(self, size: int) -> float:
        return max(self._visit_s, self._operation_s_byte * size * self._operations)
