"""The plan of memory: against arithmetic by hand, and what must hold for every model and
machine.
"""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw_accel.memory_plan import strategies
from busbw_accel.memory_plan.gpt_shape import GptShape
from busbw_accel.memory_plan.schedule import StepSimulation, on_gpu, parts
from busbw_accel.memory_plan.strategies import compute_of, compute_s, gpu_room, lacks, plan
from busbw_accel.memory_plan.types import Compute, Machine, PlannedTraining

SHAPE = GptShape(2, 256, 4, 128)
TRAINING = PlannedTraining(shape=SHAPE, batch_size=1, sequence=64, recompute=False)
SECOND = Compute(1.0, 2.0, 1.0, 2.0)
LAYER = SHAPE.block
# an update moves 28 bytes per element in host memory, and copies 4 at the same time
SHARED = (28 + 2 + 2) / 28


def machine(**changes):
    plain = {
        "gpu_memory": 80 << 30,
        "host_memory": 100 << 30,
        "down": 50e9,
        "up": 50e9,
        "host_adam": 5e9,
        "gpu_adam": 1e11,
    }
    return Machine(**plain | {"compute": SECOND} | changes)


def timeline(stream=False, training=TRAINING, share=0.0, **changes):
    return StepSimulation(training, machine(**changes), share, stream_weights=stream).timeline()


def test_parts_are_all_parameters():
    assert (
        sum(part.count for part in parts(SHAPE, 64))
        == TRAINING.parameters
        == SHAPE.root(64) + 2 * LAYER
    )


def test_a_step_with_instant_copies_and_updates_is_compute():
    assert (
        timeline(down=1e30, up=1e30, host_adam=1e30).step_s
        == pytest.approx(compute_s(TRAINING, machine()))
        == pytest.approx(9.0)
    )


def test_the_last_gradients_are_exposed():
    table = PlannedTraining(
        shape=GptShape(2, 128, 2, 100_000), batch_size=1, sequence=64, recompute=False
    )
    rate = 2 * table.shape.root(64)
    # When backward ends, the root's gradients come, which take 0.5 s, and the first matrix of the
    # first layer with its biases and norm.
    last_s = (3 * 128**2 + 5 * 128) / rate
    assert timeline(
        training=table, down=1e30, up=1e30, host_adam=SHARED * rate
    ).step_s == pytest.approx(9 + 0.5 + last_s)


def test_slow_updates_are_the_step():
    step = timeline(down=1e30, up=1e30, host_adam=SHARED * TRAINING.parameters / 100).step_s
    assert 100 <= step < 100 + 9, "100 s of updates, of which at most all compute is hidden"


def test_a_slow_copy_is_the_step_and_its_gradients_wait():
    slow = timeline(down=2 * TRAINING.parameters / 50, up=1e30, host_adam=1e30)
    assert 50 <= slow.step_s < 50 + 9
    assert slow.in_flight > timeline(down=1e30, up=1e30, host_adam=1e30).in_flight


def test_clipping_waits_for_the_end_of_backward_if_weights_are_streamed():
    clipped = msgspec.structs.replace(TRAINING, max_norm=1.0)
    rates = {"down": 1e30, "up": 1e30, "host_adam": TRAINING.parameters / 0.5}
    assert (
        timeline(stream=True, **rates).step_s
        < timeline(stream=True, training=clipped, **rates).step_s
    )
    assert timeline(**rates).step_s == timeline(training=clipped, **rates).step_s


def test_all_states_on_the_gpu_need_no_copies():
    assert timeline(
        share=1.0, down=1.0, up=1.0, host_adam=1.0, gpu_adam=1e30
    ).step_s == pytest.approx(9.0)
    all_on_gpu = timeline(share=1.0)
    assert (all_on_gpu.kept, all_on_gpu.in_flight) == (TRAINING.parameters, 0)


