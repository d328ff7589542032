"""Draws terminals with the output of recorded runs, by docs/generate.py: docs/terminal.svg, and
docs/how-to/watch-job.svg.
"""

import io
import re
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from busbw.api.files import load
from busbw.job.live.screen import JobScreen
from busbw.measure.formats import table
from busbw.report.read import read
from busbw.ui.colors import with_colors

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "benchmarks" / "visits_202611" / "shown.json"
COMMAND = "busbw run all_reduce"
COLUMNS = 96
JOB_RECORD = ROOT / "tests" / "recorded" / "live_job" / "eight_ranks.jsonl.gz"
JOB, JOB_LOOKS, JOB_COLUMNS = "slow1", 110, 80
FIRST, LAST = 3, 5  # rows that are shown; those between are left out
_FONT = re.compile(r"\s*@font-face \{.*?\}\n", re.DOTALL)  # would be fetched from the network


def picture() -> str:
    """The SVG."""
    result = read(RECORD.read_bytes(), RECORD.name)
    rows = [Text(table.row(result, row, COLUMNS)) for row in result.rows]
    console = _console(COLUMNS)
    _type(console, COMMAND)
    console.print(Text(table.header(result, COLUMNS)), end="")
    for part in [*rows[:FIRST], Text("...\n", style="dim"), *rows[-LAST:]]:
        console.print(part, end="", soft_wrap=True)
    _print(console, table.footer(result, COLUMNS))
    return _svg(console)


def watched_job() -> str:
    """The SVG of the screen of `busbw watch job`, some time after a rank began to be late."""
    screen = JobScreen(JOB)
    for interval in load(JOB_RECORD)[:JOB_LOOKS]:
        screen.take(interval)
    console = _console(JOB_COLUMNS)
    _type(console, f"busbw watch job {JOB}")
    _print(console, screen.text(JOB_COLUMNS))
    return _svg(console)


def _console(columns: int) -> Console:
    return Console(
        record=True,
        width=columns,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        _environ={"TERM": "xterm"},  # the same picture in every terminal
    )


def _type(console: Console, command: str) -> None:
    console.print(Text(f"$ {command}", style="bold"))


def _print(console: Console, text: str) -> None:
    console.print(Text.from_ansi(with_colors(text)), soft_wrap=True, end="")


def _svg(console: Console) -> str:
    svg = console.export_svg(title="busbw", theme=MONOKAI, unique_id="busbw")
    return _FONT.sub("", svg).replace("Fira Code", "monospace").rstrip() + "\n"
