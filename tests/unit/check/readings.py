"""The findings on counters at two readings of a machine."""

from cases_nic import PORT
from healthy import healthy
from tree import Tree

from busbw.check.machine import Machine
from busbw.check.registry import find
from busbw.check.types import ReportedFinding
from busbw.core.finding import Verdict

PASS, WARN, FAIL, UNKNOWN = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN


def file(path, value):
    return lambda tree: tree.file(path, str(value))


def port(name, value, folder="counters"):
    return file(f"{PORT}/{folder}/{name}", value)


def findings(
    name: str, *changes, before=(), seconds: float = 0.0, tree: Tree | None = None, layer="Ethernet"
) -> list[ReportedFinding]:
    """The findings after the changes; with `seconds` there was an earlier reading, with the
    changes of `before`.
    """
    tree_now = tree or healthy(layer=layer)
    for change in changes:
        change(tree_now)
    if not seconds:
        return find(name).run(Machine(tree_now.source()))
    tree_before = healthy(layer=layer)
    for change in before:
        change(tree_before)
    tree_now.file("/proc/uptime", f"{100_000 + seconds} 1.0")
    return find(name).run(Machine(tree_now.source(), Machine(tree_before.source())))


def bad(findings: list[ReportedFinding]) -> dict[str, Verdict]:
    return {
        finding.subject: finding.verdict
        for finding in findings
        if finding.verdict not in (PASS, Verdict.SKIP)
    }


def of(findings: list[ReportedFinding], subject: str = "mlx5_3") -> ReportedFinding:
    (finding,) = [finding for finding in findings if finding.subject == subject]
    return finding
