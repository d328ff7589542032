"""The lines of a log as their program printed them: without what launchers, shells and log
collectors put around each.

No list of launchers is needed: what stands before the titles of the table, stands before its other
lines too. Digits may differ, which are ranks, process ids and times of day.
"""

import re

from busbw.measure.formats.nccl_tests_titles import columns

# NCCL's own messages, which may stand between rows and inside one.
NCCL_LINE = re.compile(
    r"(?:\[\d{4}-\d\d-\d\d[ T][\d:.]+\] )?[A-Za-z][\w.-]{0,252}:\d+:\d+ (?:\[\d+\] )?NCCL"
    r" (?:INFO|WARN|TRACE|ERROR)[^\n]*\n?"
)
MOST_LABELS, LONGEST_LABEL = 16, 300
# characters; no line of these programs is as long, and some patterns take the square of it
LONGEST = 4096
_COLOR = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_CLOSING_TAG = re.compile(r"</[A-Za-z]\w*>$")
_LONGEST_TAG = 32
_LATER = re.compile(r"(\d+)|(\s+)|(std(?:out|err))")


def own_lines(text: str) -> list[str]:
    """The lines without labels, colors and NCCL's messages, so that a row which a message cut is
    whole again.
    """
    lines = [
        _without_end(line)
        for line in _COLOR.sub("", text).splitlines(keepends=True)
        if len(line) <= LONGEST
    ]
    label = _labels(lines)
    if label is not None:
        lines = [label.sub("", line, count=1) for line in lines]
    return "".join(
        NCCL_LINE.sub("", line) if "NCCL " in line else line for line in lines
    ).splitlines()


def _without_end(line: str) -> str:
    """The line without what ends a cell of a table, code in Markdown or an XML element."""
    text = line.rstrip()
    end = line[len(text) :]
    while True:
        if text.endswith(("|", "`")):
            text = text[:-1].rstrip()
        elif text.endswith(">") and (tag := _CLOSING_TAG.search(text[-_LONGEST_TAG:])):
            text = text[: -len(tag[0])].rstrip()
        else:
            return text + end


def _labels(lines: list[str]) -> re.Pattern[str] | None:
    """A pattern of what stands before the titles of tables; None where that is nothing."""
    found: dict[str, None] = {}
    for line in lines:
        titles = columns(line)
        if (
            titles is not None
            and titles.label.strip()
            and len(titles.label) <= LONGEST_LABEL
            and len(found) < MOST_LABELS
        ):
            found[_pattern(titles.label)] = None
    # The longest first: one label may begin with another.
    return re.compile("|".join(sorted(found, key=len, reverse=True))) if found else None


def _pattern(label: str) -> str:
    parts, end = [], 0
    for match in _LATER.finditer(label.strip()):
        parts += [
            re.escape(label.strip()[end : match.start()]),
            r"\d+" if match[1] else r"\s+" if match[2] else "std(?:out|err)",
        ]
        end = match.end()
    parts.append(re.escape(label.strip()[end:]))
    spaces = len(label) - len(label.rstrip())
    return rf"^[ \t]*{''.join(parts)}" + (rf"(?=\s|$)[ \t]{{0,{spaces}}}" if spaces else "")
