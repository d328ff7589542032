"""An offloaded AdamW in one process, compared with torch.optim.AdamW over fp32 weights that gets
the same gradients.

On a GPU if ACCEL_DEVICE is cuda.
"""

import gc
import time
import weakref

import pytest

torch = pytest.importorskip("torch")

from offload_pair import DEVICE, LateLane, Named, Net, Pair, groups, ones, two_layers  # noqa: E402
from torch import nn  # noqa: E402

from busbw.core.errors import UsageError  # noqa: E402
from busbw_accel import host_adam, offload  # noqa: E402
from busbw_accel.offloading import optimizer as optimizers  # noqa: E402
from busbw_accel.offloading import schedule, state_memory  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(params=[state_memory.PIECE, 1000], ids=["whole", "pieces"])
def pieces(request, monkeypatch):
    monkeypatch.setattr(state_memory, "PIECE", request.param)


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
    pair = Pair(
        recompute=recompute, stream_weights=stream_weights, max_norm=max_norm, gpu_share=gpu_share
    )
    scheduler, reference_scheduler = (
        torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
        for optimizer in (pair.optimizer, pair.reference)
    )
    for seed in range(4):
        pair.step(seed, batches=1 + seed % 2)
        scheduler.step()
        reference_scheduler.step()
    pair.check()
    pair.optimizer.close()
    for name, parameter in pair.net.named_parameters():
        assert torch.equal(parameter.cpu(), pair.optimizer.weights()[name].cpu().bfloat16()), name


@pytest.mark.usefixtures("updates")
@pytest.mark.parametrize(
    ("delay", "gpu_share"), [(0.0, 0.0), (0.004, 0.4)], ids=["made", "waiting"]
)
def test_updates_that_began_before_the_norm_was_known_are_replaced(monkeypatch, delay, gpu_share):
    monkeypatch.setattr(schedule, "MIN_UNCLIPPED_STEPS", 2)
    pair = Pair(max_norm=50.0, gpu_share=gpu_share, quiet="blocks.2.down.bias")
    update, undo_arguments = pair.optimizer.worker.adam.update, []

    def slow(*arguments):
        undo_arguments.append(arguments[-1])
        time.sleep(delay)
        update(*arguments)

    monkeypatch.setattr(pair.optimizer.worker.adam, "update", slow)
    norms = []
    # the seventh is far above those before it
    for seed, factor in enumerate((1, 1, 1, 3, 1, 1, 1000, 1)):
        pair.step(seed, factor=factor)
        norms.append(pair.optimizer.norm)
    pair.optimizer.ready()
    assert [norm > 50 for norm in norms] == [False, False, False, True, False, False, True, False]
    assert (
        sum(undone is not None for undone in undo_arguments) > 0
    )  # early updates of clipped steps
    pair.check()
    pair.optimizer.close()


@pytest.mark.skipif(DEVICE.type == "cuda", reason="copies are late there anyway")
@pytest.mark.parametrize(
    ("stream_weights", "max_norm", "gpu_share"),
    [(False, None, 0.4), (False, 50.0, 0.0), (True, None, 0.0), (True, 0.3, 0.4)],
)
def test_weights_are_right_when_copies_are_late(monkeypatch, stream_weights, max_norm, gpu_share):
    monkeypatch.setattr(optimizers, "Lane", LateLane)
    monkeypatch.setattr(schedule, "MIN_UNCLIPPED_STEPS", 2)
    pair = Pair(
        recompute=True, stream_weights=stream_weights, max_norm=max_norm, gpu_share=gpu_share
    )
    for seed, factor in enumerate((1, 1, 1, 3, 1)):
        pair.step(seed, factor=factor)
    pair.check()
    pair.optimizer.close()


