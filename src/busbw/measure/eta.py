"""Estimates the remaining time of a sweep from the cells measured so far."""

from collections.abc import Hashable, Sequence
from math import ceil

PLACEMENTS = 2
# A size that was not measured may have at most this many times the bytes of one that was: what
# few bytes take says nothing of many.
REACH = 8


class RemainingTime:
    """Estimates the remaining time of a sweep.

    `sizes` are the bytes of all rows in order. Each row has two cells, which are visited `visits`
    times or more. A visit is expected to take as long as the latest of its cell, or of its size. A
    cell that has had these visits is expected to need half as many again.
    """

    def __init__(self, sizes: Sequence[int], visits: int = 1) -> None:
        self._waiting = [size for size in sizes for _ in range(PLACEMENTS)]
        self._visits = visits
        self._begun: dict[Hashable, tuple[int, float]] = {}  # visits made, and seconds of each
        self._ended: set[Hashable] = set()
        self._cell_s: dict[int, float] = {}  # of the check and all visits, by size

    def learn(
        self, cell: Hashable, size: int, check_s: float, visit_s: float, *, last: bool
    ) -> None:
        """Take the seconds of a visit: of its check, and of all of it."""
        made, _ = self._begun.get(cell, (0, 0.0))
        if not made and size in self._waiting:
            self._waiting.remove(size)
        self._begun[cell] = made + 1, visit_s
        if last:
            self._ended.add(cell)
        self._cell_s[size] = check_s + self._visits * visit_s

    def left_s(self) -> float | None:
        """Seconds until the sweep ends. None before its first round is done: all sizes were visited
        once or, where each is measured at once, sizes within REACH of the largest.
        """
        waiting_s = [self._expected_s(size) for size in self._waiting]
        known_s = [cell_s for cell_s in waiting_s if cell_s is not None]
        if not self._begun or len(known_s) < len(waiting_s):
            return None
        begun_s = sum(
            self._visits_left(made) * visit_s
            for cell, (made, visit_s) in self._begun.items()
            if cell not in self._ended
        )
        return begun_s + sum(known_s)

    def _visits_left(self, made: int) -> int:
        return self._visits - made if made < self._visits else ceil(made / 2)

    def _expected_s(self, size: int) -> float | None:
        """Seconds of a cell that has not begun; None if they cannot be told yet.

        Beyond the largest size measured they grow as between the two largest, and no faster than
        the bytes.
        """
        if size in self._cell_s:
            return self._cell_s[size]
        largest = max(self._cell_s, default=0)
        if self._visits > 1 or not largest or not largest < size <= REACH * largest:
            return None
        largest_s = self._cell_s[largest]
        before = max((known for known in self._cell_s if known < largest), default=0)
        before_s = self._cell_s.get(before, 0.0)
        growth_s = max(largest_s - before_s, 0.0) * (size - largest) / (largest - before)
        return min(largest_s + growth_s, largest_s * size / largest)
