"""Judges the kernel log by rules: its lines, the parts they name, and whether faults still hold."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from busbw.check.base import DENIED, Check, check, passed, unanswered
from busbw.check.machine import Machine, gpu_labels
from busbw.check.shell_words import word
from busbw.check.types import SEVERITY, Evidence, Finding
from busbw.core.finding import Verdict
from busbw.core.kernel_rule import BOOT_S, KMSG, SUBJECT, TIMES, KernelRule, LogSign
from busbw.core.kernel_rules import kernel_rules
from busbw.core.sizes import span
from busbw.host.gpu import short_bus
from busbw.host.kernel_log import logged_xids
from busbw.host.kernel_log_past import KernelLogLine, PastLog, read_past

MAX_NAMED_SIGNS = 3  # signs of a subject in a message; the rest is counted
NO_SUBJECT = ""
ON_HOST = "busbw check, on the host as root"


@dataclass(frozen=True, slots=True)
class Sighting:
    """All lines of one sign on one subject.

    `line` is the latest of them, `words` has its named groups. `ended` says that a later line ended
    the fault.
    """

    sign: LogSign
    subject: str
    words: dict[str, str]
    line: KernelLogLine
    times: int = 1
    ended: bool = False

    @property
    def says(self) -> str:
        """The message of the sign, with the words of this line."""
        return self.sign.says.format(**self.words)


def check_rule(rule: KernelRule) -> Check:
    @check(rule.row)
    def judge_log(machine: Machine) -> Iterator[Finding]:
        return _judge_rule(rule, machine)

    return judge_log


def _judge_rule(rule: KernelRule, machine: Machine) -> Iterator[Finding]:
    """A finding for each part that the rule's lines name, the worst first.

    Without a fault that lasts, one finding for all that is over.
    """
    log = read_past(machine)
    if log.reason:
        yield unread_log(log)
        return
    judged = [(_verdict(sighting, log), sighting) for sighting in _find_sightings(rule, log)]
    lasting = [(verdict, sighting) for verdict, sighting in judged if verdict is not Verdict.PASS]
    by_subject: dict[str, list[tuple[Verdict, Sighting]]] = {}
    for verdict, sighting in lasting:
        by_subject.setdefault(sighting.subject, []).append((verdict, sighting))
    named = _device_namer(machine)
    findings = [
        _judge_subject(rule, named(subject), group, log) for subject, group in by_subject.items()
    ]
    yield from worst_first(findings)
    if not lasting:
        yield _judge_past([sighting for _, sighting in judged], log)


def _find_sightings(rule: KernelRule, log: PastLog) -> list[Sighting]:
    """The signs of the rule that the log has, also those that a later line ended."""
    sightings: dict[tuple[int, str], Sighting] = {}
    covered = _covered_by_xid(rule, log)
    for line in log.lines:
        _mark_ended(sightings, line)
        for place, sign in enumerate(rule.signs):
            match = sign.pattern.search(line.text)
            if match is None or (sign.least > 1 and log.age_s(line) > (sign.holds_s or 0.0)):
                continue
            words = {name: value or "" for name, value in match.groupdict().items()}
            subject = words.get(SUBJECT, NO_SUBJECT)
            if not (covered and (subject == NO_SUBJECT or short_bus(subject) in covered)):
                before = sightings.get((place, subject))
                times = int(words.pop(TIMES, "1")) + (before.times if before else 0)
                sightings[place, subject] = Sighting(sign, subject, words, line, times)
            break
    return list(sightings.values())


def _mark_ended(sightings: dict[tuple[int, str], Sighting], line: KernelLogLine) -> None:
    for key, sighting in sightings.items():
        if sighting.sign.end is None or sighting.ended:
            continue
        match = sighting.sign.end.search(line.text)
        if match and match.groupdict().get(SUBJECT, sighting.subject) == sighting.subject:
            sightings[key] = replace(sighting, ended=True)


def _covered_by_xid(rule: KernelRule, log: PastLog) -> set[str]:
    """Buses of the GPUs that logged the Xid which reports the same fault."""
    if rule.covered_by_xid is None:
        return set()
    buses = set()
    for line in log.lines:
        xids = logged_xids(line.text)
        buses |= {xid.bus for xid in xids if xid.number == rule.covered_by_xid}
    return buses


def _verdict(sighting: Sighting, log: PastLog) -> Verdict:
    sign = sighting.sign
    if sighting.ended or (sign.holds_s is not None and log.age_s(sighting.line) > sign.holds_s):
        return Verdict.PASS
    if sighting.times < sign.least:
        return Verdict.PASS
    if sign.left_over and sighting.line.at_s <= BOOT_S:
        return Verdict.WARN
    return sign.verdict


def _judge_subject(
    rule: KernelRule, name: str, group: list[tuple[Verdict, Sighting]], log: PastLog
) -> Finding:
    ordered = sorted(group, key=lambda pair: (SEVERITY.index(pair[0]), -pair[1].line.at_s))
    verdict = ordered[0][0]
    texts = list(dict.fromkeys(_sighting_text(sighting, log) for _, sighting in ordered))
    more = [f"and {len(texts) - MAX_NAMED_SIGNS} more"] if len(texts) > MAX_NAMED_SIGNS else []
    lines = [sighting.line for line_verdict, sighting in ordered if line_verdict is verdict]
    subject = ordered[0][1].subject
    fix = rule.row.fix.format(subject=word(subject) if subject else "PART")
    message = "; ".join(texts[:MAX_NAMED_SIGNS] + more)
    return Finding(verdict, name, message, tuple(map(line_evidence, lines)), fix)


def _sighting_text(sighting: Sighting, log: PastLog) -> str:
    text = f"{sighting.says}{repeated(sighting.times)}, {log.ago(sighting.line)}"
    if sighting.sign.left_over and sighting.line.at_s <= BOOT_S:
        text += ", left by the previous boot"
    return text


def _judge_past(sightings: list[Sighting], log: PastLog) -> Finding:
    """The finding without a fault that lasts: there is none, or it ended or is long ago."""
    if not sightings:
        return passed("", f"no such line in the kernel log, which reaches back {reaches(log)}")
    latest_first = sorted(sightings, key=lambda sighting: -sighting.line.at_s)
    texts = []
    for sighting in latest_first[:MAX_NAMED_SIGNS]:
        text = f"{sighting.subject}: {_sighting_text(sighting, log)}".removeprefix(": ")
        texts.append(f"{text}, ended" if sighting.ended else text)
    if len(latest_first) > MAX_NAMED_SIGNS:
        texts.append(f"and {len(latest_first) - MAX_NAMED_SIGNS} more")
    evidence = (line_evidence(sighting.line) for sighting in latest_first[:MAX_NAMED_SIGNS])
    return passed("", "; ".join(texts), *evidence)


def _device_namer(machine: Machine) -> Callable[[str], str]:
    """A function that gives the name of a PCI address's device in other checks.

    For a device without a name and for other subjects it gives the subject itself.
    """
    gpus = {short_bus(bdf): label for bdf, label in gpu_labels(machine).items()}
    ports: dict[str, list[str]] = {}
    for port in machine.ports:
        ports.setdefault(port.bdf, []).append(port.name)

    def named(subject: str) -> str:
        if re.fullmatch(r"[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", subject):
            subject = f"0000:{subject}"  # the IOMMU's drivers leave out the first domain
        if not re.fullmatch(r"[0-9a-f]+:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", subject):
            return subject
        return gpus.get(short_bus(subject)) or " ".join(ports.get(subject, ())) or subject

    return named


def worst_first(findings: list[Finding]) -> list[Finding]:
    """The findings, the worst first, those of one verdict by their subject."""
    return sorted(findings, key=lambda finding: (SEVERITY.index(finding.verdict), finding.subject))


def reaches(log: PastLog) -> str:
    """How far back the log reaches: `12 d`."""
    return span(log.now_s - log.begins_s)


def repeated(times: int) -> str:
    """` x 3`; '' if it was logged once."""
    return f" x {times}" if times > 1 else ""


def line_evidence(line: KernelLogLine) -> Evidence:
    """A line of the log as evidence of a fault."""
    return Evidence(KMSG, line.text, "none")


def unread_log(log: PastLog) -> Finding:
    """The finding where the log cannot be read.

    Mostly it is not offered to this user or container, or is not in this snapshot.
    """
    denied = any(word in log.reason for word in DENIED)
    message = f"the kernel log cannot be read: {log.reason}"
    return unanswered("", message, log.reason, fix="" if denied else ON_HOST)


CHECKS = tuple(map(check_rule, kernel_rules()))
