"""Predicted times as text: of sizes and host counts, and of a recorded application."""

from collections.abc import Sequence

from busbw.core.sizes import counted, format_size
from busbw.model import bounds_text, explanation_text
from busbw.model.reference.expected import ExpectedBasis
from busbw.model.types import (
    Crossing,
    Forecast,
    PatternPrediction,
    PredictedRow,
    PredictedStep,
    Prediction,
)
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import bandwidth_text, text_or_unknown, time_text

DROP_ORDER = ("bound by", "protocol", "ranks", "algorithm")
PATTERN_DROP_ORDER = ("bound by", "ranks", "each", "measured")
MAX_ROWS, RUNS_NAMED = 20, 3


def _time_range(row: Forecast) -> str:
    """The times of the range of busbw, the shortest first."""
    shortest_s, longest_s = row.time_s * row.busbw / row.high, row.time_s * row.busbw / row.low
    return f"{time_text(shortest_s)} - {time_text(longest_s)}"


# The values take a Forecast.
COLUMNS: tuple[Column, ...] = (
    Column(title="hosts", value=lambda row: row.hosts),
    Column(title="ranks", value=lambda row: row.ranks),
    Column(title="size", value=lambda row: format_size(row.size_bytes)),
    Column(title="time", value=lambda row: time_text(row.time_s)),
    Column(title="busbw", value=lambda row: bandwidth_text(row.busbw)),
    Column(title="low", value=lambda row: bandwidth_text(row.low)),
    Column(title="high", value=lambda row: bandwidth_text(row.high)),
    Column(title="algorithm", value=lambda row: row.algorithm, left=True),
    Column(title="protocol", value=lambda row: row.protocol, left=True),
    Column(title="bound by", value=lambda row: row.regime, left=True),
    Column(
        title="from", value=lambda row: "extrapolated" if row.extrapolated else row.basis, left=True
    ),
)


def text(answer: Prediction, width: int | None = None) -> str:
    """The whole text: the times by size and number of hosts, then the bounds."""
    about = answer.described
    head = f"{title(answer)}\n\n"
    head += "".join(f"{line}\n" for line in explanation_text.links(about))
    parts = [
        wrapped(head, width),
        _forecasts(answer, width),
        wrapped(crossings(answer), width),
        bounds_text.text(answer.bounds, about.nccl, width),
    ]
    notes = wrapped(explanation_text.notes(about, answer.notes), width)
    return "\n".join(part for part in parts if part) + notes


def title(answer: Prediction) -> str:
    """`AllReduce on 2 hosts x 8 H100 (h100x8), NCCL from 2.30 on, predicted`."""
    about = answer.described
    predicted = f", NCCL from {about.nccl} on, predicted" if answer.rows else ""
    return f"{explanation_text.title(answer.collective, about)}{predicted}"


def _forecasts(answer: Prediction, width: int | None) -> str:
    rows = answer.rows
    if not rows:
        return ""
    return aligned(COLUMNS, rows, width, DROP_ORDER) + wrapped(meaning(rows), width)


def meaning(rows: Sequence[Forecast]) -> str:
    """What the columns of the forecasts mean, and the published runs that they come from."""
    text = "busbw, low, high: GB/s"
    if any(row.basis != ExpectedBasis.CALIBRATION for row in rows):
        share = f"{100 * rows[0].coverage:.0f} %"
        text += f"; {share} of the published runs were between low and high\n"
    else:
        text += "\n"
    return text + _runs(rows)


def _runs(rows: Sequence[Forecast]) -> str:
    """The published runs that the rows come from, if there are any."""
    runs = list(dict.fromkeys(run for row in rows for run in row.runs))
    if not runs:
        return ""
    shown = ", ".join(runs[:RUNS_NAMED])
    more = f" and {len(runs) - RUNS_NAMED} more" if len(runs) > RUNS_NAMED else ""
    return f"runs: {shown}{more} (busbw reference show RUN)\n"


