"""Rejects results that views cannot show: files may come from newer versions, or were edited."""

import math

from busbw.core.errors import UsageError
from busbw.measure.formats import reading
from busbw.moe.types import EXCHANGE, PHASES, MoeResult, MoeRow, MoeTime

SHORTEST_S, LONGEST_S = 1e-12, 1e12
MOST_BYTES = 1 << 60


def check(result: MoeResult) -> None:
    """Raise UsageError, with the position, for figures that no measurement gives."""
    for number, row in enumerate(result.rows, 1):
        where = f"row {number}"
        separated = [name for name in PHASES.get(row.direction, ()) if name in row.phases]
        if list(row.phases) != separated or EXCHANGE not in row.phases:
            raise UsageError(
                f"{where}: '{row.direction}' with the phases {', '.join(row.phases)}",
                reading.FORMATS,
            )
        for time in (row.whole, *row.phases.values()):
            _check_time(time, where)
        _check_numbers(row, where)


def _check_time(time: MoeTime, where: str) -> None:
    known = [value for value in (time.low_s, time.high_s) if value is not None]
    if not SHORTEST_S <= time.time_s <= LONGEST_S or not all(
        0 <= value <= LONGEST_S for value in known
    ):
        raise UsageError(f"{where}: a time of {time.time_s:g} seconds", reading.FORMATS)


def _check_numbers(row: MoeRow, where: str) -> None:
    for size_bytes in (row.wire_bytes, row.received_bytes, row.selections_bytes):
        if not 0 <= size_bytes <= MOST_BYTES:
            raise UsageError(f"{where}: {size_bytes} bytes", reading.FORMATS)
    if not 0 <= row.tokens <= MOST_BYTES or not 0 <= row.wrong <= MOST_BYTES:
        raise UsageError(
            f"{where}: {row.tokens} tokens, {row.wrong} wrong elements", reading.FORMATS
        )
    bound_s = row.bound_s or 0.0
    if not (math.isfinite(row.imbalance) and 0 <= bound_s <= LONGEST_S):
        raise UsageError(
            f"{where}: an imbalance of {row.imbalance:g}, a bound of {bound_s:g} seconds",
            reading.FORMATS,
        )
