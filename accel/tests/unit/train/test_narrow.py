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
