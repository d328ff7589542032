"""A collective and a load at the same time as text: a line for each size and limit of CTAs."""

from busbw.core.collectives import BY_NAME
from busbw.core.sizes import format_size
from busbw.model.findings import all_findings
from busbw.model.measured_system import cpus_of
from busbw.overlap.types import OverlapResult, OverlapRow, OverlapSide
from busbw.stats.rank_tests import Shift
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import finding_text, library, machine, run_problems, time_text

DROP_ORDER = ("load alone", "alone")


def render(result: OverlapResult, width: int | None = None) -> str:
    """The whole result."""
    table = aligned(columns(result), result.rows, width, DROP_ORDER)
    below = foot(result) + "".join(map(finding_text, all_findings(result)))
    return "\n".join([wrapped(f"{head(result)}\n", width), table, wrapped(below, width)])


def head(result: OverlapResult) -> str:
    """`AllReduce of bfloat16 beside gemm, NVIDIA H200 x 2, ...`."""
    what = f"{BY_NAME[result.spec.collective].title} of {result.spec.datatype}"
    return f"{what} beside {result.load}, {machine(result)}, {library(result)}"


def columns(result: OverlapResult) -> list[Column]:
    """Those of the table; `value` takes a row."""
    limited = any(row.ctas for row in result.rows)
    ctas = [Column(title="CTAs", value=lambda row: row.ctas or "any")] if limited else []
    return [
        Column(title="size", value=lambda row: format_size(row.size_bytes)),
        *ctas,
        Column(title="alone", value=lambda row: time_text(row.collective.operation_s)),
        Column(title="beside load", value=lambda row: slowdown_text(row.collective), left=True),
        Column(title="load alone", value=lambda row: time_text(row.load.operation_s)),
        Column(title="load beside", value=lambda row: slowdown_text(row.load), left=True),
        Column(title="gain", value=gain_text),
    ]


def slowdown_text(side: OverlapSide) -> str:
    """`1.25x (1.22-1.28)`: the time beside the other over that alone; `>1.25x` if the other side
    did not run all the time, or `?` where that says nothing.
    """
    change: Shift = side.slowdown
    if not side.is_covered:
        return f">{change.ratio:.2f}x" if change.ratio > 1 else "?"
    if change.low is None or change.high is None:
        return f"{change.ratio:.2f}x"
    return f"{change.ratio:.2f}x ({change.low:.2f}-{change.high:.2f})"


def gain_text(row: OverlapRow) -> str:
    """`1.57`; `-` where a slowdown has no upper limit."""
    return f"{row.gain:.2f}" if row.collective.is_covered and row.load.is_covered else "-"


def foot(result: OverlapResult) -> str:
    """What the columns mean, and whether the run ended."""
    lines = [
        f"load: {result.load_text}",
        "alone: the time of one operation; beside: the time while the other side runs all the time,"
        " over that alone",
        "gain: how much is done in a time in which one of both would be done alone; 2 if they do"
        " not disturb each other, 1 if one after the other is as fast",
    ]
    if not all(row.collective.is_covered and row.load.is_covered for row in result.rows):
        lines.append(
            "> or ?: the other side ended first, so the slowdown beside it is larger, and the gain"
            " is unknown"
        )
    if cpus_of(result):
        lines.append("on CPUs both sides share the cores: this says nothing of GPUs")
    lines += run_problems(result)
    return "\n".join(lines) + "\n"
