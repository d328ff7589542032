"""The accounting behind what a watch exports.

`Totals` are the counters since the watch began. They never decrease, even if a counter wraps or a
driver reloads.

`Page` holds what the exporter serves: the totals and the counter patterns of the last sample.
"""

import time

from busbw.core.counters import Counter
from busbw.core.link_samples import CounterGroup, Exposition, HostSample, SeenPattern, WatchInterval
from busbw.core.telemetry import increase
from busbw.core.watch_counters import levels, watched_by_name

SEEN_S = 3600.0  # a pattern is shown for so long after it was last seen

Key = tuple[str, str]


class Totals:
    """The sum of all increases of each counter, on top of its first value, in the counter's
    unit.
    """

    def __init__(self) -> None:
        self._last: dict[Key, CounterGroup] = {}
        self._sums: dict[Key, dict[str, int]] = {}

    def take(self, sample: HostSample) -> None:
        """Add the increases since the previous sample."""
        for key, group in sample.groups.items():
            last = self._last.get(key)
            if last is group:
                continue
            before = last.values if last and last.identity == group.identity else {}
            sums = self._sums.setdefault(key, {})
            for name, value in group.values.items():
                if name not in levels() and before.get(name) != value:
                    rise = _increase(watched_by_name()[name], before.get(name, 0), value)
                    sums[name] = sums.get(name, 0) + rise
            self._last[key] = group

    def of(self, sample: HostSample) -> dict[Key, dict[str, int]]:
        """The sums of the groups in a sample, and the levels of the sample, by group and name."""
        result = {}
        for key, group in sample.groups.items():
            current = {name: value for name, value in group.values.items() if name in levels()}
            result[key] = self._sums.get(key, {}) | current
        return result


def _increase(row: Counter, before: int, value: int) -> int:
    """The increase in the counter's unit: the whole value after a reset, 0 for a saturated counter,
    whose increase is unknown.
    """
    rise = increase(row, before, value)
    if rise is not None:
        return rise
    return value * row.scale if value < before else 0


class Page:
    """The page after each sample: `shown`, which other threads read."""

    def __init__(self, first: HostSample) -> None:
        self._totals, self._samples, self._missed = Totals(), 0, 0
        self._seen: dict[SeenPattern, float] = {}
        self.shown = self._expose(first, WatchInterval(host="", at="", seconds=0.0))

    def take(self, sample: HostSample, watched: WatchInterval) -> None:
        self.shown = self._expose(sample, watched)

    def _expose(self, sample: HostSample, watched: WatchInterval) -> Exposition:
        self._totals.take(sample)
        self._samples += 1
        self._missed += watched.missed
        values = self._totals.of(sample)
        now_s = time.time()
        for match in watched.findings:
            self._seen[SeenPattern(match.link, match.pattern, match.verdict)] = now_s
        self._seen = {key: at_s for key, at_s in self._seen.items() if now_s - at_s < SEEN_S}
        return Exposition(
            links=sample.links,
            values=values,
            findings=watched.findings,
            seen=self._seen,
            samples=self._samples,
            missed=self._missed,
            unix_s=now_s,
        )
