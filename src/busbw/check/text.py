"""Checks as text: faults first, with evidence and fix; one line for a monitor; the page of a
check.
"""

from collections import Counter
from collections.abc import Sequence

from busbw.check.types import (
    AS_ROOT,
    GRADES,
    NO_DATA,
    Checked,
    CheckReport,
    ClusterReport,
    Difference,
    Muted,
    grade,
    overall,
)
from busbw.core.errors import NagiosExit
from busbw.core.finding import CheckRow, Verdict
from busbw.core.sizes import counted
from busbw.ui.number_formats import Column, aligned, wrapped

SHOWN = ("fail", "unknown", "warn", NO_DATA)
NAGIOS = {
    Verdict.FAIL: NagiosExit.CRITICAL,
    Verdict.WARN: NagiosExit.WARNING,
    Verdict.UNKNOWN: NagiosExit.UNKNOWN,
    Verdict.PASS: NagiosExit.OK,
}
_MOST_EVIDENCE = 4
_MOST_NAMED = 8
_MOST_VALUES = 4
_LONG = 5  # parts of a list


def text(report: CheckReport, width: int | None = None, *, everything: bool = False) -> str:
    """All findings that need attention, the worst first; with `everything` those that passed or
    were skipped too.
    """
    of = f" ({report.source})" if report.source else ""
    body = f"{findings(report.findings, everything=everything)}{muted(report.muted)}"
    head = summary(report.findings).rstrip() + (
        f"; {counted(len(report.muted), 'finding')} muted" if report.muted else ""
    )
    return wrapped(f"{report.host}{of}: {head}\n\n{body}", width)


def findings(found: Sequence[Checked], *, everything: bool) -> str:
    """The findings, unbroken."""
    grades = GRADES if everything else SHOWN
    groups = [([""], group) for each in grades for group in _groups(found, each)]
    return "".join(_group(first) + _others(others) for _, (first, *others) in _alike(groups))


def muted(found: Sequence[Muted]) -> str:
    """`MUTED   mlx5_3: has MTU 1500 (warn)  [BW070 nic-mtu]`, and until when and why; '' if
    nothing is muted.
    """
    return "".join(
        f"MUTED   {_headline(one.finding)} ({one.finding.verdict.value})  [{one.finding.id}"
        f" {one.finding.name}]\n"
        f"        until: {one.until}, {one.where}: {one.reason}\n"
        for one in found
    )


def _headline(one: Checked) -> str:
    """The message, with the subject if it is not in there."""
    return (
        f"{one.subject}: {one.message}"
        if one.subject and one.subject not in one.message
        else one.message
    )


def summary(found: Sequence[Checked]) -> str:
    """`78 checks: 2 fail, 1 warn, 5 no data (4 need root), 62 pass, 8 skip`."""
    worst: dict[str, str] = {}
    for one in found:
        worst[one.id] = min(worst.get(one.id, GRADES[-1]), grade(one), key=GRADES.index)
    count = Counter(worst.values())
    denied = len(
        {
            one.id
            for one in found
            if one.optional and one.fix == AS_ROOT and worst[one.id] == NO_DATA
        }
    )
    texts = {each: f"{count[each]} {each}" for each in GRADES if count[each]}
    if denied:
        texts[NO_DATA] += f" ({denied} need root)"
    return f"{counted(len(worst), 'check')}: {', '.join(texts.values())}\n"


def _groups(found: Sequence[Checked], of: str) -> list[list[Checked]]:
    """Findings of this grade, those of one check together."""
    groups: dict[str, list[Checked]] = {}
    for one in found:
        if grade(one) == of:
            groups.setdefault(one.id, []).append(one)
    return list(groups.values())


def _alike(
    groups: Sequence[tuple[list[str], list[Checked]]],
) -> list[tuple[list[str], list[list[Checked]]]]:
    """Groups of nodes and findings; those of several checks that could not judge the same parts
    for the same reason together.
    """
    found: dict[object, tuple[list[str], list[list[Checked]]]] = {}
    for hosts, group in groups:
        first = group[0]
        reasons = tuple((one.subject, one.message) for one in group)
        what: object = reasons if first.verdict is Verdict.UNKNOWN else first.id
        found.setdefault((tuple(hosts), grade(first), what), (hosts, []))[1].append(group)
    return list(found.values())


def _others(groups: Sequence[list[Checked]]) -> str:
    """The names of further checks with the same findings."""
    return (
        f"        the same in: {', '.join(group[0].name for group in groups)}\n" if groups else ""
    )


