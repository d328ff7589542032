"""Least busbw, the brief view, and two sets of options in turn."""

import re
import shlex

import pytest

from busbw.cli.main import guarded

pytestmark = pytest.mark.usefixtures("ranks_are_forks")

SIM = shlex.split("run all_reduce --engine sim -np 4 -b 1M -e 4M --sim gbps=300,noise=0.001")


@pytest.mark.parametrize(
    ("options", "code", "word"),
    [
        (["--min-busbw", "1GB/s"], 0, ""),
        (["--min-busbw", "900GB/s"], 1, "below --min-busbw 900.00 GB/s"),
        (["--ideal", "300GB/s", "--min-percent", "50%"], 0, ""),
        (["--ideal", "3000GB/s", "--min-percent", "50%"], 1, "below --min-percent 50%"),
        (["--min-percent", "50%"], 3, "--min-percent 50%: there is no ideal to compare with: "),
        (["--iters", "1", "--min-busbw", "1GB/s"], 3, "--min-busbw 1.00 GB/s cannot be judged: "),
        (["--iters", "30", "--min-busbw", "900GB/s"], 1, "below --min-busbw 900.00 GB/s"),
        (["--timing", "classic", "--min-busbw", "1GB/s"], 0, ""),
        (["--min-busbw", "fast"], 2, "--min-busbw fast: it is not a rate"),
        (["--min-busbw", "-1"], 2, "--min-busbw -1: it is not a rate"),
    ],
)
def test_run_ends_with_1_below_what_is_required(options, code, word, capsys):
    assert guarded([*SIM, "--brief", *options]) == code
    printed = capsys.readouterr()
    assert word in printed.err
    assert (len(printed.out.splitlines()) == 1) == (code != 2 and "no ideal" not in word)


@pytest.mark.parametrize(
    ("gate", "code"),
    [
        ([], 0),
        (["--min-busbw", "0.001GB/s"], 0),
        (["--iters", "1", "--ideal", "300GB/s", "--min-percent", "1%"], 3),
        (["--min-busbw", "9000000GB/s"], 1),
    ],
)
def test_the_interval_of_noisy_figures_decides(gate, code, capsys):
    noisy = ["--sim", "gbps=300,noise=1", "--max-time", "0.001", "--precision", "0.1%"]
    assert guarded([*SIM[:-2], *noisy, "--brief", *gate]) == code
    printed = capsys.readouterr()
    assert re.match(r"all_reduce on 4 ranks: busbw [\d.]+ GB/s( \+-| \(|, )", printed.out)
    assert ("cannot be judged: busbw " in printed.err) == (code == 3)


def test_brief_is_one_line_with_the_largest_busbw(capsys):
    assert guarded([*SIM, "--brief", "--ideal", "300GB/s"]) == 0
    line = capsys.readouterr().out
    assert line.startswith("all_reduce on 4 ranks: busbw ")
    assert (
        re.search(r"busbw \d+\.\d\d GB/s \+-[\d.]+ % at 4 MiB", line)
        and "% of the ideal; data of 2 sizes not checked" in line
    )


def test_two_sets_of_options_are_compared_in_turn(capfd):
    sweep = ["all_reduce", "--engine", "sim", "-np", "4", "-b", "1M", "-e", "1M"]
    runs = ["--run", "--sim gbps=300,noise=0.001", "--run", "--sim gbps=150,noise=0.001"]
    assert guarded(["compare", "--rounds", "2", *runs, "--", *sweep]) == 1
    printed = capfd.readouterr()
    assert "2 cells: 2 slower" in printed.out
    rounds = [line for line in printed.err.splitlines() if line.startswith("round ")]
    assert [line.partition(": ")[0] for line in rounds] == [f"round {n} of 2" for n in (1, 1, 2, 2)]
    assert "A  --sim gbps=300,noise=0.001 (2 runs)" in printed.out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--run", "a", "--", "all_reduce"], "--run is given 1 time"),
        (["--run", "a", "--run", "b"], "--run without a collective"),
        (["--run", "'", "--run", "b", "--", "all_reduce"], "no closing quotation"),
        (["--run", "--no-such", "--run", "b", "--", "all_reduce"], "refused with the error above"),
        (["a.json"], "1 result to compare"),
    ],
)
def test_what_cannot_be_compared_is_named(words, reason, capfd):
    assert guarded(["compare", *words]) == 2
    assert reason in capfd.readouterr().err


@pytest.mark.parametrize(("arguments", "rows"), [([], 2), (["-b", "8"], 6)])
def test_default_sizes_give_every_rank_data(arguments, rows, capsys):
    assert (
        guarded([*shlex.split("run alltoall --engine sim -np 8 -e 256 --format csv"), *arguments])
        == 0
    )
    assert len(capsys.readouterr().out.splitlines()) == 1 + 2 * rows
