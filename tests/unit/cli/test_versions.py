"""`busbw versions`: what it takes, its exit codes, and what becomes of a run that fails."""

import io
from contextlib import redirect_stdout

import pytest

from busbw.cli import ab_runs
from busbw.cli.ab_runs import OptionSet, Sweep, Turns
from busbw.cli.main import guarded
from busbw.cli.versions import split_words
from busbw.core.errors import UsageError

SIM = ("--engine", "sim", "-np", "4", "-b", "1M", "-e", "1M")
FAST, SLOW = "--sim gbps=300,noise=0.001", "--sim gbps=150,noise=0.001"
FAILS = "--min-percent 50%"  # simulated GPUs have no ideal


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
        Turns([OptionSet("2.28.9", ())], [Sweep("all_reduce", ["all_reduce"])]).run(1)


@pytest.fixture
def versions(monkeypatch):
    """Runs `busbw versions` of A and B. Simulated GPUs stand for them: each run of one has the next
    of its options, or the last of them.
    """

    def run(a, b, rounds=2, more=()):
        left = {"2.28.9": list(a), "2.32.3": list(b)}

        def in_this_process(words):
            if "--dry-run" in words:  # simulated GPUs have none
                return 0
            at = words.index("--nccl")
            options = left[words[at + 1]]
            chosen = options.pop(0) if len(options) > 1 else options[0]
            with redirect_stdout(io.StringIO()):
                return guarded(["run", *words[:at], *SIM, *chosen.split(), *words[at + 2 :]])

        monkeypatch.setattr(ab_runs, "_code", in_this_process)
        return guarded(["versions", *left, "--rounds", str(rounds), "--", "all_reduce", *more])

    return run


@pytest.mark.parametrize(
    ("a", "b", "rounds", "code", "says"),
    [
        (FAST, FAST, 2, 0, "no size is slower"),
        (FAST, SLOW, 4, 1, "2 cells slower by more than 5 %"),
        (FAST, FAILS, 2, 1, "2.32.3 did not run: busbw run all_reduce"),
        (FAILS, FAST, 2, 3, "2.28.9 did not run: busbw run all_reduce"),
    ],
)
def test_the_exit_code_says_whether_a_release_is_worse(versions, a, b, rounds, code, says, capsys):
    assert versions([a], [b], rounds) == code
    printed = capsys.readouterr()
    assert says in printed.out
    runs = [line for line in printed.err.splitlines() if line.startswith("round ")]
    assert len(runs) == (2 * rounds if FAILS not in (a, b) else rounds + 1), "left out later"


def test_a_later_round_that_is_refused_ends_them_and_complete_ones_are_compared(versions, capsys):
    assert versions([FAST], [FAST, "--no-such"], 3) == 3
    printed = capsys.readouterr()
    assert "refused with the error above; 1 of 3 rounds are compared" in printed.err
    assert "1 run of each, in turn" in printed.out
    assert versions(["--no-such"], [FAST]) == 2


def test_compare_too_keeps_complete_rounds_if_a_later_one_fails(monkeypatch, capsys):
    options = iter(["", "", "--no-such"])

    def in_this_process(words):
        with redirect_stdout(io.StringIO()):
            return guarded(["run", *words, *next(options).split()])

    monkeypatch.setattr(ab_runs, "_code", in_this_process)
    line = ["compare", "--run", FAST, "--run", FAST, "--", "all_reduce", *SIM]
    assert guarded(line) == 3
    printed = capsys.readouterr()
    assert "1 of 4 rounds are compared" in printed.err and "2 cells: 0 slower" in printed.out


def test_options_that_measure_nothing_are_refused(versions, capsys):
    assert versions([FAST], [FAST], more=["--help"]) == 2
    assert "--help --nccl 2.28.9: measured nothing" in capsys.readouterr().err
