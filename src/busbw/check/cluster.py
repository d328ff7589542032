"""Checks on several nodes, over the launch agent or from snapshots, and their comparison."""

import os
import signal
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from busbw.check import types
from busbw.check.accepted_facts import left_out, note_accepted
from busbw.check.base import Check
from busbw.check.earlier import ByHost, oldest
from busbw.check.expect.file import Expect, judge, mutes_host
from busbw.check.facts import facts
from busbw.check.machine import Machine
from busbw.check.rates import BOOT_ID_FILE
from busbw.check.registry import CHECKS
from busbw.check.types import MISSING, ClusterReport, Difference, NodeFindings
from busbw.core.errors import NoMeasurement, UsageError
from busbw.host.snapshot import HEAD, MADE_BY, recorded
from busbw.host.source import Source
from busbw.launch import remote

ANSWER_S = 10.0  # of a host's time, to connect, and to judge what it read
FILES_EACH = 8  # snapshots per process; starting a process takes as long as a few of them


def findings_here(
    source: Source,
    checks: Iterable[Check],
    name: str = "",
    *,
    earlier: Machine | str | None = None,
    expect: Expect | None = None,
) -> NodeFindings:
    """The findings on one machine, and its facts; `earlier` as `Machine` takes it."""
    machine = Machine(source, earlier)
    report = judge(machine, checks, name, expect)
    compared = not (expect and mutes_host(expect, report.host))
    boot = machine.text(BOOT_ID_FILE) or ""
    node = NodeFindings(report=report, facts=facts(machine), compared=compared, boot=boot)
    if expect:
        note_accepted(node, machine)
    return node


def recorded_nodes(
    files: Sequence[str],
    checks: Sequence[Check],
    expect: Expect | None = None,
    since: ByHost | None = None,
    *,
    newest: bool = False,
) -> ClusterReport:
    """The comparison of nodes from their snapshots; UsageError if none can be read.

    `since` has earlier snapshots, each node's own of which shows how its counters rose. `newest` is
    whether of several snapshots of a host only the newest counts.
    """
    nodes, unreadable = recorded_findings(files, checks, expect, since)
    reports = {name: node.report for name, node in nodes.items()} if newest else {}
    left = types.left_out(reports)
    for name in (*left.older, *left.copies):
        del nodes[name]
    report = joined(nodes, {})
    report.unreadable, (report.older, report.copies) = unreadable, left
    return report


