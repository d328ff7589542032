"""Reads what stands below the rows of busbw's own table: whether the run ended, its findings."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from busbw.core.finding import RunFinding, Verdict

_FINDING = re.compile(r"(PASS|WARN|FAIL|SKIP|UNKNOWN) +(.*)$")
_ID = re.compile(r"(.*?) +\[([\w.]+)\]$", re.DOTALL)
_DETAIL = re.compile(r"        (evidence|fix): (.*)$")


def ended(footer: Sequence[str]) -> bool:
    text = "\n".join(footer)
    return "\nmean   " in text and "\nthe sweep did not end" not in text


def peak(footer: Sequence[str]) -> str:
    """The line of the peak, as it was before it was wrapped; empty without one."""
    text = ""
    for line in footer:
        if line.startswith("peak   ") or (text and line.startswith("       ")):
            text += f" {line[7:].strip()}"
        elif text:
            break
    return text.strip()


def findings(footer: Sequence[str]) -> Iterator[RunFinding]:
    for first, *details in _finding_texts(footer):
        match = _FINDING.match(first)
        named = _ID.match(match[2]) if match else None
        if match is None or named is None:
            continue
        parts = {"evidence": "", "fix": ""}
        for detail in details:
            name, _, text = detail.partition(": ")
            parts[name] = text
        yield RunFinding(named[2], Verdict(match[1].lower()), named[1], **parts)


def _finding_texts(footer: Sequence[str]) -> list[list[str]]:
    """The lines of each finding, as they were before they were wrapped."""
    texts: list[list[str]] = []
    for before, line in pairwise(["", *footer]):
        detail = _DETAIL.match(line)
        if _FINDING.match(line):
            texts.append([line])
        elif not texts or not line.startswith("        ") or not before.strip():
            continue
        elif detail:
            texts[-1].append(f"{detail[1]}: {detail[2]}")
        else:
            texts[-1][-1] += " " + line.strip()
    return texts
