"""Findings about the data of a run rather than its speed: wrong elements, rows that moved nothing, a sweep cut short. Pure."""

from busbw.core.cells import Figure, every
from busbw.core.collectives import collective
from busbw.core.dtypes import dtype
from busbw.core.finding import Verdict
from busbw.core.layouts import whole
from busbw.core.sizes import format_size
from busbw.model.rule import Conclusion, Rule, Run

GRAIN_BYTES = 16  # nccl-tests cuts each rank's part to a multiple of this


def _data(run: Run) -> Conclusion | None:
    """Whether the data was right."""
    result = run.result
    if not result.rows:
        return None
    checked = [figure for figure in every(result) if figure.cell.wrong is not None]
    wrong = [figure for figure in checked if figure.cell.wrong]
    if wrong:
        return _wrong(wrong, len(checked))
    if result.wrong():
        message = f"wrong data: {result.out_of_bounds} checks failed"
        return Conclusion(Verdict.FAIL, message, fix="do not trust this machine until it is found")
    if not checked:
        return Conclusion(Verdict.SKIP, "the data was not checked", fix="check it with -c 1")
    return Conclusion(Verdict.PASS, f"no wrong element in {len(checked)} checks")


def _wrong(wrong: list[Figure], checks: int) -> Conclusion:
    first = wrong[0]
    row = first.row
    what = " ".join(filter(None, (format_size(row.size_bytes), row.dtype, row.op, first.placement)))
    elements = f"{first.cell.wrong} element{'s' if first.cell.wrong != 1 else ''}"
    message = f"wrong data: {elements} at {what}"
    if first.cell.mismatches:
        seen = min(first.cell.mismatches, key=lambda mismatch: (mismatch.rank, mismatch.offset))
        message += f", first on rank {seen.rank} at element {seen.offset}: expected {seen.expected}, got {seen.got}"
    ranks = sorted({mismatch.rank for figure in wrong for mismatch in figure.cell.mismatches})
    evidence = f"{len(wrong)} of {checks} checks failed" + (
        f", on rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}" if ranks else ""
    )
    return Conclusion(Verdict.FAIL, message, evidence, "run again with fewer GPUs or hosts until the faulty one is found")


def _empty_rows(run: Run) -> Conclusion | None:
    result = run.result
    empty = [row for row in result.rows if row.size_bytes == 0]
    ranks = result.world.ranks if result.world.devices else 0
    if not empty or ranks < 1:
        return None
    rows = f"{len(empty)} row{'s' if len(empty) > 1 else ''}"
    if collective(result.spec.collective).buffers is whole:  # every rank's part is the whole buffer
        least = max(dtype(row.dtype).itemsize for row in empty)
        why = f"an element takes {format_size(least)}"
    else:
        least = GRAIN_BYTES * ranks
        why = f"{ranks} ranks need {format_size(least)} to get {GRAIN_BYTES} B each"
    message = f"{rows} moved 0 bytes: {why}"
    fix = f"start at -b {least}: empty rows count in the average"
    return Conclusion(Verdict.WARN, message, fix=fix)


def _reduced(run: Run) -> Conclusion | None:
    result = run.result
    if not result.rows or result.reduced_max_bytes is None:
        return None
    asked, got = format_size(result.spec.max_bytes), format_size(result.reduced_max_bytes)
    message = f"memory cut the sweep short: {asked} was asked, {got} fits"
    return Conclusion(Verdict.SKIP, message, fix=f"-e {result.reduced_max_bytes} or less")


RULES = (
    Rule("data", (Verdict.PASS, Verdict.FAIL, Verdict.SKIP),
         "whether any element was wrong; the first: rank, offset, expected and actual value", _data),
    Rule("empty_rows", (Verdict.WARN,),
         "sizes too small for an element, or to give every rank 16 bytes, moved nothing, yet count in the mean", _empty_rows),
    Rule("memory", (Verdict.SKIP,), "memory was too small for the largest sizes of the sweep", _reduced),
)  # fmt: skip
