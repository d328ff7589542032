"""What is not the same on all nodes, as text."""

from collections import Counter
from collections.abc import Sequence
from functools import partial

from busbw.check.alike import HostText, merged_text, pattern
from busbw.check.types import MISSING, ClusterReport, Difference
from busbw.core.host_ranges import fold
from busbw.core.sizes import counted

MAX_VALUES = 4  # that are listed though each host has its own
_LONG_LIST_PARTS = 5  # parts of a list
MIN_MISSING_FACTS = 3  # facts that one host lacks


def differences_text(cluster: ClusterReport) -> str:
    """The nodes that are unlike the others, and a line for each fact that differs.

    A value that differs on every node points to no node, and comes last.
    """
    if not cluster.nodes:
        return ""
    text = f"\n{counted(len(cluster.differences), 'fact')} not the same on all nodes\n"
    text += _oddest_line(cluster.differences)
    lacking = missing(cluster.differences)
    told = {name for names in lacking.values() for name in names}
    others = [difference for difference in cluster.differences if difference.fact not in told]
    last = partial(differs_everywhere, len(cluster.nodes))
    text += "".join(map(_difference_line, sorted(others, key=last)))
    for hosts, names in lacking.items():
        text += f"WARN    {len(names)} facts are missing on {hosts}: {', '.join(names)}\n"
    return text


def missing(differences: Sequence[Difference]) -> dict[str, list[str]]:
    """The facts that only some hosts lack, by these hosts, if they lack several."""
    lacking: dict[str, list[str]] = {}
    for difference in differences:
        if difference.usual and list(difference.odd) == [MISSING]:
            lacking.setdefault(fold(difference.odd[MISSING]), []).append(difference.fact)
    return {hosts: names for hosts, names in lacking.items() if len(names) >= MIN_MISSING_FACTS}


def _oddest_line(differences: Sequence[Difference]) -> str:
    """`unlike the others: gpu7 (3 facts), gpu[2-4] (1)`; '' if no fact has a usual value."""
    count: Counter[str] = Counter()
    for difference in differences:
        if difference.usual:
            for hosts in difference.odd.values():
                count.update(hosts)
    by_count: dict[int, list[str]] = {}
    for host, facts in count.most_common():
        by_count.setdefault(facts, []).append(host)
    named = [
        f"{fold(hosts)} ({counted(facts, 'fact') if at == 0 else facts})"
        for at, (facts, hosts) in enumerate(by_count.items())
    ]
    return f"unlike the others: {', '.join(named)}\n" if named else ""


def differs_everywhere(nodes: int, difference: Difference) -> bool:
    """Whether each of several nodes has a value of its own."""
    return nodes > 2 and len(difference.odd) == nodes


def _difference_line(difference: Difference) -> str:
    return f"WARN    {difference.fact}: {values_text(difference)}\n"


def values_text(difference: Difference) -> str:
    """Each value with its hosts, and the usual one."""
    usual = ""
    if difference.usual:
        usual = f"; {difference.usual} on the other {difference.usual_hosts}"
    return f"{odd_text(difference)}{usual}"


def odd_text(difference: Difference) -> str:
    """Each value with its hosts; the range of the values if nearly each host has its own."""
    hosts = [host for named in difference.odd.values() for host in named]
    values = [HostText("", value) for value in difference.odd]
    own = len(values) > MAX_VALUES and 2 * len(values) > len(hosts)
    if own and len(set(map(pattern, values))) == 1:
        return f"{merged_text(values)} ({len(values)} values) on {fold(hosts)}"
    return "; ".join(
        f"{from_usual(value, difference.usual)} on {fold(named)}"
        for value, named in difference.odd.items()
    )


def from_usual(value: str, usual: str) -> str:
    """A long list as its differences from the usual one, if both have something in common."""
    values, usual_values = value.split(", "), usual.split(", ")
    short = min(len(values), len(usual_values)) < _LONG_LIST_PARTS
    if short or not set(values) & set(usual_values):
        return value
    missing = [part for part in usual_values if part not in values]
    added = [part for part in values if part not in usual_values]
    texts = [f"without {', '.join(missing)}"] if missing else []
    texts += [f"with {', '.join(added)}"] if added else []
    return " and ".join(texts) or value
