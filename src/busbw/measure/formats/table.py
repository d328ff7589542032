"""The table people read: one line per size, printed as it is measured; then the busbw of all sizes
as bars, and the findings.

Time, algbw, busbw and % of ideal describe the out-of-place run, or the in-place run if that is the
only one; `in-place` is its busbw. A narrow terminal shows fewer columns: DROP_ORDER says which go
first. Without a width (output to a pipe), all columns are shown.
"""

from busbw.core.cells import IN_PLACE, Figure, figures, headline
from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.core.result import Result, Row
from busbw.core.sizes import format_size
from busbw.core.sweep import SweepSpec
from busbw.measure.formats import link_table
from busbw.ui.number_formats import (
    Column,
    bandwidth_text,
    busbw_text,
    finding_text,
    fitting,
    half_width_text,
    known,
    known_count,
    library,
    line,
    local_time,
    machine,
    micro_text,
    no_headline,
    op_column,
    percent,
    percent_text,
    problems,
    sparkline,
    time_text,
    wrapped,
)

SPARK_WIDTH = 80
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


def _interval(result: Result, figure: Figure) -> str:
    return half_width_text(figure)


def _wrong(result: Result, figure: Figure) -> str:
    counts = [one.cell.wrong for one in figures(figure.row) if one.cell.wrong is not None]
    return str(sum(counts)) if counts else "N/A"


def _share(result: Result, figure: Figure) -> str:
    return percent_text(figure.cell.busbw, result.ideal.busbw if result.ideal else None)


def _in_place(result: Result, figure: Figure) -> str:
    return bandwidth_text(figure.row.in_place.busbw) if figure.row.in_place else "-"


def _repeats(result: Result) -> bool:
    return result.spec.sampling is not None and result.spec.sampling.repeats > 1


def _stamped(result: Result) -> bool:
    return bool(result.spec.report_timestamps)


def _precise(result: Result) -> bool:
    return result.spec.sampling is not None


def _shows_op(result: Result) -> bool:
    collective = result.spec.row
    return (
        collective.reduces or collective.redop_column == "op"
    ) and result.spec.op.lower() != "sum"


def _types(result: Result) -> bool:
    """Whether rows may differ in their type. Precise timing names a single type above the table."""
    return result.spec.datatype.lower() == "all"


# The value of each column takes the result and a Figure; other views choose from these by title.
COLUMNS: tuple[Column, ...] = (
    Column(title="repeat", value=lambda result, figure: figure.row.repeat, width=6, shown=_repeats),
    Column(title="size", value=lambda result, figure: format_size(figure.row.size_bytes), width=10),
    Column(
        title="count",
        value=lambda result, figure: known(known_count(figure.row), str),
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
        value=lambda result, figure: known(figure.cell.cpu_time_s, time_text),
        width=8,
        shown=lambda result: bool(result.spec.report_cputime),
    ),
    Column(title="+-", unit="%", value=_interval, width=4, shown=_precise),
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
        value=lambda result, figure: known(figure.cell.skew_s, micro_text),
        width=6,
        shown=_precise,
    ),
    Column(
        title="launch",
        unit="us",
        value=lambda result, figure: known(figure.cell.launch_s, micro_text),
        width=6,
        shown=_precise,
    ),
    Column(
        title="algbw",
        unit="GB/s",
        value=lambda result, figure: bandwidth_text(figure.cell.algbw),
        width=6,
    ),
    Column(
        title="busbw",
        unit="GB/s",
        value=lambda result, figure: bandwidth_text(figure.cell.busbw),
        width=6,
    ),
    Column(title="ideal", unit="%", value=_share, width=5),
    Column(title="in-place", unit="GB/s", value=_in_place, width=8),
    Column(title="wrong", value=_wrong, width=5),
    Column(
        title="timestamp",
        value=lambda result, figure: local_time(figure.row.timestamp) or "-",
        width=19,
        shown=_stamped,
    ),
)
BY_TITLE = {column.title: column for column in COLUMNS}


def columns(result: Result, width: int | None = None) -> list[Column]:
    """The columns that fit in `width`, if given.

    The choice depends only on the options, not on rows, because the header is printed before the
    first row.
    """
    shown = [column for column in COLUMNS if column.shown(result)]
    order = [title for title in DROP_ORDER if title != "type" or not _types(result)]
    return [shown[at] for at in fitting(shown, [column.width for column in shown], width, order)]


