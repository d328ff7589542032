"""The text of a plan: a line for each method over each transport, and below them what to do."""

from busbw.core.sizes import counted
from busbw.stats import rounds
from busbw.ui.columns import Column, fitting, line, wrapped
from busbw_accel.train import as_if_network, recommendation, recorded_text
from busbw_accel.train import text as train_text
from busbw_accel.train.as_if_network import rate_text
from busbw_accel.train.by_bandwidth import ranges
from busbw_accel.train.kinds import PlanResult
from busbw_accel.train.plan_types import AS_IS, LOSSES, MeasuredExchange, Plan
from busbw_accel.train.recorded_losses import NOTE, RECORD, RecordedLoss, recorded_loss
from busbw_accel.train.rounds_text import (
    MS,
    contradiction_text,
    note,
    percent_plus_minus,
    plus_minus,
    unclear_text,
)
from busbw_accel.train.transports import BY_NAME
from busbw_accel.train.types import DEFAULT_BUCKET_MB

MB = 1e6
METHOD = 20  # characters of `none, 100 MB buckets`
STEP, SHARE = (9, 16), (10, 14)  # characters without and with an interval
LOSS = 11  # characters of `+15.8 +-1.4`
ALONE, PERFECT = "alone", "a perfect network"  # what a rate is a share of
DROP_ORDER = (
    "what a gradient loses",
    "MB sent",
    "exchange ms",
    "exposed ms",
    "of alone",
    "of perfect",
    "loss, %",
)
LOSS_NOTE = f"# {NOTE}\n"
UNKNOWN_WITHOUT_TIMES = ("exposed ms", "step ms", "of perfect")


def label(exchange: MeasuredExchange) -> str:
    """The method, and the size of DDP's buckets if it differs from that of the training.

    For example `none, 4 MB buckets`.
    """
    if exchange.bucket_mb is None:
        return exchange.method
    return f"{exchange.method}, {exchange.bucket_mb:g} MB buckets"


def header(result: PlanResult, width: int | None = None) -> str:
    """Model, machine and settings, which are known before any exchange."""
    if result.recorded is not None:
        return recorded_text.header(result, result.recorded, width)
    return train_text.header(result, width, iterations=False)


def surveyed(result: PlanResult, plan: Plan, width: int | None = None) -> str:
    """The step without a network, and the titles of what follows."""
    shown = columns(result, width)
    titles = line(shown, [column.title for column in shown])
    if result.recorded is not None:
        text = recorded_text.surveyed(result, result.recorded, plan, width)
        return f"{text}{wrapped(LOSS_NOTE, width)}\n{titles}"
    return f"{wrapped(step_alone(plan) + LOSS_NOTE, width)}\n{titles}"


def step_alone(plan: Plan) -> str:
    """The step without a network, and its buckets."""
    last, run = plan.buckets[-1], plan.runs[0] if plan.runs else None
    alone = plus_minus(plan.alone_s, rounds.mean_interval(run.alone_s) if run else None, MS, 2)
    stills = [layout_round.still_s for layout_round in run.layouts[0].rounds] if run else []
    note_text = note(len(run.alone_s) if run else 1)
    means = f"; {note_text}" if note_text else ""
    return (
        f"# a step alone takes {alone} ms, on a perfect network"
        f" {plus_minus(plan.still_s, rounds.mean_interval(stills), MS, 2)};"
        f" {counted(len(plan.buckets), 'bucket')}, the last of {last.nbytes / MB:.1f} MB ready"
        f" after {last.ready_s * MS:.2f}{means}\n"
    )


