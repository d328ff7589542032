"""Which backend is the fastest at each size, by how much, and whether that is sure."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from statistics import median

import msgspec

from busbw.backends.types import BackendsResult, BackendsRow, BackendTime, Choice
from busbw.core.result import parts
from busbw.stats.judging import Limits, relevant
from busbw.stats.rank_tests import shift

BEATEN = 1.10  # the default is slower by more than this: a finding
LIMITS = Limits()


class Fastest(msgspec.Struct, frozen=True, kw_only=True):
    """The fastest backend at a size. `ratio` is the default's time over its own, with an interval
    that holds over all backends of the size. It is `sure` if no other one can be as fast: the
    others that may be are `alike`.
    """

    backend: str
    time_s: float
    ratio: float
    low: float | None = None
    high: float | None = None
    alike: tuple[str, ...] = ()

    @property
    def sure(self) -> bool:
        return not self.alike


def fastest(row: BackendsRow, mode: str, default: str) -> Fastest | None:
    """The fastest with right data at this size; None if none was measured."""
    times = {time.backend: _visit_medians(time) for time in row.times if _is_right(time, mode)}
    if not times:
        return None
    best = min(times, key=lambda name: median(times[name]))
    others = [name for name in times if name != best]
    family = max(len(others), 1)
    alike = tuple(name for name in others if not _is_slower(times[best], times[name], family))
    base = times.get(default, times[best])
    change = shift(times[best], base, LIMITS.confidence, family)
    ratio = change.ratio if best != default else 1.0
    return Fastest(
        backend=best,
        time_s=median(times[best]),
        ratio=ratio,
        low=change.low if best != default else None,
        high=change.high if best != default else None,
        alike=alike,
    )


def _is_right(time: BackendTime, mode: str) -> bool:
    return time.mode == mode and time.cell is not None and not time.cell.wrong


def _visit_medians(time: BackendTime) -> Sequence[float]:
    """One observation for each visit: samples of one moment are alike."""
    cell = time.cell
    assert cell is not None
    if not cell.samples_s or not cell.visits:
        return [cell.time_s]
    return [median(visit) for visit in parts(cell.samples_s, cell.visits)]


def _is_slower(best: Sequence[float], other: Sequence[float], family: int) -> bool:
    change = shift(best, other, LIMITS.confidence, family)
    return change.p <= LIMITS.level and change.ratio >= relevant(LIMITS)


def recommended(row: BackendsRow, mode: str, default: str) -> str:
    """The fastest, or the default if that may be as fast; '' if none was measured."""
    best = fastest(row, mode, default)
    if best is None:
        return ""
    return default if default in best.alike else best.backend


def choices(result: BackendsResult) -> list[Choice]:
    """The recommended backends as ranges of sizes, by mode."""
    found = list[Choice]()
    for mode in result.modes():
        by_backend = groupby(
            (row for row in result.rows if recommended(row, mode, result.default)),
            key=lambda row, mode=mode: recommended(row, mode, result.default),  # type: ignore[misc]
        )
        for backend, rows in by_backend:
            found.append(_choice(result, mode, backend, list(rows)))
    return found


def _choice(result: BackendsResult, mode: str, backend: str, rows: Sequence[BackendsRow]) -> Choice:
    ratios = list(_ratios(rows, mode, backend, result.default))
    return Choice(
        mode=mode,
        first_bytes=rows[0].size_bytes,
        last_bytes=rows[-1].size_bytes,
        backend=backend,
        ratio=(min(ratios, default=1.0), max(ratios, default=1.0)),
    )


def _ratios(rows: Iterable[BackendsRow], mode: str, backend: str, default: str) -> Iterable[float]:
    """The default's time over the backend's, at each size that has both."""
    for row in rows:
        own, base = row.of(backend, mode), row.of(default, mode)
        if own and own.cell and base and base.cell:
            yield base.cell.time_s / own.cell.time_s


def beaten(result: BackendsResult) -> list[Choice]:
    """Where the default is surely slower than another by over 10 %."""
    return [
        choice
        for choice in result.choices
        if choice.backend != result.default and choice.ratio[1] > BEATEN
    ]
