"""What is said of a collective and a load at the same time."""

import random

import msgspec
import pytest

from busbw.core.result import EngineLibrary, RankDevice, World
from busbw.core.sweep import SweepSpec
from busbw.overlap.text import render
from busbw.overlap.types import OverlapMeasured, OverlapResult, OverlapRow, OverlapSide

SAMPLES = 24


def side(alone_us: float, beside_us: float, operations: int = 10, seed: int = 1) -> OverlapSide:
    """Samples of both that scatter by a per cent."""
    chance = random.Random(seed)

    def samples(operation_us: float) -> list[float]:
        total_s = 1e-6 * operation_us * operations
        return [total_s * chance.gauss(1.0, 0.01) for _ in range(SAMPLES)]

    return OverlapSide(
        operations=operations, alone_s=samples(alone_us), beside_s=samples(beside_us)
    )


def result(*rows: OverlapRow) -> OverlapResult:
    return OverlapResult(
        spec=SweepSpec(collective="all_reduce", datatype="bfloat16"),
        load="gemm",
        load_text="a product of two matrices of 4096 x 4096 bfloat16",
        rows=list(rows),
        complete=True,
        library=EngineLibrary("torch", 22809, {"torch": "2.11.0", "backend": "nccl"}),
        world=World(
            [RankDevice(rank, 1, "h", rank, f"0000:0{rank}:00", "GPU") for rank in range(2)], 2
        ),
    )


def row(ctas: int = 0) -> OverlapRow:
    return OverlapRow(
        size_bytes=1 << 20,
        ctas=ctas,
        collective=side(100.0, 150.0),
        load=side(200.0, 220.0, seed=2),
    )


def test_slowdowns_and_the_gain_follow_from_the_times() -> None:
    measured = row()
    assert measured.collective.operation_s == pytest.approx(100e-6, rel=0.01)
    assert measured.collective.slowdown.ratio == pytest.approx(1.5, rel=0.02)
    assert measured.load.slowdown.ratio == pytest.approx(1.1, rel=0.02)
    assert measured.gain == pytest.approx(1 / 1.5 + 1 / 1.1, rel=0.02)


def test_sides_that_do_not_disturb_each_other_gain_two() -> None:
    free = OverlapRow(
        size_bytes=8, ctas=0, collective=side(10.0, 10.0), load=side(10.0, 10.0, seed=2)
    )
    assert free.gain == pytest.approx(2.0, rel=0.02)


def test_the_whole_text() -> None:
    assert render(result(row()), 80) == (
        "AllReduce of bfloat16 beside gemm, 2 x GPU on 1 host, torch engine, NCCL 2.28.9\n"
        "\n"
        " size     alone  beside load        load alone  load beside        gain\n"
        "1 MiB  100.1 us  1.50x (1.49-1.51)    199.2 us  1.10x (1.09-1.11)  1.58\n"
        "\n"
        "load: a product of two matrices of 4096 x 4096 bfloat16\n"
        "alone: the time of one operation; beside: the time while the other side runs all\n"
        "  the time, over that alone\n"
        "gain: how much is done in a time in which one of both would be done alone; 2 if\n"
        "  they do not disturb each other, 1 if one after the other is as fast\n"
    )


def test_limits_of_ctas_have_a_column() -> None:
    text = render(result(row(8), row(0)), None)
    assert "CTAs" in text
    assert "\n1 MiB     8  " in text
    assert "\n1 MiB   any  " in text


def test_wrong_data_beside_the_load_fails() -> None:
    measured = result()
    assert OverlapMeasured(row(), 0).add_to(measured)
    assert not measured.wrong()
    OverlapMeasured(row(), 3).add_to(measured)
    assert measured.wrong()
    assert "FAIL    the collective gave wrong data beside the load" in render(measured, 80)


def test_a_side_that_the_other_one_did_not_outlast_has_a_lower_limit() -> None:
    measured = row()
    measured.collective = msgspec.structs.replace(measured.collective, uncovered=SAMPLES // 2)
    text = render(result(measured), 80)
    assert "1 MiB  100.1 us  >1.50x " in text
    assert " -\n" in text  # no gain
    assert "> or ?: the other side ended first, so the slowdown beside it is larger" in text


def test_a_run_that_did_not_end_says_so() -> None:
    measured = result(row())
    measured.complete = False
    assert "the run did not end; these rows are what was measured" in render(measured, 80)


def test_cpus_are_said_to_tell_nothing_of_gpus() -> None:
    on_gpus, on_cpus = result(row()), result(row())
    on_cpus.world = World([RankDevice(rank, 1, "h", rank, "", "AMD EPYC") for rank in range(2)], 2)
    assert "says nothing of GPUs" in render(on_cpus, 80)
    assert "CPUs" not in render(on_gpus, 80)
