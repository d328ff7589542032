"""The exact findings of each check: with its fault, without it, and where its input cannot be read."""

import copy
import re
from collections.abc import Callable, Iterable
from datetime import date
from functools import cache

import pytest
from cases import CASES, MORE, Variant
from equipped import LOSSES, equipped
from healthy import healthy
from tree import Change, Tree

from busbw.check.base import Check
from busbw.check.expect import file
from busbw.check.expect.file import Expect, judge
from busbw.check.expect.learn import learn
from busbw.check.expect.text import text
from busbw.check.machine import Machine
from busbw.check.registry import CHECKS, EXPECTATIONS, find
from busbw.check.types import ReportedFinding
from busbw.core.finding import Layer, Verdict
from busbw.host.source import Reading, Source

LAYERS = [layer for layer in Layer if any(check.row.layer is layer for check in CHECKS)]
FAILURE = "input/output error"
# What says which parts there are: without it there are none.
IDENTITY = {
    "link_layer",
    "#",
    "numa_node",
    "slaves",
    "mode",
    "class",
    "vendor",
    "board_id",
    "home",
    "nccl.conf",
    ".nccl.conf",
}
ALL_FILES = "device-files"  # reads hundreds of kinds
NUMBERS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d|\d+")
BAD = {Verdict.WARN, Verdict.FAIL}


class Failing:
    """A source in which files and calls of one kind, a name without its numbers, cannot be read;
    `kinds` were asked for.
    """

    def __init__(self, source: Source, kind: str = "") -> None:
        self._source, self._kind = source, kind
        self.kinds: set[str] = set()
        self.names, self.link = source.names, source.link

    def _fails(self, name: str) -> bool:
        kind = NUMBERS.sub("#", name)
        self.kinds.add(kind)
        return kind == self._kind

    def read(self, path: str) -> Reading:
        return (
            Reading(None, f"{path}: {FAILURE}")
            if self._fails(path.rpartition("/")[2])
            else self._source.read(path)
        )

    def call(self, name: str, live: Callable[[], str]) -> Reading:
        return Reading(None, FAILURE) if self._fails(name) else self._source.call(name, live)


def grouped(findings: Iterable[ReportedFinding]) -> list[list[ReportedFinding]]:
    """Those that differ only in numbers together."""
    groups: dict[tuple[object, ...], list[ReportedFinding]] = {}
    for finding in findings:
        groups.setdefault(
            (finding.verdict, finding.optional, NUMBERS.sub("#", finding.message)), []
        ).append(finding)
    return list(groups.values())


def optional(finding: ReportedFinding) -> str:
    return " (optional)" * finding.optional


def short(title: str, findings: list[ReportedFinding]) -> list[str]:
    """The number of parts with each verdict, and the message of the first."""
    kinds = [(len(group), group[0]) for group in grouped(findings)]
    return [
        f"  {title}: {count} {finding.verdict.value}{optional(finding)}: {finding.message}"
        for count, finding in kinds
    ]


def proof(finding: ReportedFinding) -> list[str]:
    """Its evidence and fix."""
    lines = [
        f"    {evidence.where}: {evidence.seen!r}"
        + (f", not {evidence.expected!r}" if evidence.expected else "")
        for evidence in finding.evidence
    ]
    return [*lines, *(f"    $ {line}" for line in finding.fix.splitlines())]


def lines_with_evidence(findings: list[ReportedFinding]) -> list[str]:
    """All subjects, with message, evidence and fix of the first."""
    first = findings[0]
    title = (
        f"  {first.verdict.value}"
        f" {', '.join(finding.subject or 'machine' for finding in findings)}{optional(first)}:"
        f" {first.message}"
    )
    return [title, *proof(first)]


def right(findings: list[ReportedFinding]) -> list[str]:
    """The number of parts with each verdict, with the message, evidence and fix of the first."""
    return [
        line for group in grouped(findings) for line in (*short("healthy", group), *proof(group[0]))
    ]


