"""In a narrow terminal tables lose columns in a stated order, and sentences break between words."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from busbw.core.finding import RunFinding, Verdict
from busbw.core.result import Result
from busbw.history import comparison_text
from busbw.measure.formats import table
from busbw.report.read import read
from busbw.report.registry import view
from busbw.stats.compare import compare
from busbw.ui.columns import wrapped
from busbw.ui.number_formats import finding_text

ROOT = Path(__file__).parents[3]
FILE = str(ROOT / "benchmarks/all_reduce_2xh200_202611/run_1.json")
SENTENCE = (
    "the samples of 4 cells fall into two groups; 2 KiB out of place: 2.148 and 26.28 us, which is"
    " a lot"
)
FINDINGS = [
    RunFinding("two_modes", Verdict.UNKNOWN, SENTENCE, f"evidence {SENTENCE}", f"fix {SENTENCE}")
]
ESCAPE = re.compile("\x1b\\[[0-9;]*m")


@pytest.fixture(params=[60, 80])
def width(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def precise(make: Callable[..., Result]) -> Result:
    return make(spec={"sampling": {}}, findings=FINDINGS)


def test_every_line_fits(precise: Result, make: Callable[..., Result], width: int) -> None:
    for result in (precise, make(findings=FINDINGS)):
        for text in (view("table", width).render(result), table.header(result, width)):
            assert max(map(len, ESCAPE.sub("", text).splitlines())) <= width


def test_columns_go_in_the_stated_order(precise: Result) -> None:
    def titles(width: int | None) -> list[str]:
        return [column.title for column in table.columns(precise, width)]

    everything = titles(None)
    assert titles(100) == everything
    for limit in range(99, 50, -1):
        dropped = [
            title
            for title in table.DROP_ORDER
            if title in everything and title not in titles(limit)
        ]
        assert (
            dropped == [title for title in table.DROP_ORDER if title in everything][: len(dropped)]
        )
    assert titles(80) == [title for title in everything if title not in ("launch", "skew", "algbw")]
    assert {"size", "time", "busbw", "wrong"} <= set(titles(30))


def test_the_order_is_documented() -> None:
    text = (ROOT / "docs/explanation/how-to-read-busbw.md").read_text()
    listed = text.partition("in this order until")[2].partition("Findings and notes")[0]
    assert tuple(re.findall(r"`([^` ]+)`", listed)) == table.DROP_ORDER


def test_the_types_stay_where_rows_differ_in_them(make: Callable[..., Result]) -> None:
    assert "type" not in {column.title for column in table.columns(make(), 40)}
    assert "type" in {column.title for column in table.columns(make(spec={"datatype": "all"}), 40)}


def test_words_stay_whole_and_hang_under_their_first_line() -> None:
    text = finding_text(FINDINGS[0])
    lines = wrapped(text, 60).splitlines()
    assert lines[1].startswith(" " * 8) and lines[1][8] != " "
    assert " ".join(wrapped(text, 60).split()) == " ".join(text.split())
    assert wrapped(text, None) == text
    assert wrapped("peak   12 GB/s at 8 GiB\n", 15) == "peak   12 GB/s\n       at 8 GiB\n"


def in_terminal(*words: str, columns: int, **environ: str) -> str:
    """The output of `busbw` on a terminal."""
    controller, stdout = pty.openpty()
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "COLUMNS": str(columns),
        "TERM": "xterm",
        **environ,
    }
    result = subprocess.run(
        [sys.executable, "-m", "busbw", *words],
        stdout=stdout,
        env=environment,
        timeout=60,
        check=False,
    )
    os.close(stdout)
    text = b""
    while True:
        try:
            chunk = os.read(controller, 1 << 16)
        except OSError:
            break
        if not chunk:
            break
        text += chunk
    os.close(controller)
    assert result.returncode == 0
    return text.decode().replace("\r\n", "\n")


def test_a_terminal_has_colours_and_its_own_width(width: int) -> None:
    text = in_terminal("show", FILE, columns=width)
    assert ESCAPE.search(text)
    assert max(map(len, ESCAPE.sub("", text).splitlines())) <= width


def test_the_pseudo_terminal_of_mpirun_does_not_count_as_a_terminal() -> None:
    text = in_terminal("show", FILE, columns=60, OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="2")
    assert text == view("table", 60).render(read(Path(FILE).read_bytes(), FILE))


def test_comparisons_fit_80_columns(precise: Result) -> None:
    text = comparison_text.text(compare([("a", precise)], [("b", precise)]), 80)
    assert max(map(len, text.splitlines())) <= 80
