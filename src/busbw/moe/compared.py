"""The times of dispatch and combine, to compare two runs."""

from collections.abc import Iterator

from busbw.core.dtypes import dtype
from busbw.core.parts import PartRow, PartsResult, part, parts
from busbw.core.result import Cell
from busbw.core.sizes import counted, format_size
from busbw.core.sweep import Sampling, SweepSpec
from busbw.moe.text import shape
from busbw.moe.types import ALLTOALLV, EXCHANGE, MoeResult, MoeTime


def compared(result: MoeResult) -> PartsResult:
    """Each direction and its exchange alone. Their size is that of the tokens of a rank."""
    token_bytes = result.moe.hidden * dtype(result.moe.datatype).itemsize
    what = (
        f"dispatch and combine of {counted(result.moe.experts, 'expert')},"
        f" {shape(result.moe)}; size: the tokens of a rank,"
        f" {format_size(token_bytes)} each"
    )
    spec = SweepSpec(
        collective="alltoallv", datatype=result.moe.datatype, sampling=Sampling(precision=0.0)
    )
    return parts(result, what, spec, _rows(result, token_bytes))


def _rows(result: MoeResult, token_bytes: int) -> Iterator[PartRow]:
    for row in result.rows:
        by = "" if row.backend == ALLTOALLV else f" by {row.backend}"
        whole = f"{row.direction}{by}"
        exchange = f"{whole}, exchange alone"
        for what, time in ((whole, row.whole), (exchange, row.phases[EXCHANGE])):
            cell = _cell(time, row.wrong)
            yield part(what, row.tokens * token_bytes, result.moe.datatype, cell)


def _cell(time: MoeTime, wrong: int) -> Cell:
    """A time as a cell. Bandwidths are not compared."""
    return Cell(
        time.time_s,
        0.0,
        0.0,
        wrong,
        samples_s=time.samples_s,
        low_s=time.low_s,
        high_s=time.high_s,
        stopped=time.stopped,
        dropped=time.dropped,
        n=time.n,
        visits=time.visits,
    )
