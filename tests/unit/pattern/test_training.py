"""Which step a pattern has: buckets, durations, and what it does not say."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.pattern import Comm, Header, Pattern, PatternCall, PatternRow, TrainingSteps
from busbw.pattern.registry import load
from busbw.pattern.training import rank_files
from busbw.pattern.training.finder import recorded_step
from busbw.pattern.training.recorded_step import RecordedBucket, merged

ROOT = Path(__file__).parents[3]
STEP_US = 100_000.0
SHAPES = [[[1024], [1024, 1000]], [[2000]]]
PARAMETER_BYTES = 4_108_096


def row(number: int, count: int, function: str = "all_reduce", **fields: Any) -> PatternRow:
    values = {"comm": 0, "dtype": "float", "calls": 6, "count": count, "bytes": 4 * count}
    return PatternRow(id=number, function=function, **(values | fields))


def training(steps: int = 6, **call_fields: Any) -> Pattern:
    """Two buckets and a loss in each step; the first step has one bucket."""
    rows = [row(0, 1_025_024), row(1, 2000), row(2, 1), row(3, 1_027_024)]
    calls = [PatternCall(3, 0.0), PatternCall(2, 90_000.0)]
    for step in range(1, steps + 1):
        start = STEP_US * step
        calls += [
            PatternCall(0, start, **call_fields),
            PatternCall(1, start + 30_000, **call_fields),
            PatternCall(2, start + 90_000),
        ]
    header = Header(source="flight-recorder", world=2, ranks=[0, 1])
    return Pattern(header, [Comm(0, 2)], rows, calls)


def test_buckets_are_the_all_reduces_that_repeat():
    step = recorded_step(training(), "run1")
    assert step.buckets == [
        RecordedBucket(4_100_096, "float", 0.0),
        RecordedBucket(8000, "float", 0.03),
    ]
    assert (step.ranks, step.steps, step.others) == (2, 4, ["all_reduce of 4 B"])
    assert step.step_s == pytest.approx(0.1)
    assert (step.waited_s, step.bucket_mb, step.has_shapes) == (None, None, False)


def test_the_recorder_tells_steps_waits_and_parameters():
    """Its step counts even where the record ends within one."""
    pattern = training()
    pattern.calls.append(PatternCall(0, 7 * STEP_US))
    pattern.header.training = TrainingSteps(
        [900_000.0, 200_000.0, *5 * [110_000.0]],
        [500_000.0, 40_000.0, *5 * [7000.0]],
        25.0,
        "allreduce_hook",
        SHAPES,
        ["h1", "h1", "h2"],
        parameter_bytes=PARAMETER_BYTES,
    )
    step = recorded_step(pattern, "run1")
    assert [bucket.shapes for bucket in step.buckets] == SHAPES
    assert (step.step_s, step.waited_s) == (pytest.approx(0.11), pytest.approx(0.007))
    assert (step.hook, step.bucket_mb) == ("allreduce_hook", 25.0)
    assert step.hosts_text() == "h1:2,h2:1"


def test_the_wait_is_that_of_timed_calls():
    step = recorded_step(training(cpu_us=50_000.0), "run1")
    # The first exchange ends at 50 ms, the second at 100; the last bucket was ready at 30.
    assert step.waited_s == pytest.approx(0.07)


def test_a_kernel_that_waited_for_another_was_ready_before():
    pattern = training()
    for at, call in enumerate(pattern.calls):
        first, second = call.row == 0, call.row == 1
        if first or second:
            start = call.at_us - (30_000 if second else 0) + (60_000 if second else 0)
            pattern.calls[at] = PatternCall(call.row, call.at_us, gpu_us=60_000.0, gpu_at_us=start)
    step = recorded_step(pattern, "run1")
    assert step.buckets[1].ready_s == pytest.approx(0.06)
    assert step.notes[-1].startswith("1 bucket began as another ended, and may have been ready")
    # It ends at 120 ms, having waited 80 since backward ended.
    pattern.header.training = TrainingSteps([110_000.0] * 7, [80_000.0] * 7, 25.0, "", SHAPES)
    step = recorded_step(pattern, "run1")
    assert step.buckets[1].ready_s == pytest.approx(0.04)
    assert step.notes[-1].endswith("is estimated from their bytes")


def test_a_record_without_times_has_buckets_alone():
    pattern = training()
    pattern.calls = [PatternCall(call.row) for call in pattern.calls]
    step = recorded_step(pattern, "run1")
    assert (step.step_s, step.waited_s, len(step.buckets)) == (None, None, 2)
    assert "its calls have no times: when buckets are ready is unknown" in step.notes


def test_a_real_training_on_gpus():
    step = recorded_step(load([str(ROOT / "benchmarks/capture_2xh100_202611/gpt2.jsonl")]), "gpt2")
    assert (len(step.buckets), step.nbytes) == (13, 497_759_232)
    assert step.step_s == pytest.approx(0.0457, abs=1e-4)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda pattern: pattern.rows.append(row(4, 1 << 23, "reduce_scatter")),
            UsageError,
            "192 MiB by reduce_scatter, 0 B by all_gather, and less by all_reduce: it shards",
        ),
        (
            lambda pattern: pattern.rows.append(row(4, 1_000_000, "all_gather")),
            UsageError,
            "22.89 MiB by all_gather, and .* by all_reduce, as which PyTorch records Gloo's",
        ),
        (lambda pattern: pattern.calls.clear(), UsageError, "the order of its calls is unknown"),
        (
            lambda pattern: pattern.calls.__delitem__(slice(8, None)),
            NoMeasurement,
            "no step repeats in its 5 all_reduces; a plan needs 3 steps alike",
        ),
        (
            lambda pattern: pattern.rows.__setitem__(slice(None), [row(0, 5000, dtype="int64")]),
            UsageError,
            "no all_reduce of gradients in it",
        ),
    ],
)
def test_what_is_no_such_training_is_refused(change, error, message):
    pattern = training()
    change(pattern)
    with pytest.raises(error, match=message):
        recorded_step(pattern, "run1")


def recorded(pattern: Pattern, shapes: list[list[list[int]]] = SHAPES, **facts: Any) -> Pattern:
    """The pattern with what the recorder read from DDP."""
    values = {"bucket_mb": 25.0, "parameter_bytes": PARAMETER_BYTES}
    pattern.header.training = TrainingSteps(shapes=shapes, **(values | facts))
    return pattern


def test_buckets_are_told_from_other_calls_between_them():
    """A step may lack a call, a bucket be small, and metrics of any size go between buckets."""
    pattern = training()
    pattern.rows += [row(4, 999), row(5, 3, bytes=12)]
    pattern.comms.append(Comm(1, 2, "other"))
    pattern.rows += [row(number, 1 << 20, "all_gather", comm=number - 6) for number in (6, 7)]
    calls = []
    for call in pattern.calls:
        calls += [call, *map(PatternCall, {0: [4], 1: [5, 4, 6, 7]}.get(call.row, []))]
    lost = [at for at, call in enumerate(calls) if call.row == 1][2]
    pattern.calls = calls[:lost] + calls[lost + 1 :]
    step = recorded_step(
        recorded(pattern, [*SHAPES, [[3]]], parameter_bytes=PARAMETER_BYTES + 12), "run1"
    )
    assert [bucket.nbytes for bucket in step.buckets] == [4_100_096, 8000, 12]
    assert step.others == ["all_gather of 4 MiB", "all_reduce of 3.9 KiB", "all_reduce of 4 B"]
    assert step.steps == 3


def with_activations(pattern: Pattern) -> Pattern:
    """The pattern with all_reduces of tensor parallelism on another communicator: of more bytes,
    and some of as many elements as the buckets.
    """
    pattern.comms.append(Comm(1, 2, "tp"))
    pattern.rows += [
        row(4, 1_025_024, comm=1, dtype="half", bytes=2 * 1_025_024),
        row(5, 2000, comm=1, dtype="half", bytes=4000),
        row(6, 9_000_000, comm=1),
    ]
    calls = []
    for call in pattern.calls:
        calls += [call, *map(PatternCall, {0: [4, 6], 1: [5]}.get(call.row, []))]
    pattern.calls = calls
    return pattern


def test_gradients_are_on_the_communicator_that_has_the_bytes_of_the_parameters():
    step = recorded_step(recorded(with_activations(training())), "run1")
    assert (step.ranks, step.nbytes) == (2, PARAMETER_BYTES)
    assert step.others[0] == "all_reduce of 34.33 MiB"


def halved(pattern: Pattern) -> Pattern:
    """The same counts, of half the bytes."""
    for number, gradients in enumerate(pattern.rows):
        pattern.rows[number] = row(number, gradients.count, dtype="half", bytes=2 * gradients.count)
    return pattern


def on_two_groups(pattern: Pattern) -> Pattern:
    """The same gradients on two halves of the job."""
    pattern.header.world = 4
    pattern.comms = [Comm(0, 2, "dp0"), Comm(1, 2, "dp1")]
    pattern.rows += [row(4 + number, pattern.rows[number].count, comm=1) for number in range(2)]
    pattern.calls += [PatternCall(4 + call.row) for call in pattern.calls if call.row in (0, 1)]
    return pattern


def part_of_a_job(pattern: Pattern) -> Pattern:
    pattern.header.world = 4
    return pattern


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (with_activations(training()), "2 communicators all-reduce what may be gradients: 0 of 2"),
        (recorded(on_two_groups(training())), "2 communicators have calls of the sizes of DDP's"),
        (recorded(part_of_a_job(training())), "over 0 of 2 ranks, and the job has 4"),
        (
            recorded(halved(training()), hook="bf16_compress_hook"),
            "its communication hook bf16_compress_hook sends 1.96 MiB by all_reduce, and its",
        ),
        (recorded(halved(training()), []), "a step sends 1.96 MiB by all_reduce, and its grad"),
        (
            recorded(training(), [[[4000, 4000]]], hook="powerSGD_hook"),
            "no step in it has all_reduces of the sizes of DDP's 1 bucket, 16000000 elements",
        ),
    ],
)
def test_gradients_that_cannot_be_told_or_are_compressed_are_refused(pattern, message):
    with pytest.raises(UsageError, match=message) as error:
        recorded_step(pattern, "run1")
    training_steps = pattern.header.training
    if training_steps and training_steps.hook:
        assert error.value.hint.endswith(f"its communication hook {training_steps.hook}")


def test_the_shortest_step_that_repeats_is_taken():
    """Rows that differ in NCCL's choices alone are one size."""
    pattern = training(8)
    pattern.rows.append(row(4, 2000, channels=2))
    late = [at for at, call in enumerate(pattern.calls) if call.row == 1]
    for at in late[::2]:
        pattern.calls[at] = PatternCall(4, pattern.calls[at].at_us)
    assert recorded_step(pattern, "run1").steps == 6
    pattern.calls = [call for call in pattern.calls if call.row == 0]
    step = recorded_step(pattern, "run1")
    assert (len(step.buckets), step.steps) == (1, 6)
    assert "all have one size, and a step may be several of them" in step.notes[0]


