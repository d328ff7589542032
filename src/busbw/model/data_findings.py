"""Findings about the data of a run rather than its speed: wrong elements, rows that moved nothing, a sweep cut short. Pure."""

from busbw.core.collectives import collective
from busbw.core.dtypes import dtype
from busbw.core.finding import Finding, Verdict
from busbw.core.layouts import whole
from busbw.core.result import Result
from busbw.core.sizes import format_size
from busbw.model.figures import IN_PLACE, OUT_OF_PLACE, Figure

GRAIN_BYTES = 16  # nccl-tests cuts each rank's part to a multiple of this


def data_findings(result: Result) -> list[Finding]:
    """Whether the data was right, and which sizes could not be measured."""
    return [_data(result), *_empty_rows(result), *_reduced(result)] if result.rows else []


def _cells(result: Result) -> list[Figure]:
    pairs = ((row, cell, where) for row in result.rows for cell, where in ((row.out_of_place, OUT_OF_PLACE), (row.in_place, IN_PLACE)))
    return [Figure(row, cell, where) for row, cell, where in pairs if cell is not None]


def _data(result: Result) -> Finding:
    checked = [figure for figure in _cells(result) if figure.cell.wrong is not None]
    wrong = [figure for figure in checked if figure.cell.wrong]
    if wrong:
        return _wrong(wrong, len(checked))
    if result.wrong():
        message = f"wrong data: {result.out_of_bounds} checks failed"
        return Finding("data", Verdict.FAIL, message, fix="do not trust this machine until it is found")
    if not checked:
        return Finding("data", Verdict.SKIP, "the data was not checked", fix="check it with -c 1")
    return Finding("data", Verdict.PASS, f"no wrong element in {len(checked)} checks")


def _wrong(wrong: list[Figure], checks: int) -> Finding:
    first = wrong[0]
    row = first.row
    what = " ".join(filter(None, (format_size(row.size_bytes), row.dtype, row.op, first.placement)))
    elements = f"{first.cell.wrong} element{'s' if first.cell.wrong != 1 else ''}"
    message = f"wrong data: {elements} at {what}"
    if first.cell.mismatches:
        seen = min(first.cell.mismatches, key=lambda mismatch: (mismatch.rank, mismatch.offset))
        message += f", first on rank {seen.rank} at element {seen.offset}: expected {seen.expected}, got {seen.got}"
    ranks = sorted({mismatch.rank for figure in wrong for mismatch in figure.cell.mismatches})
    evidence = f"{len(wrong)} of {checks} checks failed" + (f", on ranks {', '.join(map(str, ranks))}" if ranks else "")
    return Finding("data", Verdict.FAIL, message, evidence, "run again with fewer GPUs or hosts until the faulty one is found")


def _empty_rows(result: Result) -> list[Finding]:
    empty = [row for row in result.rows if row.size_bytes == 0]
    ranks = result.world.ranks if result.world.devices else 0
    if not empty or ranks < 1:
        return []
    rows = f"{len(empty)} row{'s' if len(empty) > 1 else ''}"
    if collective(result.spec.collective).buffers is whole:  # every rank's part is the whole buffer
        least = max(dtype(row.dtype).itemsize for row in empty)
        why = f"an element takes {format_size(least)}"
    else:
        least = GRAIN_BYTES * ranks
        why = f"{ranks} ranks need {format_size(least)} to get {GRAIN_BYTES} B each"
    message = f"{rows} moved 0 bytes: {why}"
    fix = f"start at -b {least}: empty rows count in the average"
    return [Finding("empty_rows", Verdict.WARN, message, fix=fix)]


def _reduced(result: Result) -> list[Finding]:
    if result.reduced_max_bytes is None:
        return []
    asked, got = format_size(result.spec.max_bytes), format_size(result.reduced_max_bytes)
    message = f"memory cut the sweep short: {asked} was asked, {got} fits"
    return [Finding("memory", Verdict.SKIP, message, fix=f"-e {result.reduced_max_bytes} or less")]