@cache
def elsewhere() -> dict[str, Machine]:
    """Machines of other kinds than the healthy server."""
    trees = {
        "virtual machine": healthy().files("/sys/class/dmi/id", sys_vendor="QEMU"),
        "container": healthy().file("/.dockerenv", ""),
        "not as root": healthy().call("euid", "1000"),
        "InfiniBand": healthy(layer="InfiniBand"),
        "no GPU": healthy(gpus=0),
        "no port": healthy(ports=0),
        "neither": healthy(gpus=0, ports=0),
        "nothing can be read": Tree(),
    }
    machines = {title: Machine(tree.source()) for title, tree in trees.items()}
    return machines | {"a minute later": later(healthy(), healthy())}


def later(before: Tree, tree_now: Tree) -> Machine:
    """A machine after its earlier reading."""
    tree_now.file("/proc/uptime", "100060.0 1.0")
    return Machine(tree_now.source(), Machine(before.source()))


def cases_of(name: str) -> list[str]:
    """All of a check."""
    check, case = find(name), CASES[name]
    tree, change = copy.deepcopy(case) if isinstance(case, tuple) else (healthy(), case)
    unchanged = tree.source()  # making it takes longer than a check
    source = Failing(unchanged)
    usual = check.run(Machine(source))
    lines = [f"{check.row.id} {name}", *right(usual)]
    for kind in sorted(source.kinds - IDENTITY) if name != ALL_FILES else ():
        findings_without = check.run(Machine(Failing(unchanged, kind)))
        lines += short(
            f"no {kind}", [finding for finding in findings_without if finding not in usual]
        )
    titles_by_lines: dict[tuple[str, ...], list[str]] = {}
    for title, machine in elsewhere().items():
        titles_by_lines.setdefault(
            tuple(short("", [finding for finding in check.run(machine) if finding not in usual])),
            [],
        ).append(title)
    lines += [
        f"  {', '.join(titles)}{line.strip()}"
        for texts, titles in titles_by_lines.items()
        for line in texts
    ]
    for title, variant in MORE.get(name, {}).items():
        lines += [f"  {title}:", *(f"  {line}" for line in differing(check, variant, tree, usual))]
    change(tree)
    findings = [finding for finding in check.run(Machine(tree.source())) if finding.verdict in BAD]
    return [
        *lines,
        *(line for group in grouped(findings) for line in lines_with_evidence(group)),
        "",
    ]


def differing(
    check: Check, variant: Variant, tree: Tree, usual: list[ReportedFinding]
) -> list[str]:
    """The findings that appear only after a change, in the minute between two changes, or on
    another tree, the worst first.
    """
    if isinstance(variant, Tree):
        machine, usual = Machine(variant.source()), []
    elif isinstance(variant, tuple):
        machine = later(*(changed_tree(tree, change) for change in variant))
    else:
        machine = Machine(changed_tree(tree, variant).source())
    findings = check.run(machine)
    no_longer = short("no longer", [finding for finding in usual if finding not in findings])
    return [
        *(
            line
            for group in grouped(finding for finding in findings if finding not in usual)
            for line in lines_with_evidence(group)
        ),
        *no_longer,
    ]


def changed_tree(tree: Tree, change: Change) -> Tree:
    """A changed copy."""
    tree = tree.copy()
    change(tree)
    return tree


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name.lower())
def test_findings_of_each_check(layer: Layer, golden: Callable[[str, str], None]) -> None:
    names = [check.row.name for check in CHECKS if check.row.layer is layer]
    golden(
        f"checks/{layer.name.lower()}.txt",
        "\n".join(line for name in names for line in cases_of(name)),
    )


def test_findings_of_parts_that_a_node_no_longer_has(golden: Callable[[str, str], None]) -> None:
    toml = text(learn(Machine(equipped().source())), "Learned from a test.")
    golden("checks/node.toml", toml)
    expect = Expect(
        file.Text("node.toml", toml, date(2026, 11, 26)),
        frozenset(check.row.id for check in EXPECTATIONS),
    )
    lines = [
        "all there",
        *short("found", judge(equipped().source(), [], expect=expect).findings),
        "",
    ]
    for name, loss in LOSSES.items():
        tree = equipped()
        loss.change(tree)
        findings = [
            finding
            for finding in judge(tree.source(), [], expect=expect).findings
            if finding.verdict in {*BAD, Verdict.UNKNOWN}
        ]
        lines += [
            name,
            *(line for group in grouped(findings) for line in lines_with_evidence(group)),
            "",
        ]
    golden("checks/expected.txt", "\n".join(lines))
