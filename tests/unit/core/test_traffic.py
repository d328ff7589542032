"""Traffic of an alltoallv between ranks: the hottest pair, the busiest rank and the busiest host."""

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
    summary = traffic(matrix, "spread 0", ["a", "a", "b", "b"])
    assert summary is not None
    assert (summary.sender, summary.receiver, summary.pair_bytes) == (1, 3, 300)
    assert (summary.rank, summary.sent_bytes, summary.received_bytes, summary.rank_bytes) == (
        3,
        24,
        336,
        336,
    )
    assert summary.total_bytes == 60 + 303 + 15 + 24
    assert summary.size_bytes == 1303, "row 1, with what rank 1 sends to itself"
    assert summary.host_bytes == 20 + 30 + 2 + 300, "from a to b; b sends only 24 to a"
    assert summary.rank_factor == 336 * 4 / 402
    assert summary.pair_factor == 300 * 12 / 402


def test_zero_bytes_between_ranks_are_no_traffic() -> None:
    assert traffic([[5]], "", ["a"]) is None
    assert traffic([[5, 0], [0, 7]], "", ["a", "a"]) is None


@given(st.integers(2, 9).flatmap(matrices), st.integers(1, 4))
def test_factors_are_bounded_and_the_backward_exchange_is_the_same_traffic(
    matrix: Matrix, per_host: int
) -> None:
    ranks = len(matrix)
    hosts = [str(rank // per_host) for rank in range(ranks)]
    forward, backward = (
        traffic(matrix, "", hosts),
        traffic([list(column) for column in zip(*matrix, strict=True)], "", hosts),
    )
    if forward is None or backward is None:
        assert forward is backward
        return
    assert 1 <= forward.rank_factor <= ranks
    assert 1 <= forward.pair_factor <= ranks * (ranks - 1)
    assert forward.pair_bytes <= forward.rank_bytes <= forward.size_bytes
    assert (backward.pair_bytes, backward.rank_bytes, backward.host_bytes) == (
        forward.pair_bytes,
        forward.rank_bytes,
        forward.host_bytes,
    )