def _group(group: Sequence[Checked]) -> str:
    """The first finding in full, and the names of the others."""
    first = group[0]
    lines = [f"{grade(first).upper():7} {_headline(first)}  [{first.id} {first.name}]"]
    if len(group) > 1:
        others = [one.subject for one in group[1:]]
        named = ", ".join(others[:_MOST_NAMED]) + (
            f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        )
        lines.append(f"        also: {named}")
    if grade(first) in SHOWN:
        for evidence in first.evidence[:_MOST_EVIDENCE]:
            expected = f", expected {evidence.expected}" if evidence.expected else ""
            lines.append(f"        seen: {evidence.where}: {evidence.seen}{expected}")
        lines += [
            f"        fix: {fix}" for fix in dict.fromkeys(one.fix for one in group if one.fix)
        ]
        if first.stays:
            label = "" if first.stays.startswith("after reboot:") else "stays: "
            lines.append(f"        {label}{first.stays}")
    return "\n".join(lines) + "\n"


def cluster_text(
    cluster: ClusterReport, width: int | None = None, *, everything: bool = False
) -> str:
    """The differences between nodes, then every finding once with the nodes that have it."""
    nodes = len(cluster.nodes) + len(cluster.silent) + len(cluster.unreadable)
    head = f"{counted(nodes, 'node')}, {len(cluster.nodes)} answered\n"
    head += "".join(f"FAIL    {host}: {reason}\n" for host, reason in cluster.silent.items())
    head += "".join(f"UNKNOWN {file}: {reason}\n" for file, reason in cluster.unreadable.items())
    head += (
        f"\n{counted(len(cluster.differences), 'fact')} not the same on all nodes\n"
        if cluster.nodes
        else ""
    )
    head += _oddest(cluster.differences)
    # A value that differs on every node points to no node.
    head += "".join(
        map(
            _difference,
            sorted(cluster.differences, key=lambda one: _own_value(one, len(cluster.nodes))),
        )
    )
    groups = _across(cluster.nodes, GRADES if everything else SHOWN)
    shared = "".join(
        _on_nodes(first, hosts, len(cluster.nodes)) + _others(others)
        for hosts, (first, *others) in _alike(groups)
    )
    accepted = "".join(f"{node.host}:\n{muted(node.muted)}" for node in cluster.nodes if node.muted)
    return wrapped(f"{head}\n{shared}{accepted}", width)


def _across(
    nodes: Sequence[CheckReport], grades: Sequence[str]
) -> list[tuple[list[str], list[Checked]]]:
    """Findings of one check on the same nodes together, with the names of the nodes; the worst
    and most frequent first.
    """
    hosts: dict[tuple[str, str, str, str], list[str]] = {}
    first: dict[tuple[str, str, str, str], Checked] = {}
    for node in nodes:
        for one in node.findings:
            if grade(one) in grades:
                key = (one.id, grade(one), one.subject, one.message)
                hosts.setdefault(key, []).append(node.host)
                first.setdefault(key, one)
    groups: dict[tuple[str, str, tuple[str, ...]], list[Checked]] = {}
    for key, names in hosts.items():
        groups.setdefault((*key[:2], tuple(names)), []).append(first[key])
    found = [(list(names), findings) for (_, _, names), findings in groups.items()]
    return sorted(found, key=lambda group: (GRADES.index(grade(group[1][0])), -len(group[0])))


def _on_nodes(findings: Sequence[Checked], hosts: Sequence[str], nodes: int) -> str:
    on = "all nodes" if len(hosts) == nodes else _hosts(hosts)
    first, *rest = _group(findings).splitlines(keepends=True)
    return f"{first}        on: {on}\n{''.join(rest)}"


def _oddest(differences: Sequence[Difference]) -> str:
    """`unlike the others: gpu-7 (3 facts), gpu-2 (1)`; '' if no fact has a usual value."""
    count = Counter(
        host for one in differences if one.usual for hosts in one.odd.values() for host in hosts
    )
    named = [
        f"{host} ({counted(facts, 'fact') if at == 0 else facts})"
        for at, (host, facts) in enumerate(count.most_common(_MOST_NAMED))
    ]
    more = f" and {len(count) - _MOST_NAMED} more" if len(count) > _MOST_NAMED else ""
    return f"unlike the others: {', '.join(named)}{more}\n" if named else ""