def sweep_text(result: Result) -> str:
    """`8 B to 8 GiB, factor 2, 20 iterations`; also the smallest size in whole elements of every
    rank, where that is less.
    """
    spec, ranks = result.spec, result.world.ranks
    most = result.reduced_max_bytes or spec.max_bytes
    sizes = (
        format_size(most)
        if spec.min_bytes >= most
        else f"{format_size(spec.min_bytes)} to {format_size(most)}{_step(spec)}"
    )
    dtype, sampling = DTYPES.get(spec.datatype), spec.sampling
    if dtype and ranks and not spec.row.uneven:
        buffers = spec.row.buffers(spec.min_bytes // dtype.itemsize, ranks, dtype.itemsize)
        smallest = max(buffers.send, buffers.recv) * dtype.itemsize
        sizes += (
            f", the smallest rounded down to {format_size(smallest)}"
            if smallest < spec.min_bytes
            else ""
        )
    sizes += _counts(result)
    if sampling is None:
        return f"{sizes}, {spec.iters} iterations" if spec.iters else sizes
    if sampling.fixed:
        return (
            f"{sizes}, {spec.datatype}, {sampling.fixed} iterations, {percent(sampling.confidence)}"
            " intervals"
        )
    return (
        f"{sizes}, {spec.datatype}, medians to {percent(sampling.precision)} with"
        f" {percent(sampling.confidence)} confidence"
    )


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


def header(result: Result, width: int | None = None) -> str:
    """Collective, machine, sweep, bound and titles."""
    collective = result.spec.row
    facts = [collective.title, machine(result), library(result)]
    text = ", ".join(fact for fact in facts if fact) + "\n" + sweep_text(result)
    text += (
        f"; busbw = {collective.formula} x algbw\n"
        if collective.formula != "1"
        else "; busbw = algbw\n"
    )
    if result.ideal:
        binding = f", bound by {result.ideal.link}" if result.ideal.link else ""
        text += (
            f"ideal busbw {bandwidth_text(result.ideal.busbw)} GB/s"
            f" ({result.ideal.algorithm}{binding})\n"
        )
    if result.reduced_max_bytes is not None:
        asked, most = format_size(result.spec.max_bytes), format_size(result.reduced_max_bytes)
        text += f"{asked} does not fit in memory: the largest size is {most}\n"
    shown = columns(result, width)
    titles, units = ([getattr(column, name) for column in shown] for name in ("title", "unit"))
    return f"{wrapped(text, width)}\n{line(shown, titles)}{line(shown, units)}"


def row(result: Result, row: Row, width: int | None = None) -> str:
    """One line."""
    shown, figure = columns(result, width), figures(row)[0]
    return line(shown, [column.text(result, figure) for column in shown])


def footer(result: Result, width: int | None = None) -> str:
    """Bars, peak and mean, what went wrong, and the findings."""
    text = f"\n{_shape(result, width)}" if result.rows else "\nno size was measured\n"
    text += "".join(f"{problem}\n" for problem in problems(result))
    links = link_table.text(result, width)
    text += f"\n{links}" if links else ""
    text += "\n" + "".join(map(finding_text, result.findings)) if result.findings else ""
    return wrapped(text, width)


def _shape(result: Result, width: int | None) -> str:
    main = [figures(row)[0] for row in result.rows]
    if _repeats(result):
        main.sort(key=lambda figure: figure.row.size_bytes)  # they were measured in random order
    bars = sparkline([figure.cell.busbw for figure in main])
    most = min(SPARK_WIDTH, width - 7) if width else SPARK_WIDTH
    lines = [bars[start : start + most] for start in range(0, len(bars), most)]
    text = "".join(
        f"{'busbw' if index == 0 else '':<7}{line}\n" for index, line in enumerate(lines)
    )
    text += f"peak   {peak_text(result)}\n"
    return (
        f"{text}mean   {bandwidth_text(result.average_busbw())} GB/s over all sizes and"
        " placements\n"
    )


def peak_text(result: Result) -> str:
    """`70.76 GB/s +-0.4 % at 1 MiB in place, 15.7 % of ideal`; why there is none where no cell
    is precise.
    """
    top = headline(result)
    if top is None:
        return no_headline(result)
    ideal = f", {percent_text(top.busbw, result.ideal.busbw)} % of ideal" if result.ideal else ""
    placed = " in place" if top.placement == IN_PLACE else ""
    return f"{busbw_text(top)} at {format_size(top.row.size_bytes)}{placed}{ideal}"
