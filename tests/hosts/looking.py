"""Findings of a check on a machine that is recorded as a tree of files."""

from healthy import healthy
from tree import Change, Tree

from busbw.check.machine import Machine
from busbw.check.registry import find
from busbw.check.types import ReportedFinding


def found(name: str, *changes: Change, tree: Tree | None = None) -> list[ReportedFinding]:
    """The findings of a check on the healthy server, or on `tree`, after the changes."""
    tree = tree or healthy()
    for change in changes:
        change(tree)
    return find(name).run(Machine(tree.source()))


def of(findings: list[ReportedFinding], subject: str) -> ReportedFinding:
    """The only finding on a subject."""
    (finding,) = [finding for finding in findings if finding.subject == subject]
    return finding
