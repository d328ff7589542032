"""What an alltoallv moves between ranks: the hottest pair, the busiest rank and the busiest
host.
"""

from hypothesis import given
from hypothesis import strategies as st

from busbw.core.alltoallv import traffic

Matrix = list[list[int]]


def matrices(ranks: int) -> st.SearchStrategy[Matrix]:
    return st.lists(
        st.lists(st.integers(0, 1 << 30), min_size=ranks, max_size=ranks),
        min_size=ranks,
        max_size=ranks,
    )


def test_pair_rank_and_host_of_a_matrix_by_hand() -> None:
    matrix = [[1000, 10, 20, 30], [1, 1000, 2, 300], [4, 5, 0, 6], [7, 8, 9, 0]]
    found = traffic(matrix, "spread 0", ["a", "a", "b", "b"])
    assert found is not None
    assert (found.sender, found.receiver, found.pair_bytes) == (1, 3, 300)
    assert (found.rank, found.sent_bytes, found.received_bytes, found.rank_bytes) == (
        3,
        24,
        336,
        336,
    )
    assert found.total_bytes == 60 + 303 + 15 + 24
    assert found.size_bytes == 1303, "row 1, with what rank 1 sends to itself"
    assert found.host_bytes == 20 + 30 + 2 + 300, "from a to b; b sends only 24 to a"
    assert found.rank_factor == 336 * 4 / 402
    assert found.pair_factor == 300 * 12 / 402


def test_nothing_between_ranks_is_no_traffic() -> None:
    assert traffic([[5]], "", ["a"]) is None
    assert traffic([[5, 0], [0, 7]], "", ["a", "a"]) is None


@given(st.integers(2, 9).flatmap(matrices), st.integers(1, 4))
def test_factors_are_bounded_and_the_backward_exchange_is_the_same_traffic(
    matrix: Matrix, per_host: int
) -> None:
    ranks = len(matrix)
    hosts = [str(rank // per_host) for rank in range(ranks)]
    found, back = (
        traffic(matrix, "", hosts),
        traffic([list(column) for column in zip(*matrix, strict=True)], "", hosts),
    )
    if found is None or back is None:
        assert found is back
        return
    assert 1 <= found.rank_factor <= ranks
    assert 1 <= found.pair_factor <= ranks * (ranks - 1)
    assert found.pair_bytes <= found.rank_bytes <= found.size_bytes
    assert (back.pair_bytes, back.rank_bytes, back.host_bytes) == (
        found.pair_bytes,
        found.rank_bytes,
        found.host_bytes,
    )