def _own_value(one: Difference, nodes: int) -> bool:
    return nodes > 2 and len(one.odd) == nodes


def _difference(one: Difference) -> str:
    usual = f"; {one.usual} on the other {one.usual_hosts}" if one.usual else ""
    odd = [f"{_against(value, one.usual)} on {_hosts(hosts)}" for value, hosts in one.odd.items()]
    more = f"; and {len(odd) - _MOST_VALUES} more values" if len(odd) > _MOST_VALUES else ""
    return f"WARN    {one.fact}: {'; '.join(odd[:_MOST_VALUES])}{more}{usual}\n"


def _against(value: str, usual: str) -> str:
    """A long list as its differences from the usual one, if both have something in common."""
    own, most = value.split(", "), usual.split(", ")
    if min(len(own), len(most)) < _LONG or not set(own) & set(most):
        return value
    lacks, besides = (
        [part for part in most if part not in own],
        [part for part in own if part not in most],
    )
    texts = [f"without {', '.join(lacks)}"] if lacks else []
    texts += [f"with {', '.join(besides)}"] if besides else []
    return " and ".join(texts) or value


def _hosts(hosts: Sequence[str]) -> str:
    return ", ".join(hosts[:_MOST_NAMED]) + (
        f" and {len(hosts) - _MOST_NAMED} more" if len(hosts) > _MOST_NAMED else ""
    )


def brief(report: CheckReport, fail_on: Verdict = Verdict.FAIL) -> tuple[int, str]:
    """One line in the format of a Nagios plugin, and its exit code: 0 OK, 1 WARNING, 2 CRITICAL, 3
    UNKNOWN.

    It names the findings that made the verdict, then says how many others are bad or were not
    judged.
    """
    count = Counter(grade(one) for one in report.findings)
    verdict = overall(report.findings, fail_on)
    code = NAGIOS[verdict]
    grades = {"fail": ("fail", fail_on.value), "pass": ()}.get(verdict.value, (verdict.value,))
    bad = [one for each in dict.fromkeys(grades) for one in report.findings if grade(one) == each]
    named = list(dict.fromkeys(f"{one.name} {one.subject}".strip() for one in bad))
    more = [f"{len(named) - _MOST_NAMED} more"] if len(named) > _MOST_NAMED else []
    texts = [*named[:_MOST_NAMED], *more] or [
        f"{count['pass']} passed" if count["pass"] else "nothing was judged"
    ]
    figures = " ".join(f"{each.replace(' ', '_')}={count[each]}" for each in GRADES)
    figures += f" muted={len(report.muted)}" if report.muted else ""
    return (
        int(code),
        (
            f"BUSBW {code.name} - {report.host}: {'; '.join([*texts, *_remaining(count, grades)])}"
            f" | {figures}\n"
        ),
    )


def brief_without(name: str, reason: str, verdict: Verdict) -> tuple[int, str]:
    """The same for a machine that could not be read."""
    code = NAGIOS[verdict]
    return (
        int(code),
        (
            f"BUSBW {code.name} - {name or 'this machine'}:"
            f" {' '.join(reason.split()).replace('|', '/')}\n"
        ),
    )


def _remaining(count: Counter[str], named: Sequence[str]) -> list[str]:
    """What is bad or was not judged, without the grades that are `named` anyway: `2 unknown`."""
    return [f"{count[each]} {each}" for each in SHOWN if count[each] and each not in named]


def page(row: CheckRow, width: int | None = None) -> str:
    """The page of one check."""
    fields = (
        ("layer", row.layer.value),
        ("right", row.right),
        ("why", row.why),
        ("fix", row.fix),
        ("stays", row.stays),
        ("reads", ", ".join(row.reads)),
        ("sources", "; ".join(row.sources)),
    )
    lines = [
        f"{row.id}  {row.name}: {row.title}",
        "",
        *(f"{name:8} {text}" for name, text in fields if text),
    ]
    return wrapped("".join(f"{line}\n" for line in lines), width)


def listing(rows: Sequence[CheckRow], width: int | None = None) -> str:
    """All checks, a line each."""
    columns = [
        Column(title="id", value=lambda row: row.id, left=True),
        Column(title="name", value=lambda row: row.name, left=True),
        Column(title="layer", value=lambda row: row.layer.value, left=True),
        Column(title="looks at", value=lambda row: row.title, left=True),
    ]
    return aligned(columns, rows, width, ("layer",))
