"""Ways to keep a model's states, for people and as Markdown."""

from types import SimpleNamespace

import msgspec
import pytest

from busbw.core.errors import Exit, UsageError
from busbw.core.result import RankDevice, World
from busbw.measure.rank_failure import Failed, RankFailed
from busbw.measure.target import LaunchTarget
from busbw.report import read
from busbw.report.registry import render
from busbw.stats.intervals import interval
from busbw_accel.memory_plan.gpt_shape import GptShape
from busbw_accel.train import largest_model, states_text
from busbw_accel.train.kinds import TrainJob, TrainResult
from busbw_accel.train.largest_model import StatesComparison, _next_layers
from busbw_accel.train.types import (
    LargestModel,
    StatesSpec,
    StatesUse,
    TrainingRuns,
    TrainRun,
    TrainSpec,
)

SHAPE = GptShape(32, 4096, 32, 50_304)


@pytest.fixture
def compared(make):
    """Compute, an offloaded optimizer, and one that did not fit."""
    spec = TrainSpec(
        model="gpt",
        batch_size=8,
        sequence=2048,
        precision="bf16",
        iters=6,
        steps=1,
        warmup=3,
        methods=("compute", "offload", "adamw"),
        states=StatesSpec(shape=SHAPE, recompute=True, gpu_memory=80 << 30),
    )
    count = SHAPE.parameters(2048)
    training = TrainingRuns(spec, "token", count, 2 * count, 1)
    alone_use = StatesUse(0.1, 20 * 10**9, 22 * 10**9, 3 * 10**9, 0)
    used = StatesUse(
        9.5,
        25 * 10**9,
        26 * 10**9,
        96 * 10**9,
        13 * 10**9,
        2.0 * count,
        2.0 * count,
        0.3,
        1.3,
        0.31,
        0.05,
    )
    training.runs = [
        _run("compute", [2.0, 2.1, 2.0, 1.9, 2.0, 2.0], 10.9, alone_use),
        _run("offload", [2.2, 2.1, 2.2, 2.2, 3.4, 2.2], 7.25, used),
        TrainRun(
            "adamw",
            0,
            [],
            [],
            failed="rank 0 on node0: does not fit on the GPU: CUDA out of memory",
        ),
    ]
    base = make()
    world = World([RankDevice(0, 10, "node0", 0, "0000:00:06", "NVIDIA H200")], 1)
    return TrainResult(
        training=training, world=world, library=base.library, start=base.start, complete=True
    )


def _run(method, steps_s, loss, use):
    return TrainRun(
        method, 0, steps_s, [8 * 2048 / step for step in steps_s], loss=loss, states=use
    )


def _interval(run):
    low, high = interval(run.steps_s, 0.95)
    return [f"{1e3 * low:.1f}", "-", f"{1e3 * high:.1f}"]


def test_a_line_for_each_way_and_the_reason_of_a_failure(compared):
    lines = render(compared, "table").splitlines()
    assert lines[0] == "# gpt: 6,658,596,864 parameters in 32 layers of 4096, vocabulary of 50,304"
    assert (
        "16,384 tokens a step and rank, bf16, activations recomputed, at most 85.9 GB of the GPU; 6"
        " steps" in lines[2]
    )
    assert lines[5].split()[:6] == [
        "compute",
        "2000.0",
        *_interval(compared.training.runs[0]),
        "8192",
    ]
    words = lines[6].split()
    # All tokens over all time: the long step counts, though the median step would give 7447.
    assert words[:7] == [
        "offload",
        "2200.0",
        *_interval(compared.training.runs[1]),
        f"{6 * 8 * 2048 / 14.3:.0f}",
        "+200.0",
    ]
    assert words[7:] == [
        "25.00",
        "26.00",
        "96.00",
        "13.00",
        "9.5",
        "2.00",
        "2.00",
        "300.0",
        "1300.0",
        "310.0",
        "50.0",
        "7.2500",
    ]
    assert lines[7].startswith("adamw           rank 0 on node0: does not fit")


def test_markdown_has_the_same_figures(compared):
    lines = render(compared, "markdown").splitlines()
    plain = states_text.render_all(compared).splitlines()
    assert lines[3].replace("|", " ").split() == plain[6].split()
    assert len({line.count(" | ") for line in lines}) == 1


def test_a_narrow_terminal_drops_columns(compared):
    for line in states_text.render_all(compared, 60).splitlines()[3:]:
        assert len(line) <= 80, "the name, step, tokens, exposed, and both memories stay"
    assert "pinned" not in states_text.header(compared, 60)


def test_the_largest_models_are_below(compared):
    compared.training.largest = [
        LargestModel("offload", SHAPE, 6_658_596_864, 7_000_000_000, "does not fit"),
        LargestModel("adamw", None, 0, 6_658_596_864, "too large"),
    ]
    assert states_text.footer(compared).splitlines()[1:] == [
        "offload: the largest has 6.66B parameters in 32 layers; 7.00B did not train: does not fit",
        "adamw: no model trained; 6.66B did not train: too large",
    ]


