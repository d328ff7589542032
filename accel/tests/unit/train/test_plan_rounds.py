"""Which exchanges of a plan are checked by training, on one rank in this process."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from busbw.core.errors import NoMeasurement, UsageError
from busbw.launch.control import SoloControl
from busbw.launch.slurm import JobStep
from busbw.measure.job import Job, perform
from busbw.measure.record import RunRecord
from busbw.measure.sink import Sink
from busbw.measure.target import LaunchTarget
from busbw.pattern.training.recorded_step import RecordedBucket, RecordedStep
from busbw_accel.train import job as train_job
from busbw_accel.train import plan_rounds, transports
from busbw_accel.train.kinds import PlanJob, TrainJob
from busbw_accel.train.plan_types import MeasuredExchange, Plan, PlanSpec
from busbw_accel.train.types import TrainSpec

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]
STEPS = {"batch_size": 2, "warmup": 1, "iters": 1, "steps": 1, "rounds": 2}


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
    recorded: RecordedStep | None = None,
    fails: str = "no transport",
) -> plan_rounds.Planner:
    """One that runs its jobs in this process; trainings that check end with `check_ends`, and
    the measurements over the transport `fails` with an error.
    """

    def in_this_process(work: Job, _: LaunchTarget, sink: Sink) -> None:
        if check_ends is not None and isinstance(work, TrainJob):
            raise check_ends
        if isinstance(work, PlanJob) and work.plan.transport == fails:
            raise NoMeasurement(f"no {fails} here", "")
        perform(work, SoloControl(), sink.take)

    monkeypatch.setattr(plan_rounds, "run", in_this_process)
    job = PlanJob(
        engine="torch",
        training=TrainSpec(model="mlp-small", methods=methods, **STEPS),
        plan=PlanSpec(iters=2, target=target),
        recorded=recorded,
    )
    return plan_rounds.Planner(job, LaunchTarget(ranks=1), file, lambda _: Sink(RunRecord()))


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


@pytest.mark.parametrize(("check", "rounds"), [("all", 2), ("none", 0)])
def test_exchanges_of_all_transports_are_in_one_plan_and_checked_as_asked(
    monkeypatch: pytest.MonkeyPatch, check: str, rounds: int
) -> None:
    monkeypatch.delenv("NCCL_ALGO", raising=False)
    # both methods reach it
    result = planner(monkeypatch, "int8", "bf16", target=1e-4).run(
        transports.parse("as-is,tree"), check
    )
    assert result.plan is not None and result.complete
    exchanges = result.plan.exchanges
    assert [(exchange.transport, exchange.method, exchange.loss) for exchange in exchanges] == [
        ("as-is", "int8", 2),
        ("as-is", "bf16", 1),
        ("tree", "int8", 2),
        ("tree", "bf16", 1),
    ]
    assert [run.transport for run in result.plan.runs] == ["as-is", "tree"]
    assert [len(exchange.checks) for exchange in exchanges] == [rounds] * 4
    assert all(((exchange.checked_s or 0) > 0) == (rounds > 0) for exchange in exchanges)
    assert "NCCL_ALGO" not in os.environ, "variables of a transport are set while it is measured"


def test_local_steps_that_differ_in_every_share_one_exchange_of_parameters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan_rounds, "recommended", lambda plan: plan.exchanges[1])
    result = planner(
        monkeypatch, "none", "int8+every=2", "int8+every=6+fragments=2+delay=1", target=1e-4
    ).run(transports.parse("as-is"), "none")
    assert result.plan is not None
    *_, two, six = result.plan.exchanges
    assert two.local is not None and six.local is not None
    assert (two.local.every, six.local.every) == (2, 6)
    assert (six.local.fragments, six.local.delay) == (2, 1)
    assert two.code.endswith("every=2), optimizer=optimizer)")
    for exchange in (two, six):
        assert len(exchange.rounds) == 2
        assert all(measured.change_s > 0 for measured in exchange.rounds)
    result = planner(monkeypatch, "int8+every=2", "int8+every=6", target=1e-4).run(
        transports.parse("as-is"), "none"
    )
    assert result.plan is not None
    two, six = result.plan.exchanges
    assert two.rounds == six.rounds


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


def test_each_check_is_in_the_file_before_the_next_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, checked = tmp_path / "plan.json", []

    def next_unchecked(plan: Plan) -> MeasuredExchange:
        saved = json.loads(file.read_text())["plan"]["exchanges"]
        checked.append([exchange["method"] for exchange in saved if exchange.get("checked_s")])
        return next((item for item in plan.exchanges if item.checked_s is None), plan.exchanges[0])

    monkeypatch.setattr(plan_rounds, "recommended", next_unchecked)
    planner(monkeypatch, "int8", "bf16", target=1e-4, file=file).run(
        transports.parse("as-is"), "best"
    )
    assert checked == [[], ["int8"], ["int8", "bf16"]]


def test_the_first_transport_must_work_and_a_later_one_that_fails_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    over, file = transports.parse("as-is,tree"), tmp_path / "plan.json"
    notes: list[str] = []
    monkeypatch.setattr(Sink, "note", lambda _, text: notes.append(text))
    result = planner(monkeypatch, "int8", target=1e-4, fails="tree", file=file).run(over, "none")
    assert result.plan is not None and result.complete
    assert [exchange.transport for exchange in result.plan.exchanges] == ["as-is"]
    assert notes == ["note: tree could not be measured: no tree here"]
    assert json.loads(file.read_text())["complete"]
    with pytest.raises(NoMeasurement, match="no as-is here"):
        planner(monkeypatch, "int8", target=1e-4, fails="as-is").run(over, "none")


STEP = RecordedStep(
    source="train.py",
    ranks=1,
    buckets=[
        RecordedBucket(4000, "float", 0.0, [[10, 100]]),
        RecordedBucket(6000, "half", 0.02),  # of unknown shapes: two rows, and the rest
        RecordedBucket(2000, "half", 0.03, [[1000]]),
    ],
    steps=9,
    step_s=0.05,
    waited_s=0.01,
)


def test_exchanges_of_a_recorded_step_are_measured_without_its_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = planner(monkeypatch, "bf16", "none", target=0.9, recorded=STEP).run(
        transports.parse("as-is"), "none"
    )
    plan = result.plan
    assert plan is not None and result.recorded == STEP
    assert (result.training.parameters, result.training.gradients) == (5000, 12_000)
    assert [(bucket.nbytes, bucket.ready_s) for bucket in plan.buckets] == [
        (4000, 0.0),
        (6000, 0.02),
        (2000, 0.03),
    ]
    # What waited for gradients is no part of a step on a perfect network.
    assert plan.still_s == pytest.approx(0.04) and plan.alone_s == pytest.approx(0.04)
    (run,) = plan.runs
    # Larger buckets join those of one type.
    assert [
        (layout.bucket_mb, [bucket.nbytes for bucket in layout.rounds[0].buckets])
        for layout in run.layouts
    ] == [(25, [4000, 6000, 2000]), (100, [4000, 8000])]
    assert [len(layout.rounds) for layout in run.layouts] == [2, 2] and len(run.alone_s) == 2
    assert [(exchange.method, exchange.bucket_mb) for exchange in plan.exchanges] == [
        ("none", None),
        ("none", 100),
        ("bf16", None),
    ]
    assert [len(exchange.bucket_s) for exchange in plan.exchanges] == [3, 2, 3]
    assert plan.exchanges[0].busy_s == [], "a part of the recorded times"
    assert len(plan.exchanges[2].busy_s) == 3 and min(plan.exchanges[2].busy_s) >= 0


@pytest.mark.parametrize(
    ("step_s", "still_s"),
    [(100.0, lambda exposed_s: 100.0 - exposed_s), (None, lambda exposed_s: exposed_s)],
    ids=["how long it waited", "how long it took"],
)
def test_what_a_record_does_not_tell_is_taken_from_the_exchange(
    monkeypatch: pytest.MonkeyPatch, step_s: float | None, still_s: Callable[[float], float]
) -> None:
    recorded = msgspec.structs.replace(STEP, step_s=step_s, waited_s=None)
    measured = planner(monkeypatch, "none", target=0.9, recorded=recorded)
    plan = measured.run(transports.parse("as-is"), "none").plan
    assert plan is not None
    (run,), plain = plan.runs, plan.exchanges[0]
    for layout_round, exposed in zip(run.layouts[0].rounds, plan.predictions(plain), strict=True):
        assert layout_round.still_s == pytest.approx(still_s(exposed.exposed_s))
    # The step is the same over each transport, whose exchanges differ.
    plan = measured.run(transports.parse("as-is,tree"), "none").plan
    assert plan is not None
    if step_s is not None:
        assert plan.runs[1].alone_s == pytest.approx([plan.still_s] * 2)


def test_groups_of_ranks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_job, "join_groups", lambda _: SimpleNamespace(groups=2))
    with pytest.raises(UsageError, match=r"^NCCL_TESTS_SPLIT makes groups"):
        planner(monkeypatch, "none", target=0.9).run(transports.parse("as-is"), "none")


@pytest.mark.parametrize(
    ("place", "gpus", "plugin", "names", "over"),
    [
        (LaunchTarget(), True, True, ["none", "bf16"], "as-is"),
        (LaunchTarget(hosts="h1,h2"), False, True, ["none", "bf16"], "as-is"),
        (LaunchTarget(hosts="h1,h2"), True, False, ["none", "bf16"], "as-is sockets"),
        (
            LaunchTarget(hosts="h1:8,h2:8"),
            True,
            False,
            ["none", "2d", "2d+bf16"],
            "as-is sockets tree",
        ),
        (LaunchTarget(hosts="h1:8,h2:1"), True, True, ["none", "bf16"], "as-is sockets busbw"),
        (LaunchTarget(hosts="h1:8"), True, True, ["none", "bf16"], "as-is sockets busbw"),
        (LaunchTarget(step=JobStep()), True, False, ["none", "bf16"], "as-is sockets"),
    ],
)
def test_what_is_compared_by_default(
    monkeypatch: pytest.MonkeyPatch,
    place: LaunchTarget,
    gpus: bool,
    plugin: bool,
    names: list[str],
    over: str,
) -> None:
    monkeypatch.setattr(plan_rounds, "torch_gpus", lambda: gpus)
    monkeypatch.setattr(plan_rounds.net_plugin, "find", lambda: "found" if plugin else "")
    methods, compared = plan_rounds.defaults(place)
    assert methods[: len(names)] == names and compared == over.split()
    assert any(name.endswith("+host") for name in methods) == ("busbw" in compared)
    assert any("2d+" in name for name in methods) == ("tree" in compared)
    assert len(set(methods)) == len(methods)
