"""Reads an expectations file.

What is wrong in it is a UsageError that names the file, the line, the key and the value.

Checks of a machine with an expectations file, its severities and its mutes.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from difflib import get_close_matches
from functools import partial, reduce
from pathlib import Path
from typing import Any

import msgspec

from busbw.check.base import Check, CheckOf
from busbw.check.expect.base import Asked, Expectation
from busbw.check.expect.spec import Expectations, Mute
from busbw.check.machine import Machine
from busbw.check.registry import EXPECTATIONS, OF_MACHINE, examine, find_of_machine
from busbw.check.types import Checked, CheckReport, Found, Muted, overall
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict
from busbw.core.given_file import read_text
from busbw.host.source import Source

Key = tuple[str | int, ...]  # ("ports", 0, "rate_gbit_s")
_MULTILINE = re.compile(r'"""|' + "'''")
_NAME = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_DOTTED = rf"{_NAME}(?:\s*\.\s*{_NAME})*"
_TABLE = re.compile(rf"\s*\[\s*({_DOTTED})\s*\]")
_ENTRY = re.compile(rf"\s*\[\[\s*({_DOTTED})\s*\]\]")
_VALUE = re.compile(rf"\s*({_DOTTED})\s*=")
_QUOTED_OR_COMMENT = re.compile(r"""\"(?:\\.|[^"\\])*\"|'[^']*'|#.*""")


def lines(text: str) -> dict[Key, int]:
    """The line of each table and key, counted from 1.

    Keys in inline tables have that of their table: see `line`.
    """
    found: dict[Key, int] = {}
    entries: Counter[Key] = Counter()
    table: Key = ()
    for number, line in _statements(text):
        if match := _ENTRY.match(line):
            name = _parts(match[1])
            table = (*name, entries[name])
            entries[name] += 1
        elif match := _TABLE.match(line):
            table = _parts(match[1])
        elif match := _VALUE.match(line):
            found.setdefault((*table, *_parts(match[1])), number)
            continue
        else:
            continue
        found.setdefault(table, number)
    return found


