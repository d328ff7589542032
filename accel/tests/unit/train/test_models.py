"""The models that are busbw's own: their sizes, and that a step changes them in every precision."""

import pytest

from busbw.core.errors import NoMeasurement, UsageError
from busbw_accel.train.names import GPT, NAMES, require_model
from busbw_accel.train.types import PRECISIONS, TrainSpec

pytestmark = pytest.mark.torch


def test_every_name_has_a_model():
    from busbw_accel.train.models import BY_NAME

    assert list(BY_NAME) == [name for name in NAMES if name != GPT]  # built from its size


def test_an_unknown_model_is_refused():
    with pytest.raises(UsageError, match=r"^unknown model 'vgg'"):
        require_model("vgg")


# GPT-2's own is the first
SIZES = {"gpt2": 124_439_808, "gpt-small": 4_470_272, "mlp": 25_076_712, "mlp-small": 1_300_456}


@pytest.mark.parametrize(("name", "parameters"), SIZES.items())
def test_models_have_their_sizes(name, parameters):
    import torch

    from busbw_accel.train.models import BY_NAME

    with torch.device("meta"):
        net = BY_NAME[name].build(TrainSpec(model=name))
    assert sum(parameter.numel() for parameter in net.parameters()) == parameters


@pytest.mark.parametrize(
    ("name", "precision"),
    [*(("mlp-small", precision) for precision in PRECISIONS), ("gpt", "fp32"), ("gpt", "bf16")],
)
def test_steps_make_the_loss_smaller(name, precision):
    import torch

    from busbw_accel.train.loop import TrainingLoop, scaler_for
    from busbw_accel.train.models import BY_NAME, Model, gpt

    torch.manual_seed(1)
    spec = TrainSpec(model=name, batch_size=2, sequence=8, precision=precision)
    model = BY_NAME[name] if name in BY_NAME else Model(name, "seq", *gpt(1, 32, 2, 64))
    loop = TrainingLoop(
        spec,
        model,
        model.build(spec),
        torch.device("cpu"),
        scaler_for(precision, torch.device("cpu")),
    )
    loop.optimizer.param_groups[0]["lr"] = 0.1
    loop.step()
    first = float(loop.loss.detach())
    took = loop.time_steps(6)
    assert float(loop.loss.detach()) < first
    assert len(took) == 6
    assert all(seconds > 0 for seconds in took)


def test_a_transformer_does_not_see_later_tokens_or_other_samples():
    import torch

    from busbw_accel.train.models import Gpt

    torch.manual_seed(1)
    net, tokens = Gpt(2, 32, 4, 50, 8), torch.randint(50, (3, 8))
    other = tokens.clone()
    other[0, 5:] = (other[0, 5:] + 1) % 50
    before, after = net(tokens), net(other)
    assert torch.allclose(before[0, :5], after[0, :5], atol=1e-5)
    assert not torch.allclose(before[0, 5:], after[0, 5:], atol=1e-3)
    assert torch.allclose(before[1:], after[1:], atol=1e-5)


@pytest.mark.parametrize(
    ("name", "inputs", "classes"),
    [
        ("gpt-small", (3, 8), 4096),
        ("gpt2", (3, 8), 50257),
        ("mlp", (3, 1024), 1000),
        ("vgg16", (3, 3, 224, 224), 1000),
    ],
)
def test_samples_are_batches_and_the_same_each_time(name, inputs, classes):
    import torch

    from busbw_accel.train.models import BY_NAME

    spec = TrainSpec(model=name, batch_size=3, sequence=8)
    made = BY_NAME[name].samples(spec, torch.Generator().manual_seed(1))
    again = BY_NAME[name].samples(spec, torch.Generator().manual_seed(1))
    assert all(map(torch.equal, made, again))
    samples, targets = made
    assert samples.shape == inputs
    assert 0 <= targets.min() <= targets.max() < classes
    if name.startswith("gpt"):
        assert torch.equal(samples[:, 1:], targets[:, :-1]), "the next token is the target"
    else:
        assert targets.shape == (3,)


def test_missing_torchvision_suggests_the_package(monkeypatch):
    from busbw_accel.train.models import BY_NAME

    monkeypatch.setitem(__import__("sys").modules, "torchvision.models", None)
    with pytest.raises(NoMeasurement, match=r"^vgg16 needs torchvision, which is not installed"):
        BY_NAME["vgg16"].build(TrainSpec(model="vgg16"))
