"""The table for people: a line per size, printed as it is measured, and a footer.

The footer has the busbw of all sizes as bars, and the findings.

Time, algbw, busbw and % of ideal describe the out-of-place run, or the in-place run if that is the
only one; `in-place` is its busbw. A narrow width shows fewer columns: DROP_ORDER says which go
first. Without a width, all columns are shown.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from busbw.core.cells import Figure, figures, headline
from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.core.result import Result, ResultRow
from busbw.core.sizes import counted, format_size
from busbw.core.sweep import SweepSpec
from busbw.measure.formats.ideal_text import larger_text, share_of_ideal
from busbw.model.series import where_text
from busbw.ui.columns import Column, fitting, line, wrapped
from busbw.ui.number_formats import (
    bandwidth_text,
    busbw_text,
    finding_text,
    half_width_text,
    known_count,
    library,
    local_time,
    machine,
    micro_text,
    no_headline,
    nominal_text,
    op_column,
    percent,
    percent_text,
    problems,
    sparkline,
    text_or_unknown,
    time_text,
)

SPARK_WIDTH = 80
CONTINUED = "\n  "  # how a line goes on that does not fit
DROP_ORDER = (
    "timestamp",
    "count",
    "cputime",
    "launch",
    "skew",
    "algbw",
    "stop",
    "type",
    "n",
    "in-place",
    "ideal",
    "+-",
)


def _wrong(result: Result, figure: Figure) -> str:
    counts = [placement.cell.wrong for placement in figures(figure.row)]
    known_counts = [count for count in counts if count is not None]
    return str(sum(known_counts)) if known_counts else "N/A"


def _share(result: Result, figure: Figure) -> str:
    return percent_text(figure.cell.busbw, result.ideal.busbw if result.ideal else None)


def _in_place(result: Result, figure: Figure) -> str:
    return bandwidth_text(figure.row.in_place.busbw) if figure.row.in_place else "-"


def _ran(field: str) -> Callable[[Result, Figure], object]:
    """The column of a field of what NCCL ran; `-` where it is not known."""

    def value(result: Result, figure: Figure) -> object:
        return getattr(figure.ran, field, None) or "-"

    return value


def _repeats(result: Result) -> bool:
    return result.spec.sampling is not None and result.spec.sampling.repeats > 1


def _precise(result: Result) -> bool:
    return result.spec.sampling is not None


def _shows_op(result: Result) -> bool:
    collective = result.spec.row
    has_op = collective.reduces or collective.redop_column == "op"
    return has_op and result.spec.op.lower() != "sum"


def _types(result: Result) -> bool:
    """Whether rows may differ in their type; precise timing names a single type above the table."""
    return result.spec.datatype.lower() == "all"


# The value of each column takes the result and a Figure; other views choose from these by title.
COLUMNS: tuple[Column, ...] = (
    Column(title="repeat", value=lambda result, figure: figure.row.repeat, width=6, shown=_repeats),
    Column(title="size", value=lambda result, figure: format_size(figure.row.size_bytes), width=10),
    Column(
        title="count",
        value=lambda result, figure: text_or_unknown(known_count(figure.row), str),
        width=11,
        shown=lambda result: not _precise(result),
    ),
    Column(
        title="type",
        value=lambda result, figure: figure.row.dtype,
        width=8,
        shown=lambda result: not _precise(result) or _types(result),
    ),
    Column(
        title="op",
        value=lambda result, figure: op_column(result.spec.row, figure.row),
        width=6,
        shown=_shows_op,
    ),
    Column(
        title="root",
        value=lambda result, figure: figure.row.root,
        width=4,
        shown=lambda result: result.spec.row.rooted,
    ),
    Column(title="time", value=lambda result, figure: time_text(figure.time_s), width=8),
    Column(
        title="cputime",
        value=lambda result, figure: text_or_unknown(figure.cell.cpu_time_s, time_text),
        width=8,
        shown=lambda result: bool(result.spec.report_cputime),
    ),
    Column(
        title="+-",
        unit="%",
        value=lambda result, figure: half_width_text(figure),
        width=4,
        shown=_precise,
    ),
    Column(title="n", value=lambda result, figure: figure.n, width=4, shown=_precise),
    Column(
        title="stop",
        value=lambda result, figure: figure.cell.stopped or "-",
        width=8,
        shown=_precise,
    ),
    Column(
        title="skew",
        unit="us",
        value=lambda result, figure: text_or_unknown(figure.cell.skew_s, micro_text),
        width=6,
        shown=_precise,
    ),
    Column(
        title="launch",
        unit="us",
        value=lambda result, figure: text_or_unknown(figure.cell.launch_s, micro_text),
        width=6,
        shown=_precise,
    ),
    Column(
        title="algbw",
        unit="GB/s",
        value=lambda result, figure: bandwidth_text(figure.cell.algbw),
        width=7,
    ),
    Column(
        title="busbw",
        unit="GB/s",
        value=lambda result, figure: bandwidth_text(figure.cell.busbw),
        width=7,
    ),
    Column(title="ideal", unit="%", value=_share, width=5),
    Column(title="in-place", unit="GB/s", value=_in_place, width=8),
    Column(title="wrong", value=_wrong, width=5),
    Column(
        title="timestamp",
        value=lambda result, figure: local_time(figure.row.timestamp) or "-",
        width=19,
        shown=lambda result: bool(result.spec.report_timestamps),
    ),
)
# By request: what NCCL ran each size with.
RAN: tuple[Column, ...] = (
    Column(title="algo", value=_ran("algorithm"), width=10),
    Column(title="proto", value=_ran("form"), width=6),
    Column(title="channels", value=_ran("channels"), width=8),
)
FORM_WIDTH = 17  # of the longest name of a kernel over symmetric memory: RSxTmaLD_AGxTmaST
SYMMETRIC_REGISTER = 2
BY_TITLE = {column.title: column for column in COLUMNS}


def columns(result: Result, width: int | None = None, *, ran: bool = False) -> list[Column]:
    """The columns that fit in `width`, if given, with those of RAN by request.

    The choice depends only on the options, not on rows, because the header is printed before the
    first row.
    """
    shown = [column for column in COLUMNS if column.shown(result)]
    if ran:
        shown += _wide(RAN) if result.spec.local_register == SYMMETRIC_REGISTER else RAN
    order = [title for title in DROP_ORDER if title != "type" or not _types(result)]
    widths = [column.width for column in shown]
    return [shown[index] for index in fitting(shown, widths, width, order)]


def _wide(columns: Iterable[Column]) -> Iterator[Column]:
    """The columns with room for the names of kernels over symmetric memory."""
    for column in columns:
        yield replace(column, width=FORM_WIDTH) if column.title == "proto" else column


def sweep_text(result: Result) -> str:
    """`8 B to 8 GiB, factor 2, 20 iterations`.

    It also has the smallest size in whole elements of every rank, where that is less.
    """
    spec, sampling = result.spec, result.spec.sampling
    sizes = _sizes_text(result) + _counts(result)
    if sampling is None:
        return f"{sizes}, {counted(spec.iters, 'iteration')}" if spec.iters else sizes
    confidence = percent(sampling.confidence)
    if sampling.fixed:
        iterations = f"{counted(sampling.fixed, 'iteration')}, {confidence} intervals"
    else:
        precision = percent(sampling.precision)
        iterations = f"medians to {precision} with {confidence} confidence"
    return f"{sizes}, {spec.datatype}, {iterations}"


def _sizes_text(result: Result) -> str:
    spec, ranks = result.spec, result.world.ranks
    largest = result.reduced_max_bytes or spec.max_bytes
    text = format_size(largest)
    if spec.min_bytes < largest:
        text = f"{format_size(spec.min_bytes)} to {text}{_step(spec)}"
    dtype = DTYPES.get(spec.datatype)
    if dtype and ranks and not spec.row.uneven:
        buffers = spec.row.buffers(spec.min_bytes // dtype.itemsize, ranks, dtype.itemsize)
        smallest = max(buffers.send, buffers.recv) * dtype.itemsize
        if smallest < spec.min_bytes:
            text += f", the smallest rounded down to {format_size(smallest)}"
    return text


def _step(spec: SweepSpec) -> str:
    """`, factor 2`; '' for a log that does not say it."""
    if spec.step_factor > 1:
        return f", factor {spec.step_factor}"
    return f", step {format_size(spec.step_bytes)}" if spec.step_bytes else ""


def _counts(result: Result) -> str:
    """`, counts zipf:1.05,rows=10000000,seed=1`; empty for the default of nccl-tests."""
    source = result.traffic.source if result.traffic else result.spec.counts
    file = f"{result.spec.counts}, " if source.startswith("matrix") and result.spec.counts else ""
    return f", counts {file}{source}" if source else ""


def header(result: Result, width: int | None = None, *, ran: bool = False) -> str:
    """Collective, machine, sweep, bound and titles."""
    collective = result.spec.row
    facts = [collective.title, machine(result), library(result)]
    factor = f"{collective.formula} x " if collective.formula != "1" else ""
    sweep, formula = f"{sweep_text(result)};", f"busbw = {factor}algbw"
    # The formula stays in one piece.
    fits = width is None or len(f"{sweep} {formula}") <= width
    text = ", ".join(fact for fact in facts if fact) + "\n"
    text += f"{sweep}{' ' if fits else CONTINUED}{formula}\n"
    if result.ideal:
        ideal = nominal_text(result.ideal.busbw)
        binding = f", bound by {result.ideal.link}" if result.ideal.link else ""
        text += f"ideal busbw {ideal} GB/s ({result.ideal.algorithm}{binding})\n"
    if result.reduced_max_bytes is not None:
        requested = format_size(result.spec.max_bytes)
        largest = format_size(result.reduced_max_bytes)
        text += f"{requested} does not fit in memory: the largest size is {largest}\n"
    shown = columns(result, width, ran=ran)
    titles = line(shown, [column.title for column in shown])
    units = line(shown, [column.unit for column in shown])
    return f"{wrapped(text, width)}\n{titles}{units}"


def row(result: Result, row: ResultRow, width: int | None = None, *, ran: bool = False) -> str:
    """The line of a row."""
    shown, figure = columns(result, width, ran=ran), figures(row)[0]
    return line(shown, [column.text(result, figure) for column in shown])


def footer(result: Result, width: int | None = None, *, ran: bool = False) -> str:
    """Bars, peak and mean, what went wrong, how ranks are connected, and the findings."""
    text = f"\n{_bars(result, width)}" if result.rows else "\nno size was measured\n"
    text += "".join(f"{problem}\n" for problem in problems(result))
    links = _links_text(result, width)
    text += f"\n{links}" if links else ""
    connections = _connections_text(result, width) if ran else ""
    text += f"\n{connections}" if connections else ""
    text += "\n" + "".join(map(finding_text, result.findings)) if result.findings else ""
    return wrapped(text, width)


def _bars(result: Result, width: int | None) -> str:
    """The busbw of each row as bars, then the peak and the mean."""
    main = [figures(row)[0] for row in result.rows]
    if _repeats(result):
        main.sort(key=lambda figure: figure.row.size_bytes)  # they were measured in random order
    bars = sparkline([figure.cell.busbw for figure in main])
    bars_width = min(SPARK_WIDTH, width - 7) if width else SPARK_WIDTH
    text = ""
    for start in range(0, len(bars), bars_width):
        label = "" if start else "busbw"
        text += f"{label:<7}{bars[start : start + bars_width]}\n"
    text += f"peak   {peak_text(result)}\n"
    mean = bandwidth_text(result.average_busbw())
    return f"{text}mean   {mean} GB/s over all sizes and placements\n"


def peak_text(result: Result) -> str:
    """`70.76 GB/s +-0.4 % at 1 MiB in place, 15.7 % of ideal`, and what is larger, less certainly.

    If nothing was measured, it says so.
    """
    peak = headline(result)
    if peak is None:
        return no_headline(result)
    ideal = f", {share_of_ideal(peak, result.ideal)}" if result.ideal else ""
    return f"{busbw_text(peak)} at {where_text(peak)}{ideal}{larger_text(result)}"


def _links_text(result: Result, width: int | None) -> str:
    if not any(change.links for row in result.rows for change in row.machine or ()):
        return ""
    from busbw.measure.formats import link_table

    return link_table.text(result, width)


def _connections_text(result: Result, width: int | None) -> str:
    from busbw.measure.formats import ran_text

    return ran_text.text(result, width)
