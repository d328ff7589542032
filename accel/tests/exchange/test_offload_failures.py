"""Errors of an offloaded AdamW: gradients that are not finite, too little memory,
updates that fail, wrong arguments.
"""

import copy
import math
import os
import signal
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from offload_pair import DEVICE, Net, Pair  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils import clip_grad_norm_  # noqa: E402

from busbw.core.errors import BusbwError, NoMeasurement, UsageError  # noqa: E402
from busbw_accel import offload  # noqa: E402
from busbw_accel.offloading import copy_streams, host_memory, schedule, worker  # noqa: E402

pytestmark = pytest.mark.torch


def test_a_step_that_began_early_and_is_not_finite_is_undone(monkeypatch):
    monkeypatch.setattr(schedule, "MIN_UNCLIPPED_STEPS", 2)
    pair = Pair(max_norm=1e9)
    for seed, begins_early in enumerate((False, False, True)):
        assert pair.optimizer.schedule.begins_early == begins_early
        pair.step(seed)
    before = {name: weight.clone() for name, weight in pair.optimizer.weights().items()}
    handle = pair.net.blocks[1].up.weight.register_hook(lambda gradient: gradient * math.nan)
    pair.loss(1).backward()
    with pytest.raises(BusbwError, match="nothing was updated"):
        pair.optimizer.step()
    handle.remove()
    for name, weight in pair.optimizer.weights().items():
        assert (weight - before[name]).norm() <= 1e-7 * before[name].norm(), name
    pair.step(3)
    assert not pair.optimizer.schedule.begins_early
    pair.check()
    pair.optimizer.close()


@pytest.mark.parametrize("stream_weights", [False, True], ids=["resident", "streamed"])
def test_gradients_that_are_not_finite_change_nothing_with_max_norm(stream_weights):
    pair = Pair(max_norm=1.0, stream_weights=stream_weights)
    pair.step(0)
    before = {name: weight.clone() for name, weight in pair.optimizer.weights().items()}
    handle = pair.net.blocks[1].up.weight.register_hook(lambda gradient: gradient * math.nan)
    pair.loss(1).backward()
    with pytest.raises(
        BusbwError, match=r"not finite in step 2: blocks.1.up.weight; nothing was updated"
    ):
        pair.optimizer.step()
    handle.remove()
    assert all(
        torch.equal(weight, before[name]) for name, weight in pair.optimizer.weights().items()
    )
    pair.step(1)
    pair.check()
    pair.optimizer.close()


def test_steps_that_are_not_finite_are_counted_if_skipped():
    pair = Pair(max_norm=math.inf, skip_nonfinite=True)
    handle = pair.net.tokens.weight.register_hook(lambda gradient: gradient + math.inf)
    pair.loss(0).backward()
    pair.optimizer.step()
    handle.remove()
    assert (pair.optimizer.skipped, pair.optimizer.norm) == (1, math.inf)
    pair.step(1)
    pair.check()
    pair.optimizer.close()


@pytest.mark.parametrize(
    ("gpu_share", "wrong", "message"),
    [
        (0.0, 1, "2.down.weight; the other 22 parameters were updated"),
        (1.0, 1, "2.down.weight; the other 22 parameters were updated"),
        (
            0.4,
            3,
            (
                "2.down.weight, blocks.2.norm.weight, blocks.1.down.weight; the other 20 parameters"
                " were updated"
            ),
        ),
        (
            0.4,
            4,
            (
                "2.down.weight, blocks.2.norm.weight, blocks.1.down.weight and 1 more; the other 19"
                " parameters were updated"
            ),
        ),
    ],
    ids=["one", "one on the GPU", "three", "four"],
)
def test_gradients_that_are_not_finite_are_named_without_max_norm(gpu_share, wrong, message):
    pair = Pair(gpu_share=gpu_share)
    by_arrival = ("2.down.weight", "2.norm.weight", "1.down.weight", "1.norm.weight")
    names = [f"blocks.{block}" for block in by_arrival[:wrong]]
    before = {name: pair.optimizer.weights()[name].clone() for name in names}
    for name in names:
        pair.net.get_parameter(name).register_hook(lambda gradient: gradient * math.nan)
    pair.loss(1).backward()
    with pytest.raises(BusbwError) as raised:
        pair.optimizer.step()
    assert str(raised.value) == f"gradients are not finite in step 1: blocks.{message}"
    weights = pair.optimizer.weights()
    assert all(torch.equal(weights[name], before[name]) for name in names)
    assert all(weight.isfinite().all() for weight in weights.values())
    pair.optimizer.close()


