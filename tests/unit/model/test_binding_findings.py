"""Ranks that are bound to fewer processors than they are get a finding, which a comparison
repeats.
"""

import pytest

from busbw.core.finding import Verdict
from busbw.core.result import Cell, RankDevice, Result, ResultRow, World
from busbw.core.sweep import SweepSpec
from busbw.core.topology import Host, Topology
from busbw.model.binding_findings import RULES
from busbw.model.rule import Run, apply
from busbw.stats.compare import compare


def measured(bindings: list[str], *, host_cpus: int = 16, processes: int = 0) -> Result:
    """A run on one host, each rank bound as given; all ranks in `processes` processes (0: one
    for each).
    """
    pids = [rank % processes if processes else rank for rank in range(len(bindings))]
    devices = [
        RankDevice(rank, pids[rank], "h1", rank, "", "CPU", cpus=cpus)
        for rank, cpus in enumerate(bindings)
    ]
    cell = Cell(1e-5, 1e9, 1e9)
    return Result(
        SweepSpec(collective="all_reduce"),
        rows=[ResultRow(8, 2, "float", "sum", -1, cell, None, 20)],
        world=World(devices, len(set(pids))),
        topology=Topology([Host("h1", cpus=host_cpus)]),
        complete=True,
    )


def findings(result: Result) -> list[str]:
    conclusions = apply(RULES, Run(result, result.topology))
    assert all(finding.verdict is Verdict.WARN and finding.fix for finding in conclusions)
    return [finding.message for finding in conclusions]


@pytest.mark.parametrize(
    ("bindings", "message"),
    [
        (["0", "0"], "ranks 0, 1 on h1 are bound to processor 0 alone, so they take turns"),
        (["0-7", "3", "3"], "ranks 1, 2 on h1 are bound to processor 3 alone, so they take turns"),
        (["0-1"] * 4, "ranks 0, 1, 2, 3 on h1 are bound to 2 processors (0-1), so they take turns"),
        (
            ["5"] * 9,
            "ranks 0, 1, 2, 3 and 5 more on h1 are bound to processor 5 alone, so they take turns",
        ),
    ],
    ids=str,
)
def test_ranks_that_share_processors_are_named(bindings: list[str], message: str) -> None:
    assert findings(measured(bindings)) == [message]


@pytest.mark.parametrize(
    "words",
    [
        {"bindings": ["0", "1"]},
        {"bindings": ["0-15"] * 2},
        {"bindings": ["", ""]},  # an older result
        {"bindings": ["0-1"] * 4, "host_cpus": 2},  # nobody bound them: the host has no more
        {"bindings": ["0"] * 2, "host_cpus": 0},  # the host is not known
        {"bindings": ["0"] * 4, "processes": 1},  # one process has all ranks
        {"bindings": ["all", "all"]},
    ],
    ids=str,
)
def test_others_are_not(words: dict) -> None:
    assert findings(measured(**words)) == []


def test_a_comparison_names_the_side_whose_ranks_share_a_processor() -> None:
    unshared, shared = measured(["0", "1"]), measured(["0", "0"])
    shared.findings = apply(RULES, Run(shared, shared.topology))
    assert (
        compare([("a.json", unshared)], [("b.json", shared)]).notes[0]
        == f"B: b.json: {shared.findings[0].message}"
    )
