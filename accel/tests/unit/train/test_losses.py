"""Verdicts on the losses of a user's training by several methods, and what is refused."""

import math
from pathlib import Path

import pytest

import busbw
from busbw.cli.main import guarded
from busbw.core import json_codec
from busbw.core.finding import Verdict
from busbw_accel.train.losses.runs import LossRuns, Resumed, ScriptLosses
from busbw_accel.train.losses.verdicts import LossReport, judge, report, text

STEPS = 8


def made(plain: list[float], **methods: list[float]) -> LossRuns:
    """Runs whose losses are the same in all steps after the first: one per round."""
    runs = LossRuns(["train"], list(methods), STEPS, len(plain), 60.0, "train", print)
    for method, values in {"none": plain, **methods}.items():
        runs.done += [
            ScriptLosses(method, number, [5.0 + number] + [value] * (STEPS - 1), 2, 2)
            for number, value in enumerate(values)
        ]
    return runs


PLAIN = [2.0, 2.1, 1.9]


@pytest.mark.parametrize(
    ("plain", "losses", "verdict", "said"),
    [
        (PLAIN, [2.001, 2.101, 1.898], Verdict.PASS, "not distinguishable from none"),
        (PLAIN, [2.010, 2.1101, 1.9099], Verdict.PASS, "worse, but by at most 1 %"),
        (PLAIN, [1.90, 2.00, 1.80], Verdict.PASS, "better (-5"),
        (PLAIN, [2.20, 2.31, 2.08], Verdict.FAIL, "worse by more than 1 % (7.94 to 11.7 %)"),
        (PLAIN, [2.20, 2.10, 1.85], Verdict.UNKNOWN, "may be worse by more than 1 % (-"),
        (PLAIN, [2.0, math.nan, 1.9], Verdict.FAIL, "diverged"),
        (PLAIN, PLAIN, Verdict.PASS, "the same in every step"),
        ([-2.0, -2.1, -1.9], [-1.80, -1.89, -1.72], Verdict.FAIL, "worse by more than 1 % (7."),
        ([0.0, 0.0, 0.0], [0.1, 0.2, 0.1], Verdict.UNKNOWN, "the loss of none is 0"),
        ([2.0], [2.1], Verdict.UNKNOWN, "one round has no interval"),
    ],
)
def test_a_verdict_is_that_of_the_whole_interval(plain, losses, verdict, said) -> None:
    [row] = judge(made(plain, int8=losses), 0.01)
    assert (row.verdict, said in row.text) == (verdict, True), row.text


def test_rounds_that_are_alike_say_nothing_about_other_seeds() -> None:
    runs = made([2.0, 2.0], int8=[2.1, 2.1])
    runs.done = [
        ScriptLosses(run.method, run.round, [5.0, *run.losses[1:]], 2, 2) for run in runs.done
    ]
    compared = report(runs, 0.01)
    assert [row.verdict for row in compared.methods] == [Verdict.UNKNOWN]
    assert "as in --seed {round}" in text(compared)


def test_the_file_has_what_the_table_has(tmp_path: Path) -> None:
    runs = made(PLAIN, int8=[2.20, 2.31, 2.08], topk=[2.0, math.nan, 1.9])
    made_report = report(runs, 0.01)
    file = tmp_path / "losses.json"
    file.write_bytes(json_codec.encode(made_report))
    read = busbw.load(file)
    assert isinstance(read, LossReport) and text(read) == text(made_report)
    assert (read.ranks, read.rounds, read.loss) == (2, 3, pytest.approx(2.0))
    assert [row.verdict for row in read.methods] == [Verdict.FAIL, Verdict.FAIL]


def test_what_limits_a_comparison_is_said() -> None:
    runs = made(PLAIN, int8=PLAIN, topk=[])
    runs.failed["topk"] = "train ended with 1"
    runs.done[-1] = ScriptLosses("int8", 2, [4.0] * 5, 2, 2)
    compared = report(runs, 0.01)
    assert compared.methods[1].verdict is Verdict.UNKNOWN
    said = text(compared)
    assert "a run failed: train ended with 1" in said
    assert "note: the training ended by itself after 5 of 8 steps" in said
    assert "note: runs with the same seeds do not begin with the same loss" in said
    assert "the mean of the last 1 of 5 steps" in said


@pytest.mark.parametrize("losses", [[], [1.0] * STEPS])
def test_a_run_that_continues_from_another_is_refused(losses: list[float]) -> None:
    with pytest.raises(Resumed, match=r"continues from a\.pt"):
        made(PLAIN)._check(ScriptLosses("int8", 0, losses, 2, 2, "a.pt"))
    made(PLAIN)._check(ScriptLosses("int8", 0, [5.0] * STEPS, 2, 2, "a.pt"))  # a cache of data


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--losses", "9", "--", "true"), "--losses 9 compares methods, and none is named"),
        (("--losses", "9", "--compare", "none", "--", "true"), "--losses 9 compares methods"),
        (("--losses", "9", "mlp"), "--losses is for a training that plan starts"),
        (("--tolerance", "5%", "--", "true"), "--tolerance is for --losses"),
        (("--losses", "9", "--try", "busbw", "--", "true"), "--try does not go with --losses"),
        (("--losses", "9", "--json", "a", "--", "true"), "--json does not go with --losses"),
        (("--losses", "9", "--compare", "zip", "--", "true"), "'zip' of 'zip' is not a method"),
    ],
)
def test_wrong_arguments_are_refused(words, message, capsys) -> None:
    assert guarded(["plan", *words]) == 2
    assert message in capsys.readouterr().err.splitlines()[0]
