"""Checks on several nodes: asked through the launch agent, or read from their snapshots, and compared."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from busbw.check.base import Check
from busbw.check.compare import differences
from busbw.check.examine import examine
from busbw.check.facts import facts
from busbw.check.machine import Machine
from busbw.core.checking import ClusterReport, Node
from busbw.core.errors import NoMeasurement
from busbw.host.recording import recorded
from busbw.host.source import Source
from busbw.launch import remote


def here(source: Source, checks: Iterable[Check], name: str = "") -> Node:
    """What one machine says about itself."""
    return Node(report=examine(source, checks, name), facts=facts(Machine(source)))


def facts_of(file: str) -> dict[str, str]:
    """The facts in a snapshot."""
    return facts(Machine(recorded(Path(file))))


def recorded_nodes(files: Sequence[str], checks: Sequence[Check]) -> ClusterReport:
    """Nodes from their snapshots, one after the other, so that only one is in memory."""
    return joined({file: here(recorded(Path(file)), checks, file) for file in files}, {})


def ask(hosts: Sequence[str], only: Sequence[str], layers: Sequence[str], limit_s: float) -> ClusterReport:
    """All hosts at once; NoMeasurement if none answers."""
    words = [
        "check",
        "--node",
        *(word for name in only for word in ("--only", name)),
        *(word for one in layers for word in ("--layer", one)),
    ]
    nodes, silent = {}, {}
    for done in remote.run(hosts, remote.busbw(*words), limit_s):
        try:
            nodes[done.host] = msgspec.json.decode(done.out, type=Node)
        except msgspec.DecodeError:
            silent[done.host] = done.problem or f"an answer that is none: '{done.out[:60].decode(errors='replace')}'"
    if not nodes:
        first, reason = next(iter(silent.items()))
        raise NoMeasurement(f"none of {len(hosts)} hosts answered; {first}: {reason}", f"ssh {first} true must work without a password")
    return joined(nodes, silent)


def joined(nodes: dict[str, Node], silent: dict[str, str]) -> ClusterReport:
    """The comparison of nodes, and their reports. Differences name a node by its host name; by its key where two have the same."""
    hosts = Counter(node.report.host for node in nodes.values())
    named = {node.report.host if hosts[node.report.host] == 1 else key: node.facts for key, node in nodes.items()}
    return ClusterReport(
        differences=differences(named),
        nodes=[node.report for node in nodes.values()],
        silent=silent,
    )