@given(st.lists(st.integers(1, 9_000_000), min_size=1), st.floats(0.5, 100))
def test_larger_buckets_have_the_same_gradients(sizes, bucket_mb):
    buckets = [RecordedBucket(4 * size, "float", float(at)) for at, size in enumerate(sizes)]
    larger = merged(buckets, bucket_mb)
    assert sum(bucket.nbytes for bucket in larger) == 4 * sum(sizes)
    assert larger[-1].ready_s == len(sizes) - 1
    assert all(bucket.nbytes >= bucket_mb * 2**20 for bucket in larger[:-1])


def rank_file(folder: Path, rank: int, **fields: Any) -> Path:
    values = {
        "version": 1,
        "rank": rank,
        "world": 4,
        "host": f"h{rank + 1}",
        "steps_us": [5.0, 6.0],
    }
    values |= {"bucket_mb": 25.0, "hook": "", "shapes": [[[3]]], "waits_us": [2.0]}
    path = folder / f"rank_{rank}.ddp"
    path.write_text(json.dumps(values | fields))
    return path


def test_a_broken_file_of_a_rank_is_named(tmp_path):
    rank_file(tmp_path, 0)
    rank_file(tmp_path, 1, waits_us=[1.0, 9.0])
    cut = rank_file(tmp_path, 2)
    cut.write_text(cut.read_text()[:40])
    (tmp_path / "rank_3.ddp").write_bytes(gzip.compress(b"no JSON"))
    rank_file(tmp_path, 4, version=2)
    (tmp_path / "rank_5.ddp").write_bytes(b'{"more":' * 200_000)
    steps, _, notes, _ = rank_files.read(tmp_path)
    assert steps == TrainingSteps(
        [5.0, 6.0], [1.0], 25.0, "", [[[3]]], ["h1", "h2"], wait_steps=[0]
    )
    *named, missing, timed = notes
    assert [note.partition(":")[0] for note in named] == [f"rank_{at}.ddp" for at in range(2, 6)]
    assert missing.startswith("2 of 4 ranks recorded their steps")
    assert timed.startswith("DDP timed 1 of 2 steps")


def test_step_and_wait_are_of_the_same_steps(tmp_path):
    """On GPUs DDP times some of its steps; a rank may lack one of them."""
    durations = [900.0, 90.0, 10.0, 30.0, 11.0, 30.0, 12.0, 30.0, 30.0]
    timed = {"steps_us": durations, "world": 2}
    rank_file(
        tmp_path, 0, wait_steps=[0, 1, 2, 4, 6], waits_us=[800.0, 80.0, 1.0, 2.0, 3.0], **timed
    )
    rank_file(
        tmp_path, 1, wait_steps=[0, 1, 4, 2, 6, 8], waits_us=[8, 8, 9.0, 9.0, 2.5, 0.0], **timed
    )
    steps, _, notes, _ = rank_files.read(tmp_path)
    assert (steps.wait_steps, steps.counted()) == ([0, 1, 2, 4, 6], [2, 4, 6])
    assert (steps.step_s, steps.wait_s) == (pytest.approx(11e-6), pytest.approx(2e-6))
    said = "DDP timed 5 of 9 steps: step and wait are the medians over these without the first 2"
    assert notes == [said]