def test_streamed_weights_are_copied_in_forward_and_backward():
    free = {"down": 1e30, "host_adam": 1e30}
    assert timeline(stream=True, up=1e30, **free).step_s == pytest.approx(9.0)
    once_s = 2 * LAYER / (2 * LAYER / 10)  # of a layer, 10 s: longer than its forward and backward
    step = timeline(stream=True, up=2 * LAYER / once_s, **free).step_s
    assert step >= 3 * once_s, "both layers in forward, and the first again in backward"


def test_memory_by_hand():
    shape = GptShape(4, 1024, 8, 1000)
    training = PlannedTraining(shape=shape, batch_size=8, sequence=512, recompute=True)
    count, tokens = training.parameters, 4096
    needs = strategies.offloaded(training, 0, 1000)
    assert needs.weights == 2 * count
    # three buffers for the largest matrix in bf16
    assert needs.host == 14 * count + 3 * 2 * 4 * 1024**2
    assert needs.activations == 2 * tokens * 1024 * 4
    assert needs.layer == 40 * tokens * 1024 + 8 * 1024**2
    assert needs.gradients == 1000 + 2 * 1000 * 1024
    assert strategies.on_gpu(training).states == 12 * count


shapes = st.builds(
    lambda layers, width, vocabulary: GptShape(layers, 128 * width, width, 128 * vocabulary),
    st.integers(1, 12),
    st.integers(1, 40),
    st.integers(1, 400),
)
trainings = st.builds(
    PlannedTraining,
    shape=shapes,
    batch_size=st.integers(1, 8),
    sequence=st.integers(16, 4096),
    recompute=st.booleans(),
    max_norm=st.sampled_from([None, 1.0]),
)
rates = st.floats(1e9, 1e11)
machines = st.builds(
    machine,
    gpu_memory=st.integers(2 << 30, 200 << 30),
    host_memory=st.integers(0, 200 << 30),
    down=rates,
    up=rates,
    host_adam=rates,
)


@settings(max_examples=15, deadline=None)
@given(trainings, machines, st.floats(1e13, 1e15))
def test_plans_are_consistent(training, machine_, flops):
    machine_ = msgspec.structs.replace(machine_, compute=compute_of(training, flops))
    states_plan = plan(training, machine_)
    for placement in states_plan.ways:
        assert 0 <= placement.gpu_share <= 1
        fits = (
            placement.memory.gpu <= gpu_room(machine_)
            and placement.memory.host <= machine_.host_memory
        )
        assert fits == (not placement.lacks)
        assert placement.step_s >= states_plan.compute_s * (1 - 1e-9)
        assert placement.exposed_s >= 0
    chosen = states_plan.recommended()
    assert (chosen is None) == all(placement.lacks for placement in states_plan.ways)
    assert chosen is None or not chosen.lacks


@settings(max_examples=30, deadline=None)
@given(trainings, st.floats(0, 1))
def test_more_layers_need_more_of_everything(training, share):
    larger = msgspec.structs.replace(
        training, shape=msgspec.structs.replace(training.shape, layers=training.shape.layers + 1)
    )
    assert strategies.on_gpu(training).gpu < strategies.on_gpu(larger).gpu
    kept_parameters = [
        sum(
            part.count
            for part, stays in zip(all_parts, on_gpu(all_parts, share), strict=True)
            if stays
        )
        for all_parts in (
            parts(training_.shape, training_.sequence) for training_ in (training, larger)
        )
    ]
    assert kept_parameters[0] <= share * training.parameters + 0.5
    small, large = (strategies.offloaded(training_, 0, 0) for training_ in (training, larger))
    assert small.gpu < large.gpu
    assert small.host < large.host


def test_a_machine_without_a_rate_is_refused():
    with pytest.raises(UsageError, match="the machine's down is 0"):
        plan(TRAINING, machine(down=0.0))


def test_missing_memory_is_named():
    text = lacks(strategies.offloaded(TRAINING, 0, 0), machine(gpu_memory=1 << 30, host_memory=0))
    assert "GB on the GPU and" in text
    assert text.endswith("on the host")
