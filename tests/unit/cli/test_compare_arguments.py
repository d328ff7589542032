"""`busbw compare`: files and directories in, exit codes out."""

import json
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from busbw.cli.compare import MEANT_FOR, command
from busbw.cli.main import cli, guarded
from busbw.core.result import Cell, Result, ResultRow
from busbw.core.sweep import SweepSpec
from busbw.report import results

from .conftest import refused

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """write("a.json", 1e-3, 2e-3): a result with these mean times, one a size."""

    def make(name: str, *times_s: float, collective: str = "all_reduce") -> Path:
        rows = [
            ResultRow(8 << i, 2 << i, "float", "sum", -1, Cell(time_s, 1e9, 1e9), None, 20)
            for i, time_s in enumerate(times_s)
        ]
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(
            results.render(Result(SweepSpec(collective=collective), rows=rows, complete=True))
        )
        return file

    return make


@pytest.mark.parametrize(
    ("time_s", "tolerance", "code"),
    [
        (1e-3, "5%", 0),
        (1.2e-3, "5%", 1),
        (1.2e-3, "0.25", 0),
        (0.8e-3, "5%", 0),
        (1.08e-3, "5%", 3),
    ],
)
def test_the_exit_code_is_1_beyond_the_tolerance(
    write: Write, capsys: pytest.CaptureFixture[str], time_s: float, tolerance: str, code: int
) -> None:
    words = [
        "compare",
        str(write("a.json", 1e-3)),
        str(write("b.json", time_s)),
        "--tolerance",
        tolerance,
    ]
    assert guarded(words) == code
    assert "1 cell: " in capsys.readouterr().out