def test_a_file_without_memory_figures_is_refused(compared):
    read.check(compared)
    compared.training.runs[0].states = None
    with pytest.raises(UsageError, match="the training by compute has no memory figures"):
        read.check(compared)


@pytest.mark.parametrize(
    ("first", "largest"), [(7, 1), (7, 7), (40, 41), (40, 133), (1, 0), (5, 0)]
)
def test_the_search_ends_next_to_the_largest(first, largest):
    fits = refused = tries = 0
    while (layers := _next_layers(first, fits, refused)) is not None:
        tries += 1
        fits, refused = (layers, refused) if layers <= largest else (fits, layers)
    assert fits <= largest < refused
    assert refused - fits <= max(1, 0.02 * fits)
    assert tries <= 12


@pytest.fixture
def comparison(compared, monkeypatch, tmp_path):
    """`comparison(train, *methods)`: a search or a comparison whose trainings `train` answers.

    It gets a training's spec, and returns what it raises: None if the training succeeds.
    """

    def make(train, *methods, rounds=2):
        def run(job, _, sink):
            spec = job.training
            failure = train(spec)
            if failure is None or failure.exit != Exit.USAGE:
                runs = [TrainRun(spec.methods[0], 0, [1.0], [1.0])] if failure is None else []
                count = spec.states.shape.parameters(2048)
                started = TrainingRuns(spec, "token", count, 2 * count, 1, runs)
                sink.record.result = msgspec.structs.replace(
                    compared, training=started, errors=[] if failure is None else ["ended"]
                )
            if failure is not None:
                raise failure

        monkeypatch.setattr(largest_model, "run", run)
        spec = msgspec.structs.replace(compared.training.spec, methods=methods, rounds=rounds)
        done = []
        search = StatesComparison(
            TrainJob(training=spec),
            LaunchTarget(),
            tmp_path / "states.json",
            lambda: SimpleNamespace(record=SimpleNamespace(result=None)),
            lambda result, run: done.append((run.method, run.round, run.failed)),
        )
        return search, done, tmp_path / "states.json"

    return make


def _refused(message, code=Exit.UNKNOWN):
    return RankFailed(Failed(message, "leave it out", int(code), 0, "h"))


def test_the_search_stops_at_an_option_that_no_size_can_use(comparison):
    starts = []

    def train(spec):
        starts.append(spec)
        return _refused("--gpu-memory: no GPU", Exit.USAGE)

    search, _, file = comparison(train, "adamw")
    with pytest.raises(RankFailed, match="no GPU"):
        search.largest()
    assert len(starts) == 1 and not file.exists()


def test_the_search_finds_the_largest_model_of_each_method(comparison):
    starts = []

    def train(spec):
        starts.append(spec)
        largest = {"offload": 70, "adamw": 0}[spec.methods[0]]
        return _refused("does not fit") if spec.states.shape.layers > largest else None

    search, done, file = comparison(train, "offload", "adamw")
    result = search.largest()
    assert all((spec.warmup, spec.iters, spec.steps, spec.rounds) == (1,) * 4 for spec in starts)
    offload, adamw = result.training.largest
    assert (offload.method, offload.shape.layers, offload.shape.width) == ("offload", 70, 4096)
    assert offload.parameters == GptShape(70, 4096, 32, 50_304).parameters(2048)
    assert offload.refused == GptShape(71, 4096, 32, 50_304).parameters(2048)
    assert offload.reason.endswith("does not fit")
    assert (adamw.method, adamw.shape, adamw.parameters) == ("adamw", None, 0)
    assert adamw.refused == GptShape(1, 4096, 32, 50_304).parameters(2048)
    assert [name for name, _, failed in done[:3] if not failed] == [
        "offload, 32 layers",
        "offload, 64 layers",
    ]
    assert result.complete and result.errors == []
    assert result.training.spec.methods == ("offload", "adamw"), "as requested"
    assert msgspec.json.decode(file.read_bytes(), type=TrainResult) == result


def test_ways_are_compared_in_turn_and_a_failure_is_recorded(comparison):
    def train(spec):
        return _refused("no nvcc") if spec.methods == ("deepspeed",) else None

    search, done, file = comparison(train, "deepspeed", "compute")
    result = search.compare()
    expected = [
        ("deepspeed", 0, "rank 0 on h: no nvcc"),
        ("compute", 0, ""),
        ("deepspeed", 1, "rank 0 on h: no nvcc"),
        ("compute", 1, ""),
    ]
    assert done == expected
    assert [(run.method, run.round, run.failed) for run in result.training.runs] == expected
    assert (result.complete, result.errors, result.training.spec.rounds) == (True, [], 2)
    assert msgspec.json.decode(file.read_bytes(), type=TrainResult) == result


def test_a_wrong_option_ends_a_comparison(comparison):
    def train(_):
        return UsageError("--hosts: unknown", "leave it out")

    with pytest.raises(UsageError, match="unknown"):
        comparison(train, "compute")[0].compare()
