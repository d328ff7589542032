"""Small results to vary: two rows of all_reduce over two GPUs of one process."""

from collections.abc import Callable

import msgspec
import pytest

from busbw.core.result import Cell, EngineLibrary, RankDevice, Result, ResultRow, World
from busbw.core.sweep import SweepSpec

Make = Callable[..., Result]


def cell(time_us: float, algbw: float, busbw: float, wrong: int | None = 0) -> Cell:
    return Cell(time_us / 1e6, algbw * 1e9, busbw * 1e9, wrong)


def result(
    rows: list[ResultRow] | None = None, spec: dict[str, object] | None = None, **fields: object
) -> Result:
    """A finished run; `spec` overrides SweepSpec's fields, `fields` the Result's."""
    spec_fields = {
        "collective": "all_reduce",
        "min_bytes": 8,
        "max_bytes": 1 << 20,
        "step_factor": 131072,
        "ngpus": 2,
    } | (spec or {})
    devices = [
        RankDevice(rank, 1386, "node1.example.org", rank, f"0000:00:0{6 + rank}", "NVIDIA H200")
        for rank in range(2)
    ]
    program = f"{spec_fields['collective']}_perf"
    base = Result(
        spec=msgspec.convert(spec_fields, SweepSpec),
        argv=[f"./build/{program}"],
        program=program,
        start="2026-11-21T18:24:51+00:00",
        end="2026-11-21 18:24:58",
        library=EngineLibrary("nccl", 22809),
        world=World(devices, 1),
        rows=rows if rows is not None else two_rows(),
        complete=True,
    )
    return msgspec.structs.replace(base, **fields)


def two_rows() -> list[ResultRow]:
    return [
        ResultRow(
            8, 2, "float", "sum", -1, cell(16.61, 0.0005, 0.0005), cell(16.15, 0.0005, 0.0005), 20
        ),
        ResultRow(
            1048576,
            262144,
            "float",
            "sum",
            -1,
            cell(21.19, 49.49, 49.49),
            cell(14.82, 70.76, 70.76),
            20,
        ),
    ]


@pytest.fixture
def make() -> Make:
    """Builds a result."""
    return result


@pytest.fixture
def make_cell() -> Callable[..., Cell]:
    """Builds a cell from microseconds and GB/s."""
    return cell
