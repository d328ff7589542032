"""The table people read: plain text under 100 columns, one line per size as it is measured, the shape of the sweep and findings after it.

Repeats, the time of day, and with precise timing an operator or a root make it wider.

Time, algbw, busbw and % of ideal are of the out-of-place run (of the in-place run where only that was made); `in-place` is its busbw.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from busbw.core.cells import IN_PLACE, every, figures, peak
from busbw.core.result import Result, Row
from busbw.core.sizes import format_size
from busbw.core.sweep import SweepSpec
from busbw.views import findings
from busbw.views.words import (
    bandwidth_text,
    library,
    local_time,
    machine,
    micro_text,
    op_column,
    percent,
    percent_text,
    time_text,
)

SPARK_WIDTH = 80


@dataclass(frozen=True, slots=True)
class Column:
    """Title, unit, width, and the text of one row; `only` where it belongs to one way of timing."""

    title: str
    unit: str
    width: int
    text: Callable[[Result, Row], str]
    only: str = ""


def _time(result: Result, row: Row) -> str:
    cell = findings.main_cell(row)
    return "-" if cell is None else time_text(cell.time_s)


def _cpu_time(result: Result, row: Row) -> str:
    cell = findings.main_cell(row)
    return "-" if cell is None or cell.cpu_time_s is None else time_text(cell.cpu_time_s)


def _algbw(result: Result, row: Row) -> str:
    cell = findings.main_cell(row)
    return "-" if cell is None else bandwidth_text(cell.algbw)


def _busbw(result: Result, row: Row) -> str:
    cell = findings.main_cell(row)
    return "-" if cell is None else bandwidth_text(cell.busbw)


def _ideal(result: Result, row: Row) -> str:
    cell = findings.main_cell(row)
    return "-" if cell is None else percent_text(cell.busbw, result.ideal.busbw if result.ideal else None)


def _interval(result: Result, row: Row) -> str:
    percent = 100 * max((figure.reach for figure in figures(row)[:1]), default=math.inf)
    return "-" if percent == math.inf else ">999" if percent > 999 else f"{percent:.0f}" if percent >= 100 else f"{percent:.1f}"


def _samples(result: Result, row: Row) -> str:
    return next((str(figure.n) for figure in figures(row)), "-")


def _stopped(result: Result, row: Row) -> str:
    cell = findings.main_cell(row)
    return (cell.stopped if cell else "") or "-"


def _skew(result: Result, row: Row) -> str:
    cell = findings.main_cell(row)
    return "-" if cell is None or cell.skew_s is None else micro_text(cell.skew_s)


def _launch(result: Result, row: Row) -> str:
    cell = findings.main_cell(row)
    return "-" if cell is None or cell.launch_s is None else micro_text(cell.launch_s)


def _in_place(result: Result, row: Row) -> str:
    return "-" if row.in_place is None else bandwidth_text(row.in_place.busbw)


def _wrong(result: Result, row: Row) -> str:
    counts = [cell.wrong for cell in (row.out_of_place, row.in_place) if cell is not None and cell.wrong is not None]
    return str(sum(counts)) if counts else "N/A"


COLUMNS: tuple[Column, ...] = (
    Column("repeat", "", 6, lambda result, row: str(row.repeat)),
    Column("size", "", 10, lambda result, row: format_size(row.size_bytes)),
    Column("count", "", 11, lambda result, row: str(row.count), "classic"),
    Column("type", "", 8, lambda result, row: row.dtype),
    Column("op", "", 6, lambda result, row: op_column(result.spec.row, row)),
    Column("root", "", 4, lambda result, row: str(row.root)),
    Column("time", "", 8, _time),
    Column("cputime", "", 8, _cpu_time),
    Column("+-", "%", 4, _interval, "precise"),
    Column("n", "", 4, _samples, "precise"),
    Column("stop", "", 8, _stopped, "precise"),
    Column("skew", "us", 6, _skew, "precise"),
    Column("launch", "us", 6, _launch, "precise"),
    Column("algbw", "GB/s", 6, _algbw),
    Column("busbw", "GB/s", 6, _busbw),
    Column("ideal", "%", 5, _ideal),
    Column("in-place", "GB/s", 8, _in_place),
    Column("wrong", "", 5, _wrong),
    Column("timestamp", "", 19, lambda result, row: local_time(row.timestamp) or "-"),
)


def columns(result: Result) -> tuple[Column, ...]:
    """The columns shown: op where the collective has one and it is not plain sum, root where the collective has roots.

    They depend on what was asked for alone, never on rows: titles come before there are any, and every row asks anew.
    """
    spec = result.spec
    shown = {
        "repeat": spec.sampling is not None and spec.sampling.repeats > 1,
        "type": not _one_type(result),
        "op": _shows_op(result),
        "root": spec.row.rooted,
        "cputime": bool(spec.report_cputime),
        "timestamp": bool(spec.report_timestamps),
    }
    other = "classic" if spec.sampling else "precise"
    return tuple(column for column in COLUMNS if shown.get(column.title, True) and column.only != other)


def _one_type(result: Result) -> bool:
    """Precise timing has more columns: its one type stands above them."""
    return result.spec.sampling is not None and result.spec.datatype.lower() != "all"


def _shows_op(result: Result) -> bool:
    collective = result.spec.row
    has_op = collective.reduces or collective.redop_column == "op"
    return has_op and result.spec.op.lower() != "sum"


def _line(words: list[str], shown: tuple[Column, ...]) -> str:
    return "  ".join(f"{word:>{column.width}}" for word, column in zip(words, shown, strict=True)).rstrip() + "\n"


def sweep_words(spec: SweepSpec) -> str:
    """`8 B to 8 GiB, factor 2, 20 iterations`."""
    if spec.min_bytes == spec.max_bytes:
        sizes = format_size(spec.min_bytes)
    else:
        step = f"factor {spec.step_factor}" if spec.step_factor > 1 else f"step {format_size(spec.step_bytes)}"
        sizes = f"{format_size(spec.min_bytes)} to {format_size(spec.max_bytes)}, {step}"
    sampling = spec.sampling
    if sampling is None:
        return f"{sizes}, {spec.iters} iterations"
    if sampling.fixed:
        return f"{sizes}, {spec.datatype}, {sampling.fixed} iterations, {percent(sampling.confidence)} intervals"
    return f"{sizes}, {spec.datatype}, medians to {percent(sampling.precision)} with {percent(sampling.confidence)} confidence"


def header(result: Result) -> str:
    """What is measured on what, the bound it is held against, and the titles."""
    collective = result.spec.row
    facts = [collective.title, machine(result), library(result)]
    text = ", ".join(fact for fact in facts if fact) + "\n" + sweep_words(result.spec)
    text += f"; busbw = {collective.formula} x algbw\n" if collective.formula != "1" else "; busbw = algbw\n"
    if result.ideal:
        binding = f", bound by {result.ideal.link}" if result.ideal.link else ""
        text += f"ideal busbw {bandwidth_text(result.ideal.busbw)} GB/s ({result.ideal.algorithm}{binding})\n"
    if result.reduced_max_bytes is not None:
        text += f"largest size lowered to {format_size(result.reduced_max_bytes)}: memory is short\n"
    shown = columns(result)
    return f"{text}\n{_line([column.title for column in shown], shown)}{_line([column.unit for column in shown], shown)}"


def row(result: Result, row: Row) -> str:
    """One line."""
    shown = columns(result)
    return _line([column.text(result, row) for column in shown], shown)


def footer(result: Result) -> str:
    """The shape of the sweep, the peak, what was wrong, and the findings."""
    text = f"\n{_shape(result)}" if result.rows else "\nno size was measured\n"
    if result.wrong():
        text += f"wrong data: {result.out_of_bounds} checks saw wrong elements\n"
    if not result.complete:
        text += "the sweep did not end; the sizes above are what was measured\n"
    text += "".join(f"error: {error}\n" for error in result.errors)
    return text + ("\n" + "".join(findings.words(finding) for finding in result.findings) if result.findings else "")


def _shape(result: Result) -> str:
    cells = [(row, cell) for row in result.rows if (cell := findings.main_cell(row)) is not None]
    if result.spec.sampling and result.spec.sampling.repeats > 1:
        cells.sort(key=lambda pair: pair[0].size_bytes)  # they were measured in random order
    bars = findings.sparkline([cell.busbw for _, cell in cells])
    lines = [bars[start : start + SPARK_WIDTH] for start in range(0, len(bars), SPARK_WIDTH)]
    text = "".join(f"{'busbw' if index == 0 else '':<7}{line}\n" for index, line in enumerate(lines))
    words = peak_words(result)
    text += f"peak   {words}\n" if words else ""
    return f"{text}mean   {bandwidth_text(result.average_busbw())} GB/s over all sizes and placements\n"


def peak_words(result: Result) -> str:
    """`70.76 GB/s at 1 MiB in place, 15.7 % of ideal`; empty where no busbw is a number."""
    top = peak(every(result))
    if top is None:
        return ""
    ideal = f", {percent_text(top.busbw, result.ideal.busbw)} % of ideal" if result.ideal else ""
    return f"{bandwidth_text(top.busbw)} GB/s at {format_size(top.row.size_bytes)}{' in place' if top.placement == IN_PLACE else ''}{ideal}"


def render(result: Result) -> str:
    """The whole text."""
    return header(result) + "".join(row(result, line) for line in result.rows) + footer(result)
