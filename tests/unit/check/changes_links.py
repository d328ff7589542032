"""Changes of a machine that variants of NVLink and RoCE share."""

from tree import Tree


def containers(tree: Tree) -> Tree:
    return tree.file("/.dockerenv", "")
