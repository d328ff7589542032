"""Rejects results of backends that views cannot show."""

from busbw.backends.types import EAGER, GRAPH, BackendsResult
from busbw.core.errors import UsageError
from busbw.measure.formats.figure_checks import (
    HINT,
    MOST,
    check_cell,
    check_collective,
    check_count,
)


def check(result: BackendsResult) -> None:
    """Raise UsageError, with the position, for figures that no measurement gives."""
    check_collective(result.spec.collective)
    check_count(result.blocks, "blocks", "the result")
    check_count(result.in_graph, "calls in a graph", "the result")
    for rail in result.rails:
        if rail.rate is not None and not 0 < rail.rate <= MOST:
            raise UsageError(f"rail {rail.name}: a rate of {rail.rate:g} bytes per second", HINT)
    for number, row in enumerate(result.rows, 1):
        check_count(row.size_bytes, "bytes", f"row {number}", least=1)
        for time in row.times:
            where = f"row {number}, of {row.size_bytes} bytes by {time.backend}"
            if time.mode not in (EAGER, GRAPH):
                raise UsageError(f"{where}: the mode '{time.mode}'", HINT)
            check_count(time.operations, "operations", where, least=1)
            if time.cell is not None:
                check_cell(time.cell, where)
    for choice in result.choices:
        check_count(choice.first_bytes, "bytes", "choices", least=1)
        check_count(choice.last_bytes, "bytes", "choices", least=1)
