"""Two CSVs.

One has every value, with a line per row and placement. The other has the columns of the PyTorch
benchmark, in place only.
"""

import csv
import io
from collections.abc import Callable, Iterable

from busbw.core.cells import Figure, figures
from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.core.result import Result, ResultRow
from busbw.stats.intervals import summary
from busbw.ui.number_formats import known_count

TORCH_HEADER = (
    "size(B), count(elements), type, redop, in-place time(us), in-place algbw(GB/s), in-place"
    " busbw(GB/s), in-place ideal busbw(GB/s), in-place busbw efficiency(%)"
)
Value = Callable[[Result, Figure], object]


def _micro(field: str) -> Value:
    """The field of a cell in microseconds; None where it is not known."""

    def value(result: Result, figure: Figure) -> float | None:
        seconds: float | None = getattr(figure.cell, field)
        return None if seconds is None else seconds * 1e6

    return value


def _ideal_percent(result: Result, figure: Figure) -> float | None:
    if not result.ideal or not result.ideal.busbw:
        return None
    return figure.cell.busbw / result.ideal.busbw * 100


def _counts(result: Result, figure: Figure) -> str | None:
    source = result.traffic.source if result.traffic else result.spec.counts
    return source or None


def _spread(field: str, factor: float = 1e6) -> Value:
    """A field of the summary of a cell's stored samples, times `factor`; None without samples.

    The cell's own median and 99th percentile take precedence where it has them.
    """

    def value(result: Result, figure: Figure) -> float | None:
        cell = figure.cell
        if not cell.kept_s:
            return None
        if field == "p50_s" and cell.stopped and figure.time_s:
            return factor * figure.time_s
        if field == "p99_s" and cell.p99_s:
            return factor * cell.p99_s
        computed: float = getattr(summary(cell.kept_s), field)
        return factor * computed

    return value


def _samples(result: Result, figure: Figure) -> int | None:
    kept = figure.cell.kept_s
    if not kept:
        return None
    return figure.n if figure.cell.stopped else len(kept)


def _repeat(result: Result, figure: Figure) -> int | None:
    sampling = result.spec.sampling
    return figure.row.repeat if sampling and sampling.repeats > 1 else None


FIELDS: tuple[tuple[str, Value], ...] = (
    ("collective", lambda result, figure: result.spec.collective),
    ("placement", lambda result, figure: figure.placement.replace(" ", "_")),
    ("ranks", lambda result, figure: result.world.ranks or None),
    ("size_bytes", lambda result, figure: figure.row.size_bytes),
    ("count", lambda result, figure: known_count(figure.row)),
    ("type", lambda result, figure: figure.row.dtype),
    ("op", lambda result, figure: figure.row.op),
    ("root", lambda result, figure: figure.row.root),
    ("iterations", lambda result, figure: figure.n + figure.cell.dropped),
    ("time_us", _micro("time_s")),
    ("cpu_time_us", _micro("cpu_time_s")),
    ("algbw_gb_s", lambda result, figure: figure.cell.algbw / 1e9),
    ("busbw_gb_s", lambda result, figure: figure.cell.busbw / 1e9),
    ("ideal_busbw_gb_s", lambda result, figure: result.ideal.busbw / 1e9 if result.ideal else None),
    ("ideal_percent", _ideal_percent),
    ("wrong_elements", lambda result, figure: figure.cell.wrong),
    ("samples", _samples),
    ("skipped_samples", lambda result, figure: figure.cell.skipped if figure.cell.kept_s else None),
    *(
        (f"{name}_us", _spread(f"{name}_s"))
        for name in ("min", "max", "mean", "p50", "p95", "p99", "stdev")
    ),
    ("cv_percent", _spread("cv", 100)),
    ("timestamp", lambda result, figure: figure.row.timestamp),
    ("engine", lambda result, figure: result.library.engine),
    ("nccl_version", lambda result, figure: result.library.nccl or None),
    ("program", lambda result, figure: result.program),
    *((f"{name}_us", _micro(f"{name}_s")) for name in ("low", "high", "op", "launch")),
    ("stopped", lambda result, figure: figure.cell.stopped or None),
    (
        "dropped_samples",
        lambda result, figure: figure.cell.dropped if figure.cell.stopped else None,
    ),
    ("repeat", _repeat),
    ("counts", _counts),
    ("skew_us", _micro("skew_s")),
    *((f"{name}_us", _micro(f"{name}_s")) for name in ("p99_low", "p99_high")),
)  # new fields are added at the end


def torch_header(result: Result) -> str:
    """The line of titles, the same for every result."""
    return TORCH_HEADER + "\n"


def torch_row(result: Result, row: ResultRow) -> str:
    """The in-place values of one row as Python prints floats.

    A value is `N/A` where the row was not run in place, or no bound is known. The count is that of
    the call, as in nccl-tests; the operator asked for is printed even where the collective does not
    reduce.
    """
    dtype = DTYPES.get(row.dtype)
    op = row.op or (result.spec.op if result.spec.op != "all" else "sum")
    ideal = result.endpoint_ideal.busbw if result.endpoint_ideal else None
    cell = row.in_place
    values: list[float | None] = [None] * 5
    if cell is not None:
        values[:3] = [cell.time_s * 1e6, cell.algbw / 1e9, cell.busbw / 1e9]
    if ideal:
        values[3] = ideal / 1e9
    if ideal and cell is not None:
        values[4] = cell.busbw / ideal * 100
    texts = [str(row.size_bytes), str(row.count), dtype.torch if dtype else row.dtype, op]
    return ", ".join(texts + ["N/A" if value is None else repr(value) for value in values]) + "\n"


def _record(values: Iterable[object]) -> str:
    out = io.StringIO()
    fields = ["" if value is None else value for value in values]
    csv.writer(out, lineterminator="\n").writerow(fields)
    return out.getvalue()


def header(result: Result) -> str:
    """The line of column names."""
    return _record(name for name, _ in FIELDS)


def row(result: Result, row: ResultRow) -> str:
    """A line for each placement that was run; fields that are not known are empty."""
    lines = ""
    for figure in figures(row):
        lines += _record(value(result, figure) for _, value in FIELDS)
    return lines
