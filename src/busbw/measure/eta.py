"""Estimates the remaining time of a sweep from the cells measured so far."""

from collections.abc import Hashable, Sequence

PLACEMENTS = 2


class RemainingTime:
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
        """Take the seconds of a visit: of its check, of all of it, and of one operation."""
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
        """Seconds until the sweep ends, proportional to bytes; None before the first cell."""
        if not self._begun:
            return None
        begun_s = sum(visits_left * visit_s for visits_left, visit_s in self._begun.values())
        return begun_s + sum(self._cell_s(size) for size in self._unknown)

    def _cell_s(self, size: int) -> float:
        """Seconds of the check and all visits of a cell that has not begun."""
        visit_s = max(self._visit_s, self._operation_s_byte * size * self._operations)
        return self._check_s_byte * size + self._visits * visit_s
