"""The findings of a run: the rules of all modules, in order of importance."""

from collections.abc import Callable
from importlib import import_module

from busbw.core.finding import RunFinding
from busbw.core.result import Outcome, Result
from busbw.core.topology import Topology
from busbw.model.rule import FindingRule, Known, Run, apply

SIMULATED = "sim"  # an engine without hosts and networks


def findings(result: Outcome, topology: Topology, known: Known | None = None) -> list[RunFinding]:
    """What follows from a run, most important first. `known` gives the reference curves to compare
    with; None for those that come with busbw.

    Of other runs the network and the transports are judged, and what their rows say.
    """
    if isinstance(result, Result):
        return apply(rules(result), Run(result, topology, known))
    from busbw.model import network_findings, transport_findings

    conclusion = network_findings.paced(result, topology)
    of_network = [network_findings.TCP_CONGESTION.finding(conclusion)] if conclusion else []
    return [*of_rows(result), *of_network, *transport_findings.findings(result)]


# Modules whose `findings` says what the rows of other results say, by their schema.
_OF_ROWS = {
    "busbw.backends/1": "busbw.backends.findings",
    "busbw.moe/1": "busbw.moe.findings",
    "busbw.overlap/1": "busbw.overlap.findings",
}


def of_rows(result: Outcome) -> list[RunFinding]:
    """What the rows of a result other than a sweep say; nothing of a kind that is not judged."""
    module = _OF_ROWS.get(str(result.__struct_config__.tag))
    found: list[RunFinding] = import_module(module).findings(result) if module else []
    return found


def all_findings(result: Outcome) -> list[RunFinding]:
    """Those of the file, and what rows say that an older busbw did not write."""
    written = {found.id for found in result.findings}
    return [*result.findings, *(found for found in of_rows(result) if found.id not in written)]


def _has_hosts(result: Result) -> bool:
    return result.library.engine != SIMULATED


def _has_traffic(result: Result) -> bool:
    return result.traffic is not None


# Modules with rules, in the order of importance, and which results they judge; None for all.
_MODULES: tuple[tuple[str, Callable[[Result], bool] | None], ...] = (
    ("data_findings", None),
    ("binding_findings", _has_hosts),
    ("timing_findings", None),
    ("traffic_findings", _has_traffic),
    ("machine_findings", _has_hosts),
    ("network_findings", _has_hosts),
    ("transport_findings", _has_hosts),
    ("bandwidth_findings", None),
)


def rules(result: Result | None = None) -> list[FindingRule]:
    """The rules for a result, or all, in the order of importance; imports modules that have
    them.
    """
    chosen: list[FindingRule] = []
    for name, judges in _MODULES:
        if result is None or judges is None or judges(result):
            chosen += import_module(f"busbw.model.{name}").RULES
    return chosen
