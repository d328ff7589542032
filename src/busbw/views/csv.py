"""Two CSVs: the columns of the PyTorch benchmark of old, in place only, and every figure there is, a line per row and placement."""

import csv
import io
from collections.abc import Iterable

from busbw.core.cells import Figure, figures
from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.core.result import Result, Row
from busbw.stats.summary import summary

TORCH_HEADER = (
    "size(B), count(elements), type, redop, in-place time(us), in-place algbw(GB/s), in-place busbw(GB/s), "
    "in-place ideal busbw(GB/s), in-place busbw efficiency(%)"
)
COLUMNS = (
    "collective", "placement", "ranks", "size_bytes", "count", "type", "op", "root", "iterations", "time_us", "cpu_time_us",
    "algbw_gb_s", "busbw_gb_s", "ideal_busbw_gb_s", "ideal_percent", "wrong_elements", "samples", "skipped_samples", "min_us", "max_us",
    "mean_us", "p50_us", "p95_us", "p99_us", "stdev_us", "cv_percent", "timestamp", "engine", "nccl_version", "program",
    "low_us", "high_us", "op_us", "launch_us", "stopped", "dropped_samples", "repeat",
)  # fmt: skip


def torch_header(result: Result) -> str:
    """The line of titles, the same for every result."""
    return TORCH_HEADER + "\n"


def torch_row(result: Result, row: Row) -> str:
    """The in-place figures of one row as Python prints floats; `N/A` where it was not run in place, or no bound is known.

    The count is that of the call, as in nccl-tests; the operator asked for is printed even where the collective does not reduce.
    """
    dtype = DTYPES.get(row.dtype)
    op = row.op or (result.spec.op if result.spec.op != "all" else "sum")
    ideal = result.endpoint_ideal.busbw if result.endpoint_ideal else None
    cell = row.in_place
    figures: list[float | None] = [None] * 3 if cell is None else [cell.time_s * 1e6, cell.algbw / 1e9, cell.busbw / 1e9]
    bound: list[float | None] = [None, None]
    if ideal:
        bound = [ideal / 1e9, None if cell is None else cell.busbw / ideal * 100]
    words = [str(row.size_bytes), str(row.count), dtype.torch if dtype else row.dtype, op]
    return ", ".join(words + ["N/A" if value is None else repr(value) for value in figures + bound]) + "\n"


def torch_footer(result: Result) -> str:
    """Nothing: the format has no end."""
    return ""


def _record(values: Iterable[object]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow("" if value is None else value for value in values)
    return out.getvalue()


def header(result: Result) -> str:
    """The line of column names; they are stable, new ones are added at the end."""
    return _record(COLUMNS)


def row(result: Result, row: Row) -> str:
    """A line for each placement that was run; fields that are not known are empty."""
    return "".join(_record(_fields(result, figure)) for figure in figures(row))


def _fields(result: Result, figure: Figure) -> list[object]:
    row, cell = figure.row, figure.cell
    library, sampling, ideal = result.library, result.spec.sampling, result.ideal.busbw if result.ideal else None
    return [
        result.spec.collective,
        figure.placement.replace(" ", "_"),
        result.world.ranks or None,
        row.size_bytes,
        row.count,
        row.dtype,
        row.op,
        row.root,
        figure.n + cell.dropped,
        figure.time_s * 1e6,
        None if cell.cpu_time_s is None else cell.cpu_time_s * 1e6,
        cell.algbw / 1e9,
        cell.busbw / 1e9,
        None if ideal is None else ideal / 1e9,
        None if not ideal else cell.busbw / ideal * 100,
        cell.wrong,
        *_spread(figure),
        row.timestamp,
        library.engine,
        library.nccl or None,
        result.program,
        *(None if seconds is None else seconds * 1e6 for seconds in (cell.low_s, cell.high_s, cell.op_s, cell.launch_s)),
        cell.stopped or None,
        cell.dropped if cell.stopped else None,
        row.repeat if sampling and sampling.repeats > 1 else None,
    ]


def _spread(figure: Figure) -> list[object]:
    """Of the stored samples; but a median that is the cell's time, and a percentile with an interval of its own, are those."""
    cell = figure.cell
    if not cell.kept_s:
        return [None] * 10
    spread = summary(cell.kept_s)
    count, p50_s = (figure.n, figure.time_s) if cell.stopped else (spread.count, spread.p50_s)
    times = (spread.min_s, spread.max_s, spread.mean_s, p50_s, spread.p95_s, cell.p99_s or spread.p99_s, spread.stdev_s)
    return [count, cell.skipped, *(time * 1e6 for time in times), spread.cv * 100]


def footer(result: Result) -> str:
    """Nothing: a CSV has no end."""
    return ""


def render(result: Result) -> str:
    """The whole CSV."""
    return header(result) + "".join(row(result, line) for line in result.rows)
