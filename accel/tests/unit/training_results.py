"""A small training and plans to vary."""

from typing import Any

import pytest
from results import result

from busbw.core.result import RankDevice, World
from busbw.core.topology import Host, Topology
from busbw.pattern.training.recorded_step import RecordedBucket, RecordedStep
from busbw_accel.train.kinds import PlanResult, TrainResult
from busbw_accel.train.plan_types import (
    Bucket,
    BucketLayout,
    CheckRound,
    ExchangeRound,
    LayoutRound,
    MeasuredExchange,
    Plan,
    PlanRun,
)
from busbw_accel.train.types import ALONE, TrainingRuns, TrainRun, TrainSpec

CODE = "busbw_accel.attach(model, busbw_accel.Settings(method='int8'))"


def _facts(devices: list[RankDevice]) -> dict[str, Any]:
    base = result()
    return {
        name: getattr(base, name)
        for name in ("argv", "program", "start", "end", "library", "complete")
    } | {"world": World(devices, 2)}


@pytest.fixture
def trained() -> TrainResult:
    """Two GPUs, alone and by two methods in two rounds."""
    training = TrainingRuns(
        TrainSpec(model="vgg16", batch_size=128, methods=("none", "2d+int8")),
        "img",
        138_357_544,
        553_430_176,
        2,
    )
    for number in range(2):
        training.runs += [
            TrainRun(
                ALONE,
                number,
                [0.5, 0.51, 0.49, 0.5],
                [250.0, 253.0],
                silent_s=[0.503, 0.505, 0.505],
            ),
            TrainRun(
                "none",
                number,
                [1.0, 1.1, 1.2, 1.0],
                [125.0 + number, 126.0],
                counted=553.43e6,
                seen=560e6,
                silent_s=[0.503, 0.505, 0.505],
            ),
            TrainRun(
                "2d+int8",
                number,
                [0.52, 0.52, 0.52, 0.52],
                [245.0, 246.0],
                seen=141e6,
                silent_s=[0.51, 0.51, 0.512],
            ),
        ]
    devices = [
        RankDevice(rank, 10, f"node{rank}", 0, "0000:00:06", "NVIDIA H200", process=rank)
        for rank in range(2)
    ]
    return TrainResult(training=training, **_facts(devices))


@pytest.fixture
def planned() -> PlanResult:
    """VGG16 over a slow network, by two transports."""
    training = TrainingRuns(
        TrainSpec(model="vgg16", batch_size=128), "img", 138_357_544, 553_430_176, 2
    )
    plan = Plan(0.9, 0.0921, 0.0925, [Bucket(494_000_000, 0.02), Bucket(59_430_176, 0.09)])
    plan.exchanges = [
        MeasuredExchange("as-is", "none", 0, [0.16, 0.02], [], 553.43e6),
        MeasuredExchange("as-is", "int8", 2, [0.045, 0.005], [], 141e6, CODE, checked_s=0.0991),
        MeasuredExchange("as-is", "torch-powersgd", 3, [0.004, 0.002]),
        MeasuredExchange("sockets", "none", 0, [0.158, 0.02], [], 553.43e6),
    ]
    devices = [
        RankDevice(rank, 10, f"node{rank}", 0, "0000:00:06", "NVIDIA H200", process=rank)
        for rank in range(2)
    ]
    return PlanResult(training=training, plan=plan, **_facts(devices))


@pytest.fixture
def planned_in_rounds() -> PlanResult:
    """gpt-small over 1 Gbit/s in two rounds: one bucket, buckets of 4 MB, and bf16."""
    training = TrainingRuns(
        TrainSpec(model="gpt-small", batch_size=2, rounds=2), "seq", 4_200_000, 16_800_000, 2
    )
    small_buckets = [
        LayoutRound(still_s, [Bucket(16_800_000, still_s - 0.002)]) for still_s in (0.150, 0.152)
    ]
    four = [
        LayoutRound(
            still_s, [Bucket(8_400_000, still_s - 0.05), Bucket(8_400_000, still_s - 0.002)]
        )
        for still_s in (0.151, 0.152)
    ]
    run = PlanRun(
        "as-is", [0.145, 0.147], [BucketLayout(25.0, small_buckets), BucketLayout(4.0, four)]
    )
    plan = Plan(0.9, 0.146, 0.151, small_buckets[0].buckets, runs=[run])
    rounds = [
        ("none", 0, None, [[0.430], [0.428]]),
        ("none", 0, 4.0, [[0.22, 0.20], [0.22, 0.202]]),
        ("bf16", 1, None, [[0.366], [0.364]]),
    ]
    for name, loss, size, times in rounds:
        code = "model = DistributedDataParallel(model, bucket_cap_mb=4)" if size else ""
        exchange_rounds = [
            ExchangeRound(bucket_times, [0.001] * len(bucket_times)) for bucket_times in times
        ]
        plan.exchanges.append(
            MeasuredExchange(
                "as-is",
                name,
                loss,
                times[0],
                [0.001] * len(times[0]),
                16.8e6,
                code,
                bucket_mb=size,
                rounds=exchange_rounds,
            )
        )
    plan.exchanges[1].checks = [CheckRound(0.146, 0.524), CheckRound(0.145, 0.520)]
    plan.exchanges[1].checked_s = 0.522
    devices = [
        RankDevice(rank, 10, f"node{rank}", 0, "", "CPU, PyTorch 2.15", process=rank)
        for rank in range(2)
    ]
    hosts = [Host(f"node{rank}", "one-boot", cpus=1) for rank in range(2)]
    return PlanResult(training=training, plan=plan, topology=Topology(hosts), **_facts(devices))


@pytest.fixture
def planned_for_record(planned_in_rounds: PlanResult) -> PlanResult:
    """A plan for a recorded training of two CPU ranks."""
    buckets = [
        RecordedBucket(4_100_000, "float", 0.0, [[1000], [1000, 1024]]),
        RecordedBucket(12_700_000, "float", 0.1, [[1024]]),
    ]
    planned_in_rounds.recorded = RecordedStep(
        source="torchrun train.py",
        ranks=2,
        buckets=buckets,
        steps=28,
        step_s=0.55,
        waited_s=0.4,
        waited_source="as DDP timed it",
        bucket_mb=25.0,
        others=["all_reduce of 4 B"],
        notes=["1 of 2 ranks was read"],
    )
    plan = planned_in_rounds.plan
    assert plan
    plan.exchanges[1].checks, plan.exchanges[1].checked_s = [], None
    steps = LayoutRound(0.15, [Bucket(4_100_000, 0.0), Bucket(12_700_000, 0.1)])
    plan.runs[0].layouts[0].rounds[:] = [steps, steps]
    plan.runs[0].alone_s[:] = [0.15, 0.15]
    plan.buckets = steps.buckets
    plan.exchanges[2].code = "busbw_accel.attach(model, busbw_accel.Settings(wire='bf16'))"
    for exchange, last_s in ((plan.exchanges[0], 0.33), (plan.exchanges[2], 0.12)):
        exchange.rounds = [ExchangeRound([0.1, last_s]), ExchangeRound([0.1, last_s + 0.002])]
        exchange.bucket_s, exchange.busy_s = [0.1, last_s + 0.001], []
    return planned_in_rounds
