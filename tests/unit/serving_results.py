"""Small results of `busbw backends`, `busbw overlap` and `busbw moe`, with samples."""

import random

import moe_results
import msgspec

from busbw.backends.types import EAGER, GRAPH, BackendsResult, BackendsRow, BackendTime
from busbw.core.result import Cell
from busbw.core.sweep import SweepSpec
from busbw.moe.types import MoeResult
from busbw.overlap.types import OverlapResult, OverlapRow, OverlapSide

SPEC = SweepSpec(collective="all_reduce", datatype="bfloat16")
VISITS = 12


def samples(time_us: float) -> list[float]:
    chance = random.Random(1)
    return [1e-6 * time_us * chance.gauss(1.0, 0.002) for _ in range(VISITS)]


def cell(time_us: float) -> Cell:
    low_s, high_s = (1e-6 * time_us * (1 + sign * 0.002) for sign in (-1, 1))
    return Cell(
        1e-6 * time_us,
        0.0,
        0.0,
        samples_s=samples(time_us),
        visits=[1] * VISITS,
        low_s=low_s,
        high_s=high_s,
    )


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
