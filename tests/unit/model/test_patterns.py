"""A recorded application on another system."""

import re
from dataclasses import replace

import pytest

from busbw.core.collectives import BY_NAME
from busbw.core.pattern import Header, Pattern, Times
from busbw.model import prediction_text
from busbw.model.buckets import Bucket
from busbw.model.estimate import EstimateInputs
from busbw.model.forecast import forecast
from busbw.model.patterns import place, predict_pattern
from busbw.model.systems import parse_system
from busbw.model.training_step import RecordedTraining
from busbw.pattern.collector import Arguments, CallTally


def recorded() -> Pattern:
    """16 ranks: one group of all, one for each host, and pairs that send."""
    tally = CallTally(Header(source="test", world=16, seconds=2.0), ordered=False)
    world, inside = tally.add_comm(16, members=range(16)), tally.add_comm(8, members=range(8))
    across, unknown = tally.add_comm(2, members=(0, 8)), tally.add_comm(4)
    tally.add_calls(Arguments(world, "all_reduce", 1 << 30, 1 << 28, "float32", "sum"), 10)
    tally.add_calls(Arguments(inside, "all_gather", 1 << 26), 100, gpu_us=300.0)
    tally.add_calls(Arguments(across, "send", 1 << 24, rank=0, peer=1), 5)
    tally.add_calls(Arguments(across, "recv", 1 << 24, rank=1, peer=0), 5)
    tally.add_calls(Arguments(inside, "send", 1 << 24, rank=0, peer=1), 5)
    tally.add_calls(Arguments(unknown, "all_reduce", 0), 3)
    tally.add_calls(Arguments(unknown, "barrier", 8), 1)
    return tally.to_pattern()


def test_rows_have_the_times_of_their_own_ranks() -> None:
    setting = EstimateInputs(parse_system("h100x8"))
    predicted = predict_pattern(recorded(), setting, "app.jsonl", "described")
    all_ranks, gathered, sent, received, beside, empty, barrier = predicted.rows
    assert [(row.hosts, row.per_host) for row in predicted.rows[:5]] == [
        (2, 8),
        (1, 8),
        (2, 1),
        (2, 1),
        (1, 2),
    ]

    assert all_ranks.forecast == forecast(setting, BY_NAME["all_reduce"], 2, 8, 1 << 30)
    assert gathered.measured_s == pytest.approx(300e-6 * 100 / 2)  # of half the ranks
    assert sent.forecast is not None
    assert beside.forecast is not None
    assert sent.forecast.time_s > 4 * beside.forecast.time_s  # 50 GB/s of a NIC, 370 of NVLink
    weights = {all_ranks.row: 1, gathered.row: 1 / 2, sent.row: 1 / 16, beside.row: 1 / 16}
    assert predicted.total_s == pytest.approx(
        sum(
            weights[row.row] * row.forecast.time_s * row.calls
            for row in predicted.rows
            if row.forecast
        )
    )
    assert [row.row for row in predicted.without] == [received.row, empty.row, barrier.row]
    assert all(row.reason for row in predicted.without)
    assert predicted.recorded_s == 2.0
    assert (predicted.described.hosts, predicted.described.per_host) == (2, 8)


def test_the_text_names_calls_without_a_time() -> None:
    predicted = predict_pattern(
        recorded(), EstimateInputs(parse_system("h100x8")), "app.jsonl", "described"
    )
    text = prediction_text.pattern_text(predicted, 80)
    assert max(map(len, text.splitlines())) <= 80
    wide = prediction_text.pattern_text(predicted)
    assert re.search(r"all_reduce +1 GiB +2 x 8 ", wide), "hosts x GPUs of each"
    assert re.search(r"all_gather +64 MiB +1 x 8 ", wide)
    assert "no time for 1 row of 5 calls: recv: its time is that of the send" in text
    assert "barrier" in text
    assert "of which that is" in " ".join(text.split())


def test_a_larger_host_holds_the_ranks_of_two() -> None:
    pattern, rack = recorded(), parse_system("gb200nvl72")
    assert place(pattern.comms[0], rack.gpus) == (1, 16)
    assert place(pattern.comms[2], rack.gpus) == (1, 2)
    predicted = predict_pattern(pattern, EstimateInputs(rack), "app.jsonl", "described")
    assert predicted.described.hosts == 1


def test_a_send_without_a_known_peer_stays_in_its_group() -> None:
    tally = CallTally(Header(world=16), ordered=False)
    comm = tally.add_comm(16, members=range(16))
    tally.add_calls(Arguments(comm, "send", 1 << 20), 1)
    (row,) = predict_pattern(
        tally.to_pattern(), EstimateInputs(parse_system("h100x8")), "", ""
    ).rows
    assert (row.hosts, row.per_host) == (2, 1)
    assert Times(1, 1.0, 1.0, 1.0, 1.0).n == 1


def test_sends_have_the_channels_of_their_whole_communicator() -> None:
    """The stages of a pipeline on 16 hosts: one channel a send, of 14 GB/s."""
    tally = CallTally(Header(source="test", world=128, seconds=2.0), ordered=False)
    stages = tally.add_comm(128, members=range(128))
    pair = tally.add_comm(2, members=(0, 8))
    for comm, peer in ((stages, 8), (pair, 1)):
        tally.add_calls(Arguments(comm, "send", 1 << 30, rank=0, peer=peer), 5)
    setting = EstimateInputs(parse_system("h100x8"))
    rows = predict_pattern(tally.to_pattern(), setting, "app.jsonl", "described").rows
    rates = [row.forecast.busbw / 1e9 for row in rows if row.forecast]
    assert rates == pytest.approx([14, 49], rel=0.01)


def test_the_total_has_the_ranges_of_its_calls() -> None:
    predicted = predict_pattern(
        recorded(), EstimateInputs(parse_system("h100x8")), "a", "described"
    )
    assert 0 < predicted.low_s < predicted.least_s <= predicted.most_s < predicted.high_s
    text = " ".join(prediction_text.pattern_text(predicted, 80).split())
    assert "within the ranges of all" in text
    assert "exposed unknown" in text


@pytest.mark.parametrize("system", ["h100x8", "b200x8"])
def test_the_step_of_a_training_is_its_computation_and_what_the_exchange_exposes(
    system: str,
) -> None:
    tally = CallTally(Header(source="test", world=16), ordered=False)
    world = tally.add_comm(16, members=range(16))
    tally.add_calls(Arguments(world, "all_reduce", 1 << 28, 1 << 26, "float32", "sum"), 10)
    buckets = [Bucket(1 << 28, 0.0), Bucket(1 << 28, 0.05)]
    training = RecordedTraining(16, buckets, ["float", "bfloat16"], 0.1, 0.02)
    setting = EstimateInputs(parse_system(system))
    predicted = predict_pattern(tally.to_pattern(), setting, "a", "described", training=training)
    step = predicted.step
    last = forecast(setting, BY_NAME["all_reduce"], 2, 8, 1 << 28)
    assert step is not None and last is not None
    # Backward hides the first bucket, and nothing hides the last.
    assert step.exposed_s == pytest.approx(last.time_s)
    assert step.step_s == pytest.approx(0.1 - 0.02 + last.time_s)
    assert step.least_exposed_s < step.exposed_s < step.most_exposed_s
    text = " ".join(prediction_text.pattern_text(predicted, 80).split())
    assert "recorded 100.0 ms, 20.00 ms exposed" in text
    part = predict_pattern(
        recorded(), setting, "a", "described", training=replace(training, ranks=8)
    )
    assert part.step is None  # a training of some of the ranks
