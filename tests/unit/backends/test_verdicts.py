"""Which backend is named the fastest, and when that is sure."""

import random

import pytest

from busbw.backends.text import fastest_text, foot, head, render
from busbw.backends.types import EAGER, GRAPH, BackendsResult, BackendsRow, BackendTime, Choice
from busbw.backends.verdicts import beaten, choices, fastest, recommended
from busbw.core.result import Cell, EngineLibrary, Ideal, RankDevice, World
from busbw.core.sweep import SweepSpec
from busbw.model.findings import all_findings

VISITS, SAMPLES = 12, 8


def cell(time_us: float, noise: float = 0.01, wrong: int = 0, seed: int = 1) -> Cell:
    """A cell of some visits, whose samples scatter by `noise`."""
    chance = random.Random(seed)
    samples = [1e-6 * time_us * chance.gauss(1.0, noise) for _ in range(VISITS * SAMPLES)]
    found = Cell(1e-6 * time_us, 1e9, 1e9, wrong=wrong, samples_s=samples)
    found.visits = [SAMPLES] * VISITS
    found.low_s, found.high_s = (1e-6 * time_us * (1 + sign * noise) for sign in (-1, 1))
    return found


def time(backend: str, time_us: float, mode: str = EAGER, **of_cell: float) -> BackendTime:
    seed = sum(map(ord, backend))
    return BackendTime(backend=backend, mode=mode, cell=cell(time_us, seed=seed, **of_cell))


def row(size: int, *times: BackendTime) -> BackendsRow:
    return BackendsRow(size_bytes=size, times=list(times))


def result(*rows: BackendsRow) -> BackendsResult:
    names = list(dict.fromkeys(each.backend for each in rows[0].times))
    made = BackendsResult(
        spec=SweepSpec(collective="all_reduce", datatype="bfloat16"),
        default=names[0],
        backends=names,
        in_graph=16,
        complete=True,
        rows=list(rows),
        library=EngineLibrary("torch", 22809, {"torch": "2.11.0", "backend": "nccl"}),
        world=World([RankDevice(rank, 1, "h", rank, "", "GPU") for rank in range(2)], 2),
    )
    made.choices = choices(made)
    return made


def test_a_backend_that_takes_half_the_time_is_surely_the_fastest() -> None:
    best = fastest(row(1024, time("nccl", 20.0), time("one-shot", 10.0)), EAGER, "nccl")
    assert best is not None and best.sure
    assert best.backend == "one-shot"
    assert best.ratio == pytest.approx(2.0, rel=0.02)
    assert best.low is not None and best.high is not None
    assert best.low < 2.0 < best.high


def test_equal_backends_are_both_named_and_the_default_is_recommended() -> None:
    alike = row(1024, time("nccl", 20.0), time("one-shot", 19.9))
    best = fastest(alike, EAGER, "nccl")
    assert best is not None and not best.sure
    assert fastest_text(best, "nccl") == "nccl or one-shot"
    assert recommended(alike, EAGER, "nccl") == ("nccl", False)
    assert foot(result(alike))[-1] == "eager: nccl (not decided) at all sizes"


def test_a_difference_within_the_noise_is_not_sure() -> None:
    noisy = row(1024, time("nccl", 20.0, noise=0.5), time("one-shot", 18.0, noise=0.5))
    best = fastest(noisy, EAGER, "nccl")
    assert best is not None and not best.sure


def test_wrong_data_never_wins() -> None:
    bad = row(1024, time("nccl", 20.0), time("one-shot", 5.0, wrong=3))
    best = fastest(bad, EAGER, "nccl")
    assert best is not None and best.backend == "nccl"
    assert " wrong  nccl" in render(result(bad), 80)


def test_a_mode_without_times_has_no_fastest() -> None:
    assert fastest(row(1024, time("nccl", 20.0)), GRAPH, "nccl") is None


def test_one_that_refuses_a_size_is_left_out_there_with_its_reason() -> None:
    refused = BackendTime(backend="one-shot", mode=EAGER, why_not="too large")
    made = result(
        row(1024, time("nccl", 20.0), time("one-shot", 10.0)),
        row(2048, time("nccl", 20.0), refused),
    )
    assert [(c.backend, c.last_bytes) for c in made.choices] == [("one-shot", 1024), ("nccl", 2048)]
    assert "one-shot: 1 size from 2 KiB: too large" in foot(made)


def test_ranges_join_sizes_and_the_default_that_is_beaten_is_a_warning() -> None:
    made = result(
        row(1024, time("nccl", 20.0), time("one-shot", 10.0)),
        row(2048, time("nccl", 20.0), time("one-shot", 16.0)),
        row(4096, time("nccl", 20.0), time("one-shot", 30.0)),
    )
    assert beaten(made) == [
        Choice(
            mode=EAGER,
            first_bytes=1024,
            last_bytes=2048,
            backend="one-shot",
            ratio=(pytest.approx(1.25, rel=0.01), pytest.approx(2.0, rel=0.01)),  # type: ignore[arg-type]
        )
    ]
    assert foot(made)[1:] == ["eager: one-shot to 2 KiB, then nccl"]
    assert [found.message for found in all_findings(made)] == [
        "nccl is slower than one-shot by 1.25x to 2.00x from 1 KiB to 2 KiB, eager"
    ]