def recorded_findings(
    files: Sequence[str],
    checks: Sequence[Check],
    expect: Expect | None = None,
    since: ByHost | None = None,
) -> tuple[dict[str, NodeFindings], dict[str, str]]:
    """The nodes by snapshot, and why the other snapshots could not be read; UsageError if none
    could. All cores read: one snapshot takes about 30 ms.
    """
    ids = frozenset(check.row.id for check in checks)
    judge_file = partial(_recorded_node, ids, expect, since)
    processes = min(len(files) // FILES_EACH, len(os.sched_getaffinity(0)))
    if processes < 2:
        return _readable({file: judge_file(file) for file in files})
    context = get_context("fork")  # a new interpreter would have to import all checks again
    with ProcessPoolExecutor(
        processes, context, initializer=_leave_interrupts_to_the_parent
    ) as pool:
        nodes = pool.map(judge_file, files, chunksize=FILES_EACH)
        return _readable(dict(zip(files, nodes, strict=True)))


def _readable(
    results: dict[str, NodeFindings | str],
) -> tuple[dict[str, NodeFindings], dict[str, str]]:
    nodes = {file: node for file, node in results.items() if isinstance(node, NodeFindings)}
    unreadable = {file: reason for file, reason in results.items() if isinstance(reason, str)}
    if not nodes:
        first, reason = next(iter(unreadable.items()))
        raise UsageError(
            f"none of {len(results)} snapshots can be read; {first}: {reason}", MADE_BY
        )
    return nodes, unreadable


def _recorded_node(
    ids: frozenset[str], expect: Expect | None, since: ByHost | None, file: str
) -> NodeFindings | str:
    """The node of a snapshot, or why the file is no snapshot."""
    try:
        source = recorded(Path(file))
    except UsageError as error:
        return error.message.removeprefix(f"{file}: ")
    earlier = None if since is None else oldest(since, source)
    checks = [check for check in CHECKS if check.row.id in ids]
    return findings_here(source, checks, file, earlier=earlier, expect=expect)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def ask(
    hosts: Sequence[str],
    options: Sequence[str],
    limit_s: float,
    watch_s: float = 0.0,
    stdin: bytes = b"",
) -> ClusterReport:
    """All hosts at once, each with these options of `busbw check` and with `stdin`.

    With `watch_s` seconds between them, each host makes two readings within `limit_s`.
    NoMeasurement if none answers.
    """
    reading_s = max(limit_s - ANSWER_S, limit_s / 2) / (2 if watch_s else 1)
    words = ["check", "--node", "--limit", f"{reading_s:g}", *options]
    nodes, silent = {}, {}
    for answer in remote.run(hosts, remote.busbw(*words), limit_s + watch_s, stdin):
        try:
            nodes[answer.host] = answer.answer(NodeFindings)
        except ValueError:
            silent[answer.host] = answer.problem or _unexpected(answer.out)
    _refuse_silence(hosts, nodes, silent)
    return joined(nodes, silent)


def fetch(hosts: Sequence[str], limit_s: float) -> tuple[dict[str, bytes], dict[str, str]]:
    """The snapshots of all hosts, asked at once, and why the others gave none.

    NoMeasurement if none answers.
    """
    reading_s = max(limit_s - ANSWER_S, limit_s / 2)
    words = remote.busbw("check", "--save", "-", "--limit", f"{reading_s:g}")
    archives, silent = {}, {}
    for answer in remote.run(hosts, words, limit_s):
        begin = answer.out.find(HEAD)  # a login shell may greet before it
        if begin < 0 or answer.problem:
            silent[answer.host] = answer.problem or _unexpected(answer.out)
        else:
            archives[answer.host] = answer.out[begin:]
    _refuse_silence(hosts, archives, silent)
    return archives, silent


def _unexpected(out: bytes) -> str:
    return f"unexpected answer: '{out[:60].decode(errors='replace')}'"


def _refuse_silence(
    hosts: Sequence[str], answers: Mapping[str, object], silent: Mapping[str, str]
) -> None:
    """NoMeasurement if no host has answered."""
    if answers:
        return
    first, reason = next(iter(silent.items()))
    raise NoMeasurement(
        f"none of {len(hosts)} hosts answered; {first}: {reason}",
        f"ssh {first} true must work without a password",
    )


def joined(nodes: dict[str, NodeFindings], silent: dict[str, str]) -> ClusterReport:
    """The comparison of nodes, and their reports.

    Differences name a node by its host name, or by its key if two hosts share a name.
    """
    hosts = Counter(node.report.host for node in nodes.values())
    compared = {}
    for key, node in nodes.items():
        host = node.report.host
        if node.compared:
            compared[host if hosts[host] == 1 else key] = node
    return ClusterReport(
        differences=differences(
            {name: node.facts for name, node in compared.items()}, left_out(compared)
        ),
        nodes=[node.report for node in nodes.values()],
        silent=silent,
        no_earlier={
            report.host: report.no_earlier
            for report in (node.report for node in nodes.values())
            if report.no_earlier
        },
    )


def differences(
    nodes: Mapping[str, Mapping[str, str]], without: Collection[tuple[str, str]] = ()
) -> list[Difference]:
    """Facts whose value differs between `nodes`, those with the fewest differing nodes first.

    A fact missing on some nodes differs too. `without` are nodes and facts that are not compared.
    """
    names = dict.fromkeys(name for node_facts in nodes.values() for name in node_facts)
    compared = [_difference(name, nodes, without) for name in names]
    differing = [difference for difference in compared if difference is not None]
    return sorted(differing, key=lambda difference: sum(map(len, difference.odd.values())))


def _difference(
    name: str, nodes: Mapping[str, Mapping[str, str]], without: Collection[tuple[str, str]]
) -> Difference | None:
    """How a fact differs between `nodes`; None if it is the same on all."""
    by_value: dict[str, list[str]] = {}
    for host, node_facts in nodes.items():
        if (host, name) in without:
            continue
        by_value.setdefault(node_facts.get(name, MISSING), []).append(host)
    if len(by_value) < 2:
        return None
    usual, hosts = max(by_value.items(), key=lambda item: len(item[1]))
    majority = 2 * len(hosts) > len(nodes)
    odd = dict(by_value)
    if majority:
        del odd[usual]
    return Difference(
        fact=name,
        usual=usual if majority else "",
        usual_hosts=len(hosts) if majority else 0,
        odd=odd,
    )
