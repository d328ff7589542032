"""Files of trainings and plans in the commands that read files of busbw."""

import json
import shlex
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from busbw.cli.main import guarded
from busbw.model.buckets import Bucket
from busbw.report import results
from busbw_accel.train.kinds import PlanResult, TrainResult
from busbw_accel.train.plan_types import Plan
from busbw_accel.train.types import TrainingRuns, TrainRun, TrainSpec
from tests.unit.report.test_html_others import is_drawn, named, report, words

BENCHMARKS = Path(__file__).parents[4] / "benchmarks"
RECORDED = {
    "plan": BENCHMARKS / "plan_2xh200_202611/gpt2.json",
    "contradicted plan": BENCHMARKS / "plan_2cpu_202611/mlp-small.json",
    "memory plan": BENCHMARKS / "offload_1xh100_202611/plan_8b.json",
    "training": BENCHMARKS / "train_2xh200_202611/25g_gpt2.json",
    "states": BENCHMARKS / "offload_1xh100_202611/train_3b.json",
}
RATES = shlex.split("--gpu-memory 80G --host-memory 500G --tflops 400 --pcie 50GB/s --adam-rate 2")


@pytest.mark.parametrize(
    ("planned", "kind"), [(True, "a plan for mlp"), (False, "a training of mlp")]
)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("compare", "p.json", "p.json"), ", which is not compared"),
        (("explain", "p.json"), ", not a sweep"),
        (("show", "p.json", "--format", "csv"), ", but 'csv' shows sweeps"),
    ],
    ids=["compare", "explain", "show"],
)
def test_a_file_is_named_by_its_kind(
    words: tuple[str, ...],
    message: str,
    planned: bool,
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    training = TrainingRuns(
        TrainSpec(model="mlp"),
        "img",
        1000,
        4000,
        1,
        [] if planned else [TrainRun("none", 0, [1.0], [32.0])],
    )
    plan = Plan(0.95, 0.1, 0.1, [Bucket(4000, 0.09)]) if planned else None
    result = (
        PlanResult(training=training, plan=plan)
        if planned
        else TrainResult(training=training, complete=True)
    )
    (tmp_path / "p.json").write_text(results.render(result))
    monkeypatch.chdir(tmp_path)
    assert guarded(words) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"error: p.json is {kind}{message}"
    assert guarded(("show", "p.json")) == 0


def test_a_memory_plan_is_shown_without_the_line_that_the_file_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        guarded(("plan", "gpt", "--params", "8B", "--memory-plan", *RATES, "--json", "plan.json"))
        == 0
    )
    printed = capsys.readouterr().out.splitlines(keepends=True)
    schema = (files("busbw_accel") / "schemas" / "busbw.states-plan-1.schema.json").read_text()
    jsonschema.validate(json.loads((tmp_path / "plan.json").read_text()), json.loads(schema))
    assert guarded(("show", "plan.json")) == 0
    assert capsys.readouterr().out == "".join(printed[:-1])
    assert printed[-1].startswith("  busbw train gpt --params 8B")


@pytest.mark.parametrize("name", RECORDED)
def test_a_file_is_bars_and_a_table_without_text_output(tmp_path: Path, name: str) -> None:
    code, root = report(tmp_path, RECORDED[name])
    assert code == 0
    assert is_drawn(root, least_bars=1 if name == "training" else 3)


def test_a_report_has_a_section_for_each_file(tmp_path: Path) -> None:
    _, root = report(tmp_path, RECORDED["training"], RECORDED["plan"])
    titles = [words(title).partition(":")[0] for title in named(root, "h2")]
    assert titles[:2] == ["Training of gpt2", "Plan for gpt2"]
