"""A replay for people: a line for each row of the pattern, the longest first, and as the CSV of
the PyTorch benchmark's --pattern.
"""

import math
from collections.abc import Sequence

from busbw.core.collectives import BY_NAME as COLLECTIVES
from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.core.pattern import RECV, US, PatternRow, Times
from busbw.core.sizes import counted, format_size
from busbw.pattern.replay.types import Replay, Replayed, ReplayResult
from busbw.ui.number_formats import (
    Column,
    aligned,
    bandwidth_text,
    known,
    library,
    machine,
    peers_text,
    percent_text,
    time_text,
    wrapped,
)

TORCH_HEADER = (
    "routine, num_samples, datatype, nranks, ALGO, PROTOCOL, TOTALBYTES,"
    " TIME_FOR_EACH_NCCL_COMM_CALL_MICROSEC, in-place time(us), in-place algbw(GB/s), in-place"
    " busbw(GB/s), in-place ideal busbw(GB/s), in-place busbw efficiency(%)\n"
)
DROP_ORDER = (
    "type",
    "ranks",
    "algbw",
    "ideal",
    "of ideal",
    "recorded",
    "predicted",
    "ran",
    "peers",
)
RECORDED = ("gpu_us", "cpu_us", "predicted_us")
ROWS = 30  # of a table
CLOCKS = {
    "gpu": "time of the kernels, by the profiler plugin",
    "event": "time between CUDA events around each call",
    "cpu": "time of the call on the host",
}


def header(result: ReplayResult, width: int | None = None) -> str:
    """What is replayed, on what."""
    replay = result.replay
    order = (
        f"{counted(sum(row.row.calls for row in replay.rows), 'call')} in their order"
        if replay.ordered
        else "rows without an order"
    )
    lines = [
        f"# {replay.spec.pattern}: {order}, {counted(len(replay.rows), 'row')},"
        f" {counted(len(replay.comms), 'communicator')}"
    ]
    if result.world.ranks != replay.recorded_ranks:
        lines.append(
            f"# recorded on {replay.recorded_ranks} ranks, scaled to {result.world.ranks} by"
            f" {replay.spec.scale}"
        )
    lines.append("# " + ", ".join(filter(None, (machine(result), library(result)))))
    return wrapped("".join(f"{line}\n" for line in lines) + "\n", width)


def render_all(result: ReplayResult, width: int | None = None, most: int = ROWS) -> str:
    """The whole text, with the `most` longest rows."""
    replay = result.replay
    total_s = sum(row.total_s or 0.0 for row in replay.rows)
    rows = sorted(
        (row for row in replay.rows if row.row.function != RECV),
        key=lambda row: row.total_s or 0.0,
        reverse=True,
    )
    columns = [
        column
        for column in _columns(replay, total_s)
        if any(column.text(row) != "-" for row in rows)
    ]
    table = aligned(columns, rows[:most], width, DROP_ORDER) + more(
        rows[most:], sum(row.total_s or 0.0 for row in rows[most:]), total_s
    )
    return (
        header(result, width)
        + table
        + wrapped("\n" + "".join(f"{line}\n" for line in _totals(result, total_s)), width)
    )


def more(rows: Sequence[object], part: float, whole: float) -> str:
    """A line for the rows that are not shown, whose share is `part` of `whole`."""
    return (
        f"and {counted(len(rows), 'row')} more with {percent_text(part, whole)} % in all: --rows"
        " shows them\n"
        if rows
        else ""
    )


def _columns(replay: Replay, total_s: float) -> list[Column]:
    clock = _recorded_clock(replay)
    return [
        Column(title="function", value=lambda row: row.row.function, left=True),
        Column(title="size", value=lambda row: format_size(row.row.bytes)),
        Column(title="type", value=lambda row: row.row.dtype or "-", left=True),
        Column(title="peers", value=lambda row: peers_text(row.row), left=True),
        Column(title="ranks", value=lambda row: row.ranks),
        Column(title="calls", value=lambda row: row.row.calls),
        Column(title="ran", value=_ran, left=True),
        Column(title="time", value=lambda row: known(row.time_s, time_text)),
        Column(
            title="predicted" if clock == "predicted_us" else "recorded",
            value=lambda row: known(_recorded_s(row.row, clock), time_text),
        ),
        Column(title="algbw", value=lambda row: known(row.algbw, bandwidth_text)),
        Column(title="busbw", value=lambda row: known(row.busbw, bandwidth_text)),
        Column(title="ideal", value=lambda row: known(row.ideal, bandwidth_text)),
        Column(
            title="of ideal",
            value=lambda row: percent_text(row.busbw or 0.0, row.ideal if row.busbw else None),
        ),
        Column(title="total", value=lambda row: known(row.total_s, time_text)),
        Column(
            title="share",
            value=lambda row: percent_text(row.total_s or 0.0, total_s if row.times else None),
        ),
    ]


def _ran(row: Replayed) -> str:
    return f"{row.algorithm}/{row.protocol}" if row.algorithm else "-"


