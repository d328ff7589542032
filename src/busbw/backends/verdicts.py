"""Which backend is the fastest at each size, by how much, and whether that is sure."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from statistics import median

import msgspec

from busbw.backends.types import ALL_RAILS, BackendsResult, BackendsRow, BackendTime, Choice
from busbw.core.result import Cell
from busbw.stats import fastest as ranking

BEATEN = 1.10  # the default is slower by more than this: a finding
IMPRECISE = 0.1  # half of an interval over the time: from here on a verdict is not sure


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
    times = {time.backend: _observations(time) for time in row.times if _is_right(time, mode)}
    if not times:
        return None
    best, alike = ranking.fastest(times)
    found = Fastest(backend=best, time_s=median(times[best]), ratio=1.0, alike=alike)
    if best == default or default not in times:
        return found
    change = ranking.slower(times, best, default)
    return msgspec.structs.replace(found, ratio=change.ratio, low=change.low, high=change.high)


def _is_right(time: BackendTime, mode: str) -> bool:
    return time.mode == mode and time.cell is not None and not time.cell.wrong


def _observations(time: BackendTime) -> Sequence[float]:
    """One of each moment that the printed time counts, as samples of one moment are alike."""
    assert time.cell is not None
    return time.cell.moments_s or [time.cell.time_s]


def recommended(row: BackendsRow, mode: str, default: str) -> tuple[str, bool]:
    """The fastest, or the default if that may be as fast, and whether it is sure; '' if none was
    measured.
    """
    best = fastest(row, mode, default)
    if best is None:
        return "", False
    if default in best.alike:
        return default, False
    cells = {time.backend: time.cell for time in row.times if time.cell and _is_right(time, mode)}
    compared = cells if best.backend == default else cells.keys() & {best.backend, default}
    decided = best.backend != default or best.sure
    return best.backend, decided and len(compared) > 1 and all(
        is_precise(cells[name]) for name in compared
    )


def is_precise(cell: Cell) -> bool:
    """Whether its interval is known, and reaches to at most a tenth on either side."""
    if cell.low_s is None or cell.high_s is None:
        return False
    return cell.high_s - cell.low_s <= 2 * IMPRECISE * cell.time_s


def ratio_text(ratio: float) -> str:
    """`1.52`, `14.1`, `1458`: three significant digits, and two decimals below 10."""
    if ratio < 10:
        return f"{ratio:.2f}"
    return f"{ratio:.1f}" if ratio < 100 else f"{ratio:.0f}"


def choices(result: BackendsResult) -> list[Choice]:
    """The recommended backends as ranges of sizes, by mode; none where nothing is exchanged."""
    if not result.is_exchange:
        return []
    return [choice for mode in result.modes() for choice in _ranges(result, mode, result.rows)]


def _ranges(result: BackendsResult, mode: str, rows: Sequence[BackendsRow]) -> Iterable[Choice]:
    """Neighboring sizes with the same recommendation."""
    default = result.default
    for (backend, sure), alike in groupby(rows, lambda row: recommended(row, mode, default)):
        same = list(alike)
        if not backend:
            continue
        with_default = [row for row in same if _has_time(row.of(default, mode))]
        found = [best for row in with_default if (best := fastest(row, mode, default))]
        ratios = [best.ratio if backend != default else 1.0 for best in found]
        yield Choice(
            mode=mode,
            first_bytes=same[0].size_bytes,
            last_bytes=same[-1].size_bytes,
            backend=backend,
            ratio=(min(ratios), max(ratios)) if ratios else None,
            sure=sure,
        )


def slower_on_all(result: BackendsResult) -> list[tuple[str, Choice]]:
    """Where a backend is surely slower over all rails than over one alone, with its name there."""
    found = list[tuple[str, Choice]]()
    for default in [name for name in result.backends if name.endswith(f"@{ALL_RAILS}")]:
        stem = default.removesuffix(ALL_RAILS)
        rows = [_of_one(row, stem) for row in result.rows]
        alone = msgspec.structs.replace(result, default=default, rows=rows)
        found += [(default, choice) for choice in beaten(alone)]
    return found


def _of_one(row: BackendsRow, stem: str) -> BackendsRow:
    """The times of a backend over each of its rails: `nixl@` is the stem of their names."""
    times = [time for time in row.times if time.backend.startswith(stem)]
    return BackendsRow(size_bytes=row.size_bytes, times=times)


def beaten(result: BackendsResult) -> list[Choice]:
    """Where the default was measured, and is surely slower than another one by over 10 %."""
    found = list[Choice]()
    for mode in result.modes() if result.is_exchange else ():
        rows = [row for row in result.rows if _has_time(row.of(result.default, mode))]
        found += _joined(_ranges(result, mode, rows))
    return [
        choice
        for choice in found
        if choice.backend != result.default and choice.ratio and choice.ratio[1] > BEATEN
    ]


def _joined(found: Iterable[Choice]) -> Iterator[Choice]:
    """Neighboring ranges of one backend as one, whether they are sure or not."""
    for _, alike in groupby(found, lambda choice: choice.backend):
        same = list(alike)
        ratios = [ratio for choice in same for ratio in choice.ratio or ()]
        yield msgspec.structs.replace(
            same[0],
            last_bytes=same[-1].last_bytes,
            ratio=(min(ratios), max(ratios)) if ratios else None,
            sure=all(choice.sure for choice in same),
        )


def _has_time(time: BackendTime | None) -> bool:
    return time is not None and time.cell is not None
