"""An offloaded AdamW in one process, compared with torch.optim.AdamW over fp32 weights that gets the same gradients.

On a GPU if ACCEL_DEVICE is cuda.
"""

import math
import time

import pytest

torch = pytest.importorskip("torch")

from offload_pair import DEVICE, WIDTH, LateLane, Named, Net, Pair, groups  # noqa: E402
from torch import nn  # noqa: E402

from busbw.accel import host_adam, offload  # noqa: E402
from busbw.accel.offloading import host_memory, schedule, units, worker  # noqa: E402
from busbw.accel.offloading import optimizer as optimizers  # noqa: E402
from busbw.core.errors import BusbwError, NoMeasurement, UsageError  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Threads of PyTorch that wait for each other take longer than these small products."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["native", "torch"])
def updates(request, monkeypatch):
    """Which library does the updates."""
    host_adam._library.cache_clear()
    if request.param == "native":
        monkeypatch.setenv("BUSBW_PLUGIN", str(request.getfixturevalue("plugin_library")))
    else:
        monkeypatch.setattr(host_adam, "_library", lambda: None)
    yield request.param
    if request.param == "native":
        host_adam._library.cache_clear()


@pytest.fixture(params=[units.PIECE, 1000], ids=["whole", "pieces"])
def pieces(request, monkeypatch):
    monkeypatch.setattr(units, "PIECE", request.param)


@pytest.mark.usefixtures("updates", "pieces")
@pytest.mark.parametrize(
    ("stream_weights", "recompute", "max_norm", "gpu_share"),
    [
        (False, False, None, 0.0),
        (False, True, None, 0.4),
        (False, True, 0.3, 0.4),
        (False, False, 0.3, 1.0),
        (False, False, 1e9, 0.0),
        (True, False, None, 0.4),
        (True, True, None, 0.0),
        (True, True, 0.3, 0.4),
        (True, False, 1e9, 0.0),
    ],
)
def test_weights_equal_those_of_adamw(stream_weights, recompute, max_norm, gpu_share):
    pair = Pair(recompute=recompute, stream_weights=stream_weights, max_norm=max_norm, gpu_share=gpu_share)
    mine, other = (torch.optim.lr_scheduler.ExponentialLR(one, 0.7) for one in (pair.optimizer, pair.reference))
    for seed in range(4):
        pair.step(seed, batches=1 + seed % 2)
        mine.step()
        other.step()
    pair.check()
    pair.optimizer.close()
    for name, one in pair.net.named_parameters():
        assert torch.equal(one.cpu(), pair.optimizer.weights()[name].cpu().bfloat16()), name


@pytest.mark.usefixtures("updates")
@pytest.mark.parametrize(("delay", "gpu_share"), [(0.0, 0.0), (0.004, 0.4)], ids=["made", "waiting"])
def test_updates_that_began_before_the_norm_was_known_are_replaced(monkeypatch, delay, gpu_share):
    monkeypatch.setattr(schedule, "CERTAIN", 2)
    pair = Pair(max_norm=50.0, gpu_share=gpu_share, quiet="blocks.2.down.bias")
    update, made = pair.optimizer.worker.adam.update, []

    def slow(*given):
        made.append(given[-1])
        time.sleep(delay)
        update(*given)

    monkeypatch.setattr(pair.optimizer.worker.adam, "update", slow)
    norms = []
    for seed, factor in enumerate((1, 1, 1, 3, 1, 1, 1000, 1)):  # the seventh is far above those before it
        pair.step(seed, factor=factor)
        norms.append(pair.optimizer.norm)
    pair.optimizer.ready()
    assert [norm > 50 for norm in norms] == [False, False, False, True, False, False, True, False]
    assert sum(undone is not None for undone in made) > 0  # early updates of clipped steps
    pair.check()
    pair.optimizer.close()


