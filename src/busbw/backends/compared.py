"""The times of backends, to compare two runs."""

from collections.abc import Iterator

from busbw.backends.types import GRAPH, BackendsResult
from busbw.core.parts import PartRow, PartsResult, part, parts


def compared(result: BackendsResult) -> PartsResult:
    """A part for each backend and mode at each size."""
    what = f"backends of {result.spec.collective}"
    if result.blocks:
        what += f" with {result.blocks} blocks"
    if result.copies:
        what += " with copies"
    return parts(result, what, result.spec, _rows(result))


def _rows(result: BackendsResult) -> Iterator[PartRow]:
    for row in result.rows:
        for time in row.times:
            if time.cell is not None:
                of_graph = f" in a graph of {result.in_graph}" if time.mode == GRAPH else ""
                what = f"{time.backend}{of_graph}"
                yield part(what, row.size_bytes, result.spec.datatype, time.cell)
