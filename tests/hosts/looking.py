"""Findings of a check on a machine that is recorded as a tree of files."""

from healthy import healthy
from tree import Change, Tree

from busbw.check.machine import Machine
from busbw.check.registry import find
from busbw.check.types import Checked


def found(name: str, *changes: Change, tree: Tree | None = None) -> list[Checked]:
    """The findings of a check on the healthy server, or on `tree`, after the changes."""
    tree = tree or healthy()
    for change in changes:
        change(tree)
    return find(name).run(Machine(tree.source()))


def of(findings: list[Checked], subject: str) -> Checked:
    """The only finding on a subject."""
    (finding,) = [finding for finding in findings if finding.subject == subject]
    return finding
