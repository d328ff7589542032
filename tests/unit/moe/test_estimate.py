"""The bounds of a system that is described."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from busbw.api.prediction import predict
from busbw.core import json_codec
from busbw.core.errors import UsageError
from busbw.model.systems import parse_system, with_assumed_network, with_nics
from busbw.moe.batch import batch, sizes_of
from busbw.moe.estimate import MoeEstimate, estimate, text
from busbw.moe.types import MoeSpec
from busbw.report import file_kinds

H200 = parse_system("h200x8")
SMALL = MoeSpec(tokens=(100, 300), hidden=1000, experts=32, top_k=4)


@pytest.mark.parametrize(
    ("first", "last", "sizes"),
    [(128, 1024, [128, 256, 512, 1024]), (3, 10, [3, 6, 10]), (7, 7, [7])],
)
def test_numbers_double_up_to_the_last(first: int, last: int, sizes: list[int]) -> None:
    assert sizes_of(first, last) == sizes


def test_ranks_must_divide_the_experts() -> None:
    with pytest.raises(UsageError, match="--experts 32: they cannot be divided between 5 ranks"):
        batch(SMALL, 5, (1, 1))


def test_one_host_is_bound_by_the_busiest_link_of_a_gpu() -> None:
    found = estimate(SMALL, H200, "h200x8", None)
    assert (found.hosts, found.ranks) == (1, 8)
    assert [row.tokens for row in found.rows] == [100, 200, 300]
    for row in found.rows:
        # into or out of the busiest rank, at 18 links of 25 GB/s
        assert row.bound_s is not None
        most = max(row.wire_bytes, row.received_bytes)
        assert row.wire_bytes / 450e9 <= row.bound_s <= most / 450e9
        assert row.bound.endswith("NVLink, 18 links x 25 GB/s")


def test_more_hosts_are_bound_by_their_nics() -> None:
    found = estimate(SMALL, with_nics(H200, "8x400G"), "h200x8", 16)
    assert (found.hosts, found.ranks) == (2, 16)
    # Of 16 ranks, each token goes to 3.4 of 32 experts' ranks on average, half on the other host.
    largest = found.rows[-1]
    between = largest.bound_s * 400e9 if largest.bound_s else 0.0
    assert between == pytest.approx(8 * 300 * 2000 * 3.6 / 2, rel=0.1)
    assert "NICs of each host, 8 x 50 GB/s" in largest.bound


@pytest.mark.parametrize(("hosts", "published"), [(2, 90), (4, 61)])
def test_published_rates_of_deepep_are_below_the_bound_of_their_definition(
    hosts: int, published: int
) -> None:
    """8K tokens, hidden 7168, top-8, eight 400 Gbit/s NICs: DeepEP's README of version 2. A token
    goes to nearly each host, of which one is its own: at most 50 GB/s x hosts / (hosts - 1).
    """
    spec = MoeSpec(tokens=(8192, 8192), hidden=7168, experts=256, top_k=8)
    found = estimate(spec, with_nics(parse_system("h100x8"), "8x400G"), "h100x8", 8 * hosts)
    (row,) = found.rows
    assert row.relayed_s is not None and row.bound_s is not None
    rate = row.hosts_bytes / row.relayed_s
    assert rate == pytest.approx(50e9 * hosts / (hosts - 1), rel=0.01)
    assert 0.85 < published * 1e9 / rate < 1
    assert row.relayed_s < row.bound_s
    assert "  relayed" in text(found, 80)
    assert max(map(len, text(found, 80).splitlines())) <= 80


def test_the_busiest_gpu_has_its_own_nic_alone() -> None:
    """Every token goes to expert 0 on rank 0: 1000 rows of 2 kB from each of 16 ranks."""
    spec = MoeSpec(tokens=(1000, 1000), hidden=1000, experts=16, top_k=1, routing="hot:1")
    found = estimate(spec, with_nics(H200, "8x400G"), "h200x8", 16)
    (row,) = found.rows
    assert row.bound_s == pytest.approx(8 * 2e6 / 400e9)  # into a host over 8 NICs: 40 us
    assert row.own_nic_s == pytest.approx(8 * 2e6 / 50e9)  # into a GPU over its own: 320 us
    # From 7 ranks of its host, and of the other host's tokens from 7 that pass them on.
    assert row.relayed_s == pytest.approx(14 * 2e6 / 450e9)
    assert row.own_nic == ("Z/R = 16 MB / 50 GB/s: NICs of each host, 8 x 50 GB/s, 1/8 for 1 GPU")
    shown = text(found, 100)
    assert "# NICs of each host, 8 x 50 GB/s\n" in shown
    (cells,) = (line.split() for line in shown.splitlines() if line.startswith("  1000 "))
    assert cells[2:4] == ["40.0", "320.0"]
    one = text(estimate(spec, H200, "h200x8", None), 100)
    assert "own NIC" not in one
    assert "NICs" not in one


def test_nccl_is_what_predict_has_for_the_same_bytes() -> None:
    """With even routing, an alltoall in which each rank keeps a sixteenth for itself."""
    spec = MoeSpec(tokens=(4096, 4096), experts=256)
    found = estimate(spec, with_assumed_network(with_nics(H200, "8x400G")), "h200x8", 16)
    (row,) = found.rows
    size = row.wire_bytes * 16 // 15
    (expected,) = predict(
        "alltoall", system="h200x8", nics="8x400G", nodes=2, min_bytes=size, max_bytes=size
    ).rows
    assert row.nccl_s == pytest.approx(expected.time_s, rel=0.01)
    assert row.bound_s is not None
    assert row.bound_s < row.nccl_s


@pytest.mark.parametrize("routing", ["hot:1", "zipf:1.2"])
def test_nccl_is_what_predict_has_for_the_same_counts(routing: str, tmp_path: Path) -> None:
    spec = MoeSpec(tokens=(1024, 1024), hidden=1024, experts=16, top_k=1, routing=routing)
    found = estimate(spec, with_assumed_network(with_nics(H200, "8x400G")), "h200x8", 16)
    (row,) = found.rows
    ids, _ = batch(spec, 16, (1, 4096))
    sent = [[int((rank == expert).sum()) for expert in range(16)] for rank in ids[:, :, 0]]
    counts = tmp_path / "counts.csv"
    counts.write_text("\n".join(",".join(map(str, line)) for line in sent) + "\n")
    size = max(map(sum, zip(*sent, strict=True))) * spec.hidden * 2
    answer = predict(
        "alltoallv",
        system="h200x8",
        nics="8x400G",
        nodes=2,
        min_bytes=size,
        max_bytes=size,
        counts=f"file:{counts}",
        datatype="bfloat16",
    )
    assert row.nccl_s == pytest.approx(answer.rows[0].time_s, rel=1e-3)
    assert row.own_nic_s is not None and row.nccl_s is not None
    assert row.own_nic_s < row.nccl_s
    assert f"({row.own_nic})" in answer.notes[-1]


def test_gpus_without_a_model_of_their_library_have_bounds() -> None:
    found = estimate(SMALL, replace(H200, rccl=True), "h200x8", None)
    assert found.rows[0].bound_s
    assert found.rows[0].nccl_s is None
    assert "nccl" not in text(found, 80)


def test_part_of_a_host_is_one_host() -> None:
    assert estimate(SMALL, H200, "h200x8", 4).hosts == 1
    (row, *_) = estimate(SMALL, H200, "h200x8", 1).rows
    assert (row.bound_s, row.own_nic_s, row.nccl_s) == (None, None, None)


def test_hosts_that_are_not_full_are_refused() -> None:
    with pytest.raises(UsageError, match="-np 12: 2 hosts of 8 GPUs would not be filled"):
        estimate(MoeSpec(experts=48), with_nics(H200, "8x400G"), "h200x8", 12)


def test_file_and_text() -> None:
    found = estimate(SMALL, H200, "h200x8", None)
    data = json_codec.encode(found)
    assert msgspec.json.decode(json_codec.indented(found)) == msgspec.json.decode(data)
    content = file_kinds.read(data, "a.json")
    assert content is not None
    assert isinstance(content.held, MoeEstimate)
    shown = content.text(80)
    assert shown == text(found, 80)
    assert max(map(len, shown.splitlines())) <= 80
    assert "least at 300 tokens: X/B = " in shown
    found.rows.clear()
    assert "least at" not in text(found)