def test_a_second_backward_before_the_step_is_refused():
    pair = Pair()
    pair.loss(0).backward()
    with pytest.raises(UsageError, match="second gradient"):
        pair.loss(1).backward()
    pair.optimizer.close()


@pytest.mark.parametrize(
    ("certain", "stream_weights"),
    [(8, False), (0, False), (8, True)],
    ids=["waiting", "begun", "streamed"],
)
def test_zero_grad_leaves_out_a_backward(monkeypatch, certain, stream_weights):
    monkeypatch.setattr(schedule, "MIN_UNCLIPPED_STEPS", certain)
    pair = Pair(max_norm=1e9, gpu_share=0.2, stream_weights=stream_weights)
    pair.step(0)
    for unused in (50, 51):
        pair.loss(unused).backward()
        pair.optimizer.zero_grad()
    pair.step(1)
    # an update that is undone leaves rounding, largest where the second moment was small
    pair.check(1e-6 if certain else 2e-5)
    pair.optimizer.close()


def test_too_little_memory_is_reported_before_anything_is_allocated(monkeypatch):
    monkeypatch.setattr(host_memory, "available", lambda: host_memory.HOST_RESERVE + 100_000)
    torch.manual_seed(1)
    net = Net()
    with pytest.raises(NoMeasurement, match=r"need 0.00 GB of host memory, and 0.00 of") as raised:
        offload(net, torch.optim.AdamW(net.parameters()), max_norm=None)
    assert "gpu_share=0." in raised.value.hint
    assert {parameter.dtype for parameter in net.parameters()} == {torch.float32}


def test_updates_that_fail_reach_the_program(monkeypatch):
    pair = Pair()

    def fails(*_):
        raise RuntimeError("no such processor")

    monkeypatch.setattr(pair.optimizer.worker.adam, "update", fails)
    with pytest.raises(BusbwError, match="no such processor"):
        pair.loss(0).backward()
        pair.optimizer.ready()
    with pytest.raises(BusbwError, match="no such processor"):
        pair.optimizer.close()


def test_a_worker_may_be_closed_by_its_own_thread(monkeypatch):
    net = nn.Linear(2, 2).to(DEVICE)
    updates = offload(net, torch.optim.AdamW(net.parameters()), max_norm=None).worker
    # as when it collects garbage
    monkeypatch.setattr(updates.adam, "update", lambda *_: updates.close())
    net(torch.ones(1, 2, device=DEVICE, dtype=torch.bfloat16)).sum().backward()
    updates._thread.join(30)
    assert (updates._thread.is_alive(), updates._error) == (False, None)


def test_close_ends_the_thread():
    pair = Pair()
    pair.step(0)
    assert pair.optimizer.worker._thread.is_alive()
    pair.optimizer.close()
    assert not pair.optimizer.worker._thread.is_alive()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda weights: weights.pop("tokens.weight"),
            "tokens.weight is missing in the weights, and is [37, 48] here",
        ),
        (
            lambda weights: weights.update({"tokens.weight": torch.zeros(48, 37)}),
            "tokens.weight has shape [48, 37] in the weights, and is [37, 48] here",
        ),
    ],
    ids=["missing", "other shape"],
)
def test_weights_of_another_model_are_refused(change, message):
    pair = Pair()
    weights = {name: torch.zeros_like(weight) for name, weight in pair.optimizer.weights().items()}
    change(weights)
    with pytest.raises(UsageError) as raised:
        pair.optimizer.load_weights(weights)
    assert str(raised.value) == message
    # nothing was changed
    assert all(
        torch.equal(weight, pair.plain[name].detach())
        for name, weight in pair.optimizer.weights().items()
    )
    pair.optimizer.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda state: state["param_groups"][1]["params"].pop(),
            "the state has groups of [9, 13] parameters, and this optimizer of [9, 14]",
        ),
        (
            lambda state: state["state"][0].update(exp_avg_sq=torch.zeros(5)),
            "the state of tokens.weight has 5 elements in exp_avg_sq, and the parameter 1776",
        ),
    ],
    ids=["other groups", "other size"],
)
def test_states_of_another_model_are_refused(change, message):
    pair = Pair()
    pair.step(0)
    state = copy.deepcopy(pair.optimizer.state_dict())
    for parameter_state in state["state"].values():
        parameter_state["exp_avg"].zero_()
    change(state)
    with pytest.raises(UsageError) as raised:
        pair.optimizer.load_state_dict(state)
    assert str(raised.value) == message
    # nothing was changed
    assert all(
        parameter_state["exp_avg"].any()
        for parameter_state in pair.optimizer.state_dict()["state"].values()
    )
    pair.optimizer.close()