def crossings(answer: Prediction) -> str:
    """A line for each number of hosts: up to which size latency decides."""
    return "".join(f"{crossing_text(crossing)}\n" for crossing in answer.crossings)


def crossing_text(crossing: Crossing) -> str:
    """`2 hosts: latency decides up to 18 MiB, bandwidth above`."""
    hosts = counted(crossing.hosts, "host")
    if crossing.size_bytes is None:
        return f"{hosts}: latency decides at every size"
    return f"{hosts}: latency decides up to {format_size(crossing.size_bytes)}, bandwidth above"


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
    Column(title="within", value=lambda row: text_or_unknown(row.forecast, _time_range)),
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
    rows = longest_first(answer)
    table = aligned(pattern_columns(rows), rows[:MAX_ROWS], width, PATTERN_DROP_ORDER)
    if len(rows) > MAX_ROWS:
        table += f"... and {counted(len(rows) - MAX_ROWS, 'row')} that take less\n"
    head = wrapped(pattern_head(answer), width)
    return f"{head}\n{table}\n{wrapped(pattern_foot(answer), width)}"


def pattern_head(answer: PatternPrediction) -> str:
    """What was predicted, for which ranks and links."""
    about = answer.described
    ranks = explanation_text.ranks_text(about)
    head = f"{answer.source} on {ranks} ({about.system}), NCCL from {about.nccl} on, predicted\n"
    if answer.ranks:
        scaled = f", scaled from {answer.recorded_ranks} by {answer.scale}" if answer.scale else ""
        head += f"{counted(answer.ranks, 'rank')}{scaled}\n"
    return head + "\n" + "".join(f"{line}\n" for line in explanation_text.links(about))


def longest_first(answer: PatternPrediction) -> list[PredictedRow]:
    """The rows that have a time."""
    return sorted((row for row in answer.rows if row.forecast), key=lambda row: -row.total_s)


def pattern_columns(rows: Sequence[PredictedRow]) -> list[Column]:
    """The columns of these rows: `measured` if a row has that."""
    measured = any(row.measured_s for row in rows)
    return [column for column in PATTERN_COLUMNS if column.title != "measured" or measured]


def pattern_foot(answer: PatternPrediction) -> str:
    """The time of all calls, the rows that have no time, and notes."""
    calls = sum(row.calls for row in answer.rows if row.forecast)
    ends = list(dict.fromkeys(map(time_text, (answer.least_s, answer.most_s))))
    foot = f"total  {' to '.join(ends)} in {counted(calls, 'call')}"
    if answer.high_s > answer.low_s:
        within = " to ".join(map(time_text, (answer.low_s, answer.high_s)))
        foot += f", {within} within the ranges of all"
    if answer.recorded_s:
        shares = [f"{100 * s / answer.recorded_s:.1f}" for s in (answer.least_s, answer.most_s)]
        foot += (
            f"; the record lasts {time_text(answer.recorded_s)}, of which that is"
            f" {' to '.join(dict.fromkeys(shares))} %"
        )
    foot += f"\n{_step_line(answer.step)}"
    reasons: dict[str, list[PredictedRow]] = {}
    for row in answer.without:
        reasons.setdefault(f"{row.function}: {row.reason}", []).append(row)
    for reason, rows in reasons.items():
        count = counted(sum(row.calls for row in rows), "call")
        foot += f"no time for {counted(len(rows), 'row')} of {count}: {reason}\n"
    return foot + explanation_text.notes(answer.described, answer.notes)


def _step_line(step: PredictedStep | None) -> str:
    """The step of a training, and what it waits for; otherwise that this is unknown."""
    if step is None:
        return "exposed  unknown: the record does not tell what computation hides of the calls\n"
    exposed = " to ".join(map(time_text, (step.least_exposed_s, step.most_exposed_s)))
    return (
        f"step   {time_text(step.step_s)} if computation takes as long as recorded:"
        f" {time_text(step.exposed_s)} of the exchange are exposed, {exposed} within the ranges;"
        f" recorded {time_text(step.recorded_s)}, {time_text(step.recorded_exposed_s)} exposed\n"
    )
