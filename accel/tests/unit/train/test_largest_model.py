"""Ways to keep a model's states, on one rank in this process: losses, traffic, and the memory
that a plan predicts.
"""

import importlib.util
import weakref
from datetime import timedelta

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from busbw.core.errors import NoMeasurement, UsageError  # noqa: E402
from busbw.launch.control import SoloControl  # noqa: E402
from busbw_accel.memory_plan import strategies  # noqa: E402
from busbw_accel.memory_plan.gpt_shape import GptShape  # noqa: E402
from busbw_accel.memory_plan.types import PlannedTraining  # noqa: E402
from busbw_accel.train.bench import Bench, WrappedModel  # noqa: E402
from busbw_accel.train.methods import parse  # noqa: E402
from busbw_accel.train.models import BY_NAME, Gpt  # noqa: E402
from busbw_accel.train.states import bench as states_bench  # noqa: E402
from busbw_accel.train.states import methods, rates  # noqa: E402
from busbw_accel.train.states.bench import StatesBench, require_memory  # noqa: E402
from busbw_accel.train.types import StatesSpec, TrainSpec  # noqa: E402

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")
EXACT = (
    "adamw",
    "offload",
    "offload+gpu_share=0.4",
    "offload+stream_weights=1",
    "fsdp2",
    "fsdp2-offload",
)
SHAPE = GptShape(2, 128, 2, 256)


@pytest.fixture(scope="module", autouse=True)
def single_rank_group():
    """A process group of one rank."""
    store = dist.TCPStore("127.0.0.1", 0, 1, True, timedelta(seconds=30))
    dist.init_process_group(
        "gloo", store=store, rank=0, world_size=1, timeout=timedelta(seconds=30)
    )
    yield
    dist.destroy_process_group()


class Ranks(SoloControl):
    """Ranks of two hosts, two of the first: `values` are those of the other ranks."""

    processes = 3

    def __init__(self):
        self.values = ["h1", "h2"]
        self.reduced = []

    def allgather(self, value):
        return ["h1" if isinstance(value, str) else value, *self.values]

    def reduce_all(self, values, how):
        self.reduced.append(how)
        return list(values)


def trained(method, *, recompute=False, control=None, **changes):
    states = StatesSpec(shape=SHAPE, recompute=recompute, **changes)
    spec = TrainSpec(
        model="gpt",
        batch_size=2,
        sequence=16,
        warmup=1,
        iters=2,
        steps=1,
        methods=(method,),
        states=states,
    )
    bench = StatesBench(spec, CPU, control or SoloControl())
    if control is not None:
        control.values = [10**12, 3 * 10**12]
    return bench.run(lambda *_: None)


@pytest.mark.parametrize(("method", "fits"), [("compute", 4.1), ("adamw", 12.1)])
def test_a_model_larger_than_the_memory_of_the_cpus_host_is_refused_at_once(method, fits):
    way, parameters = methods.parse(method), 10**9
    require_memory(way, parameters, int(fits * parameters))
    with pytest.raises(
        NoMeasurement, match=f"^does not fit in host memory: on CPUs {method} needs at least"
    ):
        require_memory(way, parameters, int((fits - 0.2) * parameters))


def test_a_model_too_large_for_its_host_ends_before_it_is_built(monkeypatch):
    monkeypatch.setattr(states_bench, "available", lambda: 1000)
    with pytest.raises(NoMeasurement, match="on CPUs compute needs at least"):
        trained("compute")


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes\nat"),
            NoMeasurement,
            "does not fit in host memory: DefaultCPUAllocator: can't allocate memory: 9 bytes\nhint",
        ),
        (MemoryError("none left"), NoMeasurement, "does not fit in host memory: none left"),
        (RuntimeError("shapes differ"), RuntimeError, "shapes differ"),
    ],
)
def test_a_lack_of_memory_is_told_from_other_errors(monkeypatch, error, raised, message):
    def fail(*_):
        raise error

    monkeypatch.setattr(states_bench, "make_trainer", fail)
    with pytest.raises(raised, match=message):
        trained("compute")