def test_updates_that_do_not_end_are_waited_for_no_longer_than_the_limit(monkeypatch):
    pair = Pair()
    release = torch.multiprocessing.Event()
    monkeypatch.setattr(worker, "LIMIT_S", 0.2)
    monkeypatch.setattr(pair.optimizer.worker.adam, "update", lambda *_: release.wait(30))
    with pytest.raises(BusbwError, match=r"did not end in 0\.2 s"):
        pair.loss(0).backward()
        pair.optimizer.ready()
    release.set()
    pair.optimizer.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpu_share": 1.5}, "gpu_share is 1.5"),
        ({"gpu_share": math.nan}, "gpu_share is nan"),
        ({"max_norm": 0.0}, "max_norm is 0.0"),
        ({"max_norm": math.nan}, "max_norm is nan"),
        ({"threads": -1}, "threads is -1"),
        ({"skip_nonfinite": True}, "needs max_norm"),
    ],
)
def test_settings_that_are_invalid_are_refused(options, message):
    net = Net()
    with pytest.raises(UsageError, match=message):
        offload(net, torch.optim.AdamW(net.parameters()), **{"max_norm": None} | options)


def test_optimizers_that_are_no_plain_adamw_are_refused():
    net = Net()
    for adamw, message in (
        (torch.optim.SGD(net.parameters(), lr=1.0), "not a SGD"),
        (torch.optim.AdamW(net.parameters(), amsgrad=True), "amsgrad"),
        (torch.optim.AdamW(net.blocks.parameters()), "tokens.weight is not among"),
        (
            torch.optim.AdamW([*net.parameters(), nn.Parameter(torch.zeros(1))]),
            "1 parameters are not of the model",
        ),
    ):
        with pytest.raises(UsageError, match=message):
            offload(net, adamw, max_norm=None)


def test_sparse_gradients_are_refused():
    net = nn.Embedding(5, 3, sparse=True)
    with pytest.raises(UsageError, match="sparse gradients"):
        offload(net, torch.optim.AdamW(net.parameters()), max_norm=None)


@pytest.mark.parametrize(
    "clip", [clip_grad_norm_, lambda *arguments: nn.utils.clip_grad_value_(*arguments)]
)
def test_clipping_gradients_that_were_taken_is_refused(clip):
    net = nn.Linear(4, 3).to(DEVICE)
    optimizer = offload(net, torch.optim.AdamW(net.parameters()), max_norm=None)
    net(torch.ones(2, 4, dtype=torch.bfloat16, device=DEVICE)).sum().backward()
    with pytest.raises(UsageError, match="nothing would be clipped"):
        clip(net.parameters(), 1.0)
    optimizer.step()
    other = nn.Linear(2, 2)
    other(torch.ones(1, 2)).sum().backward()
    clip_grad_norm_(other.parameters(), 0.1)
    assert other.weight.grad.norm() < 0.1
    optimizer.close()


def test_states_are_not_copied_into_forked_processes():
    slab = host_memory.Slab(1 << 22, pinned=False)
    place = slab.take(1, torch.uint8).data_ptr() + (1 << 21)
    child = os.fork()
    if not child:
        signal.pause()  # and nothing else, since threads of this process are missing here
    try:
        maps = Path(f"/proc/{child}/maps").read_text()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    ranges = [line.split()[0].split("-") for line in maps.splitlines()]
    assert ranges
    assert not any(int(first, 16) <= place < int(end, 16) for first, end in ranges)


@pytest.mark.skipif(DEVICE.type != "cuda", reason="pins memory")
def test_memory_is_unpinned_before_it_is_unmapped():
    slab = host_memory.Slab(1 << 22, pinned=True)
    tensor = slab.take(8, torch.uint8)
    del slab
    assert int(torch.cuda.cudart().cudaHostUnregister(tensor.data_ptr())) != 0


def test_a_lane_forgets_copies_that_have_ended():
    lane = copy_streams.Lane(torch.device("cpu"))
    lane._in_flight.extend((copy_streams.StartedCopy(None, None), 4) for _ in range(100))
    lane.throttle()
    assert not lane._in_flight


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (lambda: nn.Sequential(nn.Embedding(5, 8, sparse=True)), "0 has sparse gradients"),
        (
            lambda: nn.Sequential(nn.Conv2d(3, 4, 3)).to(memory_format=torch.channels_last),
            "0.weight is not contiguous",
        ),
        (
            lambda: nn.Sequential(nn.Linear(2, 2, dtype=torch.complex64)),
            "0.weight is of torch.complex64",
        ),
    ],
)
def test_parameters_that_cannot_be_offloaded_are_named(net, message):
    model = net().to(DEVICE)
    with pytest.raises(UsageError, match=message):
        offload(model, torch.optim.AdamW(model.parameters()), max_norm=None)