def columns(result: PlanResult, width: int | None) -> list[Column]:
    """The columns, whose values take the plan and an exchange.

    The methods are known before the first exchange, so widths are too.
    """
    local = result.training.hosts == 1  # then nothing leaves the host
    spec = result.training.spec
    more = int(spec.rounds > 1)
    columns = [
        Column(
            title="transport", value=lambda plan, exchange: exchange.transport, width=9, left=True
        ),
        Column(
            title="method",
            value=lambda plan, exchange: label(exchange),
            width=max([METHOD, *map(len, spec.methods)]),
            left=True,
        ),
        Column(
            title="MB sent",
            value=lambda plan, exchange: (
                "-" if exchange.counted is None or local else f"{exchange.counted / MB:.2f}"
            ),
            width=9,
        ),
        Column(
            title="exchange ms",
            value=lambda plan, exchange: f"{exchange.exchange_s * MS:.2f}",
            width=11,
        ),
        Column(title="exposed ms", value=_exposed, width=max(10, STEP[more])),
        Column(title="step ms", value=_step, width=STEP[more]),
        Column(
            title="of perfect" if result.recorded else "of alone", value=_share, width=SHARE[more]
        ),
        Column(title="loss, %", value=_loss, width=LOSS),
        Column(
            title="what a gradient loses",
            value=lambda plan, exchange: LOSSES[exchange.loss],
            left=True,
        ),
    ]
    if result.recorded and result.recorded.step_s is None:
        columns = [column for column in columns if column.title not in UNKNOWN_WITHOUT_TIMES]
    widths = [column.width or max(map(len, LOSSES)) for column in columns]
    order: tuple[str, ...] = DROP_ORDER
    if result.recorded and train_text.device(result) == "CPU":
        order = ("transport", *order)  # there is one
    return [columns[at] for at in fitting(columns, widths, width, order)]


def _exposed(plan: Plan, exchange: MeasuredExchange) -> str:
    return plus_minus(
        plan.exposed_s(exchange), recommendation.exposed_interval(plan, exchange), MS, 2
    )


def _step(plan: Plan, exchange: MeasuredExchange) -> str:
    return plus_minus(plan.step_s(exchange), recommendation.step_interval(plan, exchange), MS, 2)


def _share(plan: Plan, exchange: MeasuredExchange) -> str:
    return percent_plus_minus(
        plan.efficiency(exchange), recommendation.efficiency_interval(plan, exchange)
    )


def _loss(_: Plan, exchange: MeasuredExchange) -> str:
    """What the method's loss was above that of plain DDP, where it was recorded."""
    if exchange.loss == 0:
        return "0"
    found = recorded_loss(exchange.method)
    return _percent_loss(found) if found else "-"


def _percent_loss(found: RecordedLoss) -> str:
    return f"{100 * found.loss:+z.1f} +-{100 * found.half_width:.1f}"


def rows(result: PlanResult, plan: Plan, width: int | None = None) -> str:
    """A line for each method over each transport."""
    shown = columns(result, width)
    return "".join(
        line(shown, [column.text(plan, exchange) for column in shown])
        for exchange in plan.exchanges
    )


def footer(result: PlanResult, width: int | None = None) -> str:
    """What to do, the code that does it, and how predicted steps compare with measured ones.

    Or the reason why nothing is recommended.
    """
    text = advice(result, width)
    if result.plan:
        text += wrapped(checks(result) + refusal(result), width)
        text += "".join(as_if(result, result.plan, name, width) for name in result.plan.as_if)
        text += wrapped(by_bandwidth(result), width)
    return text + wrapped("".join(f"error: {error}\n" for error in result.errors), width)


def advice(result: PlanResult, width: int | None = None) -> str:
    """What to do, and the code that does it; '' if nothing is recommended."""
    plan = result.plan
    chosen = recommendation.recommended(plan) if plan else None
    if plan is None or chosen is None or not is_timed(result):
        return ""
    base = PERFECT if result.recorded else ALONE
    text = f"\n{_advice(plan, chosen, base)}{_alike(plan, chosen)}{_local_cost(chosen)}"
    return wrapped(text, width) + _lines(result, plan, chosen)


def checks(result: PlanResult) -> str:
    """A line for each exchange whose step was measured too, or one on the recorded step."""
    plan = result.plan
    if plan is None:
        return ""
    if result.recorded is not None:
        return recorded_text.comparison(result.recorded, plan)
    checked = [exchange for exchange in plan.exchanges if exchange.checked_s is not None]
    return "".join(_check(plan, exchange) for exchange in checked)


