"""What the history prints: its runs, one size over time, and a run compared with the last ones."""

import math
from collections.abc import Callable

import msgspec
from history_runs import result

from busbw.core.cells import CellKey
from busbw.core.history import (
    CheckedCell,
    HistoryBasis,
    HistoryCheck,
    Standing,
    StoredRun,
    StoredTime,
)
from busbw.core.result import EngineLibrary
from busbw.core.topology import Host, Topology
from busbw.history import text

RUN = StoredRun(
    id=7,
    start="2026-11-02 10:00:00",
    machine="h1: 8 x H200, nccl",
    nccl=22809,
    complete=True,
    wrong=False,
    collective="alltoallv",
    timing="events",
    min_bytes=8,
    max_bytes=1 << 20,
    peak_busbw=3e11,
    counts="skewed",
)
SMALL, LARGE = (CellKey("float", "sum", -1, size, "in_place") for size in (8, 1 << 20))


def changed(**fields: object) -> StoredRun:
    return msgspec.structs.replace(RUN, **fields)


def cell(key: CellKey = SMALL, **fields: object) -> CheckedCell:
    given = {"time_s": 2e-3, "median_s": 1e-3, "low_s": 9e-4, "high_s": 1.1e-3, "p": 0.01}
    return CheckedCell(key=key, **{"slower": False, **given, **fields})


def check(
    basis: HistoryBasis, standing: Standing, *cells: CheckedCell, **fields: object
) -> HistoryCheck:
    given = {"runs": [1, 2, 3, 4], "unusual": [], "needed": 9, "confidence": 0.99}
    machine, amounts = RUN.machine, {"tolerance": 0.05, "alarm": 0.012344}
    kinds = {"machine": machine, "basis": basis, "standing": standing, "cells": list(cells)}
    return HistoryCheck(**{**given, **amounts, **kinds, **fields})


def listed() -> str:
    runs = [
        RUN,
        changed(id=8, complete=False, counts="", min_bytes=1 << 20, uncertain_busbw=4e11),
        changed(id=9, wrong=True, complete=False, nccl=0, peak_busbw=0.0),
        changed(id=10, what="training", collective="", min_bytes=0, max_bytes=0),
    ]
    return text.listed(runs) + text.listed(runs, 60)


def plotted() -> str:
    keys = [SMALL, LARGE, msgspec.structs.replace(SMALL, root=0)]
    others = [{"machine": "h2"}, {"collective": "alltoall"}, {"counts": ""}, {"timing": "host"}]
    times = [
        StoredTime(changed(id=13), SMALL, 1e-3, 3e11),
        StoredTime(changed(id=12), SMALL, 1e-3, math.inf),
        StoredTime(changed(id=11), SMALL, 1e-3, 1.03e11),
        *(StoredTime(changed(**other), SMALL, 1e-3, 1e11) for other in others),
        *(StoredTime(RUN, key, 1e-3, 0.0) for key in keys[1:]),
    ]
    narrow = [text.plot(times[:3], width) for width in (63, 20)]
    return "\n".join([text.plot(times), *narrow])


def checked() -> str:
    fine, order, spread = Standing.FINE, HistoryBasis.ORDER, HistoryBasis.SPREAD
    slow, slower = cell(slower=True), cell(LARGE, slower=True, time_s=3e-3, far=True)
    near, twice = cell(most=1.04), cell(LARGE, most=2.0)
    checks = [
        check(order, Standing.SLOWER, slow, slower, cell(far=True)),
        check(order, Standing.UNKNOWN, cell(far=True), cell(LARGE)),
        check(order, Standing.UNKNOWN, cell(far=True), cell(LARGE), unusual=[3]),
        check(order, Standing.UNKNOWN, cell(far=True), cell(LARGE), unusual=[3, 4]),
        check(order, fine, cell()),
        check(spread, fine, near, near),
        check(spread, Standing.UNKNOWN, near, twice, cell(most=1.2)),
        check(spread, Standing.UNKNOWN, near, cell(LARGE, most=20.0), cell()),
        check(spread, Standing.UNKNOWN, cell(LARGE, most=500.0)),
        check(spread, Standing.UNKNOWN, cell()),
        check(HistoryBasis.NONE, Standing.UNKNOWN, cell(), runs=[1]),
        check(HistoryBasis.NONE, Standing.UNKNOWN, cell(), runs=[1, 2]),
    ]
    narrow = text.checked(checks[0], 60)
    return "\n".join([*map(text.checked, checks), narrow])


def test_texts_of_the_history(golden: Callable[[str, str], None]) -> None:
    golden("history.txt", "\n".join([listed(), plotted(), checked()]))


def test_what_changed_between_two_runs() -> None:
    def run(nccl: int, network: str, environment: dict[str, str], **versions: str):
        library = EngineLibrary("nccl", nccl=nccl, network=network, versions=versions)
        hosts = [Host(name, kernel=network, driver=f"{nccl}") for name in ("h2", "h1")]
        topology = Topology([*hosts, Host("h3")])
        return result(library=library, topology=topology, environment=environment, tool="busbw")

    before = run(22703, "IB", {"NCCL_ALGO": "Ring", "HOME": "/a"}, torch="2.8", cuda="13.0")
    after = run(22809, "Socket", {"NCCL_PROTO": "LL", "HOME": "/b"}, torch="2.9")
    assert text.changes(before, after) == [
        "NCCL 2.27.3 -> 2.28.9",
        "torch 2.8 -> 2.9",
        "network IB -> Socket",
        "driver 22703 -> 22809",
        "kernel IB -> Socket",
        "NCCL_ALGO Ring -> unset",
        "NCCL_PROTO unset -> LL",
    ]
    logs = [msgspec.structs.replace(run_, tool="nccl-tests") for run_ in (before, after)]
    assert text.changes(*logs) == text.changes(before, after)[:5]
    assert text.changes(before, logs[1]) == text.changes(before, after)[:5]
    unknown = msgspec.structs.replace(before, library=EngineLibrary("mpi"))
    assert text.changes(before, unknown) == []
