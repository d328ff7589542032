"""AdamW in host memory: busbw-native and torch's own update, compared with torch.optim.AdamW."""

import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from busbw.core.errors import NoMeasurement, UsageError  # noqa: E402
from busbw_accel import host_adam  # noqa: E402
from busbw_accel.host_adam import HostAdam, Rule, States  # noqa: E402

pytestmark = pytest.mark.torch
COUNT = 100_003


def make_states(count=COUNT, seed=1):
    torch.manual_seed(seed)
    return States(torch.randn(count), torch.zeros(count), torch.zeros(count))


def gradients(step, count=COUNT, dtype=torch.bfloat16):
    return torch.randn(count, generator=torch.Generator().manual_seed(step)).mul_(1e-2).to(dtype)


def test_many_steps_equal_torch_adamw_to_1e_6(updates):
    count, steps = 3001, 1000 if updates == "native" else 100
    states, adam = make_states(count), HostAdam(2)
    assert adam.native == (updates == "native")
    plain = torch.nn.Parameter(states.weight.clone())
    optimizer = torch.optim.AdamW([plain], lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(1, steps + 1):
        gradient = gradients(step, count)
        plain.grad = gradient.float()
        optimizer.step()
        adam.update(Rule(step, 1e-3, (0.9, 0.95), weight_decay=0.1), gradient, states)
    difference = (states.weight - plain.detach()).norm() / plain.detach().norm()
    assert difference < 1e-6
    adam.close()


def test_weights_in_bf16_are_the_rounded_ones(updates):
    states, adam, copy = make_states(), HostAdam(3), torch.empty(COUNT, dtype=torch.bfloat16)
    adam.update(Rule(1, 1e-3), gradients(1), states, copy)
    assert torch.equal(copy, states.weight.bfloat16())
    adam.close()


def test_scale_multiplies_the_gradients(updates):
    first, second, adam = make_states(), make_states(), HostAdam(2)
    adam.update(Rule(1, 1e-3, scale=0.25), gradients(1), first)
    adam.update(Rule(1, 1e-3), gradients(1).mul(0.25), second)
    assert torch.equal(first.weight, second.weight) and torch.equal(first.square, second.square)
    adam.close()


@pytest.mark.parametrize("betas", [(0.0, 0.99), (0.9, 0.0), (0.0, 0.0)])
@pytest.mark.usefixtures("updates")
def test_updates_that_keep_no_moment_are_replaced(betas):
    adam, replaced, expected = HostAdam(2), make_states(100), make_states(100)
    for states in (replaced, expected):
        adam.update(Rule(1, 1e-3, betas, eps=1e-3), gradients(1, 100), states)
    first_rule, second_rule = (Rule(2, 1e-3, betas, eps=1e-3, scale=scale) for scale in (1.0, 0.5))
    adam.update(first_rule, gradients(2, 100), replaced)
    adam.update(second_rule, gradients(2, 100), replaced, undo=first_rule)
    adam.update(second_rule, gradients(2, 100), expected)
    torch.testing.assert_close(replaced.weight, expected.weight, rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(replaced.moment, expected.moment, rtol=1e-5, atol=1e-8)
    adam.close()


@pytest.mark.usefixtures("updates")
def test_a_first_update_that_is_undone_leaves_no_moment_where_none_was():
    adam, states, gradient = HostAdam(2), make_states(COUNT), gradients(1).mul(1e4)
    adam.update(Rule(1, 1e-3), gradient, states)
    adam.update(None, gradient, states, undo=Rule(1, 1e-3))
    assert not states.moment[states.square == 0].any()
    before = states.weight.clone()
    adam.update(Rule(1, 1e-3, weight_decay=0.0), torch.zeros_like(gradient), states)
    assert (states.weight - before).abs().max() < 1e-5  # a hundredth of the learning rate
    adam.close()


def test_number_of_threads_changes_no_bit(plugin_library, monkeypatch):
    monkeypatch.setenv("BUSBW_PLUGIN", str(plugin_library))
    host_adam._library.cache_clear()
    results = []
    for threads in (1, 2, 5, 16):
        states, adam = make_states(), HostAdam(threads)
        for step in range(1, 4):
            adam.update(Rule(step, 1e-3), gradients(step, dtype=torch.float32), states, None)
        adam.close()
        results.append(states)
    assert all(
        torch.equal(result.weight, results[0].weight)
        and torch.equal(result.square, results[0].square)
        for result in results
    )
    host_adam._library.cache_clear()


def test_close_ends_the_threads(plugin_library, monkeypatch):
    monkeypatch.setenv("BUSBW_PLUGIN", str(plugin_library))
    host_adam._library.cache_clear()
    before = set(Path("/proc/self/task").iterdir())
    adam = HostAdam(3)
    own = set(Path("/proc/self/task").iterdir()) - before
    assert own
    adam.close()
    adam.close()
    deadline = time.monotonic() + 30  # the kernel lists a thread a little longer than it runs
    while own & set(Path("/proc/self/task").iterdir()):
        assert time.monotonic() < deadline
    host_adam._library.cache_clear()


def test_a_library_that_is_named_wrongly_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("BUSBW_PLUGIN", str(tmp_path / "absent.so"))
    host_adam._library.cache_clear()
    with pytest.raises(NoMeasurement, match=r"absent\.so"):
        HostAdam(1)
    host_adam._library.cache_clear()


@pytest.mark.parametrize(("cores", "used"), [(1, 1), (3, 3), (400, host_adam.MAX_THREADS)])
def test_threads_are_as_many_as_the_process_has_cores_up_to_a_limit(monkeypatch, cores, used):
    monkeypatch.setattr(
        host_adam.os, "sched_getaffinity", lambda process: set(range(0 if process else cores))
    )
    assert host_adam.usable() == used


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda states: (gradients(1).half(), states),
            "gradient is torch.float16 of 100003 elements on cpu",
        ),
        (
            lambda states: (
                gradients(1),
                States(states.weight.double(), states.moment, states.square),
            ),
            "weight is torch.float64",
        ),
        (
            lambda states: (gradients(1), States(states.weight, states.moment[:5], states.square)),
            "moment is torch.float32 of 5 elements",
        ),
        (lambda states: (gradients(1, 2 * COUNT)[::2], states), "gradient is .* not contiguous"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(updates, change, message):
    adam, states = HostAdam(1), make_states()
    before = states.weight.clone()
    gradient, states = change(states)
    with pytest.raises(UsageError, match=message):
        adam.update(Rule(1, 1e-3), gradient, states)
    assert torch.equal(states.weight.float(), before)
    adam.close()
