"""A replay for people: a line for each row of the pattern, the longest first, and as the CSV of
the PyTorch benchmark's --pattern.
"""

import math
from collections.abc import Sequence

from busbw.core.collectives import BY_NAME as COLLECTIVES
from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.core.pattern import RECV, US, PatternRow, Times
from busbw.core.sizes import counted, format_size
from busbw.measure.formats import ran_text
from busbw.pattern.replay.kind import ReplayResult
from busbw.pattern.replay.types import Replay, ReplayedRow
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import (
    bandwidth_text,
    finding_text,
    library,
    machine,
    peers_text,
    percent_text,
    text_or_unknown,
    time_text,
)

TORCH_HEADER = (
    "routine, num_samples, datatype, nranks, ALGO, PROTOCOL, TOTALBYTES,"
    " TIME_FOR_EACH_NCCL_COMM_CALL_MICROSEC, in-place time(us), in-place algbw(GB/s), in-place"
    " busbw(GB/s), in-place ideal busbw(GB/s), in-place busbw efficiency(%)\n"
)
DROP_ORDER: tuple[str, ...] = (
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
CHANNELS = Column(title="channels", value=lambda row: row.channels or "-")
CLOCKS = {
    "gpu": "time of the kernels, by the profiler plugin",
    "event": "time between CUDA events around each call",
    "cpu": "time of the call on the host",
}


def header(result: ReplayResult, width: int | None = None) -> str:
    """What is replayed, and the machine and library."""
    replay = result.replay
    order = "rows without an order"
    if replay.ordered:
        order = f"{counted(sum(row.row.calls for row in replay.rows), 'call')} in their order"
    rows = counted(len(replay.rows), "row")
    comms = counted(len(replay.comms), "communicator")
    lines = [f"# {replay.spec.pattern}: {order}, {rows}, {comms}"]
    if result.world.ranks != replay.recorded_ranks:
        lines.append(
            f"# recorded on {replay.recorded_ranks} ranks, scaled to {result.world.ranks} by"
            f" {replay.spec.scale}"
        )
    lines.append("# " + ", ".join(filter(None, (machine(result), library(result)))))
    return wrapped("".join(f"{line}\n" for line in lines) + "\n", width)


def render_all(
    result: ReplayResult, width: int | None = None, row_limit: int = ROWS, *, ran: bool = False
) -> str:
    """The whole text, with the `row_limit` longest rows; by request with what NCCL ran at any
    width, and how it connected the ranks.
    """
    rows = longest_first(result.replay)
    hidden = rows[row_limit:]
    columns, order = shown_columns(result.replay), DROP_ORDER
    if ran:
        at = next((at for at, column in enumerate(columns) if column.title == "time"), 0)
        columns = [*columns[:at], CHANNELS, *columns[at:]]
        order = tuple(title for title in order if title != "ran")
    table = aligned(columns, rows[:row_limit], width, order)
    table += hidden_rows_line(
        hidden, sum(row.total_s or 0.0 for row in hidden), _total_s(result.replay)
    )
    end = wrapped("\n" + totals(result), width)
    if ran:
        end += f"\n{ran_text.text(result, width)}"
    if result.findings:
        end += wrapped("\n" + "".join(map(finding_text, result.findings)), width)
    return header(result, width) + table + end


def longest_first(replay: Replay) -> list[ReplayedRow]:
    """The rows that were replayed, without the receives, which run with their sends."""
    rows = [row for row in replay.rows if row.row.function != RECV]
    return sorted(rows, key=lambda row: row.total_s or 0.0, reverse=True)


def shown_columns(replay: Replay) -> list[Column]:
    """The columns that have a value in any row."""
    rows = longest_first(replay)

    def has_values(column: Column) -> bool:
        return any(column.text(row) != "-" for row in rows)

    return list(filter(has_values, _columns(replay, _total_s(replay))))


def totals(result: ReplayResult) -> str:
    """The lines below the table."""
    return "".join(f"{line}\n" for line in _totals(result, _total_s(result.replay)))


def _total_s(replay: Replay) -> float:
    return sum(row.total_s or 0.0 for row in replay.rows)


def hidden_rows_line(rows: Sequence[object], amount: float, total: float) -> str:
    """A line for the rows that are not shown, which have `amount` of `total`; '' without rows."""
    if not rows:
        return ""
    share = f"{percent_text(amount, total)} % in all"
    return f"and {counted(len(rows), 'row')} more with {share}: --rows shows them\n"


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
        Column(title="time", value=lambda row: text_or_unknown(row.time_s, time_text)),
        Column(
            title="predicted" if clock == "predicted_us" else "recorded",
            value=lambda row: text_or_unknown(_recorded_s(row.row, clock), time_text),
        ),
        Column(title="algbw", value=lambda row: text_or_unknown(row.algbw, bandwidth_text)),
        Column(title="busbw", value=lambda row: text_or_unknown(row.busbw, bandwidth_text)),
        Column(title="ideal", value=lambda row: text_or_unknown(row.ideal, bandwidth_text)),
        Column(
            title="of ideal",
            value=lambda row: percent_text(row.busbw or 0.0, row.ideal if row.busbw else None),
        ),
        Column(title="total", value=lambda row: text_or_unknown(row.total_s, time_text)),
        Column(
            title="share",
            value=lambda row: percent_text(row.total_s or 0.0, total_s if row.times else None),
        ),
    ]


