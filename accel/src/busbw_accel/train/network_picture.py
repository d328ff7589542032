"""Which method at which bandwidth: the steps of a plan over the rate between hosts, as a picture.

The rates are those of `plan_as_if`: only what the bytes take on the network changes with the rate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from busbw.core.rates import BITS_A_BYTE
from busbw.ui.html.axes import Scale, Tick, ticks
from busbw.ui.html.element import tag
from busbw.ui.html.plot import Guide, Plot, PlotCurve, PlotMark, Point, figure, swatch
from busbw_accel.train import plan_text, recommendation
from busbw_accel.train.as_if_network import AsIfNetwork, plan_as_if, rate_text, reached_rate
from busbw_accel.train.kinds import PlanResult
from busbw_accel.train.methods import NONE
from busbw_accel.train.plan_types import Plan

STEPS_PER_DECADE = 8
LOWEST, HIGHEST = 0.1e9 / BITS_A_BYTE, 400e9 / BITS_A_BYTE  # bytes per second out of a host
TITLE = "Which method at which bandwidth"
COLORS = 8  # of style.css
NOTE = (
    "Predicted for other rates between hosts. Only the part of an exchange that its bytes take on"
    " the network changes with the rate; computation of the method and latency stay as measured."
    " The mark is the highest rate that an exchange reached here.\n"
)


@dataclass(frozen=True, slots=True)
class AtRate:
    """What is expected at a rate: the share of alone by the name of an exchange, and the name of
    the recommended one, None if rounds differ too much.
    """

    rate: float
    shares: dict[str, float]
    recommended: str | None


def at_rates(plan: Plan) -> list[AtRate]:
    """The plan at rates from LOWEST to HIGHEST, and at the measured one; empty if nothing left a
    host.
    """
    measured = _measured(plan)
    if not measured:
        return []
    count = STEPS_PER_DECADE
    rates = [LOWEST * 10 ** (number / count) for number in range(4 * count)]
    rates = [rate for rate in rates if rate < HIGHEST] + [HIGHEST, *measured]
    return [_at(plan, rate) for rate in sorted(set(rates))]


def ranges(found: Sequence[AtRate]) -> list[tuple[str | None, float, float]]:
    """Each recommended exchange with the lowest and the highest rate at which it is."""
    joined: list[tuple[str | None, float, float]] = []
    for at in found:
        if joined and joined[-1][0] == at.recommended:
            joined[-1] = (at.recommended, joined[-1][1], at.rate)
        else:
            joined.append((at.recommended, at.rate, at.rate))
    return joined


def parts(result: PlanResult, plan: Plan) -> list[Element]:
    """The picture with what it assumes; nothing if all ranks are on one host."""
    found = at_rates(plan) if result.training.hosts > 1 else []
    names = _shown(found)
    if not names:
        return []
    base = plan_text.ALONE if result.recorded is None else plan_text.PERFECT
    legend = [tag("li", swatch(color % COLORS, ""), _entry(name, found)) for color, name in names]
    marks = [PlotMark(rate, f"measured: {rate_text(rate)}") for rate in _measured(plan)]
    legend.append(tag("li", swatch(None, "mark"), ", ".join(mark.note for mark in marks)))
    plot = Plot(
        name="network",
        title=TITLE,
        description=f"The axis of rates is logarithmic. Curves: {', '.join(dict(names).values())}.",
        unit=f"% of {base}",
        curves=[_curve(color, name, found) for color, name in names],
        guides=[Guide(None, plan.target, f"wanted: {100 * plan.target:g} %")],
        y_text=lambda share: f"{100 * share:.0f}",
        linear=True,
        zero=True,
        x=Scale("rate between hosts", _rate_ticks),
        marks=marks,
    )
    picture = figure(plot, tag("ul", *legend, class_="legend"), "h3")
    return [tag("div", picture, class_="plots"), tag("p", NOTE.strip(), class_="note")]


def _measured(plan: Plan) -> list[float]:
    """The rates that exchanges reached, of each transport."""
    names = dict.fromkeys(exchange.transport for exchange in plan.exchanges)
    return [rate for name in names if (rate := reached_rate(plan, name))]


def _at(plan: Plan, rate: float) -> AtRate:
    assumed = plan_as_if(plan, AsIfNetwork(rate_text(rate), rate=rate))
    several = len({exchange.transport for exchange in assumed.exchanges}) > 1
    names = [
        plan_text.label(exchange) + (f", {exchange.transport}" if several else "")
        for exchange in assumed.exchanges
    ]
    chosen = recommendation.recommended(assumed)
    index = next((i for i, one in enumerate(assumed.exchanges) if one is chosen), None)
    shares = {
        name: assumed.share(exchange)
        for name, exchange in zip(names, assumed.exchanges, strict=True)
    }
    return AtRate(rate, shares, None if index is None else names[index])


def _shown(found: Sequence[AtRate]) -> list[tuple[int, str]]:
    """Plain DDP and what is recommended anywhere, each with the number of its color."""
    names = (
        [name for name in found[0].shares if name.partition(",")[0] == NONE][:1] if found else []
    )
    names += [at.recommended for at in found if at.recommended]
    return list(enumerate(dict.fromkeys(names)))


def _entry(name: str, found: Sequence[AtRate]) -> str:
    """The name, and from which rate to which it is recommended."""
    spans = [(low, high) for chosen, low, high in ranges(found) if chosen == name]
    if not spans:
        return name
    texts = [rate_text(low) if low == high else _span(low, high) for low, high in spans]
    return f"{name}: recommended {', '.join(texts)}"


def _span(low: float, high: float) -> str:
    if low == LOWEST:
        return f"up to {rate_text(high)}"
    if high == HIGHEST:
        return f"from {rate_text(low)}"
    return f"from {rate_text(low)} to {rate_text(high)}"


def _curve(color: int, name: str, found: Sequence[AtRate]) -> PlotCurve:
    points = [
        Point(
            at.rate,
            at.shares[name],
            f"{name}, {rate_text(at.rate)}: {100 * at.shares[name]:.1f} %"
            + (", recommended" if at.recommended == name else ""),
        )
        for at in found
    ]
    # Each name at a height of its own, so that names do not cover each other.
    height = 0.2 + 0.1 * (color % 6)
    named_at = min(points, key=lambda point: abs(point.y - height))
    return PlotCurve(color % COLORS, "out", points, label=(named_at, name))


def _rate_ticks(low: float, high: float, limit: int) -> list[Tick]:
    bits = ticks(low * BITS_A_BYTE, high * BITS_A_BYTE, limit)
    return [(rate / BITS_A_BYTE, rate_text(rate / BITS_A_BYTE)) for rate in bits]
