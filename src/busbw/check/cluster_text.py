"""The findings of several nodes as text: what is wrong where, in short, and then in full."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

from busbw.check.alike import HostText, merged_text, pattern
from busbw.check.causes import is_cause
from busbw.check.differences_text import differences_text
from busbw.check.groups import FindingGroup, NodeFinding, fix_for_all, group
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
    MutedFinding,
    grade,
    node_names,
)
from busbw.core.finding import Verdict
from busbw.core.host_ranges import fold
from busbw.core.sizes import counted
from busbw.ui.columns import wrapped

_MAX_UNLISTED_FAULTS = 5  # that need no short list
_NODE_VERDICTS = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN, Verdict.PASS)
_HINT = "evidence and fixes: the same command with `| less`, or with `--only {}`\n"
_NO_DATA_HINT = "\nwhat has no data, and why: the same command with `| less`\n"


def cluster_text(
    cluster: ClusterReport,
    width: int | None = None,
    height: int | None = None,
    *,
    everything: bool = False,
    compared: bool = True,
) -> str:
    """The differences between nodes if `compared`, then every fault once, with the nodes that have
    it.

    Many faults are first listed in short. Where a terminal of `height` lines has no room for more,
    this list is all, and a hint says how to see the rest.
    """
    groups = group(cluster.nodes, GRADES if everything else SHOWN_GRADES)
    names = node_names(cluster.nodes)
    differing = differences_text(cluster) if compared else ""
    head = f"{head_text(cluster, names)}{differing}\n"
    muted = _muted_text(cluster.nodes, names)
    faults = [fault for fault in groups if grade(fault.first) != NO_DATA]
    in_full = "".join(_in_full(fault, names) for fault in groups) + muted
    many = len(faults) > _MAX_UNLISTED_FAULTS and not everything
    listed = f"{_in_short(groups, names)}\n" if many else ""
    whole = wrapped(f"{head}{listed}{in_full}", width)
    if everything or not groups or height is None or whole.count("\n") < height:
        return whole
    if many:
        return wrapped(head + listed + _HINT.format(faults[0].first.name), width)
    without_data = _no_data_text(groups, names)
    if not without_data:
        return whole
    in_full = "".join(_in_full(fault, names) for fault in faults) + muted
    return wrapped(f"{head}{in_full}{without_data}{_NO_DATA_HINT}", width)


def head_text(cluster: ClusterReport, names: Sequence[str]) -> str:
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
    alike: dict[tuple[str, ...], list[HostText]] = {}
    for name, reason in reasons.items():
        text = HostText(name, reason)
        alike.setdefault(pattern(text), []).append(text)
    return "".join(
        f"{word} {fold(text.host for text in texts)}: {merged_text(texts)}\n"
        for texts in alike.values()
    )


def _in_short(groups: Sequence[FindingGroup], names: Sequence[str]) -> str:
    """The message and nodes of each fault; one line for all that has no data."""
    faults = [_headline(fault, names) for fault in groups if grade(fault.first) != NO_DATA]
    return "".join(faults) + _no_data_text(groups, names)


def _no_data_text(groups: Sequence[FindingGroup], names: Sequence[str]) -> str:
    """How many checks have no data, and on which nodes; '' if all have."""
    without = [lacking for lacking in groups if grade(lacking.first) == NO_DATA]
    if not without:
        return ""
    checks = {name for lacking in without for name in (lacking.first.name, *lacking.same_in)}
    nodes = {node for lacking in without for node in lacking.nodes}
    return f"NO DATA for {counted(len(checks), 'check')}\n{_on_line(list(nodes), names)}"


def _headline(fault: FindingGroup, names: Sequence[str]) -> str:
    head = f"{label(fault.first)} {fault.headline}  {check_name(fault.first)}\n"
    return head + "".join(where_lines(fault, names))


def where_lines(fault: FindingGroup, names: Sequence[str]) -> list[str]:
    """The parts and nodes of a fault; `names` are those of all nodes."""
    parts = fault.parts()
    if len(parts) > 1:
        where = [
            f"{fold(nodes)} ({part})" if part else fold(nodes) for part, nodes in parts.items()
        ]
        return [f"        on: {', '.join(where)}\n"]
    on = _on_line(fault.nodes, names)
    (part,) = parts
    if part in fault.headline or "," not in part:
        return [on]
    return [f"        parts: {part.replace(',', ', ')}\n", on]


def _on_line(nodes: Sequence[str], names: Sequence[str]) -> str:
    return f"        on: {_nodes_text(nodes, names)}\n"


def _nodes_text(nodes: Sequence[str], names: Sequence[str]) -> str:
    """`all nodes`, `all nodes but gpu7`, `gpu[1-3]`."""
    others = [name for name in names if name not in set(nodes)]
    if not others:
        return "all nodes"
    text, but = fold(nodes), f"all nodes but {fold(others)}"
    return but if len(nodes) > len(others) and len(but) < len(text) else text


def _in_full(fault: FindingGroup, names: Sequence[str]) -> str:
    return _headline(fault, names) + "".join(f"{line}\n" for line in detail_lines(fault))


def detail_lines(fault: FindingGroup) -> list[str]:
    """The largest values of a fault, its details, what was read, and the fix."""
    lines = []
    if fault.largest:
        values = ", ".join(f"{value.text} on {value.host}" for value in fault.largest)
        lines.append(f"        largest: {values}")
    details = fault.details()
    lines += _details_lines(fault, details)
    if grade(fault.first) in SHOWN_GRADES:
        lines += _seen(fault)
        causes = [detail for detail in details if is_cause(detail.first, fault.first)]
        for with_fix in (fault, *causes):
            lines += _fixes(with_fix)
        lines += stays_lines(fault.first)
    if fault.same_in:
        lines.append(f"        the same in: {', '.join(fault.same_in)}")
    return lines


def _details_lines(fault: FindingGroup, details: Sequence[FindingGroup]) -> list[str]:
    """What has the same cause, with its nodes if they are not all that have the fault."""
    lines = []
    unjudged: list[str] = []
    for detail in details:
        if detail.first.verdict is Verdict.UNKNOWN:
            unjudged += [detail.first.name, *detail.same_in]
            continue
        on = "" if detail.nodes == fault.nodes else f" on {fold(detail.nodes)}"
        label_text = relation(detail.first, fault.first)
        text = f"{detail.headline}{on}  {check_name(detail.first)}"
        lines.append(f"        {label_text}: {text}")
    return lines + not_judged_lines(list(dict.fromkeys(unjudged)))


def _seen(fault: FindingGroup) -> list[str]:
    """What was read: the same everywhere, or the largest value as an example."""
    sample = fault.sample[0]
    evidence = {item.finding.evidence for item in fault.findings}
    return seen_lines(sample.finding, "" if len(evidence) == 1 else _on(fault, sample.node))


def _fixes(fault: FindingGroup) -> list[str]:
    """The fix for all nodes, or that of the sample for its first part."""
    fix = fix_for_all(fault.findings)
    if fix or not fault.first.fix:
        return [f"        fix: {fix}"] if fix else []
    alike: dict[tuple[str, ...], list[NodeFinding]] = {}
    for item in fault.sample:
        if item.finding.fix:
            alike.setdefault(pattern(HostText(item.node, item.finding.fix)), []).append(item)
    lines = []
    for first, *others in alike.values():
        parts = fold(other.finding.subject for other in others)
        likewise = f"; likewise {parts}" if parts else ""
        lines.append(f"        fix{_on(fault, first.node)}: {first.finding.fix}{likewise}")
    return lines


def _on(fault: FindingGroup, node: str) -> str:
    """` on gpu7`, or '' if no other node has the fault."""
    return f" on {node}" if len(fault.nodes) > 1 else ""


def _muted_text(nodes: Sequence[CheckReport], names: Sequence[str]) -> str:
    """Each mute once, with the nodes where it accepts something."""
    accepted: dict[tuple[str, ...], list[tuple[str, MutedFinding]]] = {}
    for name, report in zip(names, nodes, strict=True):
        for mute in report.muted:
            lines = _host_lines(name, mute)
            key = tuple(chain.from_iterable(pattern(line) for line in lines))
            accepted.setdefault(key, []).append((name, mute))
    text = ""
    for mutes in accepted.values():
        texts = [_host_lines(name, mute) for name, mute in mutes]
        first, second = (merged_text(column) for column in zip(*texts, strict=True))
        on = _on_line(list(Counter(name for name, _ in mutes)), names)
        text += f"{first}\n{on}{second}\n"
    return text


def _host_lines(name: str, mute: MutedFinding) -> list[HostText]:
    return [HostText(name, line) for line in muted_lines(mute)]