def refusal(result: PlanResult) -> str:
    """Why nothing is recommended, and what to do; '' if something is.

    Figures contradict each other, or vary too much.
    """
    plan, count = result.plan, result.training.spec.rounds
    if plan is None:
        return ""
    if not is_timed(result):
        return recorded_text.NO_TIMES
    bounds = recommendation.contradictions(plan)
    if bounds:
        return contradiction_text("no recommendation", bounds, result, count)
    exchange = recommendation.unclear(plan)
    interval = recommendation.share_interval(plan, exchange) if exchange else None
    if exchange is None or interval is None:
        return ""
    base = PERFECT if result.recorded else ALONE
    lead = "no recommendation: rounds differ too much"
    return unclear_text(lead, label(exchange), interval, base, result, count)


def as_if(result: PlanResult, plan: Plan, name: str, width: int | None = None) -> str:
    """The steps as if the network were another, and which exchange would be best."""
    assumed = as_if_network.plan_as_if(plan, as_if_network.parse(name))
    text = "\n" + wrapped(as_if_title(plan, name), width)
    if not assumed.exchanges:
        return text
    shown = columns(result, width)
    text += line(shown, [column.title for column in shown]) + rows(result, assumed, width)
    chosen = recommendation.recommended(assumed)
    if chosen is None or not is_timed(result):
        return text
    return text + wrapped(_advice(assumed, chosen, PERFECT if result.recorded else ALONE), width)


def by_bandwidth(result: PlanResult) -> str:
    """A line for each range of bandwidths between hosts, with the method that would be recommended;
    '' without a recommendation.
    """
    plan = result.plan
    found = ranges(plan) if plan and is_timed(result) else []
    if plan is None or not found:
        return ""
    lines = "".join(f"  {span.text(plan.target)}\n" for span in found)
    return f"\nby bandwidth out of a host, predicted and not measured:\n{lines}"


def as_if_title(plan: Plan, name: str) -> str:
    """What is assumed, and what was measured."""
    network = as_if_network.parse(name)
    lead = f"as if the network {network.meaning}"
    reached = {
        transport: as_if_network.reached_rate(plan, transport)
        for transport in dict.fromkeys(exchange.transport for exchange in plan.exchanges)
    }
    if not any(reached.values()):
        return f"{lead}: unknown, since nothing leaves a host\n"
    measured = [f"{rate_text(rate)} over {name}" for name, rate in reached.items() if rate]
    return (
        f"{lead}, predicted and not measured; an exchange here left a host with up to"
        f" {', '.join(measured)}:\n"
    )


def is_timed(result: PlanResult) -> bool:
    """Whether it is known what a step takes."""
    return result.recorded is None or result.recorded.step_s is not None


def render_all(result: PlanResult, width: int | None = None) -> str:
    """The whole text of a stored result."""
    plan = result.plan
    middle = surveyed(result, plan, width) + rows(result, plan, width) if plan else ""
    return header(result, width) + middle + footer(result, width)


def _advice(plan: Plan, chosen: MeasuredExchange, base: str) -> str:
    target = f"{100 * plan.target:g} %"
    name = label(chosen)
    if chosen.transport != AS_IS:
        name += f" over {chosen.transport} ({BY_NAME[chosen.transport].meaning})"
    takes = "which took" if chosen.checked_s else "expected to take"
    interval = recommendation.share_interval(plan, chosen)
    suffix = f" of {base}"
    if interval is not None and interval.low < plan.target < interval.high:
        suffix = f" of {base}, an interval that has {target}"
    figures = (
        f"{takes} {_known_text(plan, chosen)} ms a step,"
        f" {percent_plus_minus(plan.share(chosen), interval)}{suffix}"
    )
    if plan.reaches(chosen) and chosen.loss == 0:
        return f"nothing lossy is needed: {name}, {figures} (wanted: {target})\n"
    reaches = f"nothing reaches {target}; best"
    if plan.reaches(chosen):
        reaches = f"the least lossy that reaches {target}"
    elif any(map(plan.reaches, plan.exchanges)):
        reaches = f"nothing is seen to be faster in reaching {target}"
    lossless = [exchange for exchange in plan.exchanges if exchange.loss == 0]
    dense = min(lossless, key=plan.step_s, default=None)
    pays = ""
    if dense is not None and chosen.loss:
        pays = (
            f"; {label(dense)} should expose {plan.exposed_s(dense) * MS:.2f} ms, this"
            f" {plan.exposed_s(chosen) * MS:.2f}"
        )
    return f"{reaches}: {name}, {figures}{pays}\n"


