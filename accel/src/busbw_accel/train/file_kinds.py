"""The files of trainings and plans: how busbw reads, prints and reports them."""

from busbw.report.file_kinds import FileKind
from busbw.report.results import ResultKind
from busbw_accel.memory_plan import html as memory_plan_html
from busbw_accel.memory_plan import types as memory_plan_text
from busbw_accel.memory_plan.types import StatesPlan
from busbw_accel.train import html, plan_text, states_text, text
from busbw_accel.train.kinds import PlanResult, TrainResult
from busbw_accel.train.losses import verdicts
from busbw_accel.train.result_checks import check


def _training_table(result: TrainResult, width: int | None, ran: bool) -> str:
    if result.training.spec.states:
        return states_text.render_all(result, width)
    return text.render_all(result, width)


def _training_in_brief(result: TrainResult, width: int | None) -> str:
    """Without a line for each iteration."""
    if result.training.spec.states:
        return states_text.render_all(result, width)
    return text.header(result, width) + text.footer(result, width)


def _training_markdown(result: TrainResult) -> str | None:
    return states_text.markdown(result) if result.training.spec.states else None


TRAINING = ResultKind(
    TrainResult,
    lambda result: f"a training of {result.training.spec.model}",
    _training_table,
    html.training,
    check,
    _training_markdown,
    _training_in_brief,
)
PLAN = ResultKind(
    PlanResult,
    lambda result: f"a plan for {result.training.spec.model}",
    lambda result, width, ran: plan_text.render_all(result, width),
    html.plan,
    check,
)
MEMORY_PLAN = FileKind(
    "Memory plan",
    StatesPlan,
    lambda plan, width: memory_plan_text.text(plan, "", width),
    parts=memory_plan_html.parts,
)
LOSSES = FileKind("Losses by methods", verdicts.LossReport, verdicts.text)
