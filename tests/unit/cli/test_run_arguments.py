"""`busbw run` refuses invalid arguments before anything starts, and the hint names the correct
form.
"""

import json
import shlex

import click
import pytest

from busbw.cli.main import cli, guarded
from busbw.cli.run import command
from busbw.core.options import OPTIONS, Option

from .conftest import refused

CLASSIC = ("--timing", "classic")
CHOSEN = [row for row in OPTIONS if row.choices and not row.compat_only]
BOUNDED = [
    row
    for row in OPTIONS
    if row.kind == "int" and row.least is not None and not row.compat_only and row.field != "check"
]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("broadcast", "-r", "xyz"), "--root 'xyz': not a rank"),
        (("all_reduce", *CLASSIC, "-a", "9"), "--average 9: must be 0, 1, 2 or 3"),
        (("all_reduce", *CLASSIC, "-z", "-1"), "--blocking -1: must be 0, 1, 2 or 3"),
        (("all_reduce", "-T", "-5"), "--timeout -5: must be at least 0"),
        (("all_reduce", "-R", "7"), "--local-register 7: must be 0, 1 or 2"),
        (("all_reduce", "-x", "99"), "--cta-policy 99: must be -1, 0, 1 or 2"),
        (
            ("all_reduce", *CLASSIC, "-I", "1", "-K", "20"),
            "--per-iter-skip 20: must be less than --iters 20",
        ),
        (("all_reduce", *CLASSIC, "-G", "-1"), "--cudagraph -1: must be at least 0"),
        (
            ("all_reduce", *CLASSIC, "--iters", "100000000"),
            "--iters 100000000: must be at most 10000000",
        ),
        (
            ("all_reduce", "--iters", "100000000"),
            "--iters 100000000: precise timing takes 1 to 65536",
        ),
        (("all_reduce", "--iters", "0"), "--iters 0: precise timing takes 1 to 65536"),
        (("all_reduce", "-I", "1"), "--per-iter-timing: only classic timing has it"),
        (("all_reduce", "-z", "3"), "--blocking: only classic timing has it"),
        (
            ("all_reduce", *CLASSIC, "--watch"),
            "--watch with --timing classic: only precise timing reads counters between sizes",
        ),
        (
            ("all_reduce", *CLASSIC, "--tail"),
            "--tail with --timing classic: only precise timing has it",
        ),
        (("all_reduce", "--precision", "0%"), "--precision 0%: must be above 0% and below 100%"),
        (
            ("all_reduce", "--confidence", "40%"),
            "--confidence 40%: must be above 50% and below 99.999%",
        ),
        (
            ("all_reduce", "--max-time", "nan"),
            "--max-time nan: must be seconds above 0, at most 86400",
        ),
        (("all_reduce", "--inject", "slow"), "--inject 'slow': not a fault that busbw can inject"),
        (
            ("all_reduce", "--inject", "late:rank=-1,us=5"),
            "--inject 'late:rank=-1,us=5': rank must be 0 or more, us from 0 to 1000000",
        ),
        (
            ("all_reduce", "--launch-limit", "nan"),
            "--launch-limit nan: must be seconds above 0, at most 86400",
        ),
        (
            ("all_reduce", "--launch-limit", "0"),
            "--launch-limit 0: must be seconds above 0, at most 86400",
        ),
        (
            ("all_reduce", "--launch-limit", "-1"),
            "--launch-limit -1: must be seconds above 0, at most 86400",
        ),
        (
            ("all_reduce", "--sim", "foo=1"),
            "--sim foo=1: --engine is auto, and only sim has parameters",
        ),
        (
            ("all_reduce", "--sim", "noise=1", "--engine", "mpi"),
            "--sim noise=1: --engine is mpi, and only sim has parameters",
        ),
        (("all_reduce", "--sim", "gbps=0", "--engine", "sim"), "--sim: 'gbps=0' is out of range"),
        (
            ("all_reduce", "--json", "-", "--format", "csv"),
            "--json - and --format csv both want stdout",
        ),
        (
            ("all_reduce", "--json", "-", "--format", "table"),
            "--json - and --format table both want stdout",
        ),
        (
            ("all_reduce", "--net", "ib", "--engine", "sim"),
            "--net ib: engine sim moves no data through NCCL",
        ),
        (
            ("all_reduce", "--net", "ib", "--engine", "mpi", "--hosts", "a,b", "--dry-run"),
            "--net ib: engine mpi moves no data through NCCL",
        ),
        (("all_reduce", "--ideal", "nan"), "--ideal nan: it is not a rate"),
    ],
)
def test_invalid_arguments_are_refused(words: tuple[str, ...], message: str) -> None:
    assert refused("run", *words).message == message


@pytest.mark.parametrize("row", CHOSEN, ids=lambda row: row.long)
def test_every_list_of_choices_is_held_and_shown(row: Option) -> None:
    assert (
        row.allowed
        in refused(
            "run", "all_reduce", *CLASSIC, f"{row.name(strict=True)}={max(row.choices) + 1}"
        ).message
    )
    assert f"[{'|'.join(map(str, row.choices))}]" in help_of(row)


@pytest.mark.parametrize("row", BOUNDED, ids=lambda row: row.long)
def test_every_bound_is_held_and_shown(row: Option) -> None:
    assert row.least is not None
    assert (
        row.allowed
        in refused(
            "run", "all_reduce", *CLASSIC, f"{row.name(strict=True)}={row.least - 1}"
        ).message
    )
    assert row.allowed in help_of(row)


def help_of(row: Option) -> str:
    context = click.Context(command, terminal_width=200)
    (param,) = [param for param in command.params if param.name == row.field]
    return " ".join(param.get_help_record(context) or ())


@pytest.mark.parametrize("words", [("--json", "-"), ("--json", "-", "--format", "json")], ids=len)
def test_json_on_stdout_needs_no_format_and_takes_its_own(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = ("all_reduce", "--engine", "sim", "-np", "2", "-b", "8", "-e", "8", "--sim", "noise=0")
    assert cli.main(["run", *sweep, *words], prog_name="busbw", standalone_mode=False) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--run-cycles", "2"], "--soak with --run-cycles"),
        (["--repeats", "2"], "--soak with --repeats"),
        (["--check", "0"], "--soak with --check 0: nothing would be verified"),
    ],
)
def test_a_soak_refuses_contradictory_options(capsys, words, message):
    assert guarded(["run", "all_reduce", "--engine", "sim", "--soak", "1", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_soak_that_finds_wrong_data_is_exit_1_and_keeps_it(capsys, tmp_path):
    file = tmp_path / "soak.json"
    words = [
        *shlex.split("-np 4 -b 1K -e 4K --engine sim --sim corrupt_rank=2 --soak 600 --json"),
        str(file),
    ]
    assert guarded(["run", "all_reduce", *words]) == 1
    rows = json.loads(file.read_text())["rows"]
    assert len(rows) == 1 and rows[0]["out_of_place"]["mismatches"][0]["rank"] == 2
    assert json.loads(file.read_text())["spec"]["check"] == 100
    assert "rank 2" in capsys.readouterr().out