@pytest.mark.parametrize("gpu_share", [0.0, 0.4])
def test_updates_that_waited_for_a_norm_that_clips_nothing_are_made(monkeypatch, gpu_share):
    monkeypatch.setattr(schedule, "MIN_UNCLIPPED_STEPS", 1)
    pair = Pair(max_norm=1e9, gpu_share=gpu_share)
    for seed, factor in enumerate((1, 1, 100, 1)):  # the third is far above those before it
        pair.step(seed, factor=factor)
    pair.check()
    pair.optimizer.close()


@pytest.mark.parametrize(
    ("factor", "max_norm", "begun"),
    [(10, 1e9, True), (11, 1e9, False), (8, 8.0, True), (9, 8.0, False)],
    ids=["ten times", "more", "as long as the limit", "longer"],
)
def test_a_gradient_much_longer_than_the_last_one_waits_for_the_norm(
    monkeypatch, factor, max_norm, begun
):
    monkeypatch.setattr(schedule, "MIN_UNCLIPPED_STEPS", 1)
    net = nn.Linear(1, 1, bias=False).to(DEVICE)
    weight = nn.Parameter(net.weight.detach().clone())
    reference = torch.optim.AdamW([weight], lr=0.1)
    optimizer = offload(net, torch.optim.AdamW(net.parameters(), lr=0.1), max_norm=max_norm)
    for scale in (1, factor):
        net(torch.ones(1, 1, device=DEVICE, dtype=torch.bfloat16)).sum().mul(scale).backward()
        optimizer.ready()
        squared = optimizer.parameters[0].states.square.item()
        optimizer.step()
        weight.grad = torch.full_like(weight, min(scale, max_norm))
        reference.step()
    # before the step the second moment is 1e-3 of the first gradient, or has the second one too
    assert (squared > 2e-3) == begun
    assert torch.allclose(optimizer.weights()["weight"], weight.detach().cpu(), rtol=1e-5)
    optimizer.close()


def test_bytes_are_four_per_parameter_and_step():
    pair, begun = Pair(), time.perf_counter()
    assert pair.optimizer.times() == optimizers.StepTimes(0, 0, 0, 0.0, 0.0, 0.0, 0.0)
    assert (pair.optimizer.norm, pair.optimizer.skipped) == (0.0, 0)
    for seed in range(3):
        pair.step(seed)
    pair.check()
    times, count = (
        pair.optimizer.times(),
        sum(parameter.numel() for parameter in pair.net.parameters()),
    )
    norms = 4 * len(list(pair.net.parameters()))
    assert (times.down_bytes, times.up_bytes) == (3 * (2 * count + norms), 3 * 2 * count)
    assert times.steps == 3
    # on a CPU copies take no time of their own
    assert (times.down_s > 0, times.up_s > 0) == (DEVICE.type == "cuda", DEVICE.type == "cuda")
    assert all(
        0 < seconds < time.perf_counter() - begun for seconds in (times.update_s, times.waited_s)
    )
    pair.optimizer.close()


