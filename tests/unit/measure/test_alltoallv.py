"""The bytes of alltoallv: generated with a spread, or read from a file, always in whole 16
bytes.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw.measure.alltoallv import elements, generated_bytes, parse_matrix


@given(st.integers(0, 1 << 34), st.integers(1, 33), st.floats(0, 1))
def test_generated_bytes_are_multiples_of_16_within_the_total(
    total: int, ranks: int, spread: float
) -> None:
    matrix = generated_bytes(total, ranks, spread)
    assert all(size % 16 == 0 and size >= 0 for row in matrix for size in row)
    columns = list(zip(*matrix, strict=True))
    assert len({sum(line) for line in (*matrix, *columns)}) == 1, (
        "every rank sends and receives the same total"
    )
    # Each value loses at most one grain.
    assert total - 16 * ranks - 1 < sum(matrix[0]) <= total


@given(st.integers(0, 1 << 34), st.integers(1, 33), st.floats(0, 1))
def test_the_row_of_each_rank_is_row_0_rotated(total: int, ranks: int, spread: float) -> None:
    matrix = generated_bytes(total, ranks, spread)
    assert all(
        matrix[i][j] == matrix[0][(j - i) % ranks] for i in range(ranks) for j in range(ranks)
    )


def test_spread_0_is_even_and_spread_1_grows_with_distance() -> None:
    assert generated_bytes(4096, 4, 0.0) == [[1024] * 4] * 4
    assert generated_bytes(6144, 4, 1.0) == [
        [0, 1024, 2048, 3072],
        [3072, 0, 1024, 2048],
        [2048, 3072, 0, 1024],
        [1024, 2048, 3072, 0],
    ]


@pytest.mark.parametrize(("total", "sent"), [(0, 0), (8, 0), (64, 64), (100, 96)])
def test_a_single_rank_sends_all_to_itself_as_in_nccl_tests(total: int, sent: int) -> None:
    assert generated_bytes(total, 1, 1.0) == generated_bytes(total, 1, 0.0) == [[sent]]


def test_a_larger_matrix_is_cut_to_the_ranks() -> None:
    assert parse_matrix("0 16 32\n48 64 80\n1 2 x\n", 2, 1.0, "m.txt") == [[0, 16], [48, 64]]


def test_a_matrix_has_blanks_or_commas_and_is_scaled() -> None:
    text = "# bytes from each rank\n0 160\n\n 32.5,\t48 \n"
    assert parse_matrix(text, 2, 1.0, "m.txt") == [[0, 160], [32, 48]]
    assert parse_matrix(text, 2, 0.5, "m.txt") == [[0, 80], [16, 16]]


def test_the_rest_of_a_line_after_a_hash_is_a_comment() -> None:
    assert parse_matrix(
        "  # 1 2\n0 160 # rank 0\n32,48# rank 1, 2 values\n#\n", 2, 1.0, "m.txt"
    ) == [[0, 160], [32, 48]]


@pytest.mark.parametrize("scale", [float("inf"), float("nan"), -1.0])
def test_an_invalid_scale_names_its_variable(scale: float) -> None:
    with pytest.raises(
        UsageError, match=f"NCCL_TESTS_ALLTOALLV_MATRIX_SCALE={scale:g}: not a finite number"
    ):
        parse_matrix("0 0\n0 0\n", 2, scale, "m.txt")


@pytest.mark.parametrize(
    ("value", "scale", "message"),
    [
        ("1e30", 1.0, "m.txt: row of rank 0: '1e30' is more than any memory holds"),
        (
            "1",
            1e30,
            (
                "m.txt: row of rank 0: '1' times NCCL_TESTS_ALLTOALLV_MATRIX_SCALE 1e+30 is more than any"
                " memory holds"
            ),
        ),
    ],
)
def test_an_impossible_size_is_refused_with_its_row(value: str, scale: float, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_matrix(f"0 {value}\n0 0\n", 2, scale, "m.txt")
    assert caught.value.message == message
    assert "e30" not in caught.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2\n", "m.txt: 1 rows for 2 ranks"),
        ("1 2\n3\n", "m.txt: row of rank 1 has 1 values in a matrix of 2 rows"),
        ("1 2\n3 four\n", "m.txt: row of rank 1: 'four' is not a number of bytes"),
        ("1 -2\n3 4\n", "m.txt: row of rank 0: '-2' is not a number of bytes"),
        ("1 inf\n3 4\n", "m.txt: row of rank 0: 'inf' is not a number of bytes"),
        ("1 nan\n3 4\n", "m.txt: row of rank 0: 'nan' is not a number of bytes"),
        ("", "m.txt: 0 rows for 2 ranks"),
    ],
)
def test_a_wrong_matrix_is_refused_with_the_row_and_value(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_matrix(text, 2, 1.0, "m.txt")
    assert caught.value.message == message
    assert caught.value.hint


def test_elements_divides_by_the_item_size() -> None:
    assert elements([[0, 160], [32, 48]], 8) == ((0, 20), (4, 6))
