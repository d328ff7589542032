"""Runs one check on the machine of a tree."""

from healthy import healthy
from tree import environment

from busbw.check.machine import Machine
from busbw.check.registry import find


def run(name, tree):
    """The findings of a check."""
    return find(name).run(Machine(tree.source()))


def only(name, tree):
    """The only finding of a check."""
    (finding,) = run(name, tree)
    return finding


def changed(change, tree=None):
    """A tree, by default of the healthy server, after a change."""
    tree = tree or healthy()
    change(tree)
    return tree


def set_to(**variables):
    """The healthy server with these environment variables."""
    return changed(environment(**variables), healthy(ports=16))
