"""Rejects figures that no run gives, in results of several kinds: files may be edited, or come from
newer versions.

All raise UsageError with `where` the figure stands.
"""

from collections.abc import Iterable, Sequence

from busbw.core.collectives import BY_NAME
from busbw.core.errors import UsageError
from busbw.core.result import Cell

HINT = "give the file as busbw wrote it"
SHORTEST_S, LONGEST_S = 1e-12, 1e12
MOST = 1 << 60  # bytes, tokens, operations and elements


def check_collective(name: str) -> None:
    """Refuse a name that is no collective's."""
    if name not in BY_NAME:
        raise UsageError(f"spec.collective is '{name}'", f"busbw knows {', '.join(BY_NAME)}")


def check_count(value: int, name: str, where: str, least: int = 0) -> None:
    """Refuse a number of bytes or things below `least`, or so large that figures overflow."""
    if not least <= value <= MOST:
        raise UsageError(f"{where}: {value} {name}", HINT)


def check_times(times_s: Iterable[float | None], where: str, least_s: float = 0.0) -> None:
    """Refuse a time in seconds that is negative, no number, or longer than any run."""
    for time_s in times_s:
        if time_s is not None and not least_s <= time_s <= LONGEST_S:
            raise UsageError(f"{where}: a time of {time_s:g} seconds", HINT)


def check_samples(
    samples_s: Sequence[float], visits: Sequence[int], dropped: int, where: str
) -> None:
    """Refuse samples whose times cannot be, or whose visits do not add up to them."""
    check_times(samples_s, where)
    if visits and min(visits) < 1:
        raise UsageError(f"{where}: a visit of {min(visits)} samples", HINT)
    if visits and sum(visits) != len(samples_s):
        raise UsageError(f"{where}: visits of {sum(visits)} samples, but {len(samples_s)}", HINT)
    if not 0 <= dropped <= max(len(samples_s) - 1, 0):
        raise UsageError(f"{where}: {dropped} of {len(samples_s)} samples are dropped", HINT)


def check_cell(cell: Cell, where: str) -> None:
    """Refuse a cell of precise timing whose time, samples or rates cannot be."""
    check_times([cell.time_s], where, SHORTEST_S)
    check_times([cell.low_s, cell.high_s], where)
    check_samples(cell.samples_s or [], cell.visits, cell.dropped or cell.skipped, where)
    for rate in (cell.algbw, cell.busbw):
        if not 0 <= rate <= MOST:
            raise UsageError(f"{where}: a rate of {rate:g} bytes per second", HINT)
