"""The times of a result that is no sweep as rows and cells, to compare them as those of a sweep."""

from collections.abc import Iterable

from busbw.core.result import Cell, Outcome, Result, ResultRow
from busbw.core.sweep import SweepSpec


class PartRow(ResultRow, kw_only=True):
    """One time. `what` was timed stands where a sweep has the placement: `nccl`, `dispatch`."""

    what: str


class PartsResult(Result, kw_only=True):
    """All times. `what` the result is says with which others it can be compared."""

    what: str


def parts(outcome: Outcome, what: str, spec: SweepSpec, rows: Iterable[PartRow]) -> PartsResult:
    """The times of an outcome."""
    shared = {name: getattr(outcome, name) for name in Outcome.__struct_fields__}
    return PartsResult(what=what, spec=spec, rows=list(rows), **shared)


def part(what: str, size_bytes: int, dtype: str, cell: Cell) -> PartRow:
    """One time at a size."""
    return PartRow(
        what=what,
        size_bytes=size_bytes,
        count=0,
        dtype=dtype,
        op="",
        root=-1,
        out_of_place=cell,
        in_place=None,
        iters=0,
    )
