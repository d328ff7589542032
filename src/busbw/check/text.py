"""Findings as text: faults first, with evidence and fix; one line for a monitor.

Also the differences between nodes, the page of a check, and the list of all checks.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial

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
from busbw.ui.columns import Column, aligned, wrapped

SHOWN_GRADES = ("fail", "unknown", "warn", NO_DATA)
NAGIOS = {
    Verdict.FAIL: NagiosExit.CRITICAL,
    Verdict.WARN: NagiosExit.WARNING,
    Verdict.UNKNOWN: NagiosExit.UNKNOWN,
    Verdict.PASS: NagiosExit.OK,
}
_MAX_EVIDENCE_LINES = 4
_MAX_NAMED_HOSTS = 8
_MAX_VALUES = 4
_LONG_LIST_PARTS = 5  # parts of a list


def text(report: CheckReport, width: int | None = None, *, everything: bool = False) -> str:
    """All findings that need attention, the worst first.

    With `everything` also those that passed or were skipped.
    """
    source = f" ({report.source})" if report.source else ""
    body = f"{findings(report.findings, everything=everything)}{muted(report.muted)}"
    head = summary(report.findings).rstrip()
    if report.muted:
        head += f"; {counted(len(report.muted), 'finding')} muted"
    return wrapped(f"{report.host}{source}: {head}\n\n{body}", width)


def findings(shown: Sequence[Checked], *, everything: bool) -> str:
    """The findings, with lines of any length."""
    grades = GRADES if everything else SHOWN_GRADES
    groups = []
    for grade_name in grades:
        groups += [([""], group) for group in _group_by_check(shown, grade_name)]
    joined = _join_alike(groups)
    return "".join(_group_text(first) + _others_line(others) for _, (first, *others) in joined)


def muted(mutes: Sequence[Muted]) -> str:
    """`MUTED   mlx5_3: has MTU 1500 (warn)  [BW070 nic-mtu]`, and until when and why.

    '' if nothing is muted.
    """
    texts = []
    for mute in mutes:
        finding = mute.finding
        verdict, check = finding.verdict.value, f"{finding.id} {finding.name}"
        texts.append(f"MUTED   {_headline(finding)} ({verdict})  [{check}]\n")
        texts.append(f"        until: {mute.until}, {mute.where}: {mute.reason}\n")
    return "".join(texts)


def _headline(finding: Checked) -> str:
    """The message, after the subject if the message does not name it."""
    if finding.subject and finding.subject not in finding.message:
        return f"{finding.subject}: {finding.message}"
    return finding.message


def summary(all_findings: Sequence[Checked]) -> str:
    """`78 checks: 2 fail, 1 warn, 5 no data (4 need root), 62 pass, 8 skip`."""
    worst: dict[str, str] = {}
    for finding in all_findings:
        before = worst.get(finding.id, GRADES[-1])
        worst[finding.id] = min(before, grade(finding), key=GRADES.index)
    count = Counter(worst.values())
    needs_root = {
        finding.id for finding in all_findings if finding.optional and finding.fix == AS_ROOT
    }
    denied = sum(worst[check] == NO_DATA for check in needs_root)
    texts = {name: f"{count[name]} {name}" for name in GRADES if count[name]}
    if denied:
        texts[NO_DATA] += f" ({denied} need root)"
    return f"{counted(len(worst), 'check')}: {', '.join(texts.values())}\n"


def _group_by_check(all_findings: Sequence[Checked], grade_name: str) -> list[list[Checked]]:
    """The findings of this grade, those of one check together."""
    groups: dict[str, list[Checked]] = {}
    for finding in all_findings:
        if grade(finding) == grade_name:
            groups.setdefault(finding.id, []).append(finding)
    return list(groups.values())


def _join_alike(
    groups: Sequence[tuple[list[str], list[Checked]]],
) -> list[tuple[list[str], list[list[Checked]]]]:
    """Nodes with the groups of their findings, alike groups together.

    Groups of several checks are alike if these could not judge the same parts for the same reason.
    """
    joined: dict[object, tuple[list[str], list[list[Checked]]]] = {}
    for hosts, group in groups:
        first = group[0]
        key: object = first.id
        if first.verdict is Verdict.UNKNOWN:
            key = tuple((finding.subject, finding.message) for finding in group)
        joined.setdefault((tuple(hosts), grade(first), key), (hosts, []))[1].append(group)
    return list(joined.values())


def _others_line(groups: Sequence[list[Checked]]) -> str:
    """The names of further checks with the same findings."""
    names = [group[0].name for group in groups]
    return f"        the same in: {', '.join(names)}\n" if names else ""


def _group_text(group: Sequence[Checked]) -> str:
    """The first finding in full, and the subjects of the others."""
    first = group[0]
    lines = [f"{grade(first).upper():7} {_headline(first)}  [{first.id} {first.name}]"]
    if len(group) > 1:
        lines.append(f"        also: {_list_names([finding.subject for finding in group[1:]])}")
    if grade(first) in SHOWN_GRADES:
        for evidence in first.evidence[:_MAX_EVIDENCE_LINES]:
            expected = f", expected {evidence.expected}" if evidence.expected else ""
            lines.append(f"        seen: {evidence.where}: {evidence.seen}{expected}")
        fixes = dict.fromkeys(finding.fix for finding in group if finding.fix)
        lines += [f"        fix: {fix}" for fix in fixes]
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
    if cluster.nodes:
        head += f"\n{counted(len(cluster.differences), 'fact')} not the same on all nodes\n"
    head += _oddest_line(cluster.differences)
    # A value that differs on every node points to no node.
    ordered = sorted(cluster.differences, key=partial(_differs_everywhere, len(cluster.nodes)))
    head += "".join(map(_difference_line, ordered))
    groups = _group_across_nodes(cluster.nodes, GRADES if everything else SHOWN_GRADES)
    shared = "".join(
        _text_with_nodes(first, hosts, len(cluster.nodes)) + _others_line(others)
        for hosts, (first, *others) in _join_alike(groups)
    )
    accepted = "".join(f"{node.host}:\n{muted(node.muted)}" for node in cluster.nodes if node.muted)
    return wrapped(f"{head}\n{shared}{accepted}", width)


def _group_across_nodes(
    nodes: Sequence[CheckReport], grades: Sequence[str]
) -> list[tuple[list[str], list[Checked]]]:
    """Nodes with the findings of one check that they have in common.

    The worst and most frequent come first.
    """
    hosts: dict[tuple[str, str, str, str], list[str]] = {}
    first: dict[tuple[str, str, str, str], Checked] = {}
    for node in nodes:
        for finding in node.findings:
            if grade(finding) in grades:
                key = (finding.id, grade(finding), finding.subject, finding.message)
                hosts.setdefault(key, []).append(node.host)
                first.setdefault(key, finding)
    groups: dict[tuple[str, str, tuple[str, ...]], list[Checked]] = {}
    for key, names in hosts.items():
        groups.setdefault((*key[:2], tuple(names)), []).append(first[key])
    by_hosts = [(list(names), findings) for (_, _, names), findings in groups.items()]
    return sorted(by_hosts, key=_severity_and_frequency)


def _severity_and_frequency(group: tuple[list[str], list[Checked]]) -> tuple[int, int]:
    hosts, findings = group
    return GRADES.index(grade(findings[0])), -len(hosts)


def _text_with_nodes(findings: Sequence[Checked], hosts: Sequence[str], nodes: int) -> str:
    on = "all nodes" if len(hosts) == nodes else _list_names(hosts)
    headline, *details = _group_text(findings).splitlines(keepends=True)
    return f"{headline}        on: {on}\n{''.join(details)}"


def _oddest_line(differences: Sequence[Difference]) -> str:
    """`unlike the others: gpu-7 (3 facts), gpu-2 (1)`; '' if no fact has a usual value."""
    count: Counter[str] = Counter()
    for difference in differences:
        if difference.usual:
            for hosts in difference.odd.values():
                count.update(hosts)
    named = [
        f"{host} ({counted(facts, 'fact') if at == 0 else facts})"
        for at, (host, facts) in enumerate(count.most_common(_MAX_NAMED_HOSTS))
    ]
    more = f" and {len(count) - _MAX_NAMED_HOSTS} more" if len(count) > _MAX_NAMED_HOSTS else ""
    return f"unlike the others: {', '.join(named)}{more}\n" if named else ""


def _differs_everywhere(nodes: int, difference: Difference) -> bool:
    return nodes > 2 and len(difference.odd) == nodes


def _difference_line(difference: Difference) -> str:
    usual = ""
    if difference.usual:
        usual = f"; {difference.usual} on the other {difference.usual_hosts}"
    odd = [
        f"{_difference_from_usual(value, difference.usual)} on {_list_names(hosts)}"
        for value, hosts in difference.odd.items()
    ]
    more = f"; and {len(odd) - _MAX_VALUES} more values" if len(odd) > _MAX_VALUES else ""
    return f"WARN    {difference.fact}: {'; '.join(odd[:_MAX_VALUES])}{more}{usual}\n"


def _difference_from_usual(value: str, usual: str) -> str:
    """A long list as its differences from the usual one, if both have something in common."""
    values, usual_values = value.split(", "), usual.split(", ")
    if min(len(values), len(usual_values)) < _LONG_LIST_PARTS or not set(values) & set(
        usual_values
    ):
        return value
    missing = [part for part in usual_values if part not in values]
    added = [part for part in values if part not in usual_values]
    texts = [f"without {', '.join(missing)}"] if missing else []
    texts += [f"with {', '.join(added)}"] if added else []
    return " and ".join(texts) or value


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED_HOSTS} more" if len(names) > _MAX_NAMED_HOSTS else ""
    return f"{', '.join(names[:_MAX_NAMED_HOSTS])}{more}"


def brief(report: CheckReport, fail_on: Verdict = Verdict.FAIL) -> tuple[int, str]:
    """One line in the format of a Nagios plugin, and its exit code.

    0 is OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN. The line names the findings that made the verdict,
    then says how many others are bad or were not judged.
    """
    count = Counter(grade(finding) for finding in report.findings)
    verdict = overall(report.findings, fail_on)
    code = NAGIOS[verdict]
    grades = {"fail": ("fail", fail_on.value), "pass": ()}.get(verdict.value, (verdict.value,))
    names: dict[str, None] = {}
    for grade_name in grades:
        bad = [finding for finding in report.findings if grade(finding) == grade_name]
        names |= dict.fromkeys(f"{finding.name} {finding.subject}".strip() for finding in bad)
    texts = list(names)[:_MAX_NAMED_HOSTS]
    if len(names) > _MAX_NAMED_HOSTS:
        texts.append(f"{len(names) - _MAX_NAMED_HOSTS} more")
    if not texts:
        texts.append(f"{count['pass']} passed" if count["pass"] else "nothing was judged")
    remaining = [name for name in SHOWN_GRADES if count[name] and name not in grades]
    texts += [f"{count[name]} {name}" for name in remaining]
    figures = " ".join(f"{name.replace(' ', '_')}={count[name]}" for name in GRADES)
    figures += f" muted={len(report.muted)}" if report.muted else ""
    return int(code), f"BUSBW {code.name} - {report.host}: {'; '.join(texts)} | {figures}\n"


def brief_without(name: str, reason: str, verdict: Verdict) -> tuple[int, str]:
    """The line and the exit code of `brief` for a machine that could not be read."""
    code = NAGIOS[verdict]
    one_line = " ".join(reason.split()).replace("|", "/")
    return int(code), f"BUSBW {code.name} - {name or 'this machine'}: {one_line}\n"


def page(row: CheckRow, width: int | None = None) -> str:
    """The page of one check: its row, a field on each line."""
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
    """All checks, one on each line."""
    columns = [
        Column(title="id", value=lambda row: row.id, left=True),
        Column(title="name", value=lambda row: row.name, left=True),
        Column(title="layer", value=lambda row: row.layer.value, left=True),
        Column(title="looks at", value=lambda row: row.title, left=True),
    ]
    return aligned(columns, rows, width, ("layer",))