def _known_text(plan: Plan, exchange: MeasuredExchange) -> str:
    if exchange.checked_s:
        interval = rounds.mean_interval([check.step_s for check in exchange.checks])
    else:
        interval = recommendation.step_interval(plan, exchange)
    return plus_minus(plan.known_s(exchange), interval, MS, 2)


def _alike(plan: Plan, chosen: MeasuredExchange) -> str:
    """A line about the fastest exchange, if another was chosen."""
    best = recommendation.no_slower(plan, chosen)
    if best is None:
        return ""
    is_faster = recommendation.faster(plan, best, chosen)
    if is_faster and plan.reaches(chosen):
        return ""
    ratio, interval = recommendation.gain(plan, best, chosen)
    between = f" ({100 * interval.low:.1f} to {100 * interval.high:.1f})" if interval else ""
    difference = "no difference seen"
    if is_faster:
        difference = "faster, but not seen to be faster than all that lose less"
    elif interval and interval.low > 1:
        difference = f"less than {100 * recommendation.EQUAL_STEP_SHARE:g} % faster"
    over = "" if best.transport == chosen.transport else f" over {best.transport}"
    return f"{difference}: {label(best)}{over}, {100 * ratio:.1f} %{between} of its rate\n"


def _local_cost(chosen: MeasuredExchange) -> str:
    """A line about what local steps cost in loss; '' for an exchange of gradients."""
    if chosen.local is None:
        return ""
    found = recorded_loss(chosen.method)
    cost = "what it costs in loss is not recorded"
    if found:
        above = _percent_loss(found).lstrip("+")
        cost = (
            f"the loss of a small language model was {above} % above plain DDP's after 600 steps"
            f", by local steps from the first on ({RECORD})"
        )
    return (
        f"this is another training, in which ranks train by themselves: {cost}; begin with plain"
        " DDP and attach after a third of the steps, with outer_lr=0.7 and outer_momentum=0.9,"
        " which cost that model nothing; compare losses, and call exchange_now before the model is"
        " saved\n"
    )


def _lines(result: PlanResult, plan: Plan, chosen: MeasuredExchange) -> str:
    if result.recorded is not None:
        texts = recorded_text.lines(chosen)
        return "".join(f"  {text}\n" for text in texts)
    bucket_mb = result.training.spec.bucket_mb
    limit = "" if bucket_mb == DEFAULT_BUCKET_MB else f"(model, bucket_cap_mb={bucket_mb:g})"
    lines = [line for line in (BY_NAME[chosen.transport].shell, chosen.code) if line]
    lines = lines or [f"nothing to change: DistributedDataParallel{limit} as it is"]
    if chosen.bucket_mb is not None:
        lines.append(f"in busbw train: --bucket-mb {chosen.bucket_mb:g}")
        others = any(exchange.method != chosen.method for exchange in plan.exchanges)
        if others and not plan.reaches(chosen):
            lines.append(
                f"busbw plan --bucket-mb {chosen.bucket_mb:g} measures the other methods with these"
                " buckets"
            )
    return "".join(f"  {line}\n" for line in lines)


def _check(plan: Plan, exchange: MeasuredExchange) -> str:
    assert exchange.checked_s is not None
    difference = plan.step_s(exchange) / exchange.checked_s - 1
    return (
        f"checked: {label(exchange)} over {exchange.transport}:"
        f" {_step(plan, exchange)} ms predicted,"
        f" {_known_text(plan, exchange)} ms measured ({100 * difference:+.1f} %)\n"
    )
