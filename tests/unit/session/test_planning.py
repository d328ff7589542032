"""Which exchanges of a plan are checked by training, on one rank in this process."""

from importlib.util import find_spec

import pytest

from busbw.core import transports
from busbw.core.planning import PlanSpec
from busbw.core.training import TrainSpec
from busbw.launch.control import SoloControl
from busbw.measure.job import AnyJob, PlanJob
from busbw.measure.record import Record
from busbw.session import planning
from busbw.session.rank import perform
from busbw.session.sink import Sink
from busbw.session.where import Where

pytestmark = [pytest.mark.torch, pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")]
STEPS = {"batch_size": 2, "warmup": 1, "iters": 1, "batches": 3}


@pytest.mark.parametrize(("check", "checked"), [("all", ["int8", "bf16"]), ("best", ["bf16"]), ("none", [])])
def test_exchanges_are_checked_as_asked(monkeypatch: pytest.MonkeyPatch, check: str, checked: list[str]) -> None:
    def in_this_process(work: AnyJob, _: Where, sink: Sink) -> None:
        perform(work, SoloControl(), sink.take)

    monkeypatch.setattr(planning, "run", in_this_process)
    spec = TrainSpec(model="mlp-small", methods=("int8", "bf16"), **STEPS)
    job = PlanJob(engine="torch", training=spec, plan=PlanSpec(replays=2, target=1e-4))  # both reach it, and bf16 loses less
    planner = planning.Planner(job, Where(ranks=1), None, lambda _: Sink(Record()))
    plan = planner.run(transports.parse("as-is"), check).plan
    assert plan is not None
    assert [(one.method, one.loss) for one in plan.exchanges] == [("int8", 2), ("bf16", 1)]
    assert [one.method for one in plan.exchanges if (one.checked_s or 0) > 0] == checked
