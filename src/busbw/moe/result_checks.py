"""Rejects results that views cannot show: files may come from newer versions, or were edited."""

import math

from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.core.errors import UsageError
from busbw.measure.formats.figure_checks import (
    HINT,
    SHORTEST_S,
    check_count,
    check_samples,
    check_times,
)
from busbw.moe.types import EXCHANGE, PHASES, MoeResult, MoeRow, MoeTime


def check(result: MoeResult) -> None:
    """Raise UsageError, with the position, for figures that no measurement gives."""
    check_count(result.moe.hidden, "elements of a token", "the result", least=1)
    if result.moe.datatype not in DTYPES:
        raise UsageError(f"moe.datatype is '{result.moe.datatype}'", HINT)
    for number, row in enumerate(result.rows, 1):
        where = f"row {number}"
        separated = [name for name in PHASES.get(row.direction, ()) if name in row.phases]
        if list(row.phases) != separated or EXCHANGE not in row.phases:
            raise UsageError(
                f"{where}: '{row.direction}' with the phases {', '.join(row.phases)}", HINT
            )
        for time in (row.whole, *row.phases.values()):
            _check_time(time, where)
        _check_numbers(row, where)


def _check_time(time: MoeTime, where: str) -> None:
    check_times([time.time_s], where, SHORTEST_S)
    check_times([time.low_s, time.high_s], where)
    check_samples(time.samples_s, time.visits, time.dropped, where)


def _check_numbers(row: MoeRow, where: str) -> None:
    for size_bytes in (row.wire_bytes, row.received_bytes, row.selections_bytes):
        check_count(size_bytes, "bytes", where)
    check_count(row.tokens, "tokens", where)
    check_count(row.wrong, "wrong elements", where)
    check_times([row.bound_s], where)
    if not 0 <= row.imbalance < math.inf:
        raise UsageError(f"{where}: an imbalance of {row.imbalance:g}", HINT)
