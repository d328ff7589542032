"""Which exchanges of a plan are checked by training, on one rank in this process."""

import contextlib
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from busbw.core.errors import NoMeasurement
from busbw.launch.control import SoloControl
from busbw.measure.job import Job, perform
from busbw.measure.record import Record
from busbw.measure.sink import Sink
from busbw.measure.target import Placement
from busbw_accel.train import plan_rounds, transports
from busbw_accel.train.kinds import PlanJob, TrainJob
from busbw_accel.train.plan_types import PlanSpec
from busbw_accel.train.types import TrainSpec

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]
STEPS = {"batch_size": 2, "warmup": 1, "iters": 1, "steps": 3, "rounds": 2}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Threads that wait for each other take long where other tests use all cores."""
    from busbw_accel.host_adam import torch_threads

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with torch_threads(1):
        yield


def planner(
    monkeypatch: pytest.MonkeyPatch,
    *methods: str,
    target: float,
    file: Path | None = None,
    check_ends: BaseException | None = None,
) -> plan_rounds.Planner:
    """One that runs its jobs in this process; trainings that check end with `check_ends`."""

    def in_this_process(work: Job, _: Placement, sink: Sink) -> None:
        if check_ends is not None and isinstance(work, TrainJob):
            raise check_ends
        perform(work, SoloControl(), sink.take)

    monkeypatch.setattr(plan_rounds, "run", in_this_process)
    job = PlanJob(
        engine="torch",
        training=TrainSpec(model="mlp-small", methods=methods, **STEPS),
        plan=PlanSpec(iters=2, target=target),
    )
    return plan_rounds.Planner(job, Placement(ranks=1), file, lambda _: Sink(Record()))


def test_exchanges_are_measured_in_rounds_with_buckets_of_several_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan_rounds, "recommended", lambda plan: plan.exchanges[1])
    plan = (
        planner(monkeypatch, "int8", "none", target=1e-4)
        .run(transports.parse("as-is"), "best")
        .plan
    )
    assert plan is not None
    # DDP's default has a first bucket of 1 MB. Buckets of 4 MB are a single one here, and so are
    # those of 100 MB, which are left out.
    assert [(exchange.method, exchange.bucket_mb) for exchange in plan.exchanges] == [
        ("none", None),
        ("none", 1),
        ("none", 4),
        ("int8", None),
    ]
    (run,) = plan.runs
    assert [layout.bucket_mb for layout in run.layouts] == [25, 1, 4]
    sizes = [[bucket.nbytes for bucket in layout.rounds[0].buckets] for layout in run.layouts]
    assert all(sum(bucket_sizes) == 4 * 1_300_456 for bucket_sizes in sizes)
    assert (
        len(sizes[2]) == 1 < len(sizes[0])
        and len({tuple(bucket_sizes) for bucket_sizes in sizes}) == 3
    )
    assert len(run.alone_s) == 2 and all(len(layout.rounds) == 2 for layout in run.layouts)
    assert all(
        [len(round_.bucket_s) for round_ in exchange.rounds]
        == 2 * [len(run.layout(exchange.bucket_mb).rounds[0].buckets)]
        for exchange in plan.exchanges
    )
    assert plan.still_s == pytest.approx(
        sum(layout_round.still_s for layout_round in run.layouts[0].rounds) / 2
    )
    # The training that checks has buckets of the same size, and rounds of its own.
    assert [
        (exchange.bucket_mb, len(exchange.checks))
        for exchange in plan.exchanges
        if exchange.checked_s
    ] == [(1, 2)]
    assert plan.exchanges[1].code == "model = DistributedDataParallel(model, bucket_cap_mb=1)"


@pytest.mark.parametrize(("check", "checked"), [("all", ["int8", "bf16"]), ("none", [])])
def test_exchanges_are_checked_as_asked(
    monkeypatch: pytest.MonkeyPatch, check: str, checked: list[str]
) -> None:
    # both reach it
    plan = (
        planner(monkeypatch, "int8", "bf16", target=1e-4).run(transports.parse("as-is"), check).plan
    )
    assert plan is not None
    assert [(exchange.method, exchange.loss) for exchange in plan.exchanges] == [
        ("int8", 2),
        ("bf16", 1),
    ]
    assert [
        exchange.method for exchange in plan.exchanges if (exchange.checked_s or 0) > 0
    ] == checked


def test_contradictory_plans_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_rounds, "recommended", lambda _: None)
    plan = planner(monkeypatch, "int8", target=1e-4).run(transports.parse("as-is"), "best").plan
    assert plan is not None
    assert [exchange.checked_s for exchange in plan.exchanges] == [None]


@pytest.mark.parametrize(
    ("ends", "error"),
    [
        (NoMeasurement("rank 1 died", ""), "the training over as-is did not end: rank 1 died"),
        (SystemExit(143), "the run ended before its exchanges were checked"),
    ],
)
def test_a_plan_whose_check_did_not_end_is_not_complete(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ends: BaseException, error: str
) -> None:
    monkeypatch.setattr(plan_rounds, "recommended", lambda plan: plan.exchanges[0])
    file = tmp_path / "plan.json"
    plan = planner(monkeypatch, "int8", target=1e-4, file=file, check_ends=ends)
    with contextlib.suppress(SystemExit):
        plan.run(transports.parse("as-is"), "best")
    saved = json.loads(file.read_text())
    assert not saved["complete"] and error in saved["errors"][0]
    assert len(saved["plan"]["exchanges"]) == 1
