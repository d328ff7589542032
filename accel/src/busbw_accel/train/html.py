"""Trainings and plans as parts of a page: bars of the steps, the table, and what follows."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from xml.etree.ElementTree import Element

from busbw.core.rates import BITS_A_BYTE
from busbw.pattern.training.recorded_step import RecordedStep
from busbw.ui.html.axes import Scale, Tick, ticks
from busbw.ui.html.bars import Bar, LimitLine, bar_chart
from busbw.ui.html.element import tag
from busbw.ui.html.plot import Guide, Plot, PlotCurve, PlotMark, Point, figure, swatch
from busbw.ui.html.prose import prose
from busbw.ui.html.table import column_table
from busbw_accel.train import plan_text, recorded_text, states_text
from busbw_accel.train import text as train_text
from busbw_accel.train.as_if_network import parse, plan_as_if, rate_text, reached_rate
from busbw_accel.train.by_bandwidth import rates, shares
from busbw_accel.train.kinds import PlanResult, TrainResult
from busbw_accel.train.plan_types import AS_IS, MeasuredExchange, Plan
from busbw_accel.train.rounds_text import MS
from busbw_accel.train.types import TrainRun

LABELS_AT = (30.0, 45.0, 60.0, 75.0)  # % of alone; curves beside each other differ
STEP_TITLE = "Median step, ms"


def training(result: TrainResult) -> list[Element]:
    if result.training.spec.states:
        return _states(result)
    measured = result.training
    names = measured.methods
    parts = list(prose(train_text.header(result)))
    steps_s = {name: measured.step_s(name) for name in names}
    bars = [Bar(name, [step_s], f"{MS * step_s:.2f}") for name, step_s in steps_s.items() if step_s]
    alone_s = steps_s.get(measured.baseline)
    limit = LimitLine(alone_s, "each rank on its own") if alone_s else None
    if bars:
        parts.append(bar_chart(STEP_TITLE, bars, limit=limit))
    if names:
        columns = train_text.columns(result)
        parts.append(column_table(columns, names, "Methods", train_text.DROP_ORDER))
    explain = train_text.UNMEASURABLE in "".join(parts[-1].itertext()) if names else False
    return [*parts, *prose(train_text.notes(result, explain=explain))]


def _states(result: TrainResult) -> list[Element]:
    """The parts of a comparison of ways to keep a model's states."""
    runs = result.training.runs
    ended = [run for run in runs if not run.failed]
    parts = list(prose(states_text.described(result)))
    if ended:
        columns = states_text.columns(result.training, None)
        parts.append(bar_chart(STEP_TITLE, list(map(_step_bar, ended))))
        parts.append(
            column_table(columns, ended, "Ways to keep the states", states_text.DROP_ORDER)
        )
    failed = "".join(f"{run.method}: {run.failed}\n" for run in runs if run.failed)
    return [*parts, *prose(failed), *prose(states_text.footer(result))]


def _step_bar(run: TrainRun) -> Bar:
    step_s = median(run.steps_s)
    return Bar(run.method, [step_s], f"{MS * step_s:.1f}, {run.rate:.0f} tokens/s")


def plan(result: PlanResult) -> list[Element]:
    """The parts of a plan: the step of each exchange as predicted, and what is recommended."""
    parts = [*prose(plan_text.header(result))]
    if result.plan is None or not result.plan.exchanges:
        return [*parts, *prose(plan_text.footer(result))]
    if result.recorded is None:
        parts += prose(plan_text.step_alone(result.plan) + plan_text.LOSS_NOTE)
    else:
        parts += _recorded(result, result.recorded, result.plan)
        parts += prose(plan_text.LOSS_NOTE)
    parts += prose(plan_text.advice(result) + plan_text.refusal(result))
    exchanges = sorted(result.plan.exchanges, key=result.plan.step_s)
    table = _exchanges(result, result.plan, "Exchanges")
    errors = "".join(f"error: {error}\n" for error in result.errors)
    below = list(prose(plan_text.checks(result) + errors))
    for name in result.plan.as_if:
        title = plan_text.as_if_title(result.plan, name).strip().rstrip(":")
        assumed = plan_as_if(result.plan, parse(name))
        below.append(_exchanges(result, assumed, title[0].upper() + title[1:]))
    if not plan_text.is_timed(result):
        return [*parts, table, *below]
    of_whom = "each rank on its own" if result.recorded is None else "on a perfect network"
    steps = _steps(result.plan, exchanges, of_whom)
    return [*parts, steps, *_by_bandwidth(result, result.plan), table, *below]