def line(found: Mapping[Key, int], key: Key) -> int | None:
    """The line of a key, or of the nearest table around it; None if the file has neither."""
    return next(
        (found[key[:length]] for length in range(len(key), 0, -1) if key[:length] in found), None
    )


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Lines at which a statement begins: not those inside a string or an array of several lines."""
    depth, quote = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if quote:
            _, closed, line = line.partition(quote)
            if not closed:
                continue
            quote = ""
        elif depth == 0:
            yield number, line
        if opened := _MULTILINE.search(line):
            before, after = line[: opened.start()], line[opened.end() :]
            quote = "" if opened[0] in after else opened[0]
            line = before
        bare = _QUOTED_OR_COMMENT.sub("", line)
        depth = max(
            0, depth + sum(bare.count(one) for one in "[{") - sum(bare.count(one) for one in "]}")
        )


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(_NAME, dotted))


RAISED = "fail"
MADE_BY = (
    "busbw check --learn > node.toml writes one from a good node; busbw explain BW290 names the"
    " keys"
)
_PATH = re.compile(r" - at `\$(.*)`$")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_UNKNOWN_KEY = re.compile(r"unknown field `(.*)`")
_MISSING_KEY = re.compile(r"missing required field `(.*)`")
_WORDS = {
    "`int | null`": "a whole number",
    "`int`": "a whole number",
    "`float | null`": "a number",
    "`float`": "a number",
    "`str | null`": "text in quotes",
    "`str`": "text in quotes",
    "`bool | null`": "true or false",
    "`array`": "a list: [...]",
    "`object`": "a table",
    "`date`": "a date, like 2026-12-31",
    "Invalid RFC3339 encoded date": "expected a date, like 2026-12-31",
}


class Text(msgspec.Struct, frozen=True):
    """A file as it travels to the nodes: its name, its text, and the day on which it is judged."""

    name: str
    text: str
    today: date


@dataclass(frozen=True)
class Expected:
    """A file that was read, with the line of each key."""

    name: str
    node: Expectations
    lines: Mapping[Key, int] = field(default_factory=dict)
    today: date = date.min

    def where(self, *key: str | int) -> str:
        """`node.toml line 3`."""
        number = line(self.lines, key)
        return f"{self.name} line {number}" if number else self.name


def load(name: str, today: date | None = None) -> Text:
    """The file; UsageError if it cannot be read."""
    day = today or datetime.now(UTC).date()
    try:
        return Text(Path(name).name, read_text(name), day)
    except OSError as error:
        raise UsageError(
            f"--expect {name}: {(error.strerror or str(error)).lower()}", MADE_BY
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--expect {name}: byte {error.start} is not UTF-8", MADE_BY) from error


def parse(given: Text) -> Expected:
    """The expectations of a file.

    UsageError for what is not valid TOML, unknown keys, wrong types, unknown checks and empty
    files.
    """
    try:
        table = tomllib.loads(given.text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{given.name}: not valid TOML: {error}", MADE_BY) from error
    try:
        node = msgspec.convert(table, Expectations)
    except msgspec.ValidationError as error:
        raise _refused(given, table, str(error)) from error
    expected = Expected(given.name, node, lines(given.text), given.today)
    if not table:
        raise UsageError(f"{given.name}: it is empty", MADE_BY)
    _names_of_checks(expected)
    return expected


def _refused(given: Text, table: Mapping[str, Any], message: str) -> UsageError:
    """The error for what msgspec refuses."""
    path = _PATH.search(message)
    key: Key = tuple(name or int(index) for name, index in _STEP.findall(path[1])) if path else ()
    problem = _PATH.sub("", message)
    if unknown := _UNKNOWN_KEY.search(problem):
        return _unknown_key(given, (*key, unknown[1]))
    where = _where(given, key)
    if missing := _MISSING_KEY.search(problem):
        return UsageError(f"{where}: {_dotted(key)} has no {missing[1]}", _hint(key))
    expected = reduce(lambda text, pair: text.replace(*pair), _WORDS.items(), problem)
    seen = _shown(_value(table, key))
    return UsageError(
        f"{where}: {_dotted(key)} is {seen}: {expected[0].lower()}{expected[1:]}", _hint(key)
    )


def _unknown_key(given: Text, key: Key) -> UsageError:
    known = _sibling_keys(key)
    near = get_close_matches(str(key[-1]), known, 1)
    meant = f"did you mean {near[0]}? " if near else ""
    place = f"[{_dotted(key[:-1])}]" if key[:-1] else "the file"
    return UsageError(
        f"{_where(given, key)}: unknown key '{key[-1]}' in {place}",
        f"{meant}the keys there are {', '.join(known)}",
    )


def _sibling_keys(key: Key) -> list[str]:
    """The keys of the table that a key is in."""
    table: Any = Expectations
    for step in key[:-1]:
        if isinstance(step, str):
            kind = next(one.type for one in msgspec.structs.fields(table) if one.name == step)
            table = getattr(kind, "__args__", (kind,))[0]
    return [one.name for one in msgspec.structs.fields(table)]


def _where(given: Text, key: Key) -> str:
    number = line(lines(given.text), key)
    return f"{given.name} line {number}" if number else given.name


def _dotted(key: Key) -> str:
    """`ports[0].rate_gbit_s` counts tables from 1 for people: ports 1."""
    texts = (f" {step + 1}" if isinstance(step, int) else f".{step}" for step in key)
    return "".join(texts).removeprefix(".")


def _value(table: Any, key: Key) -> Any:
    for step in key:
        table = table[step]
    return table


def _shown(value: Any) -> str:
    text = f'"{value}"' if isinstance(value, str) else str(value)
    if isinstance(value, bool):
        text = text.lower()
    return text if len(text) <= 60 else f"{text[:57]}..."


def _hint(key: Key) -> str:
    if key[:1] == ("mute",):
        return (
            'a mute is [[mute]] with check = "nic-mtu", reason = "ticket 4711", until = 2026-12-31,'
            " and optionally subject and host"
        )
    return MADE_BY


def _names_of_checks(expected: Expected) -> None:
    """UsageError for mutes and severities of checks that do not exist, or that hide something."""
    for index, mute in enumerate(expected.node.mute):
        _known(expected, mute.check, "mute", index, "check")
    for name, severity in expected.node.severity.items():
        _known(expected, name, "severity", name)
        if severity != RAISED:
            where = expected.where("severity", name)
            hint = (
                f'{name} = "{RAISED}" makes its warnings failures; to accept a finding, give it a'
                " [[mute]] with reason and end"
            )
            raise UsageError(
                f'{where}: {name} is "{severity}": a severity can only be raised to "{RAISED}"',
                hint,
            )


def _known(expected: Expected, name: str, *key: str | int) -> None:
    try:
        find_of_machine(name)
    except UsageError as error:
        near = get_close_matches(name.lower(), [row.name for row in OF_MACHINE], 1)
        hint = f"did you mean {near[0]}? {error.hint}" if near else error.hint
        raise UsageError(f"{expected.where(*key)}: {error.message}", hint) from error


MUTABLE = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN)


@dataclass(frozen=True)
class Expect:
    """A file, and the ids of those expectations that are to be judged."""

    file: Text
    ids: frozenset[str]


def judge(
    source: Source, checks: Iterable[Check], name: str = "", expect: Expect | None = None
) -> CheckReport:
    """The findings of the checks and of a file's expectations; `name` is the snapshot's name."""
    if expect is None:
        return examine(source, checks, name)
    expected = parse(expect.file)
    also = [
        _bound(expectation, expected)
        for expectation in EXPECTATIONS
        if expectation.row.id in expect.ids
    ]
    return settled(examine(source, [*checks, *also], name), expected)


def _bound(expectation: Expectation, expected: Expected) -> Check:
    return CheckOf(expectation.row, partial(_judge_expectation, expectation, expected))


def _judge_expectation(
    expectation: Expectation, expected: Expected, machine: Machine
) -> Iterable[Found]:
    return expectation.judge(Asked(machine, expected.node, expected.where, expected.today))


def settled(report: CheckReport, expected: Expected) -> CheckReport:
    """The report with severities raised, and what is muted apart from what counts."""
    raised = [_raised(finding, expected) for finding in report.findings]
    muted = {
        at: found
        for at, finding in enumerate(raised)
        if (found := _muted(finding, report.host, expected))
    }
    findings = [finding for at, finding in enumerate(raised) if at not in muted]
    return msgspec.structs.replace(
        report, verdict=overall(findings), findings=findings, muted=list(muted.values())
    )


def _raised(finding: Checked, expected: Expected) -> Checked:
    key = next((key for key in expected.node.severity if _is(finding, key)), None)
    if key is None or finding.verdict is not Verdict.WARN:
        return finding
    message = f"{finding.message} (a warning, raised by {expected.where('severity', key)})"
    return msgspec.structs.replace(finding, verdict=Verdict.FAIL, message=message)


def _muted(finding: Checked, host: str, expected: Expected) -> Muted | None:
    """The finding with the first mute that is for it; None if there is none, or it needs none."""
    if finding.verdict not in MUTABLE:
        return None
    for number, mute in _of(host, expected):
        if _is(finding, mute.check) and mute.subject in (None, finding.subject):
            where = expected.where("mute", number)
            return Muted(
                finding=finding, reason=mute.reason, until=mute.until.isoformat(), where=where
            )
    return None


def _of(host: str, expected: Expected) -> Iterator[tuple[int, Mute]]:
    """The mutes of a host that have not ended."""
    for number, mute in enumerate(expected.node.mute):
        if mute.host in (None, host) and expected.today <= mute.until:
            yield number, mute


def _is(finding: Checked, name: str) -> bool:
    """Whether a finding is of the check with this id or name."""
    return name.upper() == finding.id or name == finding.name