@pytest.mark.parametrize(
    ("stream_weights", "gpu_share"),
    [(False, 0.0), (True, 0.0), (True, 0.4)],
    ids=["resident", "streamed", "some on the GPU"],
)
def test_state_goes_to_adamw_and_back(stream_weights, gpu_share, tmp_path):
    pair, other = (
        Pair(seed=seed, stream_weights=stream_weights, gpu_share=gpu_share) for seed in (1, 2)
    )
    for seed in range(3):
        pair.step(seed)
    plain = torch.optim.AdamW(
        groups(
            Named(
                {name: nn.Parameter(parameter.detach()) for name, parameter in pair.plain.items()}
            )
        ),
        lr=1.0,
    )
    plain.load_state_dict(pair.optimizer.state_dict())
    states = plain.state_dict()["state"], pair.reference.state_dict()["state"]
    for loaded, expected in ((states[0][key], states[1][key]) for key in states[1]):
        assert loaded["step"] == expected["step"] == 3
        for name in ("exp_avg", "exp_avg_sq"):
            assert (
                loaded[name] - expected[name].to(loaded[name].device)
            ).norm() <= 2e-6 * expected[name].norm()
    assert [group["lr"] for group in plain.param_groups] == [1e-2, 3e-3]
    pair.optimizer.save(tmp_path / "saved")
    other.optimizer.load(tmp_path / "saved")
    assert torch.equal(other.loss(7), pair.loss(7))
    other.plain, other.reference = pair.plain, pair.reference
    other.step(7)
    other.check()
    other.optimizer.load_state_dict(pair.reference.state_dict())
    pair.optimizer.load_state_dict(torch.optim.AdamW(groups(Named(pair.plain))).state_dict())
    assert pair.optimizer.state_dict()["state"] == {}
    assert not any(
        parameter.states.moment.any() or parameter.states.square.any()
        for parameter in pair.optimizer.parameters
    )
    for side in (pair, other):
        side.optimizer.close()


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
    pair.net.load_state_dict(
        {name: torch.full_like(weight, 0.5) for name, weight in pair.net.state_dict().items()}
    )
    assert all((weight == 0.5).all() for weight in pair.optimizer.weights().values())
    with torch.no_grad():
        pair.net.tokens.weight.fill_(0.25)
    pair.optimizer.adopt()
    assert (pair.optimizer.weights()["tokens.weight"] == 0.25).all()
    pair.optimizer.close()


def test_gradients_of_parameters_that_only_an_earlier_backward_used_count():
    experts = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)]).to(DEVICE)
    net = nn.ModuleDict({"experts": experts})
    optimizer = offload(net, torch.optim.AdamW(net.parameters(), lr=0.1), max_norm=None)
    inputs, before = (
        torch.ones(2, 8, device=DEVICE, dtype=torch.bfloat16),
        {name: weight.clone() for name, weight in optimizer.weights().items()},
    )
    with optimizer.accumulate():
        experts[1](inputs).sum().backward()
    experts[0](inputs).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    assert not any(
        torch.equal(weight, before[name]) for name, weight in optimizer.weights().items()
    )
    optimizer.close()


@pytest.mark.parametrize("frozen_in_adamw", [True, False], ids=["given to AdamW", "not given"])
def test_frozen_parameters_stay_as_they_are_in_bf16(frozen_in_adamw):
    net = two_layers()
    net[0].requires_grad_(False)
    optimizer = offload(
        net, torch.optim.AdamW((net if frozen_in_adamw else net[1]).parameters()), max_norm=None
    )
    before = net[0].weight.clone()
    net(ones()).sum().backward()
    optimizer.step()
    assert set(optimizer.weights()) == {"1.weight", "1.bias"}
    assert torch.equal(net[0].weight, before)
    assert before.dtype == torch.bfloat16
    net[0].requires_grad_(True)
    if frozen_in_adamw:
        with pytest.raises(UsageError, match="was frozen"):
            optimizer.step()
    optimizer.close()


def test_modules_of_the_model_load_and_save_their_own_weights():
    net = two_layers()
    optimizer = offload(net, torch.optim.AdamW(net.parameters()), max_norm=None)
    before = optimizer.weights()["1.weight"].clone()
    net[0].load_state_dict(
        {name: torch.full_like(weight, 0.5) for name, weight in net[0].state_dict().items()}
    )
    assert (optimizer.weights()["0.weight"] == 0.5).all()
    assert torch.equal(optimizer.weights()["1.weight"], before)  # not rounded to bf16
    with pytest.raises(UsageError, match="replaced the parameter"):
        net[1].load_state_dict(two_layers()[1].state_dict(), assign=True)
    optimizer.close()
    net = two_layers()
    optimizer = offload(
        net, torch.optim.AdamW(net.parameters()), max_norm=None, stream_weights=True
    )
    for name, weight in net[0].state_dict().items():
        assert torch.equal(
            weight.cpu().float(), optimizer.weights()[f"0.{name}"].bfloat16().float()
        )
    optimizer.close()


