"""A table for GitHub: facts above, one line per size, findings as a list below."""

from busbw.core.finding import Finding
from busbw.core.result import Result, Row
from busbw.views import table
from busbw.views.words import bandwidth_text, library, machine

SPECIAL = str.maketrans({"|": "\\|", "\n": " ", "<": "&lt;", "*": "\\*", "_": "\\_", "`": "\\`"})


def plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line and within a cell."""
    return text.translate(SPECIAL)


def _line(words: list[str]) -> str:
    return "| " + " | ".join(words) + " |\n"


def header(result: Result) -> str:
    """A heading line of facts, the bound, and the titles."""
    facts = [machine(result), library(result), table.sweep_words(result.spec), result.start]
    text = f"**{plain(result.spec.row.title)}** " + ", ".join(plain(fact) for fact in facts if fact) + "\n\n"
    if result.ideal:
        text += f"Ideal busbw {bandwidth_text(result.ideal.busbw)} GB/s: {plain(result.ideal.why or result.ideal.algorithm)}\n\n"
    shown = table.columns(result)
    titles = [f"{column.title} ({column.unit})" if column.unit else column.title for column in shown]
    return text + _line(titles) + _line(["---:"] * len(shown))


def row(result: Result, row: Row) -> str:
    """One line of the table."""
    return _line([plain(column.text(result, row)) for column in table.columns(result)])


def footer(result: Result) -> str:
    """The peak, what went wrong, and the findings."""
    peak, text = table.peak_words(result), "\n"
    if peak:
        text += f"Peak busbw {peak}; mean {bandwidth_text(result.average_busbw())} GB/s.\n"
    if result.wrong():
        text += f"\n**Wrong data:** {result.out_of_bounds} checks saw wrong elements.\n"
    if not result.complete:
        text += "\nThe sweep did not end; these sizes are what was measured.\n"
    text += "".join(f"\n**Error:** {plain(error)}\n" for error in result.errors)
    return text + ("\n" + "".join(_finding(finding) for finding in result.findings) if result.findings else "")


def _finding(finding: Finding) -> str:
    text = f"- **{finding.verdict.value}** {plain(finding.message)} (`{finding.id}`)\n"
    lines = (("Evidence", finding.evidence), ("Fix", finding.fix))
    return text + "".join(f"  - {name}: {plain(words)}\n" for name, words in lines if words)


def render(result: Result) -> str:
    """The whole Markdown text."""
    return header(result) + "".join(row(result, line) for line in result.rows) + footer(result)
