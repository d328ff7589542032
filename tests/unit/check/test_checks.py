"""Every check fires on a server that has its fault, and on no healthy one."""

import copy
import re
from itertools import groupby
from pathlib import Path

import pytest
from cases import CASES
from healthy import healthy
from tree import Tree

from busbw import check as room
from busbw.check import text as view
from busbw.check.machine import ENVIRONMENT, Machine
from busbw.check.registry import CHECKS, MODULES, ROWS, examine, find
from busbw.core.finding import CheckRow, Layer, Verdict
from busbw.core.kernel_rules import kernel_rules

NAMES = [check.row.name for check in CHECKS]
GOOD = {Verdict.PASS, Verdict.SKIP}
BAD = {Verdict.WARN, Verdict.FAIL}
# At the start of a line, but in the module of the kernel log, which makes a check for each rule.
DECORATOR = re.compile(
    r"^(?:   "
    r" )?@(?:check|per_gpu|under_load|soft_limit|variable|per_port|per_interface|rule"
    r"|expectation)\((?!row)",
    re.MULTILINE,
)


def server(case):
    """The server of a case, a new one each time, and its change."""
    return copy.deepcopy(case) if isinstance(case, tuple) else (healthy(), case)


def test_check_fires_where_its_fault_is():
    for name in NAMES:
        assert name in CASES, f"no case for {name}: tests/unit/check/cases_*.py"
        tree, change = server(CASES[name])
        change(tree)
        findings = find(name).run(Machine(tree.source()))
        fired = [finding for finding in findings if finding.verdict in BAD]
        assert fired, name
        for finding in fired:
            assert finding.message and finding.evidence and finding.fix and finding.stays, name
            assert "{" not in finding.fix, name


def test_check_passes_where_its_fault_is_not():
    for name in NAMES:
        tree, _ = server(CASES[name])
        verdicts = {finding.verdict for finding in find(name).run(Machine(tree.source()))}
        assert verdicts <= GOOD, name
        assert Verdict.PASS in verdicts, f"{name}: the server of the case has what is checked"


@pytest.mark.parametrize("layer", ["Ethernet", "InfiniBand"])
def test_healthy_server_has_no_finding(layer):
    machine = Machine(healthy(layer=layer).source())
    bad = [
        finding for check in CHECKS for finding in check.run(machine) if finding.verdict not in GOOD
    ]
    assert bad == []


def test_machine_without_answers_passes_no_check():
    machine = Machine(Tree().source())
    for name in NAMES:
        verdicts = {finding.verdict for finding in find(name).run(machine)}
        assert verdicts, name
        assert verdicts <= {Verdict.UNKNOWN, Verdict.SKIP}, name


def test_registry_imports_every_module_that_has_a_check():
    folder = Path(room.__file__).parent
    decorated = [
        path for path in folder.glob("*/*.py") if DECORATOR.search(path.read_text(encoding="utf-8"))
    ]
    names = {f"busbw.check.{path.parent.name}.{path.stem}" for path in decorated}
    assert len(names) > 50
    assert names == {module.__name__ for module in MODULES}
    assert len(MODULES) == len(names)


def test_every_row_of_a_check_is_registered_once():
    defined = [
        value
        for module in MODULES
        for value in vars(module).values()
        if isinstance(value, CheckRow)
    ]
    registered = [row.id for row in ROWS]
    assert len(set(registered)) == len(registered)
    assert {row.id for row in defined} | {rule.row.id for rule in kernel_rules()} == set(registered)


def test_checks_are_in_the_order_of_their_ids_but_those_that_follow_another():
    for _, group in groupby(CHECKS, lambda check: check.judge.__module__.rpartition(".")[0]):
        checks = list(group)
        ids = [check.row.id for check in checks]
        assert [check.row.id for check in checks if not check.after] == sorted(
            check.row.id for check in checks if not check.after
        )
        assert all(
            ids.index(check.row.id) == ids.index(check.after) + 1 for check in checks if check.after
        )


def test_input_that_several_checks_lack_is_requested_once():
    report = examine(healthy().failing(ENVIRONMENT, "not in the recording").source())
    (finding,) = [finding for finding in report.findings if "environment" in finding.message]
    needing = [check.row.name for check in CHECKS if check.needs]
    assert (finding.name, finding.verdict, finding.optional) == (
        "reads-answer",
        Verdict.UNKNOWN,
        True,
    )
    assert len(needing) > 25 and all(name in finding.message for name in needing)
    assert not {finding.name for finding in report.findings} & set(needing)
    assert report.verdict is Verdict.PASS


def test_rows_are_complete():
    ids = [check.row.id for check in CHECKS]
    assert len(set(ids)) == len(ids) and len(set(NAMES)) == len(NAMES)
    assert {check.row.layer for check in CHECKS} <= set(Layer)
    for check in CHECKS:
        row = check.row
        assert all((row.title, row.right, row.why, row.fix, row.stays, row.reads)), row.name
        assert row.id.startswith("BW") and len(row.id) == 5


def test_a_remedy_that_a_reboot_undoes_is_marked():
    tree, change = server(CASES["nic-mtu"])
    change(tree)
    printed = view.text(examine(tree.source(), [find("nic-mtu")]))
    assert "\n        after reboot: lost; set it in netplan" in printed
    assert "stays: " not in printed
