"""The findings of several nodes as text: what is wrong where, in short, and then in full."""

from collections.abc import Mapping, Sequence

from busbw.check.alike import HostText, merged_text, pattern
from busbw.check.differences_text import differences_text
from busbw.check.earlier import BY_TOTALS
from busbw.check.fault_text import detail_lines, head_line, muted, parts_lines
from busbw.check.groups import FindingGroup, shown_groups
from busbw.check.types import NO_DATA, ClusterReport, LeftOut, grade, node_names
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
    groups = shown_groups(cluster.nodes, everything=everything)
    names = node_names(cluster.nodes)
    differing = differences_text(cluster) if compared else ""
    head = f"{head_text(cluster, names)}{differing}\n"
    muted_text = "".join(
        f"{mute.head}{_on_line(mute.nodes, names)}{mute.reason}"
        for mute in muted(cluster.nodes, names)
    )
    faults = [fault for fault in groups if grade(fault.first) != NO_DATA]
    in_full = "".join(_in_full(fault, names) for fault in groups) + muted_text
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
    in_full = "".join(_in_full(fault, names) for fault in faults) + muted_text
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
    text += _lost("FAIL   ", cluster.silent) + _lost("UNKNOWN", cluster.unreadable)
    for line in LeftOut(cluster.older, cluster.copies).texts():
        text += f"{line}\n"
    return text + _lost("NO DATA", _by_totals(cluster))


def _by_totals(cluster: ClusterReport) -> dict[str, str]:
    return {host: f"{reason}, {BY_TOTALS}" for host, reason in cluster.no_earlier.items()}


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
    return head_line(fault) + "".join(where_lines(fault, names))


def where_lines(fault: FindingGroup, names: Sequence[str]) -> list[str]:
    """The parts and nodes of a fault; `names` are those of all nodes."""
    parts = fault.parts()
    if len(parts) > 1:
        where = [
            f"{fold(nodes)} ({part})" if part else fold(nodes) for part, nodes in parts.items()
        ]
        return [f"        on: {', '.join(where)}\n"]
    return [*parts_lines(fault), _on_line(fault.nodes, names)]


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
    return _headline(fault, names) + "".join(detail_lines(fault))
