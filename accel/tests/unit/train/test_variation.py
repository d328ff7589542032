"""The figures of each round of a training."""

import pytest

from busbw_accel.train import variation
from busbw_accel.train.types import ALONE, TrainingRuns, TrainRun, TrainSpec


def trained(*runs: TrainRun) -> TrainingRuns:
    return TrainingRuns(TrainSpec(model="mlp"), "img", 1, 4, 2, list(runs))


def test_a_round_is_compared_with_itself() -> None:
    trained_result = trained(
        TrainRun(ALONE, 0, [0.1, 0.1, 9.0], [100.0, 50.0], silent_s=[0.12]),
        TrainRun("int8", 0, [0.2, 0.2, 0.2], [25.0, 50.0], silent_s=[0.15]),
        TrainRun(ALONE, 1, [0.2], [50.0], silent_s=[0.22]),
        TrainRun("int8", 1, [0.4], [25.0], silent_s=[0.27]),
        TrainRun(ALONE, 2, [0.3], [40.0], silent_s=[0.32]),  # the run was interrupted here
    )
    parts = variation.parts(trained_result, "int8")
    assert parts.shares == pytest.approx([0.5, 0.5]), "all samples over all time"
    assert parts.exposed_s == pytest.approx([0.1, 0.2])
    assert parts.codec_s == pytest.approx([0.03, 0.05])
    assert parts.network_s == pytest.approx([0.05, 0.13])
    low, high = variation.share_interval(trained_result, "int8") or (0.0, 0.0)
    assert low == pytest.approx(high) == pytest.approx(0.5), (
        "the machine was twice as slow in the second round"
    )


def test_without_a_step_on_a_perfect_network_there_are_no_parts() -> None:
    trained_result = trained(
        TrainRun(ALONE, 0, [0.1], [1.0], silent_s=[0.1]), TrainRun("torch-bf16", 0, [0.2], [0.5])
    )
    parts = variation.parts(trained_result, "torch-bf16")
    assert (parts.codec_s, parts.network_s, parts.exposed_s) == ([], [], [0.1])
    assert variation.share_interval(trained_result, "torch-bf16") is None
    assert variation.contradictions(trained_result) == []
    assert variation.parts(trained_result, "never run").shares == []
