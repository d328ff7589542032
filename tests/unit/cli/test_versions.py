"""`busbw versions`: what it takes, and what becomes of a side that fails."""

import pytest

from busbw.cli.ab_runs import Side, Sweep, Turns
from busbw.cli.main import guarded
from busbw.cli.versions import matrix_of, split_words
from busbw.core.errors import UsageError
from busbw.stats.judging import Limits

SIM = ("--engine", "sim", "-n", "4", "-b", "1M", "-e", "1M")


@pytest.mark.parametrize(
    ("words", "split"),
    [
        ("2.28.9 2.32.3", (["2.28.9", "2.32.3"], ["all_reduce"], [])),
        (
            "2.28.9 ./lib/libnccl.so.2 AllGather all_reduce -b 8 --hosts h1:8",
            (
                ["2.28.9", "./lib/libnccl.so.2"],
                ["all_gather", "all_reduce"],
                ["-b", "8", "--hosts", "h1:8"],
            ),
        ),
    ],
)
def test_releases_come_first_then_collectives_then_options(words, split):
    assert split_words(words.split()) == split


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "0 releases to compare"),
        ("2.28.9 -- all_reduce", "1 release to compare"),
        ("2.28.9 2.32.3 2.28.9", "2.28.9 is named twice"),
        ("2.28.9 2.32.3 -- all_reduce allreduce", "all_reduce is named twice"),
        ("2.28.9 2.32.3 -- all_redoce", "unknown collective 'all_redoce'"),
        ("2.28.9 2.32.3 --rounds 1", "--rounds"),
        ("2.28.9 2.32.3 -- all_reduce --wheels=dir", "--wheels=dir among the options"),
        ("2.28.9 2.32.3 -- all_reduce --engine sim", "engine sim moves no data through NCCL"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_a_run(words, message, capfd):
    assert guarded(["versions", *words.split()]) == 2
    printed = capfd.readouterr()
    assert message in printed.err
    assert "round 1" not in printed.err


def test_a_rank_of_another_launcher_starts_no_runs(monkeypatch):
    for name, value in (("RANK", "0"), ("SIZE", "2"), ("LOCAL_RANK", "0"), ("LOCAL_SIZE", "2")):
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", value)
    with pytest.raises(UsageError, match="this process is a rank of a running job"):
        Turns([Side("2.28.9", ())], [Sweep("all_reduce", ["all_reduce"])]).run(1)


def test_a_side_that_fails_is_left_out_of_later_rounds(capfd):
    noisy = ("--sim", "noise=3", "--max-time", "0.001", "--precision", "0.1%", "--brief")
    turns = Turns(
        [Side("2.32.3", noisy)], [Sweep("all_reduce", ["all_reduce", *SIM])], leave_out_failed=True
    )
    turns.run(2)
    lines = capfd.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("round")] == [
        "round 1 of 2: all_reduce, 2.32.3"
    ]
    assert turns.results == {(0, 0): []}
    turns.sides = [Side("2.28.9", ()), *turns.sides]
    turns.failures = {(0, 1): turns.failures[0, 0]}
    matrix = matrix_of(turns, Limits())
    assert [(failure.release, failure.collective) for failure in matrix.failures] == [
        ("2.32.3", "all_reduce")
    ]
    assert "ended with 3" in matrix.failures[0].message
    assert matrix.is_worse() and not matrix.is_judged()
