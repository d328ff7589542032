"""Findings on the data of a run: wrong elements, rows that moved no bytes, a shortened sweep."""

from busbw.core.cells import Figure, all_figures, unchecked_sizes
from busbw.core.dtypes import dtype
from busbw.core.finding import Verdict
from busbw.core.layouts import GRAIN_BYTES, whole
from busbw.core.sizes import counted, format_size
from busbw.model.rule import Conclusion, FindingRule, Run


def _check_data(run: Run) -> Conclusion | None:
    result = run.result
    if not result.rows:
        return None
    checked = [figure for figure in all_figures(result) if figure.cell.wrong is not None]
    wrong = [figure for figure in checked if figure.cell.wrong]
    if wrong:
        return _conclude_wrong(wrong, len(checked))
    if result.wrong():
        message = f"wrong data: {counted(result.out_of_bounds, 'check')} failed"
        fix = "do not rely on this machine until the cause is found"
        return Conclusion(Verdict.FAIL, message, fix=fix)
    if not checked:
        return Conclusion(Verdict.SKIP, "the data was not checked", fix="check the data with -c 1")
    message = f"no wrong element in {counted(len(checked), 'check')}"
    unchecked = unchecked_sizes(result)
    if not unchecked:
        return Conclusion(Verdict.PASS, message)
    ends = format_size(unchecked[0])
    if len(unchecked) > 1:
        ends = f"from {ends} to {format_size(unchecked[-1])}"
    message += f"; not checked: {counted(len(unchecked), 'size')}, {ends}"
    fix = ""
    if result.library.engine == "sim":
        fix = f"check them with --sim data_bytes={unchecked[-1]}, which takes long for large sizes"
    return Conclusion(Verdict.SKIP, message, fix=fix)


def _conclude_wrong(wrong: list[Figure], checks: int) -> Conclusion:
    first = wrong[0]
    row = first.row
    parts = (format_size(row.size_bytes), row.dtype, row.op, first.placement)
    where = " ".join(filter(None, parts))
    message = f"wrong data: {counted(first.cell.wrong or 0, 'element')} at {where}"
    if first.cell.mismatches:
        element = min(first.cell.mismatches, key=lambda mismatch: (mismatch.rank, mismatch.offset))
        message += (
            f", first on rank {element.rank} at element {element.offset}: expected"
            f" {element.expected}, got {element.got}"
        )
    evidence = f"{len(wrong)} of {checks} checks failed"
    ranks = sorted({mismatch.rank for figure in wrong for mismatch in figure.cell.mismatches})
    if ranks:
        evidence += f", on rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
    fix = "run again with fewer GPUs or hosts until the faulty one is found"
    return Conclusion(Verdict.FAIL, message, evidence, fix)


def _find_empty_rows(run: Run) -> Conclusion | None:
    result = run.result
    empty = [row for row in result.rows if row.size_bytes == 0]
    ranks = result.world.ranks if result.world.devices else 0
    if not empty or ranks < 1:
        return None
    if result.spec.row.buffers is whole:  # every rank's part is the whole buffer
        least = max(dtype(row.dtype).itemsize for row in empty)
        why = f"an element has {format_size(least)}"
    else:
        least = GRAIN_BYTES * ranks
        why = f"{ranks} ranks need {format_size(least)}, {GRAIN_BYTES} B each"
    fix = f"start at -b {least}; rows of 0 bytes count in the average"
    return Conclusion(Verdict.WARN, f"{counted(len(empty), 'row')} moved 0 bytes: {why}", fix=fix)


def _find_reduced_sweep(run: Run) -> Conclusion | None:
    result = run.result
    if not result.rows or result.reduced_max_bytes is None:
        return None
    requested = format_size(result.spec.max_bytes)
    reduced = format_size(result.reduced_max_bytes)
    message = f"memory limits the sweep to {reduced}; requested was {requested}"
    return Conclusion(Verdict.SKIP, message, fix=f"-e {result.reduced_max_bytes} or less")


RULES = (
    FindingRule(
        "data",
        (Verdict.PASS, Verdict.FAIL, Verdict.SKIP),
        "whether any element was wrong; for the first one rank, offset, expected and actual value;"
        " which sizes were not checked",
        _check_data,
    ),
    FindingRule(
        "empty_rows",
        (Verdict.WARN,),
        "sizes that are smaller than an element, or than 16 bytes per rank, moved no data but count"
        " in the average",
        _find_empty_rows,
    ),
    FindingRule(
        "memory",
        (Verdict.SKIP,),
        "memory is too small for the largest sizes of the sweep",
        _find_reduced_sweep,
    ),
)
