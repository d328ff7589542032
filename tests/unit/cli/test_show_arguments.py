"""What `busbw show`, and all that read a result, say of a file that holds no sweep."""

from pathlib import Path

import pytest

from busbw.cli.main import guarded
from busbw.core.planning import Bucket, Plan
from busbw.core.result import PlanResult, TrainResult
from busbw.core.training import Training, TrainRun, TrainSpec
from busbw.views import result_json


@pytest.mark.parametrize(("planned", "kind"), [(True, "a plan for mlp"), (False, "a training of mlp")])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("compare", "p.json", "p.json"), ", not a sweep"),
        (("report", "p.json"), ", not a sweep"),
        (("show", "p.json", "--format", "csv"), ", but 'csv' shows sweeps"),
    ],
    ids=["compare", "report", "show"],
)
def test_a_file_is_called_what_it_is(
    words: tuple[str, ...],
    said: str,
    planned: bool,
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    training = Training(TrainSpec(model="mlp"), "img", 1000, 4000, 1, [] if planned else [TrainRun("none", 0, [1.0], [32.0])])
    plan = Plan(0.95, 0.1, 0.1, [Bucket(4000, 0.09)]) if planned else None
    result = PlanResult(training=training, plan=plan) if planned else TrainResult(training=training, complete=True)
    (tmp_path / "p.json").write_text(result_json.render(result))
    monkeypatch.chdir(tmp_path)
    assert guarded(words) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"error: p.json is {kind}{said}"
    assert guarded(("show", "p.json")) == 0
