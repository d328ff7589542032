"""Reads an expectations file, and judges a machine with it.

What is wrong in the file is a UsageError that names the file, the line, the key and the value.
`judge` runs the checks and the expectations, raises severities, and sets muted findings apart.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from difflib import get_close_matches
from functools import partial, reduce
from pathlib import Path
from typing import Any

import msgspec

from busbw.check.base import Check, CheckOf
from busbw.check.expect.base import Expectation, Target
from busbw.check.expect.mutes import ActiveMute, accepted, is_of_check
from busbw.check.expect.spec import ALL_CHECKS, Expectations, Mute
from busbw.check.machine import Machine
from busbw.check.registry import EXPECTATIONS, examine, find_of_machine
from busbw.check.types import CheckReport, Finding, ReportedFinding, overall
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict
from busbw.core.given_file import read_text
from busbw.core.host_ranges import expand
from busbw.host.source import Source

Key = tuple[str | int, ...]  # ("ports", 0, "rate_gbit_s")
_MULTILINE = re.compile(r'"""|' + "'''")
_NAME = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_DOTTED = rf"{_NAME}(?:\s*\.\s*{_NAME})*"
_TABLE = re.compile(rf"\s*\[\s*({_DOTTED})\s*\]")
_ENTRY = re.compile(rf"\s*\[\[\s*({_DOTTED})\s*\]\]")
_VALUE = re.compile(rf"\s*({_DOTTED})\s*=")
_QUOTED_OR_COMMENT = re.compile(r"""\"(?:\\.|[^"\\])*\"|'[^']*'|#.*""")
RAISED = "fail"
MADE_BY = (
    "busbw check --learn > node.toml writes one from a good node; busbw check explain BW290 names"
    " the keys"
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


def lines(text: str) -> dict[Key, int]:
    """The line of each table and key, counted from 1.

    Keys in inline tables are not in it; `line` gives the line of their table.
    """
    numbers: dict[Key, int] = {}
    entries: Counter[Key] = Counter()
    table: Key = ()
    for number, line in _statements(text):
        match = _ENTRY.match(line)
        if match:
            name = _parts(match[1])
            table = (*name, entries[name])
            entries[name] += 1
        elif match := _TABLE.match(line):
            table = _parts(match[1])
        elif match := _VALUE.match(line):
            numbers.setdefault((*table, *_parts(match[1])), number)
            continue
        else:
            continue
        numbers.setdefault(table, number)
    return numbers


def line(numbers: Mapping[Key, int], key: Key) -> int | None:
    """The line of a key, or of the nearest table around it; None if the file has neither."""
    while key:
        if key in numbers:
            return numbers[key]
        key = key[:-1]
    return None


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
        opened = _MULTILINE.search(line)
        if opened:
            before, after = line[: opened.start()], line[opened.end() :]
            quote = "" if opened[0] in after else opened[0]
            line = before
        code = _QUOTED_OR_COMMENT.sub("", line)
        opening = code.count("[") + code.count("{")
        closing = code.count("]") + code.count("}")
        depth = max(0, depth + opening - closing)


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(_NAME, dotted))


class Text(msgspec.Struct, frozen=True):
    """A file as it is sent to the nodes: its name, its text, and the day on which it is judged."""

    name: str
    text: str
    today: date