@pytest.mark.skipif(DEVICE.type == "cuda", reason="copies are late there anyway")
@pytest.mark.parametrize(
    ("stream_weights", "max_norm", "gpu_share"), [(False, None, 0.4), (False, 50.0, 0.0), (True, None, 0.0), (True, 0.3, 0.4)]
)
def test_copies_may_take_their_time(monkeypatch, stream_weights, max_norm, gpu_share):
    monkeypatch.setattr(optimizers, "Lane", LateLane)
    monkeypatch.setattr(schedule, "CERTAIN", 2)
    pair = Pair(recompute=True, stream_weights=stream_weights, max_norm=max_norm, gpu_share=gpu_share)
    for seed, factor in enumerate((1, 1, 1, 3, 1)):
        pair.step(seed, factor=factor)
    pair.check()
    pair.optimizer.close()


def test_a_step_that_began_early_and_is_not_finite_is_undone(monkeypatch):
    monkeypatch.setattr(schedule, "CERTAIN", 1)
    pair = Pair(max_norm=1e9)
    for seed in range(3):
        pair.step(seed)
    before = {name: one.clone() for name, one in pair.optimizer.weights().items()}
    handle = pair.net.blocks[1].up.weight.register_hook(lambda gradient: gradient * math.nan)
    pair.loss(1).backward()
    with pytest.raises(BusbwError, match="nothing was updated"):
        pair.optimizer.step()
    handle.remove()
    for name, one in pair.optimizer.weights().items():
        assert (one - before[name]).norm() <= 1e-7 * before[name].norm(), name
    pair.step(3)
    pair.check()
    pair.optimizer.close()


def test_bytes_are_four_per_parameter_and_step():
    pair = Pair()
    for seed in range(3):
        pair.step(seed)
    pair.check()
    times, count = pair.optimizer.times(), sum(one.numel() for one in pair.net.parameters())
    norms = 4 * len(list(pair.net.parameters()))
    assert (times.down_bytes, times.up_bytes) == (3 * (2 * count + norms), 3 * 2 * count)
    assert times.steps == 3
    pair.optimizer.close()


@pytest.mark.parametrize("stream_weights", [False, True], ids=["resident", "streamed"])
def test_a_forward_waits_for_the_new_weights_of_all_its_parameters(monkeypatch, stream_weights):
    pair = Pair(stream_weights=stream_weights)
    update = pair.optimizer.worker.adam.update

    def slow(rule, gradient, *more):
        time.sleep(0.05 if gradient.numel() == WIDTH * WIDTH else 0.002)  # those of `bare` come last
        update(rule, gradient, *more)

    monkeypatch.setattr(pair.optimizer.worker.adam, "update", slow)
    for seed in range(2):
        pair.step(seed)
    with torch.no_grad():
        at_once = pair.loss(7)
        pair.optimizer.ready()
        assert pair.loss(7) == at_once
    if not stream_weights:  # members of `bare` do not run
        assert {one.name.split(".")[0] for one in pair.optimizer.parameters if one.unit.order == 0} == {"tokens", "bare"}
    pair.optimizer.close()


@pytest.mark.parametrize("stream_weights", [False, True], ids=["resident", "streamed"])
def test_state_goes_to_adamw_and_back(stream_weights, tmp_path):
    pair, other = Pair(stream_weights=stream_weights), Pair(seed=2, stream_weights=stream_weights)
    for seed in range(3):
        pair.step(seed)
    plain = torch.optim.AdamW(groups(Named({name: nn.Parameter(one.detach()) for name, one in pair.plain.items()})), lr=1.0)
    plain.load_state_dict(pair.optimizer.state_dict())
    states = plain.state_dict()["state"], pair.reference.state_dict()["state"]
    for mine, theirs in ((states[0][key], states[1][key]) for key in states[1]):
        assert mine["step"] == theirs["step"] == 3
        for name in ("exp_avg", "exp_avg_sq"):
            assert (mine[name] - theirs[name].to(mine[name].device)).norm() <= 2e-6 * theirs[name].norm()
    assert [group["lr"] for group in plain.param_groups] == [1e-2, 3e-3]
    pair.optimizer.save(tmp_path / "saved")
    other.optimizer.load(tmp_path / "saved")
    other.plain, other.reference = pair.plain, pair.reference
    other.step(7)
    other.check()
    other.optimizer.load_state_dict(pair.reference.state_dict())
    for one in (pair, other):
        one.optimizer.close()


