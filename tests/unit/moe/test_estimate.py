"""The bounds of a system that is described."""

import msgspec
import pytest

from busbw.core import json_codec
from busbw.core.errors import UsageError
from busbw.model.systems import parse_system, with_nics
from busbw.moe.batch import batch, sizes_of
from busbw.moe.estimate import MoeEstimate, estimate, json, text
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


def test_part_of_a_host_is_one_host() -> None:
    assert estimate(SMALL, H200, "h200x8", 4).hosts == 1
    assert estimate(SMALL, H200, "h200x8", 1).rows[0].bound_s is None


def test_hosts_that_are_not_full_are_refused() -> None:
    with pytest.raises(UsageError, match="-np 12: 2 hosts of 8 GPUs would not be filled"):
        estimate(MoeSpec(experts=48), with_nics(H200, "8x400G"), "h200x8", 12)


def test_file_and_text() -> None:
    found = estimate(SMALL, H200, "h200x8", None)
    data = json_codec.encode(found)
    assert msgspec.json.decode(json(found)) == msgspec.json.decode(data)
    content = file_kinds.read(data, "a.json")
    assert content is not None
    assert isinstance(content.held, MoeEstimate)
    shown = content.text(80)
    assert shown == text(found, 80)
    assert max(map(len, shown.splitlines())) <= 80
    assert "least time at 300 tokens: X/B = " in shown
    found.rows.clear()
    assert "least time at" not in text(found)
