"""Compares the facts of many nodes, and names the nodes that differ from the majority."""

from collections.abc import Mapping

from busbw.check.types import Difference

MISSING = "(none)"


def differences(nodes: Mapping[str, Mapping[str, str]]) -> list[Difference]:
    """Facts whose value differs between `nodes`, those with the fewest differing nodes first. A fact missing on some nodes differs too."""
    names = dict.fromkeys(name for facts in nodes.values() for name in facts)
    found = [one for name in names if (one := _difference(name, nodes)) is not None]
    return sorted(found, key=lambda one: sum(map(len, one.odd.values())))


def _difference(name: str, nodes: Mapping[str, Mapping[str, str]]) -> Difference | None:
    by_value: dict[str, list[str]] = {}
    for host, facts in nodes.items():
        by_value.setdefault(facts.get(name, MISSING), []).append(host)
    if len(by_value) == 1:
        return None
    usual, hosts = max(by_value.items(), key=lambda item: len(item[1]))
    majority = 2 * len(hosts) > len(nodes)
    odd = {value: those for value, those in by_value.items() if not majority or value != usual}
    return Difference(fact=name, usual=usual if majority else "", usual_hosts=len(hosts) if majority else 0, odd=odd)
