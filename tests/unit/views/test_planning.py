"""A plan for people."""

import pytest

from busbw.core.planning import Bucket, Exchange, Plan
from busbw.core.result import Device, World
from busbw.core.training import Training, TrainSpec
from busbw.views import planning
from busbw.views.registry import view

CODE = "busbw.accel.attach(model, busbw.accel.Settings(method='int8'))"


@pytest.fixture
def planned(make):
    """VGG16 over a slow network, by two transports."""
    training = Training(TrainSpec(model="vgg16", batch_size=128), "img", 138_357_544, 553_430_176, 2)
    plan = Plan(0.9, 0.0921, 0.0925, [Bucket(494_000_000, 0.02), Bucket(59_430_176, 0.09)])
    plan.exchanges = [
        Exchange("as-is", "none", 0, [0.16, 0.02], [], 553.43e6),
        Exchange("as-is", "int8", 2, [0.045, 0.005], [], 141e6, CODE, checked_s=0.0991),
        Exchange("as-is", "torch-powersgd", 3, [0.004, 0.002]),
        Exchange("sockets", "none", 0, [0.158, 0.02], [], 553.43e6),
    ]
    devices = [Device(rank, 10, f"node{rank}", 0, "0000:00:06", "NVIDIA H200", process=rank) for rank in range(2)]
    return make([], world=World(devices, 2), training=training, plan=plan)


def test_the_whole_text(planned, golden):
    golden("training/plan_vgg16.txt", planning.render_all(planned))


def test_a_plan_that_was_kept_is_shown_as_it_came(planned):
    assert view("table").render(planned) == planning.render_all(planned)


def test_where_nothing_lossy_is_needed_it_says_so(planned):
    planned.plan.exchanges[3].bucket_s = [0.05, 0.005]
    text = planning.footer(planned)
    assert text.splitlines()[1:3] == [
        "nothing lossy is needed: none over sockets (NCCL's sockets on 16 channels, each with one thread and one socket)"
        ", expected to take 97.50 ms a step, 94.5 % of alone (wanted: 90 %)",
        "  export NCCL_MIN_NCHANNELS=16 NCCL_SOCKET_NTHREADS=1 NCCL_NSOCKS_PERTHREAD=1",
    ]
    planned.plan.exchanges[0].bucket_s = [0.05, 0.005]
    assert "  nothing to change: DistributedDataParallel as it is\n" in planning.footer(planned)


def test_where_nothing_reaches_the_target_it_says_that(planned):
    planned.plan.target = 0.999
    assert planning.footer(planned).startswith("\nnothing reaches 99.9 %; as good as fastest: torch-powersgd, ")


def test_what_broke_off_before_an_exchange_has_no_advice(planned):
    planned.plan.exchanges.clear()
    planned.errors.append("rank 1 died")
    assert planning.footer(planned) == "error: rank 1 died\n"
    planned.plan = None
    assert planning.render_all(planned).splitlines()[-1] == "error: rank 1 died"
