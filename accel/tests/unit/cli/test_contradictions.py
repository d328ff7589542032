"""Output and exit codes of plan and train where figures contradict each other, and the output of an
interrupted plan.
"""

import json

import pytest

from busbw.cli.exit_codes import rows_of
from busbw.cli.main import guarded
from busbw.cli.run_job import RunOptions
from busbw.core.finding import Verdict
from busbw.measure.events import Started
from busbw_accel.cli import plan as plan_command
from busbw_accel.train.kinds import PlanResult, Surveyed, TrainResult
from busbw_accel.train.plan_rounds import Planner
from busbw_accel.train.plan_types import (
    Bucket,
    BucketLayout,
    ExchangeRound,
    LayoutRound,
    MeasuredExchange,
    Plan,
    PlanRun,
)
from busbw_accel.train.types import ALONE, TrainingRuns, TrainRun, TrainSpec

ROWS = {row.command: row for row in rows_of("busbw_accel.cli")}
SAID = "figures contradict each other:"


def trained() -> TrainResult:
    """Alone eight times as long as under DDP."""
    training = TrainingRuns(TrainSpec(model="mlp", rounds=2), "img", 1, 4, 2)
    for number in range(2):
        training.runs += [
            TrainRun(ALONE, number, [1.6], [1.0], silent_s=[0.2]),
            TrainRun("none", number, [0.6], [3.0], silent_s=[0.2]),
        ]
    return TrainResult(training=training)


def planned(alone_s: float) -> PlanResult:
    buckets = [Bucket(4, 0.19)]
    run = PlanRun("as-is", 2 * [alone_s], [BucketLayout(25.0, 2 * [LayoutRound(0.2, buckets)])])
    none = MeasuredExchange("as-is", "none", 0, [0.1], rounds=2 * [ExchangeRound([0.1])])
    return PlanResult(
        training=TrainingRuns(TrainSpec(model="mlp", rounds=2), "img", 1, 4, 2),
        plan=Plan(0.5, alone_s, 0.2, buckets, [none], [run]),
    )


@pytest.mark.parametrize("words", [(), ("--format", "json")])
def test_a_training_that_contradicts_itself_exits_with_3(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(RunOptions, "measure", lambda *_: trained())
    assert guarded(["train", "mlp", *words]) == ROWS["train"].code(Verdict.UNKNOWN) == 3
    # Without --format json it is a part of the table, which the run prints.
    assert (f"no comparison: {SAID}" in capsys.readouterr().err) == bool(words)


@pytest.mark.parametrize(("alone_s", "code"), [(1.6, 3), (0.19, 0)])
def test_a_plan_that_contradicts_itself_recommends_nothing(
    alone_s: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Planner, "run", lambda *_: planned(alone_s))
    verdict = Verdict.UNKNOWN if code else Verdict.PASS
    assert guarded(["plan", "mlp"]) == ROWS["plan"].code(verdict) == code
    out = capsys.readouterr().out
    assert (f"no recommendation: {SAID}" in out, "nothing lossy is needed" in out) == (
        code == 3,
        code == 0,
    )
    assert guarded(["plan", "mlp", "--format", "json"]) == code
    captured = capsys.readouterr()
    assert json.loads(captured.out)["plan"]["alone_s"] == alone_s
    assert (SAID in captured.err) == (code == 3)


def test_an_interrupted_plan_prints_its_measurements(capsys: pytest.CaptureFixture[str]) -> None:
    output, result = plan_command.PlanOutput(first=True), planned(0.19)
    assert result.plan is not None
    output.take(Started(PlanResult(training=result.training)))
    output.take(Surveyed(result.plan))
    assert "none" not in capsys.readouterr().out
    output.run_aborted("interrupted")
    assert capsys.readouterr().out.splitlines()[-1].split()[:2] == ["as-is", "none"]


@pytest.mark.parametrize(("model", "rounds"), [(("mlp",), 4), (("gpt", "--params", "1.1M"), 1)])
def test_trainings_have_rounds_unless_their_steps_take_seconds(
    model: tuple[str, ...], rounds: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(["train", *model, "-np", "1", "--dry-run"]) == 0
    assert f'"rounds":{rounds}' in capsys.readouterr().out
