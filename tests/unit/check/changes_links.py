"""Changes of a machine that variants of NVLink and RoCE share."""

from tree import Change, Tree


def combine(*changes: Change) -> Change:
    """Several changes."""
    return lambda tree: [change(tree) for change in changes]


def containers(tree: Tree) -> Tree:
    return tree.file("/.dockerenv", "")
