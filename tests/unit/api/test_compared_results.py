"""Results that are no sweeps, compared time by time."""

import random

import moe_results
import msgspec
import pytest

import busbw
from busbw.backends.types import EAGER, GRAPH, BackendsResult, BackendsRow, BackendTime
from busbw.core.comparison import Comparison, ComparisonVerdict
from busbw.core.errors import UsageError
from busbw.core.result import Cell, Outcome
from busbw.core.sweep import SweepSpec
from busbw.history import comparison_text
from busbw.moe.types import MoeResult
from busbw.overlap.types import OverlapResult, OverlapRow, OverlapSide
from busbw.pattern.replay.kind import Replay, ReplayResult, ReplaySpec

SPEC = SweepSpec(collective="all_reduce", datatype="bfloat16")
VISITS = 12
SAME, SLOWER = ComparisonVerdict.SAME, ComparisonVerdict.SLOWER


def samples(time_us: float) -> list[float]:
    chance = random.Random(1)
    return [1e-6 * time_us * chance.gauss(1.0, 0.002) for _ in range(VISITS)]


def cell(time_us: float) -> Cell:
    return Cell(1e-6 * time_us, 0.0, 0.0, samples_s=samples(time_us), visits=[1] * VISITS)


def backends(of_graph: float = 1.0, **fields: object) -> BackendsResult:
    """NCCL at three sizes; what is in a graph takes so many times as long."""
    rows = [
        BackendsRow(
            size_bytes=1 << 10 + number,
            times=[
                BackendTime(backend="nccl", mode=EAGER, cell=cell(20.0)),
                BackendTime(backend="nccl", mode=GRAPH, operations=32, cell=cell(10 * of_graph)),
                BackendTime(backend="multimem", mode=EAGER, why_not="it has none"),
            ],
        )
        for number in range(3)
    ]
    return BackendsResult(spec=SPEC, rows=rows, in_graph=16, complete=True, **fields)  # type: ignore[arg-type]


def overlap(beside: float = 1.0, load: str = "gemm", uncovered: int = 0) -> OverlapResult:
    """The collective beside the load takes so many times as long as usual."""
    rows = [
        OverlapRow(
            size_bytes=size,
            ctas=4,
            collective=OverlapSide(
                operations=2,
                alone_s=samples(100.0),
                beside_s=samples(150.0 * beside),
                uncovered=uncovered,
            ),
            load=OverlapSide(operations=1, alone_s=samples(50.0), beside_s=samples(60.0)),
        )
        for size in (1 << 20, 2 << 20)
    ]
    return OverlapResult(spec=SPEC, load=load, rows=rows, complete=True)


def moe(exchange: float = 1.0, **spec: object) -> MoeResult:
    """The exchange alone takes so many times as long as usual."""
    made = moe_results.result()
    made.moe = msgspec.structs.replace(made.moe, **spec)
    for row in made.rows:
        row.whole.samples_s = samples(row.tokens)
        row.phases["exchange"].time_s *= exchange
        row.phases["exchange"].samples_s = samples(0.8 * row.tokens * exchange)
    return made


def verdicts(comparison: Comparison) -> dict[str, set[ComparisonVerdict]]:
    found: dict[str, set[ComparisonVerdict]] = {}
    for compared in comparison.cells:
        found.setdefault(compared.key.placement, set()).add(compared.verdict)
    return found


def test_backends_are_compared_by_mode() -> None:
    comparison = busbw.compare(backends(), backends(of_graph=1.4))
    assert verdicts(comparison) == {"nccl": {SAME}, "nccl in a graph of 16": {SLOWER}}
    assert [each.ratio for each in comparison.of(SLOWER)] == [pytest.approx(1.4)] * 3
    shown = comparison_text.text(comparison)
    assert shown.startswith("backends of all_reduce\n")
    assert "placement" not in shown
    assert "largest 1.400x at 1 KiB nccl in a graph of 16" in shown


def test_both_sides_of_an_overlap_are_compared_per_operation() -> None:
    comparison = busbw.compare(overlap(), overlap(beside=1.5))
    assert verdicts(comparison) == {
        "alone, 4 CTAs": {SAME},
        "beside load, 4 CTAs": {SLOWER},
        "load alone, 4 CTAs": {SAME},
        "load beside, 4 CTAs": {SAME},
    }
    assert comparison.cells[0].a_s == pytest.approx(50e-6, rel=0.01)


def test_a_time_that_was_partly_alone_is_not_compared() -> None:
    compared = verdicts(busbw.compare(overlap(uncovered=VISITS), overlap(uncovered=VISITS)))
    assert "beside load, 4 CTAs" not in compared


def test_dispatch_and_its_exchange_are_compared() -> None:
    compared = verdicts(busbw.compare(moe(), moe(exchange=1.3)))
    assert compared == {
        "dispatch": {SAME},
        "dispatch, exchange alone": {SLOWER},
        "combine": {SAME},
        "combine, exchange alone": {SLOWER},
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (backends(), overlap()),
        (backends(), backends(copies=True)),
        (overlap(), overlap(load="copy")),
        (moe(), moe(top_k=4)),
    ],
    ids=["kinds", "copies", "loads", "models"],
)
def test_runs_that_measured_something_else_are_refused(before: Outcome, after: Outcome) -> None:
    with pytest.raises(UsageError, match=r"before measures .*, after measures ") as raised:
        busbw.compare(before, after)
    assert raised.value.hint == "compare runs of one command with the same options"


def test_a_result_without_such_times_is_refused() -> None:
    replayed = ReplayResult(replay=Replay(spec=ReplaySpec(pattern="p.jsonl")))
    with pytest.raises(UsageError, match=r"after is a replay of p.jsonl, which is not"):
        busbw.compare(backends(), replayed)
