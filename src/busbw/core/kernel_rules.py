"""All rules of the kernel log, and which lines concern any of them."""

import re
from collections.abc import Callable
from functools import cache

from busbw.core.kernel_rule import KernelRule, read_rules

Search = Callable[[str], re.Match[str] | None]
SUBJECTS = ("gpus", "nics", "pcie", "host", "storage")


@cache
def kernel_rules() -> tuple[KernelRule, ...]:
    """All rules, file by file."""
    files = [read_rules(f"core/kernel_rules_{subject}.toml") for subject in SUBJECTS]
    return tuple(rule for rules in files for rule in rules)


def concerned(text: str) -> int:
    """The number of the pattern, from 1, of a line that a rule judges, or that ends what a rule
    reports; 0 for other lines.
    """
    for number, (literal, search) in enumerate(_patterns(), 1):
        if literal in text and search(text):
            return number
    return 0


@cache
def _patterns() -> tuple[tuple[str, Search], ...]:
    """All patterns, each with a text that its lines have: a search for that is much faster."""
    signs = [sign for rule in kernel_rules() for sign in rule.signs]
    patterns = [sign.pattern for sign in signs] + [sign.end for sign in signs if sign.end]
    return tuple((_literal(each.pattern), each.search) for each in dict.fromkeys(patterns))


def _literal(pattern: str) -> str:
    """The longest text that stands in a pattern outside of groups; '' if it has alternatives."""
    text = re.sub(r"\\.|\[(?:\\.|[^\]\\])+\]", "\0", pattern)
    while "(" in text:
        text = re.sub(r"\([^()]*\)", "\0", text)
    text = re.sub(r".(?:[?*]|\{\d[^}]*\})|[.^$+]", "\0", text)
    return "" if "|" in text else max(text.split("\0"), key=len)