def test_nothing_in_common_is_not_the_same(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(["compare", str(write("a.json")), str(write("b.json", 1e-3))]) == 3
    assert "no verdict on any of 1 cell" in capsys.readouterr().out


def test_directories_are_repeated_runs(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in range(4):
        write(f"before/{i}.json", 1e-3 + i * 1e-6)
        write(f"after/{i}.json", 1.1e-3 + i * 1e-6)
    (tmp_path / "after" / ".hidden").write_text("no result")
    assert (
        guarded(["compare", str(tmp_path / "before"), str(tmp_path / "after"), "--format", "json"])
        == 1
    )
    comparison = json.loads(capsys.readouterr().out)
    assert [Path(name).name for name in comparison["b"]["files"]] == [
        "0.json",
        "1.json",
        "2.json",
        "3.json",
    ]
    assert [(cell["by"], cell["verdict"]) for cell in comparison["cells"]] == [("runs", "slower")]


def test_one_side_may_come_from_stdin(write: Write) -> None:
    a, b = write("a.json", 1e-3), write("b.json", 1e-3)
    result = CliRunner().invoke(
        cli,
        ["compare", str(a), "-", "--format", "markdown"],
        input=b.read_bytes(),
        standalone_mode=False,
    )
    assert "none of 1 cell slower" in result.output


def test_invalid_arguments_are_refused(write: Write, tmp_path: Path) -> None:
    a, b = str(write("a.json", 1e-3)), str(write("b.json", 1e-3))
    other = str(write("c.json", 1e-3, collective="all_gather"))
    (tmp_path / "empty").mkdir()
    assert (
        refused("compare", a, other).message
        == f"{a} measures all_reduce, {other} measures all_gather"
    )
    assert refused("compare", "-", "-").message == "A and B are both stdin"
    assert refused("compare", a, str(tmp_path / "empty")).message.endswith(
        "there are no files in this directory"
    )
    assert refused("compare", a, str(tmp_path / "missing")).message.endswith(
        "No such file or directory"
    )
    assert refused("compare", a, b, "--tolerance", "5").hint == "write --tolerance 5% for percent"
    for bad in ("0", "-1%", "nan", "x", "1001%"):
        assert (
            "must be above 0% and below 1000%"
            in refused("compare", a, b, "--tolerance", bad).message
        )
    for bad in ("50%", "100%", "1"):
        assert (
            "must be above 50% and below 100%"
            in refused("compare", a, b, "--confidence", bad).message
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--rounds 3", "--rounds is for --run, not for recorded runs"),
        ("--expect mutes.toml", "--expect is for snapshots, not for recorded runs"),
        ("--fail-on fail", "--fail-on is for snapshots, not for recorded runs"),
        ("--table 1 --run= --run=", "--table is for recorded runs, not for --run"),
        ("--expect mutes.toml --run= --run=", "--expect is for snapshots, not for --run"),
    ],
)
def test_an_option_for_another_input_is_refused(write: Write, options: str, message: str) -> None:
    a, b = str(write("a.json", 1e-3)), str(write("b.json", 1e-3))
    error = refused("compare", *options.split(), a, b)
    assert (error.message, error.hint) == (message, f"leave out {message.split()[0]}")


def test_help_says_which_input_an_option_is_for() -> None:
    sentence = (command.help or "").split("\n\n")[-1]
    names = ("with --run: ", "of recorded runs: ", "for recorded runs; ", "of snapshots: ")
    for option in (one for one in command.params if one.name in MEANT_FOR):
        assert isinstance(option, click.Option)
        words = option.help or ""
        assert max(option.opts, key=len) in sentence or any(name in words for name in names)


def test_the_collective_of_a_log_can_be_given(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "old.log"
    log.write_text(
        "           8             2     float     sum      -1    1000.0    0.00    0.00     N/A   "
        " 1000.0    0.00    0.00     N/A\n"
    )
    assert guarded(["compare", str(log), str(log)]) == 2
    assert guarded(["compare", str(log), str(log), "--collective", "all_reduce"]) == 0
    assert "2 cells: 0 slower, 0 faster, 2 same" in capsys.readouterr().out


def test_a_log_of_several_tables_warns_and_one_can_be_chosen(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(recorded / "nccl_tests/old/all_reduce_2x8_h20_two_tables.txt")
    assert guarded(["compare", log, log]) == 0
    captured = capsys.readouterr()
    assert (
        captured.err.count(
            f"warning: {log}: the log holds 2 tables; this is the first; choose another with"
            " --table"
        )
        == 2
    )
    assert guarded(["compare", log, log, "--table", "1", "--table", "2"]) == 1
    captured = capsys.readouterr()
    assert "slower" in captured.out and "holds 2 tables" not in captured.err
    # the recording has not all
    assert captured.err.count("rows of the table are missing or were changed") == 2
    assert refused("compare", log, log, "--table", "3").message.startswith(
        f"{log}: --table 3: the log holds 2 tables"
    )
    assert refused("compare", log, log, *["--table", "1"] * 3).message == "--table is given 3 times"


def test_stored_runs_of_the_machine_are_used(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs that vary widely make a difference ambiguous; a history that cannot be read is named,
    and fails only if it was asked for.
    """

    def run(name: str, time_s: float) -> str:
        file = write(name, time_s)
        result = results.read(file.read_bytes())
        result.rows[0].out_of_place = Cell(
            time_s,
            1e9,
            1e9,
            samples_s=[time_s * (1 + 1e-4 * (i % 3)) for i in range(64)],
            visits=[8] * 8,
        )
        file.write_text(results.render(result))
        return str(file)

    a, b, db = run("a.json", 1e-3), run("b.json", 1.2e-3), str(tmp_path / "h.sqlite")
    assert guarded(["compare", a, b]) == 1
    earlier = [run(f"earlier_{number}.json", 1.1e-3 + 4e-4 * number) for number in range(4)]
    assert guarded(["history", "add", "--db", db, a, b, *earlier]) == 0
    capsys.readouterr()
    assert guarded(["compare", a, b, "--db", db]) == 3
    assert "note: 4 stored runs of this machine and sweep differ by " in capsys.readouterr().out
    assert guarded(["compare", a, b, "--db", str(tmp_path / "missing")]) == 2
    Path(db).write_text("no database" * 100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BUSBW_HISTORY", db)
        assert guarded(["compare", a, b]) == 1
    assert f"note: the history was not read: {db}" in capsys.readouterr().err
