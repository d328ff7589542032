"""Draws a terminal with the output of a recorded run: docs/terminal.svg, by docs/generate.py."""

import io
import re
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from busbw.measure.formats import table
from busbw.report.read import read
from busbw.ui.colors import with_colors

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "benchmarks" / "visits_202611" / "shown.json"
COMMAND = "busbw run all_reduce"
COLUMNS = 96
FIRST, LAST = 3, 5  # rows that are shown; those between are left out
_FONT = re.compile(r"\s*@font-face \{.*?\}\n", re.DOTALL)  # would be fetched from the network


def picture() -> str:
    """The SVG."""
    result = read(RECORD.read_bytes(), RECORD.name)
    rows = [Text(table.row(result, row, COLUMNS)) for row in result.rows]
    console = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        _environ={"TERM": "xterm"},  # the same picture in every terminal
    )
    console.print(Text(f"$ {COMMAND}", style="bold"))
    console.print(Text(table.header(result, COLUMNS)), end="")
    for part in [*rows[:FIRST], Text("...\n", style="dim"), *rows[-LAST:]]:
        console.print(part, end="", soft_wrap=True)
    footer = Text.from_ansi(with_colors(table.footer(result, COLUMNS)))
    console.print(footer, soft_wrap=True, end="")
    svg = console.export_svg(title="busbw", theme=MONOKAI, unique_id="busbw")
    return _FONT.sub("", svg).replace("Fira Code", "monospace").rstrip() + "\n"
