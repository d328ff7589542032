"""Which findings the mutes of an expectations file accept.

A mute is of a fault: it accepts the findings of its check, and what other checks find of the same
fault. These are on the same part, and were read at the same place or are a cause or an effect in
`check.causes`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from busbw.check.causes import OF_ANY_PART, is_cause, names, not_judged
from busbw.check.expect.spec import ALL_CHECKS, Mute
from busbw.check.types import GRADES, MutedFinding, ReportedFinding, grade
from busbw.core.finding import Layer, Verdict

_MUTABLE = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN)
_FAULTS = (Verdict.FAIL, Verdict.WARN)


class ActiveMute(NamedTuple):
    """A mute of this host that has not ended, and its place in the file."""

    mute: Mute
    where: str


def is_of_check(finding: ReportedFinding, name: str) -> bool:
    """Whether a finding is of the check with this id or name."""
    return name == ALL_CHECKS or name.upper() == finding.id or name == finding.name


def accepted(
    findings: Sequence[ReportedFinding], mutes: Sequence[ActiveMute]
) -> dict[int, MutedFinding]:
    """The muted findings by the identity of the finding."""
    bad = [finding for finding in findings if finding.verdict in _MUTABLE]
    muted: dict[int, MutedFinding] = {}
    for finding in bad:
        if of := _own(finding, mutes):
            muted[id(finding)] = of
    found = bool(muted)
    while found:
        others = [finding for finding in bad if id(finding) not in muted]
        implied = {id(finding): _of_fault(finding, muted, bad) for finding in others}
        new = {
            id(finding): msgspec.structs.replace(of, finding=finding)
            for finding in others
            if (of := implied[id(finding)])
        }
        muted |= new
        found = bool(new)
    return muted


def _own(finding: ReportedFinding, mutes: Sequence[ActiveMute]) -> MutedFinding | None:
    """The finding with the first mute that names it."""
    for mute, where in mutes:
        if is_of_check(finding, mute.check) and mute.subject in (None, finding.subject):
            return MutedFinding(
                finding=finding, reason=mute.reason, until=mute.until.isoformat(), where=where
            )
    return None


def _of_fault(
    finding: ReportedFinding, muted: dict[int, MutedFinding], bad: Sequence[ReportedFinding]
) -> MutedFinding | None:
    """What is muted of the same fault; None if nothing is."""
    near = [of for of in muted.values() if _same_part(finding, of.finding)]
    for of in near:
        if _follows(finding, of.finding):
            return of
    near += [
        of for of in muted.values() if not of.finding.subject and is_cause(of.finding, finding)
    ]
    if _read_there(finding, [of.finding for of in near]):
        return near[0]
    return next(_of_parts(finding, muted, bad), None)


def _same_part(finding: ReportedFinding, other: ReportedFinding) -> bool:
    """Whether both are on one part, or one names the part of the other."""
    if finding.subject == other.subject:
        return True
    one_part = finding.subject or finding.verdict is Verdict.UNKNOWN
    return bool(one_part) and (names(finding, other) or names(other, finding))


def _follows(finding: ReportedFinding, muted: ReportedFinding) -> bool:
    """Whether a finding is an effect of the muted one, or its cause without being graver.

    A graver one may be another fault. An expectations file compares several values of a part, which
    need not have one cause: there the place decides.
    """
    if Layer.EXPECTED.value in (finding.layer, muted.layer) or muted.id in OF_ANY_PART:
        return not_judged(finding, muted)
    graver = GRADES.index(grade(finding)) < GRADES.index(grade(muted))
    effect = is_cause(muted, finding) or not_judged(finding, muted)
    return effect or (is_cause(finding, muted) and not graver)


def _read_there(finding: ReportedFinding, others: Sequence[ReportedFinding]) -> bool:
    """Whether all that shows the fault was read where it shows the others.

    Of the whole node also the values must be equal, unless one is the cause of the other: a place
    may list parts of many kinds.
    """
    related = [other for other in others if _related(finding, other)]
    exact = not (finding.subject or related)
    others = others if finding.subject or exact else related
    places = _places(finding, exact=exact)
    there = {place for other in others for place in _places(other, exact=exact)}
    return bool(places) and places <= there


def _places(finding: ReportedFinding, *, exact: bool) -> set[tuple[str, str]]:
    if finding.verdict not in _FAULTS:
        return set()  # the evidence of an unknown is what could be read
    return {(entry.where, entry.seen if exact else "") for entry in finding.evidence}


def _related(finding: ReportedFinding, other: ReportedFinding) -> bool:
    return is_cause(other, finding) or is_cause(finding, other)


def _of_parts(
    finding: ReportedFinding, muted: dict[int, MutedFinding], bad: Sequence[ReportedFinding]
) -> Iterator[MutedFinding]:
    """What is muted of the parts at fault, for a finding that names none, if all of it is."""
    if finding.subject and finding.id not in OF_ANY_PART:
        return
    related = [other for other in bad if other.subject and _related(finding, other)]
    places = {entry.where for entry in finding.evidence}
    there = {entry.where for other in related for entry in other.evidence}
    if finding.id not in OF_ANY_PART and not places <= there:
        return
    if related and all(id(other) in muted for other in related):
        yield muted[id(related[0])]