def test_an_imprecise_time_does_not_divide_the_warning() -> None:
    unsettled = time("one-shot", 10.0)
    assert unsettled.cell is not None
    unsettled.cell.high_s = None
    made = result(
        row(1024, time("nccl", 20.0), time("one-shot", 10.0)),
        row(2048, time("nccl", 30.0), unsettled),
        row(4096, time("nccl", 40.0), time("one-shot", 10.0)),
    )
    (found,) = beaten(made)
    assert (found.first_bytes, found.last_bytes, found.sure) == (1024, 4096, False)
    assert found.ratio == pytest.approx((2.0, 4.0), rel=0.01)
    assert "eager: one-shot to 1 KiB, one-shot (imprecise) to 2 KiB, then one-shot" in foot(made)


def test_a_choice_is_not_sure_by_an_imprecise_time_or_without_a_second_backend() -> None:
    unsettled = time("nccl", 20.0)
    assert unsettled.cell is not None
    unsettled.cell.low_s = unsettled.cell.high_s = None
    made = result(
        row(1024, unsettled, time("one-shot", 10.0)),
        row(2048, time("nccl", 20.0), time("one-shot", 10.0)),
        row(4096, time("one-shot", 10.0)),
    )
    assert [(choice.first_bytes, choice.sure) for choice in made.choices] == [
        (1024, False),
        (2048, True),
        (4096, False),
    ]
    assert made.choices[-1].ratio is None


def test_the_default_is_not_judged_where_it_was_not_measured() -> None:
    gone = BackendTime(backend="nccl", mode=EAGER, why_not="it hung")
    made = result(
        row(1024, time("nccl", 20.0), time("one-shot", 10.0)),
        row(2048, gone, time("one-shot", 9.0)),
    )
    assert [choice.last_bytes for choice in beaten(made)] == [1024]
    best = fastest(made.rows[1], EAGER, "nccl")
    assert best is not None
    assert fastest_text(best, "nccl") == "one-shot"


def test_what_is_not_precise_is_marked() -> None:
    wide = time("nccl", 20.0)
    assert wide.cell is not None
    wide.cell.low_s, wide.cell.high_s = 15e-6, 25e-6
    text = render(result(row(1024, wide)), 80)
    assert "~20.0" in text
    assert "~: less precise than 10%" in text


def test_a_run_that_did_not_end_says_so() -> None:
    made = result(row(1024, time("nccl", 20.0)))
    made.complete = False
    assert "the run did not end; these rows are what was measured" in foot(made)


def test_the_whole_text() -> None:
    made = result(
        row(
            1024,
            time("nccl", 20.0),
            time("one-shot", 10.0),
            time("nccl", 8.0, GRAPH),
            time("one-shot", 8.0, GRAPH),
        )
    )
    made.left_out = {"multimem": "these GPUs have no multicast memory"}
    assert render(made, 80) == (
        "AllReduce of bfloat16, 2 x GPU on 1 host, torch engine, NCCL 2.28.9\n"
        "\n"
        "microseconds of a call:\n"
        " size  nccl  one-shot  fastest\n"
        "1 KiB  20.0      10.0  one-shot 2.00x (1.99-2.01)\n"
        "\n"
        "microseconds of a call in a CUDA graph of 16:\n"
        " size  nccl  one-shot  fastest\n"
        "1 KiB  8.00      8.00  nccl or one-shot\n"
        "\n"
        "x: the time of nccl over that of the fastest, with its interval; `or`: they\n"
        "  cannot be told apart\n"
        "eager: one-shot at all sizes\n"
        "in graphs: nccl (not decided) at all sizes\n"
        "left out: multimem: these GPUs have no multicast memory\n"
        "WARN    nccl is slower than one-shot by 2.00x at 1 KiB, eager  [backends_slower]\n"
    )


def test_blocks_have_rates() -> None:
    made = result(row(4096, time("nccl", 20.0), time("nccl-packed", 40.0)))
    made.blocks = 64
    text = render(made, 80)
    assert "GB/s of a transfer of 64 blocks of the size:\nblock  nccl  nccl-packed" in text
    assert "\n4 KiB  1.00         1.00  nccl\n" in text


def test_the_bound_stands_beside_what_the_fastest_reaches() -> None:
    made = result(row(1 << 20, time("nccl", 20.0), time("one-shot", 10.0)))
    made.ideal = Ideal(4e9, "Ring", "NVLink", "4 GB/s of NVLink")
    assert (
        "at 1 MiB nccl reaches 1.00 GB/s busbw, 25.0 % of the bound of 4.00: 4 GB/s of"
        in " ".join(foot(made))
    )


def test_one_rank_has_no_fastest_backend() -> None:
    alone = result(row(1024, time("nccl", 20.0), time("one-shot", 10.0)))
    alone.world = World(alone.world.devices[:1], 1)
    assert choices(alone) == beaten(alone) == []
    shown = render(alone)
    assert "SKIP    one rank: no data crosses a link" in shown
    assert "x:" not in shown and "eager:" not in shown
    assert "one-shot 2" not in shown


def test_the_head_names_the_library_of_each_backend() -> None:
    made = result(row(1024, time("gloo", 20.0), time("mpi", 10.0)))
    made.library = EngineLibrary(
        "torch",
        versions={"torch": "2.11.0", "backend": "gloo", "Open MPI": "5.0.11", "mpi4py": "4.1.2"},
    )
    assert head(made) == "AllReduce of bfloat16, 2 x GPU on 1 host, torch engine, Open MPI 5.0.11"
