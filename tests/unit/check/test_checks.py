"""Every check fires on a server that has its fault, and on no healthy one."""

import copy
import importlib
from pathlib import Path

import pytest
from cases import CASES
from healthy import healthy

from busbw import check as room
from busbw.check.machine import Machine
from busbw.check.registry import CHECKS, find
from busbw.core.check_row import Layer
from busbw.core.finding import Verdict

NAMES = [check.row.name for check in CHECKS]
GOOD = {Verdict.PASS, Verdict.SKIP}
BAD = {Verdict.WARN, Verdict.FAIL}


def server(case):
    """The server of a case, a new one each time, and its change."""
    return copy.deepcopy(case) if isinstance(case, tuple) else (healthy(), case)


@pytest.mark.parametrize("name", NAMES)
def test_check_fires_where_its_fault_is(name):
    tree, change = server(CASES[name])
    change(tree)
    fired = [one for one in find(name).run(Machine(tree.source())) if one.verdict in BAD]
    assert fired
    for one in fired:
        assert one.message and one.evidence and one.fix and one.stays
        assert "{" not in one.fix


@pytest.mark.parametrize("name", NAMES)
def test_check_passes_where_its_fault_is_not(name):
    tree, _ = server(CASES[name])
    found = find(name).run(Machine(tree.source()))
    assert {one.verdict for one in found} <= GOOD
    assert any(one.verdict is Verdict.PASS for one in found), "the server of the case has what is checked"


@pytest.mark.parametrize("layer", ["Ethernet", "InfiniBand"])
def test_healthy_server_has_no_finding(layer):
    machine = Machine(healthy(layer=layer).source())
    bad = [one for check in CHECKS for one in check.run(machine) if one.verdict not in GOOD]
    assert bad == []


@pytest.mark.parametrize("name", NAMES)
def test_machine_that_tells_nothing_passes_no_check(name):
    from tree import Tree

    found = find(name).run(Machine(Tree().source()))
    assert found
    assert {one.verdict for one in found} <= {Verdict.UNKNOWN, Verdict.SKIP}


def test_registry_has_every_module_once():
    folder = Path(room.__file__).parent
    layers = [path.parent.name for path in folder.glob("*/__init__.py") if path.parent.name not in ("doctor", "command")]
    for layer in layers:
        modules = {path.stem for path in (folder / layer).glob("*.py") if not path.stem.startswith("_")}
        registered = {check.look.__module__.rpartition(".")[2] for check in importlib.import_module(f"busbw.check.{layer}").CHECKS}
        if layer == "kernel_log":  # one module judges all of its rules, which are rows in core
            assert registered == {"judge"}
            continue
        shared = {name for name in modules if not hasattr(importlib.import_module(f"busbw.check.{layer}.{name}"), "CHECK")}
        assert modules - shared == registered, layer


def test_rows_are_complete():
    ids = [check.row.id for check in CHECKS]
    assert len(set(ids)) == len(ids) and len(set(NAMES)) == len(NAMES)
    assert {check.row.layer for check in CHECKS} <= set(Layer)
    for check in CHECKS:
        row = check.row
        assert all((row.title, row.right, row.why, row.fix, row.stays, row.reads)), row.name
        assert row.id.startswith("BW") and len(row.id) == 5
