"""A table for GitHub: facts above, one line per size, findings as a list below."""

from collections.abc import Iterable, Sequence

from busbw.core.cells import figures
from busbw.core.finding import RunFinding
from busbw.core.result import Result, ResultRow
from busbw.measure.formats import table
from busbw.ui.columns import Column
from busbw.ui.number_formats import bandwidth_text, library, machine, nominal_text, problems

SPECIAL = str.maketrans({"|": "\\|", "\n": " ", "<": "&lt;", "*": "\\*", "_": "\\_", "`": "\\`"})


def plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line and within a cell."""
    return text.translate(SPECIAL)


def table_line(texts: Iterable[str]) -> str:
    """One line of a table; the texts are not escaped."""
    return "| " + " | ".join(texts) + " |\n"


def table_head(columns: Sequence[Column]) -> str:
    """The lines of titles and of how each column is aligned."""
    titles = table_line(column.heading for column in columns)
    return titles + table_line("---" if column.left else "---:" for column in columns)


def header(result: Result) -> str:
    """A heading line of facts, the bound, and the titles."""
    facts = [machine(result), library(result), table.sweep_text(result), result.start]
    known = ", ".join(plain(fact) for fact in facts if fact)
    text = f"**{plain(result.spec.row.title)}** {known}\n\n"
    if result.ideal:
        why = plain(result.ideal.why or result.ideal.algorithm)
        text += f"Ideal busbw {nominal_text(result.ideal.busbw)} GB/s: {why}\n\n"
    return text + table_head(table.columns(result))


def row(result: Result, row: ResultRow) -> str:
    figure = figures(row)[0]
    return table_line(plain(column.text(result, figure)) for column in table.columns(result))


def footer(result: Result) -> str:
    """The peak, what went wrong, and the findings."""
    text = "\n"
    if result.rows:
        mean = bandwidth_text(result.average_busbw())
        text += f"Peak busbw {plain(table.peak_text(result))}; mean {mean} GB/s.\n"
    text += "".join(f"\n**{plain(problem)}**\n" for problem in problems(result))
    if result.findings:
        text += "\n" + "".join(map(_finding, result.findings))
    return text


def _finding(finding: RunFinding) -> str:
    text = f"- **{finding.verdict.value}** {plain(finding.message)} (`{finding.id}`)\n"
    lines = (("Evidence", finding.evidence), ("Fix", finding.fix))
    return text + "".join(f"  - {name}: {plain(value)}\n" for name, value in lines if value)