def _ran(row: ReplayedRow) -> str:
    return "/".join(filter(None, (row.algorithm, row.protocol))) or "-"


def _recorded_clock(replay: Replay) -> str:
    """The field of the recorded time that is shown: measured before predicted, the GPU's clock
    before the host's; '' without any time.
    """
    for field in RECORDED:
        if any(getattr(row.row, field) is not None for row in replay.rows):
            return field
    return ""


def _recorded_s(row: PatternRow, clock: str) -> float | None:
    """The recorded median in seconds."""
    time = getattr(row, clock, None)
    if isinstance(time, Times):
        time = time.median
    return None if time is None else US * time


def recorded_total_s(replay: Replay) -> float:
    """Seconds of the recorded calls that were timed on the GPU and replayed, averaged over the
    ranks that were recorded.
    """
    total_s = 0.0
    for row in replay.rows:
        times = row.row.gpu_us
        if times and (row.times or row.row.function == RECV):
            total_s += row.recorded_weight * row.row.calls * times.total / times.n * US
    return total_s


def _totals(result: ReplayResult, total_s: float) -> list[str]:
    replay = result.replay
    kind = next((row.kind for row in replay.rows if row.kind), "")
    lines = [
        f"total  {time_text(total_s)} of communication, {replay.average or 'average of all ranks'};"
        f" {CLOCKS.get(kind, 'not timed')}"
    ]
    recorded_s = recorded_total_s(replay)
    if recorded_s and total_s:
        comparison = ", time of the kernels"
        if kind == "gpu":
            comparison = f": the replay took {percent_text(total_s, recorded_s)} % of it"
        lines.append(f"recorded  {time_text(recorded_s)} for the same calls{comparison}")
    if replay.steps:
        lines.append(_step_line(replay))
    bounds_s = [_at_ideal_s(row) for row in replay.rows if row.times]
    if total_s and None not in bounds_s:
        at_ideal_s = sum(_at_ideal_s(row) or 0.0 for row in replay.rows)
        lines.append(
            f"ideal  {time_text(at_ideal_s)} if every row reached the bound of its best algorithm,"
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


def _step_line(replay: Replay) -> str:
    step_s = math.fsum(row.step_s or 0.0 for row in replay.rows)
    calls = sum(row.row.calls for row in replay.rows)
    first = calls - replay.period * replay.steps
    before = f", after {counted(first, 'other call')}" if first else ""
    return (
        f"step   {counted(replay.period, 'call')} repeat {replay.steps} times{before}:"
        f" {time_text(step_s)} of communication a step"
    )


def _at_ideal_s(row: ReplayedRow) -> float | None:
    """Seconds of all calls at the bound; None where no bound is known."""
    collective = COLLECTIVES.get(row.row.function)
    if not row.ideal or collective is None:
        return None
    factor = float(collective.bus_factor(row.ranks))
    return row.weight * row.row.calls * row.row.bytes * factor / row.ideal


def warnings(result: ReplayResult) -> list[str]:
    """What a format without the text's last lines leaves out: calls not replayed, notes, errors."""
    replay = result.replay
    lines = [
        f"warning: skipped {counted(count, 'call')}: {reason}"
        for reason, count in replay.skipped.items()
    ]
    lines += [f"note: {note}" for note in replay.notes]
    lines += [f"error: {error}" for error in result.errors]
    return lines


def torch_csv(result: ReplayResult) -> str:
    """The lines that the PyTorch benchmark prints for --pattern, with the algorithm that ran."""
    return TORCH_HEADER + "".join(_torch_line(row) for row in result.replay.rows)


def _torch_line(row: ReplayedRow) -> str:
    recorded = row.row
    function = COLLECTIVES.get(recorded.function)
    dtype = DTYPES.get(recorded.dtype or "")
    arguments = (
        function.torch_name if function else recorded.function,
        "?" if recorded.count is None else str(recorded.count),
        dtype.torch if dtype else "?",
        str(row.ranks),
        row.algorithm or "?",
        row.protocol or "?",
        str(recorded.bytes),
        "?" if recorded.predicted_us is None else f"{recorded.predicted_us:.9g}",
    )
    rates = [None if value is None else value / 1e9 for value in (row.algbw, row.busbw, row.ideal)]
    values = [
        None if row.time_s is None else row.time_s / US,
        *rates,
        None if row.efficiency is None else 100 * row.efficiency,
    ]
    texts = ["N/A" if value is None else repr(value) for value in values]
    return ", ".join([*arguments, *texts]) + "\n"
