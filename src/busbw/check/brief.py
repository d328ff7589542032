"""Findings as one line for a monitor, in the format of a Nagios plugin, with its exit code.

0 is OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from busbw.check.groups import group
from busbw.check.types import (
    GRADES,
    SHOWN_GRADES,
    CheckReport,
    ClusterReport,
    ReportedFinding,
    grade,
    overall,
    worst,
)
from busbw.core.errors import NagiosExit
from busbw.core.finding import Verdict
from busbw.core.host_ranges import fold
from busbw.core.sizes import counted
from busbw.core.unseen import escape_line

NAGIOS = {
    Verdict.FAIL: NagiosExit.CRITICAL,
    Verdict.WARN: NagiosExit.WARNING,
    Verdict.UNKNOWN: NagiosExit.UNKNOWN,
    Verdict.PASS: NagiosExit.OK,
}
_OF_NODES = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN, Verdict.PASS)
_MAX_NAMED = 8


def brief(report: CheckReport, fail_on: Verdict = Verdict.FAIL) -> tuple[int, str]:
    """The line of one machine.

    It names the findings that made the verdict, then says how many others are bad or were not
    judged.
    """
    count = Counter(grade(finding) for finding in report.findings)
    verdict = overall(report.findings, fail_on)
    grades = _decisive(verdict, fail_on)
    names: dict[str, None] = {}
    for grade_name in grades:
        bad = [finding for finding in report.findings if grade(finding) == grade_name]
        names |= dict.fromkeys(map(_named, bad))
    texts = _first(list(names))
    if not texts:
        texts.append(f"{count['pass']} passed" if count["pass"] else "nothing was judged")
    remaining = [name for name in SHOWN_GRADES if count[name] and name not in grades]
    texts += [f"{count[name]} {name}" for name in remaining]
    figures = " ".join(f"{name.replace(' ', '_')}={count[name]}" for name in GRADES)
    figures += f" muted={len(report.muted)}" if report.muted else ""
    return _line(verdict, report.host, "; ".join(texts), figures)


def brief_cluster(
    cluster: ClusterReport, verdict: Verdict, fail_on: Verdict = Verdict.FAIL
) -> tuple[int, str]:
    """The line of several machines, whose reports have their verdicts. `verdict` is that on all.

    It says which findings on which nodes made the verdict. The figures count nodes.
    """
    count = Counter(report.verdict for report in cluster.nodes)
    texts = [f"no answer from {fold(cluster.silent)}"] if cluster.silent else []
    of_nodes = worst(report.verdict for report in cluster.nodes)
    if verdict is of_nodes:
        on: dict[str, dict[str, None]] = {}
        for fault in group(cluster.nodes, _decisive(verdict, fail_on)):
            on.setdefault(fault.first.name, {}).update(dict.fromkeys(fault.nodes))
        texts += _first([_on_nodes(name, on[name], len(cluster.nodes)) for name in on])
    if fail_on is Verdict.WARN:
        texts += _first([f"{difference.fact} differs" for difference in cluster.differences])
    if cluster.unreadable:
        texts.append(f"cannot be read: {fold(cluster.unreadable)}")
    texts += [f"{count[grade]} {grade.value}" for grade in _OF_NODES if count[grade]]
    if cluster.differences:
        texts.append(counted(len(cluster.differences), "different fact"))
    figures = {"nodes": len(cluster.nodes) + len(cluster.silent) + len(cluster.unreadable)}
    figures |= {grade.value: count[grade] for grade in _OF_NODES}
    figures |= {"silent": len(cluster.silent), "unreadable": len(cluster.unreadable)}
    muted = sum(bool(report.muted) for report in cluster.nodes)
    figures |= {"muted": muted} if muted else {}
    text = " ".join(f"{name}={number}" for name, number in figures.items())
    return _line(verdict, counted(figures["nodes"], "node"), "; ".join(texts), text)


def brief_without(name: str, reason: str, verdict: Verdict) -> tuple[int, str]:
    """The line of a machine that could not be read."""
    return _line(verdict, name or "this machine", " ".join(reason.split()))


def _line(verdict: Verdict, name: str, text: str, figures: str = "") -> tuple[int, str]:
    code = NAGIOS[verdict]
    figures = f" | {figures}" if figures else ""
    told = escape_line(f"{name}: {text}").replace("|", "/")
    return int(code), f"BUSBW {code.name} - {told}{figures}\n"


def _decisive(verdict: Verdict, fail_on: Verdict) -> tuple[str, ...]:
    """The grades of findings that give a verdict."""
    if verdict is Verdict.FAIL:
        return tuple(dict.fromkeys(("fail", fail_on.value)))
    return () if verdict is Verdict.PASS else (verdict.value,)


def _named(finding: ReportedFinding) -> str:
    return f"{finding.name} {finding.subject}".strip()


def _on_nodes(check: str, on: Collection[str], nodes: int) -> str:
    return f"{check} on {'all nodes' if len(on) == nodes else fold(on)}"


def _first(names: Sequence[str]) -> list[str]:
    more = [f"{len(names) - _MAX_NAMED} more"] if len(names) > _MAX_NAMED else []
    return [*names[:_MAX_NAMED], *more]
