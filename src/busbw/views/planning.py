"""A plan for people: a line for each method over each transport, and below them what to do."""

from busbw.core.planning import AS_IS, LOSSES, Exchange, Plan
from busbw.core.result import PlanResult
from busbw.core.sizes import counted
from busbw.core.transports import BY_NAME
from busbw.views import training
from busbw.views.columns import Column, fitting, line, wrapped

MB, MS = 1e6, 1e3
METHOD = 26  # characters
DROP_ORDER = ("what a gradient loses", "MB sent", "exchange ms", "exposed ms", "of alone")


def header(result: PlanResult, width: int | None = None) -> str:
    """Model, machine and settings, which are known before any exchange."""
    return training.header(result, width, iterations=False)


def surveyed(result: PlanResult, plan: Plan, width: int | None = None) -> str:
    """The step without a network, and the titles of what follows."""
    last = plan.buckets[-1]
    text = (
        f"# a step alone takes {plan.alone_s * MS:.2f} ms, on a perfect network {plan.still_s * MS:.2f}; "
        f"{counted(len(plan.buckets), 'bucket')}, the last of {last.nbytes / MB:.1f} MB ready after {last.ready_s * MS:.2f}\n"
    )
    shown = _columns(result, width)
    return f"{wrapped(text, width)}\n{line(shown, [column.title for column in shown])}"


def _columns(result: PlanResult, width: int | None) -> list[Column]:
    """The columns, whose values take the plan and an exchange. The methods are known before the first exchange, so widths are too."""
    local = result.training.hosts == 1  # then nothing leaves the host
    methods = result.training.spec.methods
    columns = [
        Column(title="transport", value=lambda plan, one: one.transport, width=9, left=True),
        Column(title="method", value=lambda plan, one: one.method, width=max([METHOD, *map(len, methods)]), left=True),
        Column(title="MB sent", value=lambda plan, one: "-" if one.counted is None or local else f"{one.counted / MB:.2f}", width=9),
        Column(title="exchange ms", value=lambda plan, one: f"{sum(one.bucket_s) * MS:.2f}", width=11),
        Column(title="exposed ms", value=lambda plan, one: f"{plan.exposed_s(one) * MS:.2f}", width=10),
        Column(title="step ms", value=lambda plan, one: f"{plan.step_s(one) * MS:.2f}", width=9),
        Column(title="of alone", value=lambda plan, one: f"{100 * plan.efficiency(one):.1f} %", width=8),
        Column(title="what a gradient loses", value=lambda plan, one: LOSSES[one.loss], left=True),
    ]
    widths = [column.width or max(map(len, LOSSES)) for column in columns]
    return [columns[at] for at in fitting(columns, widths, width, DROP_ORDER)]


def row(result: PlanResult, plan: Plan, exchange: Exchange, width: int | None = None) -> str:
    """One method over one transport."""
    shown = _columns(result, width)
    return line(shown, [column.text(plan, exchange) for column in shown])


def footer(result: PlanResult, width: int | None = None) -> str:
    """What to do, the code that does it, and how predicted steps compare with measured ones."""
    text = ""
    plan = result.plan
    chosen = plan.recommended() if plan else None
    if plan and chosen:
        text += wrapped(f"\n{_advice(plan, chosen)}", width) + _lines(chosen)
        text += wrapped("".join(_check(plan, one) for one in plan.exchanges if one.checked_s is not None), width)
    return text + wrapped("".join(f"error: {error}\n" for error in result.errors), width)


def render_all(result: PlanResult, width: int | None = None) -> str:
    """The whole text of a stored result."""
    plan = result.plan
    middle = surveyed(result, plan, width) + "".join(row(result, plan, one, width) for one in plan.exchanges) if plan else ""
    return header(result, width) + middle + footer(result, width)


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


def _lines(chosen: Exchange) -> str:
    lines = [line for line in (BY_NAME[chosen.transport].shell, chosen.code) if line]
    return "".join(f"  {line}\n" for line in lines) or "  nothing to change: DistributedDataParallel as it is\n"


def _check(plan: Plan, one: Exchange) -> str:
    assert one.checked_s is not None
    predicted = plan.step_s(one)
    return (
        f"checked: {one.method} over {one.transport}: {predicted * MS:.2f} ms predicted, {one.checked_s * MS:.2f} ms measured "
        f"({100 * (predicted / one.checked_s - 1):+.1f} %)\n"
    )