def test_memory_is_that_of_the_host_that_needs_most():
    run = trained("compute", control=Ranks())
    assert run.states.host_bytes == run.states.pinned == 3 * 10**12
    assert run.states.gpu_bytes == 0 and run.states.start_s > 0


def test_bytes_that_leave_a_host_are_those_of_all_its_ranks(monkeypatch):
    ranks = Ranks()
    bench = Bench(TrainSpec(model="mlp-small"), BY_NAME["mlp-small"], CPU, ranks)
    assert (bench.training.hosts, bench.training.unit) == (2, "img")
    assert (bench.training.parameters, bench.training.gradients) == (1_300_456, 5_201_824)
    ranks.values = [2.0, 4.5]
    assert bench.by_host(1.0) == 4.5 and bench.by_host(3.0) == 5.0
    ranks.values = [2.0, None]
    assert bench.by_host(1.0) is None
    monkeypatch.setattr(dist, "get_world_size", lambda: 4)
    # A ring of four sends each byte 1.5 times over each of its links; two of them join two hosts.
    for name, sent in (("none", 6000.0), ("torch-bf16", 3000.0), ("torch-powersgd", None)):
        wrapped = WrappedModel(bench.net, None, parse(name), None)
        assert wrapped.sent(8000, 10, wrapped.mark(), 2) == sent
        assert wrapped.sent(8000, 10, 0, 1) == (None if sent is None else 0.0)


def test_a_rate_is_that_of_the_slowest_rank():
    class Slower(SoloControl):
        """Another rank takes two seconds for each step, and for each iteration."""

        def reduce_all(self, values, how):
            assert how == "max"
            return [2.0] * len(values)

    spec = TrainSpec(model="mlp-small", batch_size=5, warmup=4, iters=2, steps=3)
    bench, reports, phases, steps = Bench(spec, BY_NAME["mlp-small"], CPU, Slower()), [], [], []
    bench.net.register_forward_hook(lambda *_: steps.append(1))
    run = bench.alone(
        1, lambda *values: reports.append(values), lambda *phase: phases.append(phase)
    )
    assert (run.method, run.round, run.steps_s, run.rates) == ("alone", 1, [2.0] * 6, [7.5] * 2)
    assert reports == [("alone", 1, 0, 7.5), ("alone", 1, 1, 7.5)]
    assert (run.counted, run.seen, run.loss > 0) == (None, None, True)
    assert len(steps) == 4 + 6
    assert phases == [
        ("warm-up", "alone"),
        ("training", "alone, iteration 0"),
        ("training", "alone, iteration 1"),
    ]


def test_exact_methods_reach_the_same_loss():
    compute = trained("compute")
    losses = {method: trained(method).loss for method in EXACT}
    assert max(losses.values()) - min(losses.values()) < 2e-3, losses
    assert losses["adamw"] < compute.loss - 0.1, "compute does not update"
    assert trained("offload", recompute=True).loss == pytest.approx(losses["offload"], abs=2e-3)


def test_a_run_has_steps_memory_and_traffic():
    run = trained("offload")
    assert (len(run.steps_s), len(run.rates)) == (2, 2)
    count = SHAPE.parameters(16)
    assert run.states.down_bytes == pytest.approx(2 * count, rel=1e-3)
    assert run.states.up_bytes == 2 * count
    assert run.states.update_s > 0
    assert run.states.host_bytes > 14 * count
    assert trained("compute").states.down_bytes is None


@pytest.mark.parametrize("method", ["torchao", "deepspeed"])
def test_a_missing_library_is_named(method):
    if importlib.util.find_spec(method):
        pytest.skip(f"{method} is installed")
    with pytest.raises(NoMeasurement, match=f"^{method} is not installed") as caught:
        trained(method)
    assert f"pip install {method}" in caught.value.hint


