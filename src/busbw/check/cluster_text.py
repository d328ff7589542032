"""The findings of several nodes as text: what is wrong where, in short, and then in full."""

from collections import Counter
from collections.abc import Mapping, Sequence

from busbw.check.alike import Said, merged_text, pattern
from busbw.check.causes import is_cause
from busbw.check.differences_text import differences_text
from busbw.check.groups import Group, OnNode, group, same_for_all
from busbw.check.text import (
    check_name,
    label,
    muted_lines,
    not_judged_lines,
    relation,
    seen_lines,
    stays_lines,
)
from busbw.check.types import (
    GRADES,
    NO_DATA,
    SHOWN_GRADES,
    CheckReport,
    ClusterReport,
    Muted,
    grade,
    node_names,
)
from busbw.core.finding import Verdict
from busbw.core.host_ranges import fold
from busbw.core.sizes import counted
from busbw.ui.columns import wrapped

_MAX_UNLISTED_FAULTS = 5  # that need no short list
_NODE_VERDICTS = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN, Verdict.PASS)
_HINT = "\nevidence and fixes: the same command with `| less`, or with `--only {}`\n"


def cluster_text(
    cluster: ClusterReport,
    width: int | None = None,
    height: int | None = None,
    *,
    everything: bool = False,
) -> str:
    """The differences between nodes, then every fault once, with the nodes that have it.

    Many faults are first listed in short. Where a terminal of `height` lines has no room for more,
    this list is all, and a hint says how to see the rest.
    """
    groups = group(cluster.nodes, GRADES if everything else SHOWN_GRADES)
    names = node_names(cluster.nodes)
    head = f"{_head(cluster, names)}{differences_text(cluster)}\n"
    full = "".join(_in_full(one, names) for one in groups) + _muted_text(cluster.nodes, names)
    whole = wrapped(head + full, width)
    few = len([one for one in groups if _counts(one)]) <= _MAX_UNLISTED_FAULTS
    if everything or (few and _fits(whole, height)):
        return whole
    short = head + _in_short(groups, names)
    whole = wrapped(f"{short}\n{full}", width)
    if _fits(whole, height):
        return whole
    return wrapped(short + _HINT.format(groups[0].first.name), width)


def _fits(text: str, height: int | None) -> bool:
    return height is None or text.count("\n") < height


def _counts(one: Group) -> bool:
    return grade(one.first) != NO_DATA


def _head(cluster: ClusterReport, names: Sequence[str]) -> str:
    """How many nodes failed, and which; the hosts without an answer; unreadable snapshots."""
    total = len(cluster.nodes) + len(cluster.silent) + len(cluster.unreadable)
    by_verdict: dict[Verdict, list[str]] = {}
    for name, report in zip(names, cluster.nodes, strict=True):
        if report.findings:
            by_verdict.setdefault(report.verdict, []).append(name)
    judged = [verdict for verdict in _NODE_VERDICTS if verdict in by_verdict]
    counts = ", ".join(f"{len(by_verdict[verdict])} {verdict.value}" for verdict in judged)
    answered = f", {len(cluster.nodes)} answered"
    text = f"{counted(total, 'node')}{answered}{': ' if counts else ''}{counts}\n"
    if len(judged) > 1:
        for verdict in judged[:-1]:
            text += f"{verdict.value}: {fold(by_verdict[verdict])}\n"
    return text + _lost("FAIL   ", cluster.silent) + _lost("UNKNOWN", cluster.unreadable)


def _lost(word: str, reasons: Mapping[str, str]) -> str:
    """Hosts or files that could not be judged, those with the same reason in one line."""
    alike: dict[tuple[str, ...], list[Said]] = {}
    for name, reason in reasons.items():
        said = Said(name, reason)
        alike.setdefault(pattern(said), []).append(said)
    return "".join(
        f"{word} {fold(said.host for said in texts)}: {merged_text(texts)}\n"
        for texts in alike.values()
    )


def _in_short(groups: Sequence[Group], names: Sequence[str]) -> str:
    """A fault's message and nodes; one line for all that has no data."""
    text = "".join(_headline(one, names) for one in groups if _counts(one))
    without = [one for one in groups if not _counts(one)]
    if without:
        checks = {name for one in without for name in (one.first.name, *one.same_in)}
        nodes = {node for one in without for node in one.nodes}
        text += f"NO DATA for {counted(len(checks), 'check')}\n{_on_line(list(nodes), names)}"
    return text


