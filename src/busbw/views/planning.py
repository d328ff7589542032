"""A plan for people: a line for each method over each transport, and below them what to do."""

from busbw.core.planning import AS_IS, LOSSES, Exchange, Plan
from busbw.core.result import PlanResult
from busbw.core.transports import BY_NAME
from busbw.views.words import library, machine

MB, MS = 1e6, 1e3
LINE = "{:<9}  {:<{}}  {:>9}  {:>11}  {:>10}  {:>9}  {:>8}  {}\n"
METHOD = 26  # columns, or those of the longest method that is weighed
TITLES = ("transport", "method", "MB sent", "exchange ms", "exposed ms", "step ms", "of alone", "what a gradient loses")


def header(result: PlanResult) -> str:
    """What trains where, and what is known before any exchange."""
    made = result.training
    sequence = f" of {made.spec.sequence} tokens" if made.unit == "seq" else ""
    return (
        f"# {made.spec.model}: {made.parameters:,} parameters, {made.gradients / MB:.1f} MB of gradients a step\n"
        f"# {machine(result)}, {library(result)}\n"
        f"# batch {made.spec.batch_size}{sequence} a rank, {made.spec.precision}, buckets of {made.spec.bucket_mb:g} MB\n"
    )


def surveyed(result: PlanResult, plan: Plan) -> str:
    """The step without a network, and the titles of what follows."""
    count = len(plan.buckets)
    last = plan.buckets[-1]
    return (
        f"# a step alone takes {plan.alone_s * MS:.2f} ms, on a perfect network {plan.still_s * MS:.2f}; "
        f"{count} {'bucket' if count == 1 else 'buckets'}, the last of {last.nbytes / MB:.1f} MB ready after {last.ready_s * MS:.2f}\n\n"
        + _line(result, *TITLES)
    )


def _line(result: PlanResult, transport: str, method: str, *words: str) -> str:
    """What is weighed is known before the first of it is: the training names it all."""
    return LINE.format(transport, method, max([METHOD, *map(len, result.training.spec.methods)]), *words)


def row(result: PlanResult, plan: Plan, exchange: Exchange) -> str:
    """One method over one transport."""
    return _line(
        result,
        exchange.transport,
        exchange.method,
        "-" if exchange.counted is None else f"{exchange.counted / MB:.2f}",
        f"{sum(exchange.bucket_s) * MS:.2f}",
        f"{plan.exposed_s(exchange) * MS:.2f}",
        f"{plan.step_s(exchange) * MS:.2f}",
        f"{100 * plan.efficiency(exchange):.1f} %",
        LOSSES[exchange.loss],
    )


def footer(result: PlanResult) -> str:
    """What to do, the lines that do it, and how steps that were run compare."""
    text = ""
    plan = result.plan
    chosen = plan.recommended() if plan else None
    if plan and chosen:
        text += f"\n{_advice(plan, chosen)}" + _lines(result, chosen)
        text += "".join(_check(plan, one) for one in plan.exchanges if one.checked_s is not None)
    return text + "".join(f"error: {error}\n" for error in result.errors)


def render_all(result: PlanResult) -> str:
    """The whole text of a result that was kept."""
    plan = result.plan
    middle = surveyed(result, plan) + "".join(row(result, plan, one) for one in plan.exchanges) if plan else ""
    return header(result) + middle + footer(result)


def _advice(plan: Plan, chosen: Exchange) -> str:
    step, target = plan.known_s(chosen), f"{100 * plan.target:g} %"
    where = f"{chosen.method}{'' if chosen.transport == AS_IS else f' over {chosen.transport} ({BY_NAME[chosen.transport].meaning})'}"
    takes = "which took" if chosen.checked_s else "expected to take"
    figures = f"{takes} {step * MS:.2f} ms a step, {100 * plan.alone_s / step:.1f} % of alone"
    if plan.reaches(chosen) and chosen.loss == 0:
        return f"nothing lossy is needed: {where}, {figures} (wanted: {target})\n"
    reaches = f"the least lossy that reaches {target}" if plan.reaches(chosen) else f"nothing reaches {target}; as good as fastest"
    dense = min((one for one in plan.exchanges if one.loss == 0), key=plan.step_s, default=None)
    pays = ""
    if dense is not None and dense is not chosen:
        pays = f"; {dense.method} should expose {plan.exposed_s(dense) * MS:.2f} ms, this {plan.exposed_s(chosen) * MS:.2f}"
    return f"{reaches}: {where}, {figures}{pays}\n"


def _lines(result: PlanResult, chosen: Exchange) -> str:
    lines = [line for line in (BY_NAME[chosen.transport].shell, chosen.code) if line]
    return "".join(f"  {line}\n" for line in lines) or "  nothing to change: DistributedDataParallel as it is\n"


def _check(plan: Plan, one: Exchange) -> str:
    assert one.checked_s is not None
    predicted = plan.step_s(one)
    return (
        f"checked: {one.method} over {one.transport}: {predicted * MS:.2f} ms predicted, {one.checked_s * MS:.2f} ms measured "
        f"({100 * (predicted / one.checked_s - 1):+.1f} %)\n"
    )
