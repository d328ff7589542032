"""A comparison for a pull request: the summary, a table of what is not the same, and the rest of the cells folded away."""

from collections.abc import Sequence

from busbw.core.collectives import BY_NAME
from busbw.core.comparison import ComparedCell, Comparison, Verdict
from busbw.views.columns import Column
from busbw.views.comparison import closing, columns, side, summary, warnings
from busbw.views.markdown import plain, table_head, table_line
from busbw.views.words import counted

BOLD = {verdict: f"**{verdict.value}**" for verdict in (Verdict.SLOWER, Verdict.FASTER)}


def markdown(comparison: Comparison) -> str:
    """The whole Markdown text."""
    shown = columns(comparison)
    title = BY_NAME[comparison.collective].title
    parts = [
        f"**{title}: {plain(summary(comparison))}**",
        *(f"**Warning:** {plain(warning)}" for warning in warnings(comparison)),
        "".join(f"- {plain(side(letter, its))}\n" for letter, its in (("A", comparison.a), ("B", comparison.b))),
    ]
    same = [cell for cell in comparison.cells if cell.verdict is Verdict.SAME]
    other = [cell for cell in comparison.cells if cell.verdict is not Verdict.SAME]
    if other:
        parts.append(_table(shown, other))
    if same:
        parts.append(f"<details><summary>{counted(len(same), 'cell')} the same</summary>\n\n{_table(shown, same)}\n</details>\n")
    parts.append("".join(f"- {plain(line)}\n" for line in closing(comparison)))
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _table(shown: Sequence[Column], cells: Sequence[ComparedCell]) -> str:
    return table_head(shown) + "".join(table_line(_text(column, cell) for column in shown) for cell in cells)


def _text(column: Column, cell: ComparedCell) -> str:
    return BOLD.get(cell.verdict, cell.verdict.value) if column.title == "verdict" else plain(column.text(cell))
