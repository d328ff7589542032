"""Facts of a host that show a fault which a mute accepts: they are no difference between hosts.

A value is of a muted fault if a muted finding read the same value of the same part, or of the same
file. A port that is down has no rate and no addresses, whatever its link would have.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from busbw.check.facts import FILES, OF_LINK, Values, facts_by_part
from busbw.check.machine import Machine
from busbw.check.types import Evidence, MutedFinding, NodeFindings

WHOLE = ""  # stands for the node, where a fact is not of parts


def note_accepted(node: NodeFindings, machine: Machine) -> None:
    """Note in the node the values of each part, and which of them show a muted fault."""
    by_part = facts_by_part(machine)
    node.parts = {fact: value for fact, value in by_part.items() if not isinstance(value, str)}
    for fact, value in by_part.items():
        accepted = list(_accepted_parts(fact, value, node.report.muted, machine))
        if accepted:
            node.accepted[fact] = accepted


def _accepted_parts(
    fact: str, value: Values, muted: list[MutedFinding], machine: Machine
) -> Iterator[str]:
    if isinstance(value, str):
        places = {entry.where for of in muted for entry in of.finding.evidence}
        if FILES.get(fact) in places:
            yield WHOLE
        return
    netdevs = {port.name: port.netdev for port in machine.ports}
    down = {port.name for port in machine.ports if not port.active}
    for part, seen in value.items():
        names = {part, netdevs.get(part) or part}
        read = [entry for of in muted for entry in _read_of(of, names)]
        without_link = fact in OF_LINK and part in down and any(map(_is_state, read))
        if without_link or any(entry.seen == seen for entry in read):
            yield part


def _read_of(muted: MutedFinding, names: set[str]) -> list[Evidence]:
    """What a muted finding read of a part with these names."""
    evidence = muted.finding.evidence
    if muted.finding.subject in names:
        return list(evidence)
    return [entry for entry in evidence if names & set(entry.where.split("/"))]


def _is_state(entry: Evidence) -> bool:
    return entry.where.endswith(("/state", "/phys_state"))


def left_out(nodes: Mapping[str, NodeFindings]) -> set[tuple[str, str]]:
    """The facts that are not compared on a host, as (host, fact): but for values of muted faults
    they are what most of the hosts have that have the same values elsewhere.
    """
    return {
        (host, fact)
        for host, node in nodes.items()
        for fact, parts in node.accepted.items()
        if parts == [WHOLE] or _is_usual_elsewhere(host, fact, parts, nodes)
    }


def _is_usual_elsewhere(
    host: str, fact: str, parts: list[str], nodes: Mapping[str, NodeFindings]
) -> bool:
    """Whether all parts but these have the values that they have on the most other hosts."""
    others = [node for name, node in nodes.items() if name != host and fact not in node.accepted]
    count = Counter(node.facts.get(fact) for node in others)
    if not count:
        return True
    usual = count.most_common(1)[0][0]
    example = next(node for node in others if node.facts.get(fact) == usual)
    return same_but_for(parts, nodes[host].parts[fact], example.parts.get(fact, {}))


def is_accepted(fact: str, before: NodeFindings, after: NodeFindings) -> bool:
    """Whether a fact of a host has changed only where a fault is muted."""
    if not (before.compared and after.compared):
        return True
    parts = [*before.accepted.get(fact, ()), *after.accepted.get(fact, ())]
    values = before.parts.get(fact, {}), after.parts.get(fact, {})
    return bool(parts) and (WHOLE in parts or same_but_for(parts, *values))


def same_but_for(parts: list[str], values: Mapping[str, str], others: Mapping[str, str]) -> bool:
    """Whether two hosts have the same values of a fact in all parts but these."""
    names = {*values, *others} - set(parts)
    return all(values.get(name) == others.get(name) for name in names)
