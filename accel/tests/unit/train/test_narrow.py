"""Trainings and plans in a narrow terminal."""

from busbw_accel.train import plan_text
from busbw_accel.train import text as train_text
from busbw_accel.train.kinds import PlanResult, TrainResult


def test_trainings_and_plans_fit_80_columns(trained: TrainResult, planned: PlanResult) -> None:
    texts = [train_text.footer(trained, 80), plan_text.render_all(planned, 80)]
    assert [
        line
        for text in texts
        for line in text.splitlines()
        if len(line) > 80 and "busbw_accel" not in line
    ] == []


def test_trainings_and_plans_have_rows(trained: TrainResult, planned: PlanResult) -> None:
    (first, *_), (exchange, *_) = trained.records(), planned.records()
    assert first["method"] == trained.training.runs[0].method and first["rate"] > 0
    assert planned.plan and len(planned.records()) == len(planned.plan.exchanges)
    assert exchange["step_s"] == planned.plan.step_s(planned.plan.exchanges[0])
