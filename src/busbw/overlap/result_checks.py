"""Rejects results of a collective beside a load that views cannot show."""

from busbw.core.errors import UsageError
from busbw.measure.formats.figure_checks import (
    HINT,
    SHORTEST_S,
    check_collective,
    check_count,
    check_times,
)
from busbw.overlap.types import OverlapResult, OverlapSide


def check(result: OverlapResult) -> None:
    """Raise UsageError, with the position, for figures that no measurement gives."""
    check_collective(result.spec.collective)
    for number, row in enumerate(result.rows, 1):
        where = f"row {number}"
        check_count(row.size_bytes, "bytes", where, least=1)
        check_count(row.ctas, "CTAs", where)
        _check_side(row.collective, f"{where}, the collective")
        _check_side(row.load, f"{where}, the load")


def _check_side(side: OverlapSide, where: str) -> None:
    check_count(side.operations, "operations", where, least=1)
    check_count(side.uncovered, "uncovered samples", where)
    for name, samples_s in (("alone", side.alone_s), ("beside the other one", side.beside_s)):
        if not samples_s:
            raise UsageError(f"{where}: no times {name}", HINT)
        check_times(samples_s, where, SHORTEST_S)
