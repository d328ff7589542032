"""Judges the kernel log by rules: which lines are in it, on what, and whether they still hold."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from busbw.check.base import DENIED, Check, check, passed, unanswered
from busbw.check.machine import Machine
from busbw.check.shell_words import word
from busbw.check.types import SEVERITY, Evidence, Found
from busbw.core.finding import Verdict
from busbw.core.kernel_rule import BOOT_S, KMSG, SUBJECT, KernelRule, Sign
from busbw.core.kernel_rules import RULES
from busbw.core.sizes import span
from busbw.host.gpu import short_bus
from busbw.host.kernel_log import Line, PastLog, logged_xids, read_past
from busbw.host.nvml_health import read_health

NAMED = 3  # signs of a subject in a message; the rest is counted
NO_SUBJECT = ""
ON_HOST = "busbw check, on the host as root"


@dataclass(frozen=True, slots=True)
class Seen:
    """All lines of one sign on one subject; `line` is the latest, `words` are its named groups."""

    sign: Sign
    subject: str
    words: dict[str, str]
    line: Line
    times: int = 1
    ended: bool = False

    @property
    def says(self) -> str:
        """The sign's message on this line."""
        return self.sign.says.format(**self.words)


def check_rule(rule: KernelRule) -> Check:
    """The check of a rule."""

    @check(rule.row)
    def judge_log(machine: Machine) -> Iterator[Found]:
        return _judge_rule(rule, machine)

    return judge_log


def _judge_rule(rule: KernelRule, machine: Machine) -> Iterator[Found]:
    """A finding for each part that the rule's lines name, the worst first.

    What is over is one finding for all.
    """
    log = read_past(machine)
    if log.reason:
        yield unread_log(log)
        return
    judged = [(_verdict(sighting, log), sighting) for sighting in _seen(rule, log)]
    lasting = [(verdict, sighting) for verdict, sighting in judged if verdict is not Verdict.PASS]
    by_subject: dict[str, list[tuple[Verdict, Seen]]] = {}
    for verdict, sighting in lasting:
        by_subject.setdefault(sighting.subject, []).append((verdict, sighting))
    named = _names(machine)
    made = [_of_subject(rule, named(subject), group, log) for subject, group in by_subject.items()]
    yield from worst_first(made)
    if not lasting:
        yield _over([sighting for _, sighting in judged], log)


def _seen(rule: KernelRule, log: PastLog) -> list[Seen]:
    """The signs that the log has, with those that a later line ended."""
    found: dict[tuple[int, str], Seen] = {}
    covered = _covered_by_xid(rule, log)
    for line in log.lines:
        _end(found, line)
        for place, sign in enumerate(rule.signs):
            match = sign.pattern.search(line.text)
            if match is None:
                continue
            words = {name: value or "" for name, value in match.groupdict().items()}
            subject = words.get(SUBJECT, NO_SUBJECT)
            if not (covered and (subject == NO_SUBJECT or short_bus(subject) in covered)):
                before = found.get((place, subject))
                found[place, subject] = Seen(
                    sign, subject, words, line, before.times + 1 if before else 1
                )
            break
    return list(found.values())


def _end(found: dict[tuple[int, str], Seen], line: Line) -> None:
    for key, sighting in found.items():
        if sighting.sign.ends is None or sighting.ended:
            continue
        match = sighting.sign.ends.search(line.text)
        if match and match.groupdict().get(SUBJECT, sighting.subject) == sighting.subject:
            found[key] = replace(sighting, ended=True)


def _covered_by_xid(rule: KernelRule, log: PastLog) -> set[str]:
    """Buses of the GPUs that logged the Xid which reports the same fault."""
    if rule.covered_by_xid is None:
        return set()
    return {
        xid.bus
        for line in log.lines
        for xid in logged_xids(line.text)
        if xid.number == rule.covered_by_xid
    }


def _verdict(seen: Seen, log: PastLog) -> Verdict:
    sign = seen.sign
    if seen.ended or (sign.holds_s is not None and log.age_s(seen.line) > sign.holds_s):
        return Verdict.PASS
    if sign.left_over and seen.line.at_s <= BOOT_S:
        return Verdict.WARN
    return sign.verdict


def _of_subject(
    rule: KernelRule, name: str, group: list[tuple[Verdict, Seen]], log: PastLog
) -> Found:
    ordered = sorted(group, key=lambda pair: (SEVERITY.index(pair[0]), -pair[1].line.at_s))
    verdict = ordered[0][0]
    texts = list(dict.fromkeys(_text(sighting, log) for _, sighting in ordered))
    more = [f"and {len(texts) - NAMED} more"] if len(texts) > NAMED else []
    lines = tuple(line_evidence(sighting.line) for found, sighting in ordered if found is verdict)
    subject = ordered[0][1].subject
    fix = rule.row.fix.format(subject=word(subject) if subject else "the part")
    return Found(verdict, name, "; ".join(texts[:NAMED] + more), lines, fix)


def _text(seen: Seen, log: PastLog) -> str:
    left = ", left by the previous boot" if seen.sign.left_over and seen.line.at_s <= BOOT_S else ""
    return f"{seen.says}{repeated(seen.times)}, {span(log.age_s(seen.line))} ago{left}"


def _over(seen: list[Seen], log: PastLog) -> Found:
    """What passes: nothing, or what ended or is long ago."""
    if not seen:
        return passed("", f"no such line in the kernel log, which reaches back {reaches(log)}")
    ordered = sorted(seen, key=lambda sighting: -sighting.line.at_s)
    ended = [
        f"{sighting.subject}: {_text(sighting, log)}".removeprefix(": ")
        + (", ended" if sighting.ended else "")
        for sighting in ordered[:NAMED]
    ]
    more = [f"and {len(ordered) - NAMED} more"] if len(ordered) > NAMED else []
    return passed(
        "", "; ".join(ended + more), *(line_evidence(sighting.line) for sighting in ordered[:NAMED])
    )


def _names(machine: Machine) -> Callable[[str], str]:
    """What other checks call the device of a PCI address."""
    gpus = {short_bus(gpu.bus_id): gpu.label for gpu in read_health(machine).gpus if gpu.bus_id}
    ports: dict[str, list[str]] = {}
    for port in machine.ports:
        ports.setdefault(port.bdf, []).append(port.name)

    def named(subject: str) -> str:
        if not re.fullmatch(r"[0-9a-f]+:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", subject):
            return subject
        return gpus.get(short_bus(subject)) or " ".join(ports.get(subject, ())) or subject

    return named


def worst_first(findings: list[Found]) -> list[Found]:
    """The findings, the worst first, those of one verdict by their subject."""
    return sorted(findings, key=lambda finding: (SEVERITY.index(finding.verdict), finding.subject))


def reaches(log: PastLog) -> str:
    """How far back the log goes: `12 d`."""
    return span(log.now_s - log.begins_s)


def repeated(times: int) -> str:
    """` x 3`; '' for once."""
    return f" x {times}" if times > 1 else ""


def line_evidence(line: Line) -> Evidence:
    """The line."""
    return Evidence(KMSG, line.text, "none")


def unread_log(log: PastLog) -> Found:
    """The finding where the log cannot be read.

    Not offered to this user or container, or in this snapshot.
    """
    denied = any(word in log.reason for word in DENIED)
    return unanswered(
        "",
        f"the kernel log cannot be read: {log.reason}",
        log.reason,
        fix="" if denied else ON_HOST,
    )


CHECKS = tuple(map(check_rule, RULES))
