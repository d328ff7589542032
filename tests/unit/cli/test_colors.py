"""Verdicts have colors on a terminal and by --color; the words are the same everywhere."""

import re
import sys
from pathlib import Path

import pytest

from busbw.cli import status
from busbw.cli.main import guarded
from busbw.cli.output import SweepOutput
from busbw.core.finding import RunFinding, Verdict
from busbw.core.result import Cell, Result, ResultRow
from busbw.core.sweep import SweepSpec
from busbw.measure.events import RowDone, Started
from busbw.measure.record import RunRecord
from busbw.report import results
from busbw.report.registry import view
from busbw.ui.colors import with_colors

RED, YELLOW, GREEN = "1;31", "1;33", "1;32"
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
COLORED = re.compile(r"\x1b\[([0-9;]+)m(.*?)\x1b\[0m")
SNAPSHOT = Path(__file__).parents[2] / "hosts" / "h200x2-recorded.jsonl"
LINE = "NCCL_DEBUG=WARN mpirun -n 2 -H h1,h2 ./build/all_reduce_perf"


def row(size: int, wrong: int = 0) -> ResultRow:
    return ResultRow(size, 2, "float", "sum", -1, Cell(1e-3, 2e9, 2e9, wrong), None, 20)


@pytest.fixture
def saved(tmp_path: Path) -> str:
    """A result with wrong data."""
    result = Result(SweepSpec(collective="all_reduce"), rows=[row(8), row(16, wrong=3)])
    result.findings = [RunFinding(verdict.value, verdict, "why") for verdict in Verdict]
    file = tmp_path / "run.json"
    file.write_text(results.render(result))
    return str(file)


@pytest.mark.parametrize(
    ("line", "style", "word"),
    [
        ("FAIL    wrong data  [data]", RED, "FAIL"),
        ("SLOWER  3 of 8 cells than in the last run", RED, "SLOWER"),
        ("fail: h[1-3]", RED, "fail"),
        ("error: the launcher ended", RED, "error"),
        ("BUSBW CRITICAL - h1: mtu", RED, "BUSBW CRITICAL"),
        ("WARN  mlx5_0/1: pauses", YELLOW, "WARN"),
        ("UNKNOWN h2: the file is cut", YELLOW, "UNKNOWN"),
        ("slower than expected: 1 GB/s", RED, "slower than expected"),
        ("as expected: 1 GB/s", GREEN, "as expected"),
        ("NO DATA for 3 checks", YELLOW, "NO DATA"),
        ("PASS    no link differs", GREEN, "PASS"),
        ("FINE  none of 8 cells is slower", GREEN, "FINE"),
        ("SKIP    nothing is expected of CPUs", "2", "SKIP"),
        (" 8 B  in place  2.0 us  3.0 us  1.5x  slower", RED, "slower"),
        (" 8 B  in place  2.0 us  3.0 us  1.5x  ambiguous", YELLOW, "ambiguous"),
        ("busbw  ▁▅█", "36", "▁▅█"),
    ],
)
def test_a_verdict_has_its_color(line: str, style: str, word: str) -> None:
    assert COLORED.findall(with_colors(f"before\n{line}\nafter\n")) == [(style, word)]


@pytest.mark.parametrize(
    "text",
    [
        LINE,
        "        fix: export NCCL_DEBUG=WARN",
        "        FAIL is said of it",
        "PASSED",
        "one side is slower",
        "FAIL_ON=warn",
    ],
)
def test_other_words_have_none(text: str) -> None:
    assert with_colors(text) == text


@pytest.mark.parametrize(
    ("option", "terminal", "environment", "colored"),
    [
        ((), True, {}, True),
        ((), False, {}, False),
        ((), True, {"NO_COLOR": "1"}, False),
        ((), True, {"NO_COLOR": ""}, True),
        ((), True, {"TERM": "dumb"}, False),
        ((), True, {"TERM": ""}, False),
        (("--color", "auto"), True, {"NO_COLOR": "1"}, False),
        (("--color", "always"), False, {}, True),
        (("--color", "always"), False, {"NO_COLOR": "1", "TERM": "dumb"}, True),
        (("--color", "never"), True, {}, False),
    ],
)
def test_the_option_wins_then_the_environment_then_the_terminal(
    option: tuple[str, ...],
    terminal: bool,
    environment: dict[str, str],
    colored: bool,
    saved: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in {"TERM": "xterm", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: terminal)
    for words in ([*option, "show", saved], ["show", saved, *option]):
        guarded(words)
        assert bool(ESCAPE.search(capsys.readouterr().out)) is colored


@pytest.mark.parametrize(
    "words", ["show FILE", "compare FILE SLOWER", "check command -- LINE", "check --from SNAPSHOT"]
)
def test_colors_change_no_word(words: str, saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    slower = Path(saved).with_name("slower.json")
    slower.write_text(re.sub(r'"time_s": ?0.001', '"time_s": 0.5', Path(saved).read_text()))
    values = {"SLOWER": str(slower), "FILE": saved, "LINE": LINE, "SNAPSHOT": str(SNAPSHOT)}
    argv = [values.get(word, word) for word in words.split()]
    plain_code = guarded(["--color", "never", *argv])
    plain = capsys.readouterr().out
    assert guarded(["--color", "always", *argv]) == plain_code
    colored = capsys.readouterr().out
    assert ESCAPE.search(colored) and ESCAPE.sub("", colored) == plain


def test_files_and_json_have_none(
    saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "table.txt"
    guarded(["show", saved, "--color", "always", "--output", str(file)])
    guarded(["show", saved, "--color", "always", "--format", "json"])
    assert "FAIL" in file.read_text()
    assert not ESCAPE.search(file.read_text() + capsys.readouterr().out)


def output() -> SweepOutput:
    """The output of a run that has started."""
    shown = SweepOutput(RunRecord(), view("table"))
    shown.take(Started(Result(SweepSpec(collective="all_reduce"))))
    return shown


def test_the_row_of_wrong_data_is_red(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = output()
    for number, wrong in enumerate((0, 3)):
        shown.take(RowDone(row(8, wrong), wrong, number, final=True))
    right, bad = capsys.readouterr().out.splitlines()[-2:]
    assert not ESCAPE.search(right)
    assert COLORED.fullmatch(bad)


@pytest.mark.parametrize("quiet_s", [0.0, 1e6])
def test_the_first_round_is_told_where_no_status_line_is(
    quiet_s: float, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "QUIET_S", quiet_s)
    shown = output()
    capsys.readouterr()
    shown.take(RowDone(row(64 << 20), 0, 0, final=False))
    again = row(64 << 20)
    again.out_of_place.visits = [1, 1]
    shown.take(RowDone(again, 0, 0, final=False))
    said = "measured once: 64 MiB takes 1.000 ms, busbw 2.00 GB/s\n" if not quiet_s else ""
    assert capsys.readouterr() == ("", said)