def test_an_adamw_with_state_continues():
    torch.manual_seed(3)
    net = Net()
    before = torch.optim.AdamW(net.parameters(), lr=1e-2)
    net(torch.arange(5)).square().mean().backward()
    before.step()
    optimizer = offload(net, before, max_norm=None, threads=1)
    assert {float(state["step"]) for state in optimizer.state_dict()["state"].values()} == {1.0}
    optimizer.close()


def test_weights_loaded_into_the_model_are_trained_on():
    pair = Pair()
    pair.step(0)
    pair.net.load_state_dict({name: torch.full_like(one, 0.5) for name, one in pair.net.state_dict().items()})
    assert all((one == 0.5).all() for one in pair.optimizer.weights().values())
    pair.optimizer.close()


@pytest.mark.parametrize("stream_weights", [False, True], ids=["resident", "streamed"])
def test_gradients_that_are_not_finite_change_nothing_with_max_norm(stream_weights):
    pair = Pair(max_norm=1.0, stream_weights=stream_weights)
    pair.step(0)
    before = {name: one.clone() for name, one in pair.optimizer.weights().items()}
    handle = pair.net.blocks[1].up.weight.register_hook(lambda gradient: gradient * math.nan)
    pair.loss(1).backward()
    with pytest.raises(BusbwError, match=r"not finite in step 2: blocks.1.up.weight; nothing was updated"):
        pair.optimizer.step()
    handle.remove()
    assert all(torch.equal(one, before[name]) for name, one in pair.optimizer.weights().items())
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


@pytest.mark.parametrize("gpu_share", [0.0, 1.0])
def test_a_gradient_that_is_not_finite_is_named_without_max_norm(gpu_share):
    pair = Pair(gpu_share=gpu_share)
    name = "blocks.1.up.weight"
    before = pair.optimizer.weights()[name].clone()
    pair.net.blocks[1].up.weight.register_hook(lambda gradient: gradient * math.nan)
    pair.loss(1).backward()
    with pytest.raises(BusbwError, match=r"blocks.1.up.weight; the other 22 parameters were updated"):
        pair.optimizer.step()
    assert torch.equal(pair.optimizer.weights()[name], before)
    assert all(one.isfinite().all() for one in pair.optimizer.weights().values())
    pair.optimizer.close()


def test_a_second_backward_before_the_step_is_refused():
    pair = Pair()
    pair.loss(0).backward()
    with pytest.raises(UsageError, match="second gradient"):
        pair.loss(1).backward()
    pair.optimizer.close()


def test_too_little_memory_is_said_before_anything_is_allocated(monkeypatch):
    monkeypatch.setattr(host_memory, "available", lambda: host_memory.HOST_RESERVE + 100_000)
    torch.manual_seed(1)
    net = Net()
    with pytest.raises(NoMeasurement, match=r"need 0.00 GB of host memory, and 0.00 of") as caught:
        offload(net, torch.optim.AdamW(net.parameters()), max_norm=None)
    assert "gpu_share=0." in caught.value.hint
    assert {one.dtype for one in net.parameters()} == {torch.float32}


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
    for made, message in (
        (torch.optim.SGD(net.parameters(), lr=1.0), "not a SGD"),
        (torch.optim.AdamW(net.parameters(), amsgrad=True), "amsgrad"),
        (torch.optim.AdamW(net.blocks.parameters()), "tokens.weight is not among"),
        (torch.optim.AdamW([*net.parameters(), nn.Parameter(torch.zeros(1))]), "1 parameters are not of the model"),
    ):
        with pytest.raises(UsageError, match=message):
            offload(net, made, max_norm=None)