def _recorded_clock(replay: Replay) -> str:
    """The kind of recorded time that is shown: measured before predicted, the GPU's clock before
    the host's.
    """
    return next(
        (
            kind
            for kind in RECORDED
            if any(getattr(row.row, kind) is not None for row in replay.rows)
        ),
        "",
    )


def _recorded_s(row: PatternRow, clock: str) -> float | None:
    """The recorded median."""
    time = getattr(row, clock, None)
    return None if time is None else US * (time.median if isinstance(time, Times) else time)


def recorded_total_s(replay: Replay) -> float:
    """Seconds of the recorded calls that were timed on the GPU and replayed, averaged over the
    ranks that were recorded.
    """
    seen = [
        row for row in replay.rows if row.row.gpu_us and (row.times or row.row.function == RECV)
    ]
    return sum(
        row.recorded_weight * row.row.calls * row.row.gpu_us.total / row.row.gpu_us.n * US
        for row in seen
        if row.row.gpu_us
    )


def _totals(result: ReplayResult, total_s: float) -> list[str]:
    replay = result.replay
    kind = next((row.kind for row in replay.rows if row.kind), "")
    lines = [
        f"total  {time_text(total_s)} of communication, {replay.average or 'average of all ranks'};"
        f" {CLOCKS.get(kind, 'not timed')}"
    ]
    recorded_s = recorded_total_s(replay)
    if recorded_s and total_s:
        told = (
            f": the replay took {percent_text(total_s, recorded_s)} % of it"
            if kind == "gpu"
            else ", time of the kernels"
        )
        lines.append(f"recorded  {time_text(recorded_s)} for the same calls{told}")
    if replay.steps:
        step_s = math.fsum(row.step_s or 0.0 for row in replay.rows)
        calls = sum(row.row.calls for row in replay.rows)
        first = calls - replay.period * replay.steps
        before = f", after {counted(first, 'other call')}" if first else ""
        lines.append(
            f"step   {counted(replay.period, 'call')} repeat {replay.steps} times{before}:"
            f" {time_text(step_s)} of communication a step"
        )
    bound_s = [_at_ideal_s(row) for row in replay.rows]
    if total_s and all(
        one is not None for one, row in zip(bound_s, replay.rows, strict=True) if row.times
    ):
        at_ideal = sum(one or 0.0 for one in bound_s)
        lines.append(
            f"ideal  {time_text(at_ideal)} if every row reached the bound of its best algorithm,"
            " without latency"
        )
    if replay.wall_s:
        lines.append(
            f"wall   {time_text(min(replay.wall_s))} from the first call to the end of the last"
        )
    lines += [
        f"skipped  {counted(count, 'call')}: {reason}" for reason, count in replay.skipped.items()
    ]
    untimed = sum(row.times is None and row.row.function != RECV for row in replay.rows)
    if untimed:
        lines.append(f"untimed  {counted(untimed, 'row')}")
    lines += [f"note   {note}" for note in replay.notes]
    return lines + [f"error: {error}" for error in result.errors]


def _at_ideal_s(row: Replayed) -> float | None:
    """Seconds of all calls at the bound; None where no bound is known."""
    collective = COLLECTIVES.get(row.row.function)
    if not row.ideal or collective is None:
        return None
    return (
        row.weight
        * row.row.calls
        * row.row.bytes
        * float(collective.bus_factor(row.ranks))
        / row.ideal
    )


def warnings(result: ReplayResult) -> list[str]:
    """What a format without the text's last lines leaves out: calls that were not replayed,
    notes and errors.
    """
    replay = result.replay
    lines = [
        f"warning: skipped {counted(count, 'call')}: {reason}"
        for reason, count in replay.skipped.items()
    ]
    return (
        lines
        + [f"note: {note}" for note in replay.notes]
        + [f"error: {error}" for error in result.errors]
    )


def torch_csv(result: ReplayResult) -> str:
    """The lines that the PyTorch benchmark prints for --pattern, in the pattern's order; the
    algorithm is the one that ran.
    """
    return TORCH_HEADER + "".join(_torch_line(row) for row in result.replay.rows)


def _torch_line(row: Replayed) -> str:
    one, function, dtype = (
        row.row,
        COLLECTIVES.get(row.row.function),
        DTYPES.get(row.row.dtype or ""),
    )
    what = (
        function.torch_name if function else one.function,
        "?" if one.count is None else str(one.count),
        dtype.torch if dtype else "?",
        str(row.ranks),
        row.algorithm or "?",
        row.protocol or "?",
        str(one.bytes),
        "?" if one.predicted_us is None else f"{one.predicted_us:.9g}",
    )
    rates = [None if value is None else value / 1e9 for value in (row.algbw, row.busbw, row.ideal)]
    values = [
        None if row.time_s is None else row.time_s / US,
        *rates,
        None if row.efficiency is None else 100 * row.efficiency,
    ]
    return ", ".join([*what, *("N/A" if value is None else repr(value) for value in values)]) + "\n"
