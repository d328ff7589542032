"""Predicted times as text: of sizes and host counts, and of a recorded application."""

from collections.abc import Sequence

from busbw.core.sizes import counted, format_size
from busbw.model import bounds_text, explanation_text
from busbw.model.types import Crossing, Fit, Forecast, PatternPrediction, PredictedRow, Prediction
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import bandwidth_text, text_or_unknown, time_text

DROP_ORDER = ("bound by", "protocol", "ranks", "mark")
PATTERN_DROP_ORDER = ("bound by", "ranks", "each", "measured")
MAX_ROWS = 20


def _share(value: float) -> str:
    return f"{100 * value:.0f}"


def _mark(row: Forecast) -> str:
    if row.extrapolated:
        return "extrapolated"
    return "calibrated" if row.calibrated else ""


# The values take a Forecast.
COLUMNS: tuple[Column, ...] = (
    Column(title="hosts", value=lambda row: row.hosts),
    Column(title="ranks", value=lambda row: row.ranks),
    Column(title="size", value=lambda row: format_size(row.size_bytes)),
    Column(title="time", value=lambda row: time_text(row.time_s)),
    Column(title="busbw", unit="GB/s", value=lambda row: bandwidth_text(row.busbw)),
    Column(title="+-", unit="%", value=lambda row: _share(row.band)),
    Column(title="algorithm", value=lambda row: row.algorithm, left=True),
    Column(title="protocol", value=lambda row: row.protocol, left=True),
    Column(title="bound by", value=lambda row: row.regime, left=True),
    Column(title="mark", value=_mark, left=True),
)


def text(answer: Prediction, width: int | None = None) -> str:
    """The whole text: the times by size and number of hosts, then the bounds."""
    about = answer.described
    title = explanation_text.title(answer.collective, about)
    predicted = f", NCCL from {about.nccl} on, predicted" if answer.rows else ""
    head = f"{title}{predicted}\n\n"
    head += "".join(f"{line}\n" for line in explanation_text.links(about))
    lines = [*map(crossing_text, answer.crossings), *map(fit_text, answer.fits)]
    parts = [
        wrapped(head, width),
        _forecasts(answer.rows, width),
        wrapped("".join(f"{line}\n" for line in lines), width),
        bounds_text.text(answer.bounds, about.nccl, width),
    ]
    notes = wrapped(explanation_text.notes(about, answer.notes), width)
    return "\n".join(part for part in parts if part) + notes


def _forecasts(rows: Sequence[Forecast], width: int | None) -> str:
    marked = any(_mark(row) for row in rows)
    shown = [column for column in COLUMNS if column.title != "mark" or marked]
    return aligned(shown, rows, width, DROP_ORDER) if rows else ""


def crossing_text(crossing: Crossing) -> str:
    """`2 hosts: latency decides up to 18 MiB, bandwidth above`."""
    hosts = counted(crossing.hosts, "host")
    if crossing.size_bytes is None:
        return f"{hosts}: latency decides at every size"
    return f"{hosts}: latency decides up to {format_size(crossing.size_bytes)}, bandwidth above"


def fit_text(fit: Fit) -> str:
    """The factors of one algorithm, the number of times they are fitted to, and their error."""
    text = (
        f"calibrated {fit.collective} {fit.algorithm} {fit.protocol}: latency x {fit.latency:.3g},"
        f" bytes x {fit.transfer:.3g}, from {counted(fit.points, 'time')} on up to"
        f" {counted(fit.hosts, 'host')}, which it meets within {100 * fit.worst:.1f} %"
    )
    if fit.held_worst is not None:
        text += (
            f"; those on {fit.held_hosts} hosts, predicted from the smaller jobs, within"
            f" {100 * fit.held_worst:.1f} %"
        )
    return text


# The values take a PredictedRow.
PATTERN_COLUMNS: tuple[Column, ...] = (
    Column(title="function", value=lambda row: row.function, left=True),
    Column(title="size", value=lambda row: format_size(row.bytes)),
    Column(title="ranks", value=lambda row: f"{row.hosts} x {row.per_host}"),
    Column(title="calls", value=lambda row: row.calls),
    Column(
        title="each",
        value=lambda row: text_or_unknown(
            row.forecast, lambda forecast: time_text(forecast.time_s)
        ),
    ),
    Column(title="total", value=lambda row: time_text(row.total_s) if row.forecast else "-"),
    Column(title="measured", value=lambda row: text_or_unknown(row.measured_s, time_text)),
    Column(
        title="+-",
        unit="%",
        value=lambda row: text_or_unknown(row.forecast, lambda forecast: _share(forecast.band)),
    ),
    Column(
        title="algorithm",
        value=lambda row: row.forecast.algorithm if row.forecast else "-",
        left=True,
    ),
    Column(
        title="bound by", value=lambda row: row.forecast.regime if row.forecast else "-", left=True
    ),
)


def pattern_text(answer: PatternPrediction, width: int | None = None) -> str:
    """The rows that take longest, the total, and the rows that have no time."""
    about = answer.described
    ranks = explanation_text.ranks_text(about)
    head = f"{answer.source} on {ranks} ({about.system}), NCCL from {about.nccl} on, predicted\n"
    if answer.ranks:
        scaled = f", scaled from {answer.recorded_ranks} by {answer.scale}" if answer.scale else ""
        head += f"{counted(answer.ranks, 'rank')}{scaled}\n"
    head += "\n" + "".join(f"{line}\n" for line in explanation_text.links(about))
    rows = sorted((row for row in answer.rows if row.forecast), key=lambda row: -row.total_s)
    measured = any(row.measured_s for row in rows)
    shown = [column for column in PATTERN_COLUMNS if column.title != "measured" or measured]
    table = aligned(shown, rows[:MAX_ROWS], width, PATTERN_DROP_ORDER)
    if len(rows) > MAX_ROWS:
        table += f"... and {counted(len(rows) - MAX_ROWS, 'row')} that take less\n"
    return f"{wrapped(head, width)}\n{table}\n{wrapped(_pattern_foot(answer), width)}"


def _pattern_foot(answer: PatternPrediction) -> str:
    calls = sum(row.calls for row in answer.rows if row.forecast)
    foot = f"total  {time_text(answer.total_s)} in {counted(calls, 'call')}"
    if answer.recorded_s:
        foot += (
            f"; the record lasts {time_text(answer.recorded_s)}, of which that is"
            f" {100 * answer.total_s / answer.recorded_s:.1f} %"
        )
    foot += "\n"
    reasons: dict[str, list[PredictedRow]] = {}
    for row in answer.without:
        reasons.setdefault(f"{row.function}: {row.reason}", []).append(row)
    for reason, rows in reasons.items():
        count = counted(sum(row.calls for row in rows), "call")
        foot += f"no time for {counted(len(rows), 'row')} of {count}: {reason}\n"
    return foot + explanation_text.notes(answer.described, answer.notes)
