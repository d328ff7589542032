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

    Of other runs the network and the transports are judged, and what their kind of result concludes
    itself.
    """
    if isinstance(result, Result):
        return apply(rules(result), Run(result, topology, known))
    from busbw.model import network_findings, transport_findings

    conclusion = network_findings.paced(result, topology)
    of_network = [network_findings.TCP_CONGESTION.finding(conclusion)] if conclusion else []
    return [*result.conclusions(), *of_network, *transport_findings.findings(result)]


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
