"""Estimates the remaining time of a sweep from the cells measured so far."""

from collections.abc import Hashable, Sequence

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
