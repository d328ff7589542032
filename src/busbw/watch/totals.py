"""Counters since the watch began, as an exporter needs them: they never decrease, even if a
counter wraps or a driver reloads.
"""

from busbw.core.counters import Counter
from busbw.core.link_samples import Group, Sample
from busbw.core.telemetry import increase
from busbw.core.watch_counters import BY_NAME, LEVELS

Key = tuple[str, str]


class Totals:
    """The sum of all increases of each counter, on top of its first value, in the counter's
    unit.
    """

    def __init__(self) -> None:
        self._last: dict[Key, Group] = {}
        self._sums: dict[Key, dict[str, int]] = {}

    def take(self, sample: Sample) -> None:
        """Add the increases since the previous sample."""
        for key, group in sample.groups.items():
            last = self._last.get(key)
            if last is not group:
                known = last.values if last and last.identity == group.identity else {}
                sums = self._sums.setdefault(key, {})
                for name, value in group.values.items():
                    if name not in LEVELS and known.get(name) != value:
                        sums[name] = sums.get(name, 0) + _more(
                            BY_NAME[name], known.get(name, 0), value
                        )
                self._last[key] = group

    def of(self, sample: Sample) -> dict[Key, dict[str, int]]:
        """Sums of the groups in a sample, and its levels."""
        found = {}
        for key, group in sample.groups.items():
            levels = {name: value for name, value in group.values.items() if name in LEVELS}
            found[key] = self._sums.get(key, {}) | levels
        return found


def _more(row: Counter, before: int, value: int) -> int:
    """The increase. After a reset the whole value is new; for a saturated counter it is unknown."""
    by = increase(row, before, value)
    if by is not None:
        return by
    return value * row.scale if value < before else 0