@dataclass(frozen=True)
class ExpectationFile:
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
    """The file, judged `today`, by default the present day in UTC.

    UsageError if it cannot be read.
    """
    day = today or datetime.now(UTC).date()
    try:
        return Text(Path(name).name, read_text(name), day)
    except OSError as error:
        raise UsageError(
            f"--expect {name}: {(error.strerror or str(error)).lower()}", MADE_BY
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--expect {name}: byte {error.start} is not UTF-8", MADE_BY) from error


def parse(file: Text) -> ExpectationFile:
    """The expectations of a file.

    UsageError if it is not valid TOML or empty, and for unknown keys, wrong types and unknown
    checks.
    """
    try:
        table = tomllib.loads(file.text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file.name}: not valid TOML: {error}", MADE_BY) from error
    try:
        node = msgspec.convert(table, Expectations)
    except msgspec.ValidationError as error:
        raise _usage_error(file, table, str(error)) from error
    expected = ExpectationFile(file.name, node, lines(file.text), file.today)
    if not table:
        raise UsageError(f"{file.name}: it is empty", MADE_BY)
    _require_known_checks(expected)
    return expected


def _usage_error(file: Text, table: Mapping[str, Any], message: str) -> UsageError:
    """The error for a table that msgspec refuses with `message`."""
    path = _PATH.search(message)
    key: Key = tuple(name or int(index) for name, index in _STEP.findall(path[1])) if path else ()
    problem = _PATH.sub("", message)
    unknown = _UNKNOWN_KEY.search(problem)
    if unknown:
        return _unknown_key(file, (*key, unknown[1]))
    where = _where(file, key)
    missing = _MISSING_KEY.search(problem)
    if missing:
        return UsageError(f"{where}: {_dotted(key)} has no {missing[1]}", _hint(key))
    expected = reduce(lambda text, pair: text.replace(*pair), _WORDS.items(), problem)
    value = _value_text(_value_at(table, key))
    return UsageError(
        f"{where}: {_dotted(key)} is {value}: {expected[0].lower()}{expected[1:]}", _hint(key)
    )


def _unknown_key(file: Text, key: Key) -> UsageError:
    known = _sibling_keys(key)
    similar = get_close_matches(str(key[-1]), known, 1)
    suggestion = f"did you mean {similar[0]}? " if similar else ""
    place = f"[{_dotted(key[:-1])}]" if key[:-1] else "the file"
    return UsageError(
        f"{_where(file, key)}: unknown key '{key[-1]}' in {place}",
        f"{suggestion}the keys there are {', '.join(known)}",
    )


def _sibling_keys(key: Key) -> list[str]:
    """The keys of the table that a key is in."""
    table: Any = Expectations
    for step in key[:-1]:
        if isinstance(step, str):
            kind = next(field.type for field in msgspec.structs.fields(table) if field.name == step)
            table = getattr(kind, "__args__", (kind,))[0]
    return [field.name for field in msgspec.structs.fields(table)]


def _where(file: Text, key: Key) -> str:
    number = line(lines(file.text), key)
    return f"{file.name} line {number}" if number else file.name


def _dotted(key: Key) -> str:
    """`ports 1.rate_gbit_s` for the key ("ports", 0, "rate_gbit_s")."""
    texts = (f" {step + 1}" if isinstance(step, int) else f".{step}" for step in key)
    return "".join(texts).removeprefix(".")


def _value_at(table: Any, key: Key) -> Any:
    for step in key:
        table = table[step]
    return table


def _value_text(value: Any) -> str:
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


def _require_known_checks(expected: ExpectationFile) -> None:
    """UsageError for a mute or severity of an unknown check, and for a lowered severity."""
    for index, mute in enumerate(expected.node.mute):
        if mute.check != ALL_CHECKS:
            _require_known_check(expected, mute.check, "mute", index, "check")
        if mute.host:
            expand(mute.host, expected.where("mute", index, "host"))
    for name, severity in expected.node.severity.items():
        _require_known_check(expected, name, "severity", name)
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


def _require_known_check(expected: ExpectationFile, name: str, *key: str | int) -> None:
    try:
        find_of_machine(name)
    except UsageError as error:
        raise UsageError(f"{expected.where(*key)}: {error.message}", error.hint) from error


@dataclass(frozen=True)
class Expect:
    """A file, and the ids of the expectations to judge."""

    file: Text
    ids: frozenset[str]


def judge(
    source: Source, checks: Iterable[Check], name: str = "", expect: Expect | None = None
) -> CheckReport:
    """The findings of the checks, and of a file's expectations if there is one.

    `name` is the snapshot's name.
    """
    if expect is None:
        return examine(source, checks, name)
    expected = parse(expect.file)
    chosen = [expectation for expectation in EXPECTATIONS if expectation.row.id in expect.ids]
    of_file = [
        CheckOf(expectation.row, partial(_judge_expectation, expectation, expected))
        for expectation in chosen
    ]
    return settled(examine(source, [*checks, *of_file], name), expected)


def _judge_expectation(
    expectation: Expectation, expected: ExpectationFile, machine: Machine
) -> Iterable[Finding]:
    return expectation.judge(Target(machine, expected.node, expected.where, expected.today))


def settled(report: CheckReport, expected: ExpectationFile) -> CheckReport:
    """The report with severities raised, and muted findings apart from those that count."""
    raised = [_raised(finding, expected) for finding in report.findings]
    muted = accepted(raised, _active_mutes(report.host, expected))
    findings = [finding for finding in raised if id(finding) not in muted]
    mutes = [muted[id(finding)] for finding in raised if id(finding) in muted]
    return msgspec.structs.replace(
        report, verdict=overall(findings), findings=findings, muted=mutes
    )


def _raised(finding: ReportedFinding, expected: ExpectationFile) -> ReportedFinding:
    key = next((key for key in expected.node.severity if is_of_check(finding, key)), None)
    if key is None or finding.verdict is not Verdict.WARN:
        return finding
    message = f"{finding.message} (a warning, raised by {expected.where('severity', key)})"
    return msgspec.structs.replace(finding, verdict=Verdict.FAIL, message=message)


def mutes_host(expect: Expect, host: str) -> bool:
    """Whether all checks of a host are muted now."""
    active = _active_mutes(host, parse(expect.file))
    return any(mute.check == ALL_CHECKS and mute.subject is None for mute, _ in active)


def unused_mutes(expect: Expect, reports: Sequence[CheckReport], *, fleet: bool) -> list[str]:
    """The mutes that have not ended and accept no finding of these machines: for each its place,
    and why. Only those of checks that were made; for one machine only those of its own host.
    """
    expected = parse(expect.file)
    used = {muted.where for report in reports for muted in report.muted}
    texts = []
    for mute, where in _not_ended(expected):
        own = [report for report in reports if _is_for(mute, where, report.host)]
        found = [finding for report in own for finding in report.findings]
        name = f"{where}: the mute of {mute.check}"
        if not own and fleet:
            texts.append(f"{name} is for {mute.host}, which is none of these hosts")
        elif where in used or mute.check == ALL_CHECKS:
            continue
        elif any(is_of_check(finding, mute.check) for finding in found):
            part = f" of {mute.subject}" if mute.subject is not None else ""
            texts.append(f"{name} accepts no finding{part}")
    return texts


def _active_mutes(host: str, expected: ExpectationFile) -> list[ActiveMute]:
    """The mutes of a host that have not ended."""
    return [of for of in _not_ended(expected) if _is_for(of.mute, of.where, host)]


def _not_ended(expected: ExpectationFile) -> list[ActiveMute]:
    return [
        ActiveMute(mute, expected.where("mute", number))
        for number, mute in enumerate(expected.node.mute)
        if expected.today <= mute.until
    ]


def _is_for(mute: Mute, where: str, host: str) -> bool:
    return not mute.host or host in expand(mute.host, where)
