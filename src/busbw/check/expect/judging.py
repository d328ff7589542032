"""Checks of a machine with an expectations file, its severities and its mutes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import msgspec

from busbw.check.base import Check, CheckOf
from busbw.check.examine import examine
from busbw.check.expect.base import Asked, Expectation
from busbw.check.expect.file import Expected, Text, parse
from busbw.check.expect.spec import Mute
from busbw.check.machine import Machine
from busbw.check.overall import overall
from busbw.check.registry import EXPECTATIONS
from busbw.check.types import Checked, CheckReport, Found, Muted
from busbw.core.finding import Verdict
from busbw.host.source import Source

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