def test_a_limit_of_gpu_memory_needs_a_gpu():
    with pytest.raises(
        UsageError, match=r"^--gpu-memory limits a GPU, and this training runs on CPUs"
    ):
        trained("compute", gpu_memory=1 << 30)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("offlaod", "is not a way to keep states"),
        ("offload+share=1", "is not a setting of offload"),
        ("offload+gpu_share=half", "is not a value of gpu_share"),
        ("offload+gpu_share=2", "gpu_share is 2.0, and must be between 0 and 1"),
        ("deepspeed+stage=1", "stage is 1"),
        ("adamw,adamw", "names one method twice"),
        (",", "names no method"),
    ],
)
def test_other_methods_are_refused(text, message):
    with pytest.raises(UsageError) as caught:
        methods.parse_all(text)
    assert message in caught.value.message


def test_settings_of_a_method_are_read():
    text = "offload+gpu_share=0.5+max_norm=none+stream_weights=1+threads=2+skip_nonfinite=0"
    switches = {"stream_weights": True, "skip_nonfinite": False}
    expected = {"gpu_share": 0.5, "max_norm": None, "threads": 2} | switches
    (offload, stage) = methods.parse_all(f"{text},deepspeed+stage=3")
    assert (offload.name, offload.values, stage.values) == (text, expected, {"stage": 3})
    assert methods.parse("offload").offload_settings() == {"max_norm": None}, "does not clip"
    assert methods.parse("offload+max_norm=2").offload_settings() == {"max_norm": 2.0}


class Live(TorchDispatchMode):
    """Counts the bytes of all tensors that exist, besides the parameters of `net`."""

    def __init__(self, net):
        super().__init__()
        self._live = {parameter.untyped_storage()._cdata: 0 for parameter in net.parameters()}
        self._now = self.peak = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        output = function(*arguments, **(keywords or {}))
        for tensor in output if isinstance(output, tuple | list) else [output]:
            if (
                isinstance(tensor, torch.Tensor)
                and (key := tensor.untyped_storage()._cdata) not in self._live
            ):
                self._live[key] = tensor.untyped_storage().nbytes()
                self._now += self._live[key]
                self.peak = max(self.peak, self._now)
                weakref.finalize(tensor.untyped_storage(), self._drop, key)
        return output

    def _drop(self, key):
        self._now -= self._live.pop(key, 0)


@pytest.mark.parametrize(
    ("layers", "width", "vocabulary", "sequence", "batch", "recompute"),
    [
        (4, 128, 256, 128, 2, True),
        (4, 128, 256, 128, 2, False),
        (3, 128, 4096, 64, 2, True),
        (8, 128, 4096, 32, 2, True),
    ],
    ids=["a layer", "all layers", "scores", "table"],
)
def test_predicted_memory_is_that_of_the_tensors(
    layers, width, vocabulary, sequence, batch, recompute
):
    shape = GptShape(layers, width, width // 64, vocabulary)
    net = Gpt(layers, width, shape.heads, vocabulary, sequence, recompute=recompute).bfloat16()
    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda parameter: setattr(parameter, "grad", None)
        )
    tokens = torch.randint(vocabulary, (batch, sequence))
    with Live(net) as live:
        net(tokens, tokens).backward()
    needs = strategies.offloaded(
        PlannedTraining(shape=shape, batch_size=batch, sequence=sequence, recompute=recompute), 0, 0
    )
    assert needs.gpu - needs.weights == pytest.approx(live.peak, rel=0.05)


def test_rates_of_a_machine_are_measured():
    training = PlannedTraining(shape=SHAPE, batch_size=2, sequence=16, recompute=True)
    compute = rates.compute_of(training, CPU)
    assert compute.layer_backward_s > compute.layer_forward_s > 0, (
        "recomputed forward is part of backward"
    )
    assert compute.root_forward_s > 0
    assert rates.host_rate(10_000) > 0
    assert rates.gpu_rate(CPU, 10_000) > 0