def _headline(one: Group, names: Sequence[str]) -> str:
    head = f"{label(one.first)} {one.headline}  {check_name(one.first)}\n"
    parts = one.parts()
    if len(parts) == 1:
        (part,) = parts
        if part not in head and "," in part:
            head += f"        parts: {part.replace(',', ', ')}\n"
        return head + _on_line(one.nodes, names)
    where = [f"{fold(nodes)} ({part})" if part else fold(nodes) for part, nodes in parts.items()]
    return f"{head}        on: {', '.join(where)}\n"


def _on_line(nodes: Sequence[str], names: Sequence[str]) -> str:
    return f"        on: {_nodes_text(nodes, names)}\n"


def _nodes_text(nodes: Sequence[str], names: Sequence[str]) -> str:
    """`all nodes`, `all nodes but gpu7`, `gpu[1-3]`."""
    others = [name for name in names if name not in set(nodes)]
    if not others:
        return "all nodes"
    text, but = fold(nodes), f"all nodes but {fold(others)}"
    return but if len(nodes) > len(others) and len(but) < len(text) else text


def _in_full(one: Group, names: Sequence[str]) -> str:
    """The fault with its details, what was read, and the fix."""
    lines = []
    if one.largest:
        values = ", ".join(f"{said.text} on {said.host}" for said in one.largest)
        lines.append(f"        largest: {values}")
    details = one.details()
    lines += _details_lines(one, details)
    if grade(one.first) in SHOWN_GRADES:
        lines += _seen(one)
        for each in (one, *(detail for detail in details if is_cause(detail.first, one.first))):
            lines += _fixes(each)
        lines += stays_lines(one.first)
    if one.same_in:
        lines.append(f"        the same in: {', '.join(one.same_in)}")
    return _headline(one, names) + "".join(f"{line}\n" for line in lines)


def _details_lines(one: Group, details: Sequence[Group]) -> list[str]:
    """What has the same cause, with its nodes if they are not all that have the fault."""
    lines = []
    unjudged: list[str] = []
    for detail in details:
        if detail.first.verdict is Verdict.UNKNOWN:
            unjudged += [detail.first.name, *detail.same_in]
            continue
        on = "" if detail.nodes == one.nodes else f" on {fold(detail.nodes)}"
        label_text = relation(detail.first, one.first)
        text = f"{detail.headline}{on}  {check_name(detail.first)}"
        lines.append(f"        {label_text}: {text}")
    return lines + not_judged_lines(list(dict.fromkeys(unjudged)))


def _seen(one: Group) -> list[str]:
    """What was read: the same everywhere, or the largest value as an example."""
    sample = one.sample[0]
    evidence = {each.finding.evidence for each in one.found}
    return seen_lines(sample.finding, "" if len(evidence) == 1 else _on(one, sample.node))


def _fixes(one: Group) -> list[str]:
    """The fix for all nodes, or that of the sample for its first part."""
    fix = same_for_all(one.found, "fix")
    if fix or not one.first.fix:
        return [f"        fix: {fix}"] if fix else []
    alike: dict[tuple[str, ...], list[OnNode]] = {}
    for each in one.sample:
        if each.finding.fix:
            alike.setdefault(pattern(Said(each.node, each.finding.fix)), []).append(each)
    lines = []
    for first, *others in alike.values():
        parts = fold(other.finding.subject for other in others)
        likewise = f"; likewise {parts}" if parts else ""
        lines.append(f"        fix{_on(one, first.node)}: {first.finding.fix}{likewise}")
    return lines


def _on(one: Group, node: str) -> str:
    """` on gpu7`, or '' if no other node has the fault."""
    return f" on {node}" if len(one.nodes) > 1 else ""


def _muted_text(nodes: Sequence[CheckReport], names: Sequence[str]) -> str:
    """Each mute once, with the nodes where it accepts something."""
    accepted: dict[tuple[str, ...], list[tuple[str, Muted]]] = {}
    for name, report in zip(names, nodes, strict=True):
        for mute in report.muted:
            lines = muted_lines(mute)
            key = tuple(part for line in lines for part in pattern(Said(name, line)))
            accepted.setdefault(key, []).append((name, mute))
    text = ""
    for mutes in accepted.values():
        said = [[Said(name, line) for line in muted_lines(mute)] for name, mute in mutes]
        first, second = (merged_text(column) for column in zip(*said, strict=True))
        on = _on_line(list(Counter(name for name, _ in mutes)), names)
        text += f"{first}\n{on}{second}\n"
    return text
