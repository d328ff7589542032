"""Releases of NCCL are compared with the first one, with one error rate over all of them."""

import random

import pytest

from busbw.core import json_codec
from busbw.core.comparison import ComparisonVerdict
from busbw.core.result import Cell, EngineLibrary, RankDevice, Result, ResultRow, World
from busbw.core.sweep import SweepSpec
from busbw.history import release_matrix as views
from busbw.report import file_kinds
from busbw.stats.judging import Limits
from busbw.stats.release_matrix import judge, rounds_needed

RELEASES = ["2.28.9", "2.30.7", "2.32.3"]
COLLECTIVES = ["all_reduce", "all_gather"]
ROUNDS = 5
MIB, KIB = 1 << 20, 1 << 10
DEVICES = [
    RankDevice(rank=rank, pid=rank, host="h1", index=rank, bus=str(rank), name="NVIDIA H200")
    for rank in range(4)
]


def result(collective, generator, slow=(), wrong=()):
    """A run whose times vary by 0.5 %; `slow` sizes take 12 % longer out of place."""

    def cell(size, factor):
        time_s = (1e-5 + size / 1e11) * factor * generator.gauss(1, 0.005)
        return Cell(time_s, 1e9, 1e9, wrong=int(size in wrong))

    rows = [
        ResultRow(
            *(size, size, "float", "sum", -1),
            cell(size, 1.12 if size in slow else 1.0),
            cell(size, 1.0),
            20,
        )
        for size in (8, 4 * KIB, 256 * KIB, 2 * MIB, 64 * MIB)
    ]
    library = EngineLibrary("nccl", 22809)
    return Result(
        SweepSpec(collective=collective),
        rows=rows,
        library=library,
        world=World(DEVICES, 4),
        complete=True,
    )


def matrix(slow=None, wrong=None, failures=None):
    """The matrix of five rounds; `slow` and `wrong` have sizes by collective and release."""
    generator = random.Random(7)
    keys = [(name, release) for name in COLLECTIVES for release in RELEASES]
    failures = failures or {}
    runs = {
        key: [
            (
                key[1],
                result(key[0], generator, (slow or {}).get(key, ()), (wrong or {}).get(key, ())),
            )
            for _ in range(0 if key in failures else ROUNDS)
        ]
        for key in keys
    }
    return judge(COLLECTIVES, RELEASES, runs, failures, Limits())


@pytest.mark.parametrize(
    ("comparisons", "rounds"), [(1, 4), (2, 5), (6, 5), (7, 6), (23, 6), (24, 7)]
)
def test_more_comparisons_need_more_rounds(comparisons, rounds):
    assert rounds_needed(comparisons, Limits()) == rounds


def test_equal_releases_are_not_called_slower():
    equal = matrix()
    assert (equal.is_worse(), equal.is_judged(), equal.rounds) == (False, True, ROUNDS)
    assert [each.comparison.confidence for each in equal.comparisons] == [1 - 0.05 / 4] * 4
    assert "no size is slower by more than 5 %" in views.text(equal, 80)


def test_a_release_that_is_slower_at_two_sizes_is_named_with_them():
    slower = matrix(slow={("all_reduce", "2.32.3"): (4 * KIB, 2 * MIB)})
    assert slower.is_worse()
    cells = {
        (each.comparison.collective, each.release): each.comparison.of(ComparisonVerdict.SLOWER)
        for each in slower.comparisons
    }
    assert {key: len(found) for key, found in cells.items() if found} == {
        ("all_reduce", "2.32.3"): 2
    }
    text = views.text(slower, 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "all_reduce with NCCL 2.32.3: slower by more than 5 %\n size  placement " in text
    rows = [line.split() for line in text.splitlines() if " out of place " in line]
    assert [row[:2] for row in rows] == [["4", "KiB"], ["2", "MiB"]]
    for row in rows:
        low, high = float(row[-3]), float(row[-1])
        assert low < float(row[-4].rstrip("x")) < high
        assert low < 1.12 < high
    assert "\n2 cells slower by more than 5 %, with NCCL 2.32.3\n" in views.text(slower, 80)
    assert "2 cells slower by more than 5 %, with NCCL 2.32.3" in views.markdown(slower)


def test_wrong_data_and_a_release_that_does_not_run_are_worse_than_slow():
    wrong = matrix(wrong={("all_gather", "2.30.7"): (8,)})
    assert wrong.is_worse()
    assert "error: all_gather: wrong data with 2.30.7 at 8\n" in views.text(wrong, 80)
    failed = matrix(failures={("all_gather", "2.30.7"): "it ended with 3"})
    assert (failed.is_worse(), failed.is_judged(), len(failed.comparisons)) == (True, False, 3)
    assert "error: all_gather: 2.30.7 did not run: it ended with 3" in views.text(failed, 80)


def test_notes_name_the_releases():
    generator = random.Random(7)
    runs = {
        (name, release): [(release, result(name, generator)) for _ in range(ROUNDS)]
        for name in COLLECTIVES
        for release in RELEASES
    }
    runs[COLLECTIVES[0], RELEASES[1]][0][1].loop = "python"
    runs[COLLECTIVES[0], RELEASES[0]][0][1].loop = "native"
    shown = views.text(judge(COLLECTIVES, RELEASES, runs, {}, Limits()), 120)
    note = f"note: loop: native in {RELEASES[0]}, python in {RELEASES[1]}"
    assert note in shown


def test_without_the_first_release_a_collective_is_not_judged():
    unjudged = matrix(failures={("all_gather", "2.28.9"): "it ended with 3"})
    assert (unjudged.is_worse(), unjudged.is_judged(), len(unjudged.comparisons)) == (
        False,
        False,
        2,
    )
    nothing = matrix(failures={(name, "2.28.9"): "no GPU" for name in COLLECTIVES})
    assert "nothing could be compared" in views.text(nothing, 80)
    assert views.markdown(nothing) and not nothing.is_judged()


def test_a_file_of_it_is_shown_again():
    slower = matrix(slow={("all_reduce", "2.32.3"): (4 * KIB,)})
    document = file_kinds.read(json_codec.indented(slower).encode(), "versions.json")
    assert document.title == "Comparison of NCCL releases"
    assert document.text(80) == views.text(slower, 80)
