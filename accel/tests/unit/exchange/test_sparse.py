"""How sparse gradients are summed, and which method exchanges their rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from busbw_accel.sparse import DENSE, GATHER, OWNERS, fewest_bytes, grouped  # noqa: E402

pytestmark = pytest.mark.torch


@given(
    st.lists(st.integers(0, 9), max_size=30),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from([1.0, 0.25]),
)
def test_rows_with_the_same_id_are_summed(ids, padding, more, scale):
    rows = torch.arange(1.0, 2 * (len(ids) + padding) + 1).view(-1, 2)
    groups = grouped(torch.tensor(ids + [10] * padding, dtype=torch.int32), padding)
    assert groups.ids.tolist() == sorted(set(ids))
    expected = [
        [
            scale
            * sum(float(rows[at, column]) for at, other_id in enumerate(ids) if other_id == row_id)
            for column in (0, 1)
        ]
        for row_id in sorted(set(ids))
    ]
    assert (
        groups.sums(rows, len(groups.ids) + more, scale).tolist() == expected + [[0.0, 0.0]] * more
    )


def test_rows_that_are_not_finite_stay_in_their_sum():
    rows = torch.tensor([[torch.nan, 1.0], [2.0, torch.inf], [3.0, 4.0]])
    sums = grouped(torch.tensor([5, 5, 7])).sums(rows, 2)
    assert (
        sums[0].isnan().tolist() == [True, False]
        and sums[0, 1] == torch.inf
        and sums[1].tolist() == [3.0, 4.0]
    )


@pytest.mark.parametrize(
    ("ranks", "hosts", "share", "method"),
    [
        (2, 2, 0.05, GATHER),  # nothing is saved by owners of two ranks
        (2, 2, 0.99, GATHER),
        (4, 4, 0.05, GATHER),
        (64, 64, 0.05, OWNERS),  # a rank would receive 3 times the table
        (64, 64, 0.99, OWNERS),  # as many bytes as the whole table, or fewer
        (16, 2, 0.02, GATHER),
        (16, 2, 0.1, OWNERS),
        (16, 2, 0.5, DENSE),  # rows for owners leave a host eight times
    ],
)
def test_the_method_with_the_fewest_bytes_is_chosen(ranks, hosts, share, method):
    assert fewest_bytes([int(share * 1_000_000)] * ranks, 1_000_000, 260, 260, hosts) == method


def test_without_rows_any_way_is_right():
    assert fewest_bytes([0, 0], 10, 260, 260, 2) in (GATHER, OWNERS, DENSE)
