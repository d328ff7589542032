"""The sections of `busbw backends`, `busbw overlap` and `busbw moe`: plots, units and what is folded."""

from pathlib import Path
from xml.etree.ElementTree import Element

import pytest
from serving_results import backends, moe, overlap

from busbw.backends import html as backends_html
from busbw.backends.types import EAGER, BackendsResult, BackendsRow, BackendTime
from busbw.core.result import Cell, Outcome
from busbw.host.rails import NicChoice
from busbw.report import results
from busbw.report.registry import render

BLOCKS, BLOCK = 64, 1 << 16


def of_blocks(**gb: float) -> BackendsResult:
    """Backends that move blocks at so many GB/s."""
    result = backends(blocks=BLOCKS, backends=list(gb), default=next(iter(gb)))
    times = []
    for name, rate in gb.items():
        time_s = BLOCKS * BLOCK / (rate * 1e9)
        cell = Cell(time_s, rate * 1e9, rate * 1e9, low_s=time_s, high_s=time_s)
        times.append(BackendTime(backend=name, mode=EAGER, cell=cell))
    result.rows = [BackendsRow(size_bytes=BLOCK, times=times)]
    return result


def texts(parts: list[Element], tag: str) -> list[str]:
    return ["".join(found.itertext()) for part in parts for found in part.iter(tag)]


def test_blocks_are_plotted_and_listed_in_gb_per_second() -> None:
    parts = backends_html.parts(of_blocks(nixl=40.0, nccl=20.0))
    assert texts(parts, "h3") == ["GB/s of a transfer of 64 blocks of the size, over block size"]
    assert texts(parts, "th")[:4] == ["block", "nixl GB/s", "nccl GB/s", "fastest"]
    assert {"GB/s", "block size"} <= set(texts(parts, "text"))
    assert not any("us" in text for text in texts(parts, "text"))
    assert "nixl, 64 KiB: 40.00 GB/s" in texts(parts, "title")


def test_nics_of_a_backend_have_a_table_with_their_line_rates() -> None:
    result = of_blocks(**{"nixl@all": 0.2, "nixl@eth1": 0.1, "gloo@eth1": 0.05})
    result.rails = [NicChoice("all", 0.25e9), NicChoice("eth1", 0.125e9)]
    parts = backends_html.parts(result)
    assert texts(parts, "h3") == [
        f"{name}, GB/s of a transfer of 64 blocks of the size, over block size"
        for name in ("nixl", "gloo")
    ]
    lines = texts(parts, "tr")
    assert lines[:3] == ["NIC64 KiB GB/sline rate GB/s", "all0.2000.250", "eth10.1000.125"]


def test_times_of_calls_are_microseconds() -> None:
    parts = backends_html.parts(backends(backends=["nccl"], default="nccl"))
    assert texts(parts, "h3")[0] == "Microseconds of a call, over message size"
    assert texts(parts, "th")[1] == "nccl us"
    assert "message size" in texts(parts, "text")


def test_dispatch_and_combine_have_units_and_fold_what_they_count() -> None:
    result = moe()
    kind = results.kind_of(result)
    assert kind.noun(result).startswith("a mixture of ")
    parts = kind.parts(result)
    heads = texts(parts, "th")
    assert "time us" in heads and "wire GB/s" in heads and "time" not in heads
    (folded,) = [part for part in parts if part.tag == "details"]
    assert "wire: GB/s that leave a rank" in texts([folded], "div")[0]
    assert folded.get("open") is None
    assert not any("wire: GB/s" in "".join(part.itertext()) for part in parts if part.tag == "p")


@pytest.mark.parametrize("result", [backends(), overlap(), moe()])
def test_a_run_that_ended_before_its_first_row_says_so(result: Outcome, tmp_path: Path) -> None:
    result.rows, result.complete, result.errors = [], False, ["interrupted"]  # type: ignore[attr-defined]
    text = render(result, "table")
    assert "the run did not end; nothing was measured\nerror: interrupted\n" in text
