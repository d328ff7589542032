"""The times of a collective and a load, to compare two runs."""

from collections.abc import Iterator, Sequence
from statistics import median

from busbw.core.parts import PartRow, PartsResult, part, parts
from busbw.core.result import Cell
from busbw.overlap.types import OverlapResult


def compared(result: OverlapResult) -> PartsResult:
    """A part for each side alone and beside the other one, at each size and limit of CTAs."""
    what = f"{result.spec.collective} beside {result.load}"
    return parts(result, what, result.spec, _rows(result))


def _rows(result: OverlapResult) -> Iterator[PartRow]:
    wrong = int(result.is_wrong)
    for row in result.rows:
        ctas = f", {row.ctas} CTAs" if row.ctas else ""
        for names, side in (
            (("alone", "beside load"), row.collective),
            (("load alone", "load beside"), row.load),
        ):
            # a side that ran partly alone has no time beside the other one
            times_s = (side.alone_s, side.beside_s if side.is_covered else ())
            for name, samples_s in zip(names, times_s, strict=True):
                if samples_s:
                    cell = _cell(samples_s, side.operations, wrong)
                    yield part(f"{name}{ctas}", row.size_bytes, result.spec.datatype, cell)


def _cell(samples_s: Sequence[float], operations: int, wrong: int) -> Cell:
    """The time of an operation. Bandwidths are not compared."""
    each_s = [sample / operations for sample in samples_s]
    return Cell(median(each_s), 0.0, 0.0, wrong, samples_s=each_s, n=len(each_s), stopped="fixed")
