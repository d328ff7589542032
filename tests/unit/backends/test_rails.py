"""Backends over given NICs: how they are named, shown and judged."""

import random

import pytest

from busbw.backends import registry
from busbw.backends.rails import on_rails, parse
from busbw.backends.text import render
from busbw.backends.types import EAGER, BackendsResult, BackendsRow, BackendTime, MeasuredRail
from busbw.backends.verdicts import slower_on_all
from busbw.core.errors import UsageError
from busbw.core.result import Cell, EngineLibrary, RankDevice, World
from busbw.core.sweep import SweepSpec
from busbw.host.rails import NicChoice

NAMES = ("all", "eth1", "eth2")
BLOCK, BLOCKS = 1 << 16, 64


def time(backend: str, gb: float) -> BackendTime:
    """A backend that moves a row's blocks at so many GB/s."""
    chance, seconds = random.Random(backend), BLOCKS * BLOCK / (gb * 1e9)
    cell = Cell(seconds, gb * 1e9, gb * 1e9)
    cell.samples_s, cell.visits = [seconds * chance.gauss(1.0, 0.01) for _ in range(96)], [8] * 12
    cell.low_s, cell.high_s = 0.99 * seconds, 1.01 * seconds
    return BackendTime(backend=backend, mode=EAGER, cell=cell)


def result(**gb: tuple[float, float, float]) -> BackendsResult:
    """Of backends with their rates over all, eth1 and eth2."""
    times = [
        time(f"{backend}@{name}", rate)
        for backend, rates in gb.items()
        for name, rate in zip(NAMES, rates, strict=True)
    ]
    return BackendsResult(
        spec=SweepSpec(collective="sendrecv", datatype="bfloat16"),
        default=times[0].backend,
        backends=[each.backend for each in times],
        blocks=BLOCKS,
        complete=True,
        rails=[MeasuredRail("all", 0.25e9), MeasuredRail("eth1", 0.2e9), MeasuredRail("eth2")],
        rows=[BackendsRow(size_bytes=BLOCK, times=times)],
        library=EngineLibrary("torch", 0, {"torch": "2.11.0", "backend": "gloo"}),
        world=World([RankDevice(rank, 1, f"h{rank}", 0, "", "CPU") for rank in range(2)], 2),
    )


def test_rails_are_named_with_their_rates() -> None:
    assert parse(["eth1", "10.1.0.0/16=25Gbit/s"]) == [
        NicChoice("eth1"),
        NicChoice("10.1.0.0/16", 25e9 / 8),
    ]


@pytest.mark.parametrize(
    ("texts", "error"),
    [
        (["eth1", "eth1=1Gbit/s"], "--rail eth1 is named twice"),
        (["eth1=fast"], "--rail eth1=fast: fast is not a rate"),
    ],
)
def test_contradictions_are_refused(texts: list[str], error: str) -> None:
    with pytest.raises(UsageError, match=error):
        parse(texts)


def test_a_backend_is_named_by_its_rails() -> None:
    row = registry.backend("nixl")
    assert on_rails(row, []) == row
    assert on_rails(row, [NicChoice("eth1")]).name == "nixl@eth1"
    assert on_rails(row, [NicChoice("eth1"), NicChoice("eth2")]).name == "nixl@all"


def test_each_backend_has_a_table_of_rails_with_their_line_rates() -> None:
    text = render(result(nixl=(0.2, 0.2, 0.05), gloo=(0.1, 0.1, 0.04)), 80)
    assert (
        "nixl, GB/s of a transfer of 64 blocks of the size:\n"
        "NIC   64 KiB  line rate\n"
        "all    0.200      0.250\n"
        "eth1   0.200      0.200\n"
        "eth2  0.0500    unknown\n"
    ) in text
    assert "gloo, GB/s" in text
    assert "WARN" not in text


def test_all_nics_that_are_slower_than_one_alone_are_a_warning() -> None:
    slower = result(push=(0.1, 0.2, 0.05), pull=(0.2, 0.19, 0.05))
    ((name, choice),) = slower_on_all(slower)
    assert (name, choice.backend) == ("push@all", "push@eth1")
    assert choice.ratio[0] == pytest.approx(2.0, rel=0.02)
    assert "WARN    push@all is slower than push@eth1 by 2.0" in render(slower, 80)


def test_results_of_rails_follow_each_other() -> None:
    first, second = result(nixl=(0.2, 0.2, 0.05)), result(pull=(0.2, 0.2, 0.05))
    first.left_out = {"mpi": "no"}
    second.follow(first)
    second.add(BackendsRow(size_bytes=BLOCK, times=[time("pull@eth3", 0.1)]))
    assert second.default == "nixl@all"
    assert second.left_out == {"mpi": "no"}
    assert len(first.rows[0].times) == 3
    assert [each.backend for each in second.rows[0].times][-2:] == ["nixl@eth2", "pull@eth3"]
