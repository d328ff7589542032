"""What moves: sums that must agree, and a count of each row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.model.fabric import Fabric
from busbw.model.own_nics import OwnNics
from busbw.moe.bound import bound, own_nic_bound, relayed_bound
from busbw.moe.draws import Array, draw
from busbw.moe.plan import STRIDE, rank_plan
from busbw.moe.routing import UNIFORM, ZIPF, Routing
from busbw.moe.volumes import COMBINE, DISPATCH, Volumes, bytes_to_hosts, volumes

PER_RANK = 4  # experts


@st.composite
def routed(draw_from: st.DrawFn) -> Array:
    """The experts of the tokens of a few ranks."""
    ranks = draw_from(st.integers(1, 5))
    routing = draw_from(st.sampled_from([Routing(UNIFORM), Routing(ZIPF, 1.5)]))
    top_k = draw_from(st.integers(1, ranks * PER_RANK))
    seed, tokens = draw_from(st.integers(0, 99)), draw_from(st.integers(1, 12))
    return draw(routing, seed, ranks, tokens, ranks * PER_RANK, top_k)


def counted_rows(ids: Array) -> list[list[int]]:
    """The rows from each rank to each, counted token by token."""
    rows = [[0] * len(ids) for _ in ids]
    for sender, tokens in enumerate(ids.tolist()):
        for token in tokens:
            for receiver in {expert // PER_RANK for expert in token}:
                rows[sender][receiver] += 1
    return rows


@given(routed())
def test_volumes_are_those_of_a_count(ids: Array) -> None:
    ranks, tokens, top_k = ids.shape
    found, rows = volumes(ids, ranks * PER_RANK, 10), counted_rows(ids)
    assert volumes(ids, ranks * PER_RANK, 1).sent == rows
    own = [rows[rank][rank] for rank in range(ranks)]
    sent = [sum(row) for row in rows]
    received = [sum(row[rank] for row in rows) for rank in range(ranks)]
    assert sum(sent) == sum(received)
    leaving = [all_rows - kept for all_rows, kept in zip(sent, own, strict=True)]
    arriving = [all_rows - kept for all_rows, kept in zip(received, own, strict=True)]
    assert found.wire_bytes(DISPATCH) == 10 * max(leaving)
    assert found.wire_bytes(COMBINE) == 10 * max(arriving)
    assert found.received_bytes == 10 * max(received)
    assert found.selections_bytes == 10 * tokens * top_k
    assert found.imbalance == pytest.approx(max(received) / (sum(received) / ranks))
    assert tokens <= min(sent)  # each token goes somewhere
    assert max(sent) <= tokens * min(top_k, ranks)


@given(routed(), st.integers(1, 3))
def test_a_token_goes_once_to_each_host_of_its_experts(ids: Array, per_host: int) -> None:
    ranks = len(ids) // per_host * per_host
    if not ranks:
        return
    experts = ranks * PER_RANK
    kept = ids[:ranks] % experts  # of ranks that fill their hosts
    counted = [[0] * (ranks // per_host) for _ in range(ranks)]
    for sender, tokens in enumerate(kept.tolist()):
        for token in tokens:
            for host in {expert // PER_RANK // per_host for expert in token}:
                counted[sender][host] += 1
    assert bytes_to_hosts(kept, experts, 1, per_host) == counted


@given(routed())
def test_plans_of_all_ranks_fit_together(ids: Array) -> None:
    ranks, _, top_k = ids.shape
    plans = [rank_plan(ids, ranks * PER_RANK, rank) for rank in range(ranks)]
    sent_numbers: list[list[list[int]]] = []
    for rank, plan in enumerate(plans):
        parts = np.split(plan.sent_tokens + rank * STRIDE, np.cumsum(plan.sent)[:-1])
        sent_numbers.append([part.tolist() for part in parts])
    for rank, plan in enumerate(plans):
        arrived: list[int] = []
        for sender in range(ranks):
            assert plan.received[sender] == plans[sender].sent[rank]
            arrived += sent_numbers[sender][rank]
        assert arrived == plan.received_numbers.tolist()
    assert sum(len(plan.expert_rows) for plan in plans) == ids.size
    assert top_k == plans[0].own_ids.shape[1]


@given(routed())
def test_each_expert_gets_the_tokens_that_chose_it(ids: Array) -> None:
    ranks = len(ids)
    for rank in range(ranks):
        plan = rank_plan(ids, ranks * PER_RANK, rank)
        given_rows = list(
            zip(
                plan.expert_ids.tolist(),
                plan.received_numbers[plan.expert_rows].tolist(),
                strict=True,
            )
        )
        wanted = [
            (expert, sender * STRIDE + number)
            for sender, tokens in enumerate(ids.tolist())
            for number, token in enumerate(tokens)
            for expert in token
            if expert // PER_RANK == rank
        ]
        assert given_rows == sorted(wanted)


EIGHT = Volumes([[100, 200], [300, 400]], 800)


def test_combine_moves_what_dispatch_moved_the_other_way() -> None:
    assert EIGHT.matrix(DISPATCH) == [[100, 200], [300, 400]]
    assert EIGHT.matrix(COMBINE) == [[100, 300], [200, 400]]
    assert (EIGHT.wire_bytes(DISPATCH), EIGHT.wire_bytes(COMBINE)) == (300, 300)


MATRIX = [[9, 10, 20, 30], [1, 9, 5, 5], [2, 2, 9, 40], [1, 1, 1, 9]]  # two hosts of two
FABRIC = Fabric(2, 2, 10.0, "NVLink", None, over_nvlink=True, nics=5.0, rail=5.0, nic_link="NIC")


def test_bound_is_that_of_the_busiest_rank_or_host() -> None:
    hosts = ["a", "a", "b", "b"]
    between = bound(MATRIX, hosts, FABRIC)
    assert between is not None
    assert between.time_s == pytest.approx((20 + 30 + 5 + 5) / 5)
    assert between.text.endswith(": NIC")
    within = bound(MATRIX, ["a"] * 4, FABRIC)
    assert within is not None
    assert within.time_s == pytest.approx((30 + 5 + 40) / 10)  # into the last rank
    assert within.text.startswith("X/B = ")


@pytest.mark.parametrize(
    ("nics", "busiest", "share"),
    [
        (1, (20 + 30) + (5 + 5), "1/1 for 2 GPUs"),  # out of ranks 0 and 1
        (2, 20 + 30, "1/2 for 1 GPU"),  # out of rank 0
        (3, (20 + 30) + (5 + 5), "1/1 for 2 GPUs"),  # no NIC is one GPU's own
        (4, 20 + 30, "1/2 for 1 GPU"),
    ],
)
def test_own_nics_bound_what_a_gpu_sends_to_other_hosts(
    nics: int, busiest: int, share: str
) -> None:
    rate = 1.0
    fabric = Fabric(
        2, 2, 1e3, "", None, over_nvlink=True, nics=nics * rate, rail=rate, nic_link="NICs"
    )
    found = own_nic_bound(MATRIX, ["a", "a", "b", "b"], OwnNics(fabric, nics))
    assert found is not None
    own = nics * rate / (2 if share.startswith("1/2") else 1)
    assert found.time_s == pytest.approx(busiest / own)
    assert found.text.endswith(f": NICs, {share}")


def test_relayed_rows_cross_once_and_are_passed_on_by_the_rank_of_the_same_number() -> None:
    to_hosts = [[19, 40], [10, 8], [3, 49], [2, 10]]
    # The two ranks of a host share its one NIC.
    between = relayed_bound(MATRIX, to_hosts, OwnNics(FABRIC, 1))
    assert between is not None
    assert between.time_s == pytest.approx((40 + 8) / 5)
    # With two NICs of half the rate, rank 2 sends 3, and rank 0 the most.
    own = relayed_bound(MATRIX, to_hosts, OwnNics(FABRIC, 2))
    assert own is not None
    assert own.time_s == pytest.approx(40 / 2.5)
    # Rank 3 gets 30 from rank 0, whose rows arrive at rank 2, and 40 from rank 2 itself.
    within = relayed_bound(MATRIX, [[0, 0]] * 4, OwnNics(FABRIC, 2))
    assert within is not None
    assert within.text.startswith("X/B = ")
    assert within.time_s == pytest.approx((30 + 40) / 10)


def test_bound_without_a_byte_or_a_rate_is_unknown() -> None:
    assert bound([[5, 0], [0, 5]], ["a", "b"], FABRIC) is None
    assert bound([[0, 5], [5, 0]], ["a", "a"], Fabric(1, 2, None, "", None, over_nvlink=False)) is (
        None
    )
