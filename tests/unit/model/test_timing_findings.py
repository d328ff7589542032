"""Findings from samples: late ranks, slow links, medians that are not known, two modes, repeats."""

from typing import Any

import pytest

from busbw.core.finding import RunFinding, Verdict
from busbw.core.result import Cell, EngineLibrary, PairLink, RankDevice, Result, ResultRow, World
from busbw.core.sweep import Sampling, SweepSpec
from busbw.core.topology import Host, Topology
from busbw.model.rule import Run, apply
from busbw.model.series import duration
from busbw.model.timing_findings import RULES, latest

HOSTS = ["h1", "h1", "h2", "h2"]


def cell(late_us: list[float] | None = None, **fields: Any) -> Cell:
    timing_cell = Cell(
        100e-6,
        1e9,
        1e9,
        samples_s=[100e-6] * 8,
        low_s=99.5e-6,
        high_s=100.5e-6,
        op_s=90e-6,
        stopped="ok",
    )
    timing_cell.late_s = [us * 1e-6 for us in late_us or [0.0] * 4]
    for name, value in fields.items():
        setattr(timing_cell, name, value)
    return timing_cell


def result(
    cells: list[Cell],
    links: list[PairLink] | None = None,
    sizes: list[int] | None = None,
    repeats: list[int] | None = None,
) -> Result:
    devices = [
        RankDevice(rank, 100 + rank, host, rank % 2, f"0000:0{rank}:00", "GPU", process=rank)
        for rank, host in enumerate(HOSTS)
    ]
    rows = [
        ResultRow(size, size // 4, "float", "sum", -1, measured, None, 8, repeat=repeat)
        for measured, size, repeat in zip(
            cells,
            sizes or [1024 << n for n in range(len(cells))],
            repeats or [0] * len(cells),
            strict=True,
        )
    ]
    spec = SweepSpec(collective="all_reduce", sampling=Sampling())
    return Result(
        spec, library=EngineLibrary("nccl"), world=World(devices, 4), rows=rows, links=links or []
    )


def judge(measured: Result) -> list[RunFinding]:
    return apply(RULES, Run(measured, measured.topology))


def messages(measured: Result) -> dict[str, str]:
    return {finding.id: finding.message for finding in judge(measured)}


def test_an_always_late_rank_is_named_with_host_and_gpu() -> None:
    (late,) = judge(result([cell([0, 1, 50, 2]), cell([1, 0, 60, 0]), cell([0, 0, 55, 1])]))
    assert late.verdict is Verdict.WARN
    assert late.message.startswith(
        "rank 2 on h2 (GPU 0 at 0000:02:00) is late: it starts operations 55 us after the others,"
        " in 3 of 3"
    )
    assert "60 us at 2 KiB, where" in late.evidence


@pytest.mark.parametrize(
    "late_us",
    [
        [[0, 0, 3, 0]] * 3,
        [[0, 50, 0, 0], [50, 0, 0, 0], [0, 0, 50, 0]],
        [[0, 50, 50, 0]] * 3,
        [[10, 60, 55, 0]] * 3,
    ],
    ids=[
        "too little to matter",
        "another one every time",
        "two at once",
        "hardly more than another",
    ],
)
def test_lateness_that_names_no_rank(late_us: list[list[float]]) -> None:
    assert "late_rank" not in messages(result([cell(rank_late_us) for rank_late_us in late_us]))


def test_who_is_latest_and_by_how_much() -> None:
    assert latest(cell([0, 0, 50, 2])) == (2, pytest.approx(50e-6))
    assert latest(cell([0])) is None
    assert latest(cell([0, 20])) == (1, pytest.approx(20e-6))


def test_with_more_ranks_than_cores_no_rank_or_link_is_reported() -> None:
    measured = result([cell([0, 0, 50, 0])] * 3, links({(0, 2), (1, 2), (2, 3)}))
    measured.topology = Topology([Host("h1", cpus=1), Host("h2", cpus=2)])
    message = messages(measured)
    assert message == {"crowded": "more ranks than cores: 2 rank processes share 1 core on h1"}
    measured.rows = result(
        [cell([0, 0, 50e3, 0])] * 3
    ).rows  # no scheduler lets a rank wait that long
    assert set(messages(measured)) >= {"crowded", "late_rank"}


def test_a_rank_late_by_under_a_microsecond_is_not_named() -> None:
    assert latest(cell([0, 0, 0.4, 0], op_s=2e-6)) is None


def test_the_fix_for_a_slow_pair_depends_on_its_link() -> None:
    def fix(pair: tuple[int, int], bus: str) -> str:
        measured = result([cell()], links({pair}))
        for device in measured.world.devices:
            device.bus = bus
        return next(finding.fix for finding in judge(measured) if finding.id == "slow_link")

    assert "ethtool" in fix((0, 3), "0000:00:00")
    assert "nvidia-smi" in fix((0, 1), "0000:00:00")
    assert "memory" in fix((0, 1), "") and "ethtool" not in fix((0, 1), "")


def links(slow: set[tuple[int, int]], gbps: float = 1.0) -> list[PairLink]:
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    return [PairLink(a, b, 1e-3, gbps * 1e9 if (a, b) in slow else 10e9) for a, b in pairs]


def test_a_host_whose_pairs_are_all_slow_has_the_slow_link() -> None:
    message = messages(result([cell()], links({(0, 2), (1, 2), (2, 3)})))
    assert message["slow_link"].startswith(
        "the link of host h2 is slow: all its pairs are far below the others, the slowest at 1 GB/s"
    )
    assert "late_rank" not in message


def test_single_slow_pairs_are_named() -> None:
    message = messages(result([cell()], links({(0, 3)})))["slow_link"]
    assert (
        message
        == "1 of 6 pairs of ranks are slow: rank 0 on h1 (GPU 0 at 0000:00:00) with rank 3 on h2"
        " (GPU 1 at 0000:03:00)"
    )


def test_similar_links_pass_and_unmeasured_links_get_no_verdict() -> None:
    assert (
        messages(result([cell()], links(set())))["links"]
        == "no slow link: 6 pairs exchange 10 GB/s each way, the slowest 10"
    )
    assert messages(result([cell()])) == {}


def test_imprecise_medians_are_counted_and_the_widest_named() -> None:
    imprecise = cell(stopped="budget", low_s=80e-6, high_s=130e-6)
    none = cell(stopped="unstable", low_s=None, high_s=None, samples_s=[1e-4] * 5)
    message = messages(result([cell(), imprecise]))["uncertain"]
    assert (
        message
        == "requested precision of 1 % not reached in 1 of 2 cells; least precise: 2 KiB, 30 %"
        " after 8 samples"
    )
    assert messages(result([cell(), imprecise, none]))["uncertain"].endswith(
        "4 KiB, no interval after 5 samples"
    )
    beyond = cell(stopped="budget", low_s=80e-6, high_s=1.3)
    assert messages(result([cell(), beyond]))["uncertain"].endswith(
        "2 KiB, more than 999 % after 8 samples"
    )


def test_a_precise_cell_of_two_modes_is_not_uncertain() -> None:
    precise = cell(stopped="unstable", modes_s=(90e-6, 140e-6))
    assert set(messages(result([cell(), precise]))) == {"two_modes"}


def test_two_modes_are_reported() -> None:
    message = messages(result([cell(), cell(modes_s=(90e-6, 140e-6))]))["two_modes"]
    assert (
        message
        == "samples of 1 cell fall into two groups; at 2 KiB their medians are 90 us and 140 us"
    )


def test_variation_between_repeats_is_compared_with_that_of_one_repeat() -> None:
    repeated = [cell(), cell(time_s=104e-6), cell(time_s=102e-6)]
    (only,) = judge(result(repeated, sizes=[1024] * 3, repeats=[0, 1, 2]))
    assert (
        only.message
        == "medians of 3 repeats differ by 4 % in the median cell, and by at most 4 % at 1 KiB"
    )


def test_classic_timing_has_none_of_these() -> None:
    measured = result([cell([0, 0, 50, 0])])
    measured.spec = SweepSpec(collective="all_reduce")
    assert judge(measured) == []


@pytest.mark.parametrize("share", [0.1, 0.3, 0.55])
def test_with_three_hosts_two_slow_pairs_still_stand_out(share: float) -> None:
    three_links = [
        PairLink(0, 1, 1e-3, 10e9),
        PairLink(0, 2, 1e-3, share * 10e9),
        PairLink(1, 2, 1e-3, share * 10e9),
    ]
    assert messages(result([cell()], three_links))["slow_link"].startswith(
        "the link of host h2 is slow"
    )


def test_a_host_that_takes_twice_as_long_to_enqueue_is_named() -> None:
    message = messages(result([cell(launches_s=[7e-6, 6e-6, 7e-6, 20e-6])] * 3))
    assert message["slow_host"].startswith("the host of rank 3 on h2 (GPU 1 at 0000:03:00) is slow")
    assert "20 us to enqueue an operation, others 7 us" in message["slow_host"]
    assert "slow_host" not in messages(result([cell(launches_s=[6e-6, 10e-6])] * 3)), (
        "cores of shared machines differ by half"
    )


def test_a_little_lateness_behind_a_fence_gives_no_finding() -> None:
    assert "late_rank" in messages(result([cell([0, 0, 20, 0])] * 3))
    assert "late_rank" not in messages(result([cell([0, 0, 20, 0], launches_s=[7e-6] * 4)] * 3))


def test_the_slowest_rank_is_named_despite_another_weak_pair() -> None:
    mixed = [
        PairLink(link.a, link.b, 1e-3, 4e9 if (link.a, link.b) == (0, 1) else link.bandwidth)
        for link in links({(0, 2), (1, 2), (2, 3)}, 0.01)
    ]
    assert messages(result([cell()], mixed))["slow_link"].startswith("the link of host h2 is slow")


def test_repeats_that_differ_by_over_100_percent_are_readable() -> None:
    message = messages(result([cell(), cell(time_s=260e-6)], sizes=[1024] * 2, repeats=[0, 1]))[
        "repeats"
    ]
    assert "by at most 160 % at 1 KiB" in message


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 us"),
        (8.22e-6, "8.22 us"),
        (999.4e-6, "999 us"),
        (999.6e-6, "1 ms"),
        (3.99e-3, "3.99 ms"),
        (0.9996, "1 s"),
        (12.34, "12.3 s"),
    ],
)
def test_a_duration_has_three_digits_and_no_exponent(seconds, text):
    assert duration(seconds) == text
