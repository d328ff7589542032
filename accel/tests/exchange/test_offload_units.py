"""How a model is divided: into units, whose weights are needed at the same time, and into
pieces, which are updated one by one.
"""

import time

import pytest

torch = pytest.importorskip("torch")

from offload_pair import WIDTH, Pair  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.fsdp import FSDPModule  # noqa: E402

from busbw.core.errors import UsageError  # noqa: E402
from busbw_accel import offload  # noqa: E402
from busbw_accel.offloading import state_memory  # noqa: E402
from busbw_accel.settings import Settings  # noqa: E402

pytestmark = pytest.mark.torch


def linear():
    return nn.Linear(2, 2, bias=False)


def as_sharded(module):
    """The class that fully_shard gives a module."""
    module.__class__ = type("Sharded", (FSDPModule, type(module)), {})
    return module


def model():
    return nn.ModuleDict(
        {
            "head": linear(),
            "inner": nn.ModuleDict({"list": nn.ModuleList([linear(), nn.Sequential(linear())])}),
            "rest": nn.Sequential(linear()),
        }
    )


def named(net, units):
    names = {id(module): name for name, module in net.named_modules()}
    return [(names[id(unit.module)], unit.order) for unit in units]


def test_units_are_the_members_of_the_outermost_lists():
    net = model()
    assert named(net, state_memory.divide(net)) == [
        ("", 0),
        ("inner.list.0", 1),
        ("inner.list.1", 2),
        ("rest.0", 3),
    ]


def test_units_are_what_fully_shard_was_called_on():
    net = model()
    for module in (net["inner"]["list"][0], net["rest"], net):
        as_sharded(module)
    assert named(net, state_memory.divide(net)) == [("", 0), ("inner.list.0", 1), ("rest", 2)]


def test_a_parameter_belongs_to_the_innermost_unit_and_a_shared_one_to_the_root():
    net = nn.ModuleList(nn.ModuleList([linear(), linear()]) for _ in range(3))
    first, second, third = net
    second[1].weight = first[1].weight
    third[0].weight = second[0].weight
    # one within the other, as fully_shard can have them
    modules = (net, first, first[0], first[1], second, third)
    root, _, inner, _, _, last = units = [
        state_memory.Unit(module, order) for order, module in enumerate(modules)
    ]
    belongs = state_memory.owners(units)
    assert belongs[id(first[0].weight)] is inner
    assert belongs[id(first[1].weight)] is root
    assert belongs[id(second[0].weight)] is root
    assert belongs[id(third[1].weight)] is last


@pytest.mark.parametrize(
    ("count", "ends"), [(0, []), (1, [(0, 1)]), (4, [(0, 4)]), (9, [(0, 4), (4, 8), (8, 9)])]
)
def test_pieces_cover_a_parameter(monkeypatch, count, ends):
    monkeypatch.setattr(state_memory, "PIECE", 4)
    weight = nn.Parameter(torch.zeros(count))
    offloaded = state_memory.OffloadedParameter(
        "weight", weight, 0, 0, state_memory.Unit(nn.Identity(), 0), state_memory.local_part(weight)
    )
    assert [(part.start, part.stop) for part in offloaded.pieces()] == ends


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda net: as_sharded(net["rest"]), {}, "sharded model is not in bf16"),
        (lambda net: net.to("meta"), {}, "parameters are on meta"),
        (lambda net: net["rest"].to("meta"), {}, "parameters are on cpu, meta"),
        (lambda net: as_sharded(net["rest"].bfloat16()), {}, "sharded model is not in bf16"),
        (
            lambda net: as_sharded(net.bfloat16()["rest"]),
            {"stream_weights": True},
            "stream_weights does not work with fully_shard",
        ),
        (lambda net: net, {"exchange": Settings()}, "exchange is for DistributedDataParallel"),
        (lambda net: net.requires_grad_(False), {}, "the model has no trained parameters"),
    ],
)
def test_models_that_cannot_be_offloaded_are_refused(change, options, message):
    net = model()
    change(net)
    with pytest.raises(UsageError, match=message):
        offload(net, torch.optim.AdamW(net.parameters()), **{"max_norm": None} | options)


class ByWeight(nn.Module):
    """Has no parameters of its own, and uses those of a list whose members do not run."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(2))

    def forward(self, hidden):
        return hidden @ self.layers[0].weight @ self.layers[1].weight


def test_a_model_waits_for_the_weights_of_members_that_do_not_run(monkeypatch):
    net, inputs = ByWeight(), torch.ones(2, 8, dtype=torch.bfloat16)
    optimizer = offload(net, torch.optim.AdamW(net.parameters()), max_norm=None)
    net(inputs).sum().backward()
    optimizer.step()
    wait, waited = optimizer.worker.wait, []
    monkeypatch.setattr(
        optimizer.worker,
        "wait",
        lambda parameters: (
            waited.extend(parameter.name for parameter in parameters),
            wait(parameters),
        ),
    )
    net(inputs)
    assert sorted(waited) == ["layers.0.weight", "layers.1.weight"]
    optimizer.close()


@pytest.mark.parametrize("stream_weights", [False, True], ids=["resident", "streamed"])
def test_a_forward_waits_for_the_new_weights_of_all_its_parameters(monkeypatch, stream_weights):
    pair = Pair(stream_weights=stream_weights)
    update = pair.optimizer.worker.adam.update

    def slow(rule, gradient, *more):
        # those of `bare` come last
        time.sleep(0.05 if gradient.numel() == WIDTH * WIDTH else 0.002)
        update(rule, gradient, *more)

    monkeypatch.setattr(pair.optimizer.worker.adam, "update", slow)
    for seed in range(2):
        pair.step(seed)
    with torch.no_grad():
        at_once = pair.loss(7)
        pair.optimizer.ready()
        assert pair.loss(7) == at_once
    if not stream_weights:  # members of `bare` do not run
        assert {
            parameter.name.split(".")[0]
            for parameter in pair.optimizer.parameters
            if parameter.unit.order == 0
        } == {"tokens", "bare"}
    pair.optimizer.close()
