"""Weights that stay on the host and come to the device one unit ahead."""

import copy

import pytest

torch = pytest.importorskip("torch")

from offload_pair import DEVICE, Pair  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from busbw.core.errors import UsageError  # noqa: E402
from busbw_accel import offload  # noqa: E402

pytestmark = pytest.mark.torch
DEPTH, WIDTH = 4, 8


class Layer(nn.Linear):
    """A layer that takes and returns what `pack` makes of its tensor.

    `alias` is its weight by another name.
    """

    def __init__(self, pack, unpack):
        super().__init__(WIDTH, WIDTH, bias=False)
        self.pack, self.unpack, self.alias = pack, unpack, self.weight

    def forward(self, inputs):
        return self.pack(super().forward(self.unpack(inputs)).tanh())


class Layers(nn.Module):
    def __init__(self, pack=lambda tensor: tensor, unpack=lambda packed: packed, recompute=False):
        super().__init__()
        torch.manual_seed(3)
        self.layers, self.recompute = (
            nn.ModuleList(Layer(pack, unpack) for _ in range(DEPTH)),
            recompute,
        )
        self.pack, self.unpack = pack, unpack
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, tensor):
        hidden = self.pack(tensor)
        for layer in self.layers:
            hidden = (
                checkpoint(layer, hidden, use_reentrant=False) if self.recompute else layer(hidden)
            )
        return self.unpack(hidden) * self.scale


def inputs(seed=1):
    return torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(seed)).to(
        DEVICE, torch.bfloat16
    )


def streamed(net, stream_weights=True, max_norm=None):
    net.to(DEVICE)
    return offload(
        net,
        torch.optim.AdamW(net.parameters(), lr=0.01),
        max_norm=max_norm,
        stream_weights=stream_weights,
    )


def trained(net, stream_weights):
    """The weights of the model after two steps."""
    optimizer = streamed(net, stream_weights)
    for seed in range(2):
        net(inputs(seed)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    optimizer.close()
    return {name: parameter.detach() for name, parameter in net.named_parameters()}


def assert_equal(weights, expected):
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        assert torch.equal(weight, expected[name]), name


@pytest.mark.parametrize("recompute", [False, True], ids=["kept", "recomputed"])
def test_the_device_has_the_unit_that_runs_and_the_next_one(recompute):
    net = Layers(recompute=recompute)
    optimizer = streamed(net)
    passes = []

    def here():
        return {
            number
            for number, layer in enumerate(net.layers)
            if layer.weight.untyped_storage().nbytes()
        }

    def after(number, output):
        if output.requires_grad and len(passes) <= DEPTH:  # not those of a recomputation
            output.register_hook(lambda _: passes.append(("backward", number, here())))

    for number, layer in enumerate(net.layers):
        layer.register_forward_pre_hook(
            lambda *_, number=number: passes.append(("forward", number, here()))
        )
        layer.register_forward_hook(lambda *arguments, number=number: after(number, arguments[-1]))
    forward = [("forward", number, {number, min(number + 1, DEPTH - 1)}) for number in range(DEPTH)]
    backward = [
        ("backward", number, {number, max(number - 1, 0)}) for number in reversed(range(DEPTH))
    ]
    recomputed = [
        ("forward", number, {number, max(number - 1, 0)}) for number in reversed(range(DEPTH))
    ]
    loss = net(inputs()).sum()
    loss.backward()
    assert here() == set()
    assert passes[:DEPTH] == forward
    assert passes[DEPTH:] == (
        [
            unit_pass
            for passes_of_unit in zip(backward, recomputed, strict=True)
            for unit_pass in passes_of_unit
        ]
        if recompute
        else backward
    )
    optimizer.step()
    del passes[:]
    with torch.no_grad():
        net(inputs())
    assert (passes, here()) == (forward, set())
    net(inputs())  # its backward never comes
    net(inputs())
    assert here() == {DEPTH - 1}
    optimizer.close()
    assert here() == set(range(DEPTH))


@pytest.mark.parametrize(
    ("pack", "unpack"),
    [
        (lambda tensor: (None, tensor), lambda packed: packed[1]),
        (lambda tensor: [tensor], lambda packed: packed[0]),
        (lambda tensor: {"of": ["text", (tensor,)]}, lambda packed: packed["of"][1][0]),
    ],
    ids=["tuple", "list", "dict"],
)
def test_units_may_return_tensors_in_containers(pack, unpack):
    assert_equal(
        trained(Layers(pack, unpack), stream_weights=True), trained(Layers(), stream_weights=False)
    )


def test_parameters_that_share_their_memory_get_memory_of_their_own():
    net, other = (Layers().bfloat16() for _ in range(2))
    flat = torch.cat([layer.weight.detach().flatten() for layer in net.layers])
    for layer, part in zip(net.layers, flat.split(WIDTH * WIDTH), strict=True):
        layer.weight.data = part.view(WIDTH, WIDTH)
    assert_equal(trained(net, stream_weights=True), trained(other, stream_weights=False))


def test_a_state_dict_has_a_weight_under_each_of_its_names():
    net = Layers()
    expected = copy.deepcopy(net).bfloat16().state_dict()
    optimizer = streamed(net)
    weights = net.state_dict()
    assert_equal({name: weight.cpu() for name, weight in weights.items()}, expected)
    assert {"layers.0.weight", "layers.0.alias", "scale"} < set(weights)
    assert torch.equal(net.layers[1].state_dict()["weight"].cpu(), expected["layers.1.weight"])
    optimizer.close()


@pytest.mark.parametrize("of", [lambda net: net, lambda net: net.layers[1]], ids=["model", "unit"])
def test_weights_are_not_loaded_into_a_streamed_model(of):
    net = Layers()
    state = copy.deepcopy(of(net).state_dict())
    optimizer = streamed(net)
    with pytest.raises(UsageError, match="load_state_dict on a model whose weights are streamed"):
        of(net).load_state_dict(state)
    optimizer.close()
    of(net).load_state_dict(state)


def test_a_forward_between_backward_and_step_is_refused_only_while_gradients_are_in_place_of_weights():
    net = Layers()
    optimizer = streamed(net, max_norm=1.0)
    net(inputs()).sum().backward()
    with pytest.raises(UsageError, match="forward between backward and "):
        net(inputs())
    optimizer.step()
    net(inputs())
    optimizer.close()


def test_streamed_weights_are_not_mistaken_for_gradients_between_backward_and_step():
    pair = Pair(max_norm=1.0, stream_weights=True)
    pair.step(0)
    before = {name: weight.clone() for name, weight in pair.net.state_dict().items()}
    pair.loss(1).backward()
    assert all(torch.equal(weight, before[name]) for name, weight in pair.net.state_dict().items())
    pair.optimizer.close()
    assert all(
        torch.equal(weight.cpu(), before[name].cpu())
        for name, weight in pair.net.named_parameters()
    )