def test_a_model_of_one_parameter_trains():
    net = nn.Linear(8, 8, bias=False).to(DEVICE)
    optimizer = offload(net, torch.optim.AdamW(net.parameters(), lr=0.1), max_norm=None)
    assert optimizer.worker.adam.threads == host_adam.usable()
    before = optimizer.weights()["weight"].clone()
    net(ones()).sum().backward()
    optimizer.step()
    assert ((optimizer.weights()["weight"] - before).abs() > 0.01).all()
    optimizer.close()


def test_gradients_of_a_hook_that_takes_them_and_of_a_model_that_is_gone_are_left_alone():
    net = two_layers()
    net[0].bias.register_post_accumulate_grad_hook(
        lambda parameter: setattr(parameter, "grad", None)
    )
    optimizer = offload(net, torch.optim.AdamW(net.parameters(), lr=0.1), max_norm=None)
    before = optimizer.weights()["0.bias"].clone()
    net(ones()).sum().backward()
    optimizer.step()
    assert torch.equal(optimizer.weights()["0.bias"], before)
    loss, weight = net(ones()).sum(), net[0].weight
    del net, optimizer
    gc.collect()
    loss.backward()
    assert weight.grad is not None


@pytest.mark.parametrize("stream_weights", [False, True], ids=["resident", "streamed"])
def test_an_optimizer_that_is_dropped_with_its_model_ends_its_thread(stream_weights):
    net = two_layers()
    optimizer = offload(
        net, torch.optim.AdamW(net.parameters()), max_norm=None, stream_weights=stream_weights
    )
    for _ in range(2):
        net(ones()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    optimizer.ready()
    thread, references = (
        optimizer.worker._thread,
        [weakref.ref(reference) for reference in (net, optimizer)],
    )
    del net, optimizer
    gc.collect()
    thread.join(30)
    assert ([reference() for reference in references], thread.is_alive()) == ([None, None], False)


def test_zero_grad_drops_what_was_accumulated():
    net = two_layers()
    optimizer = offload(net, torch.optim.AdamW(net.parameters()), max_norm=None)
    before = optimizer.weights()["0.weight"].clone()
    with pytest.raises(KeyError), optimizer.accumulate():
        net(ones()).sum().backward()
        raise KeyError
    assert net[0].weight.grad is not None
    assert not optimizer.accumulates
    optimizer.zero_grad()
    assert net[0].weight.grad is None
    optimizer.step()
    assert torch.equal(optimizer.weights()["0.weight"], before)
    optimizer.close()


@pytest.mark.parametrize("max_norm", [None, 1e9])
def test_a_learning_rate_that_changes_before_the_step_is_not_overlooked(monkeypatch, max_norm):
    monkeypatch.setattr(schedule, "MIN_UNCLIPPED_STEPS", 0)
    net = two_layers()
    optimizer = offload(net, torch.optim.AdamW(net.parameters(), lr=0.0), max_norm=max_norm)
    for _ in range(2):
        before = optimizer.weights()["0.weight"].clone()
        optimizer.param_groups[0]["lr"] = 0.0
        net(ones()).sum().backward()
        optimizer.param_groups[0]["lr"] = 0.1
        if max_norm is None:
            with pytest.raises(UsageError, match="changed between backward and step"):
                optimizer.step()
        else:
            optimizer.step()
            assert ((optimizer.weights()["0.weight"] - before).abs() > 0.01).all()
    optimizer.close()


def test_schedulers_are_made_of_the_new_optimizer():
    net = two_layers()
    optimizer = offload(net, torch.optim.AdamW(net.parameters()), max_norm=None)
    torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10)
    optimizer.close()
    net = two_layers()
    adamw = torch.optim.AdamW(net.parameters())
    torch.optim.lr_scheduler.ExponentialLR(adamw, 0.5)
    with pytest.raises(UsageError, match="scheduler"):
        offload(net, adamw, max_norm=None)