def _by_bandwidth(result: PlanResult, planned: Plan) -> list[Element]:
    """The predicted share of alone of each recommended method over the bandwidth, and its range."""
    curves = shares(planned) if plan_text.is_timed(result) else {}
    if not curves:
        return []
    xs = [rate * BITS_A_BYTE / 1e9 for rate in rates()]
    exchanges = {exchange.transport for exchange in planned.exchanges}
    reached = max(filter(None, (reached_rate(planned, transport) for transport in exchanges)))
    plot = Plot(
        name="bandwidth",
        title="Which method at which bandwidth, predicted",
        description=f"The x axis is logarithmic. Curves: {', '.join(curves)}.",
        unit="% of alone",
        curves=[
            PlotCurve(
                color,
                "plain",
                [Point(x, 100 * share, "") for x, share in zip(xs, values, strict=True)],
                method,
                LABELS_AT[color % len(LABELS_AT)],
            )
            for color, (method, values) in enumerate(curves.items())
        ],
        guides=[Guide(None, 100 * planned.target, f"target {100 * planned.target:g} %")],
        y_text="{:g}".format,
        linear=True,
        zero=True,
        x=Scale("Gbit/s out of a host", _gbit_ticks),
        marks=[PlotMark(reached * BITS_A_BYTE / 1e9, f"reached here: {rate_text(reached)}")],
    )
    items = [tag("li", swatch(color, "plain"), name) for color, name in enumerate(curves)]
    items.append(tag("li", swatch(None, "mark"), f"reached here: {rate_text(reached)}"))
    drawn = figure(plot, tag("ul", *items, class_="legend"), "h3")
    return [tag("div", drawn, class_="plots"), *prose(plan_text.by_bandwidth(result))]


def _gbit_ticks(low: float, high: float, limit: int) -> list[Tick]:
    return [(value, f"{value:g}") for value in ticks(low, high, limit)]


def _exchanges(result: PlanResult, planned: Plan, title: str) -> Element:
    transport, method, *others = plan_text.columns(result, None)
    columns = [
        replace(column, value=partial(column.value, planned))
        for column in (method, transport, *others)
    ]
    return column_table(columns, planned.exchanges, title, plan_text.DROP_ORDER)


def _recorded(result: PlanResult, recorded: RecordedStep, planned: Plan) -> list[Element]:
    """The step of a recorded training, and its buckets."""
    lines = recorded_text.bucket_lines(recorded, planned)
    table = column_table(
        recorded_text.columns(recorded), lines, "Buckets of a step", recorded_text.DROP_ORDER
    )
    step = prose(recorded_text.step(result, recorded, planned))
    return [*step, table, *prose(recorded_text.notes(result, recorded))]


def _steps(planned: Plan, exchanges: Sequence[MeasuredExchange], of_whom: str) -> Element:
    """The shortest step first: what it takes on a perfect network, and what is exposed."""
    several = {exchange.transport for exchange in exchanges} != {AS_IS}
    bars = []
    for exchange in exchanges:
        step_s, exposed_s = planned.step_s(exchange), max(planned.exposed_s(exchange), 0.0)
        label = plan_text.label(exchange)
        if several:
            label += f", {exchange.transport}"
        bars.append(Bar(label, [step_s - exposed_s, exposed_s], f"{MS * step_s:.2f}"))
    names = ("step on a perfect network", "exposed exchange")
    alone = LimitLine(planned.alone_s, of_whom)
    return bar_chart("Predicted step, ms", bars, names, alone)
