"""The table of collectives against nccl-tests' own: buffers, counts, bytes and bus factors of
all eleven, and their names.
"""

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.collectives import COLLECTIVES, Collective, collective
from busbw.core.dtypes import DTYPES, DType
from busbw.core.errors import UsageError
from busbw.core.layouts import InPlace

ALL = pytest.mark.parametrize("row", COLLECTIVES, ids=lambda row: row.name)
# name: send and recv in parts ("c" all elements, "b" one part, "n" a part per rank), in-place
# layout, algbw's units, busbw / algbw
NCCL_TESTS = {
    "all_reduce": ("c", "c", InPlace.SAME, "1", "2(n-1)/n"),
    "reduce": ("c", "c", InPlace.SAME, "1", "1"),
    "broadcast": ("c", "c", InPlace.SAME, "1", "1"),
    "all_gather": ("b", "n", InPlace.SEND_IN_RECV, "n", "(n-1)/n"),
    "reduce_scatter": ("n", "b", InPlace.RECV_IN_SEND, "n", "(n-1)/n"),
    "gather": ("b", "n", InPlace.SEND_IN_RECV, "n", "(n-1)/n"),
    "scatter": ("n", "b", InPlace.RECV_IN_SEND, "n", "(n-1)/n"),
    "alltoall": ("n", "n", InPlace.SAME, "n", "(n-1)/n"),
    "alltoallv": ("n", "n", InPlace.SAME, "n", "(n-1)/n"),
    "sendrecv": ("c", "c", InPlace.SAME, "1", "1"),
    "hypercube": ("b", "n", InPlace.SEND_IN_RECV, "n-1", "1"),
}
FACTORS: dict[str, Callable[[int], Fraction]] = {
    "2(n-1)/n": lambda n: Fraction(2 * n - 2, n),
    "(n-1)/n": lambda n: Fraction(n - 1, n),
    "1": lambda n: Fraction(1),
}
UNITS: dict[str, Callable[[int], int]] = {
    "1": lambda n: 1,
    "n": lambda n: n,
    "n-1": lambda n: n - 1,
}


def test_the_collectives_are_the_eleven_of_nccl_tests() -> None:
    assert {row.name for row in COLLECTIVES} == set(NCCL_TESTS)
    assert len(COLLECTIVES) == 11


@ALL
def test_the_bus_factor_is_exact_for_any_number_of_ranks(row: Collective) -> None:
    factor = NCCL_TESTS[row.name][4]
    assert row.formula == factor
    for n in (1, 2, 3, 4, 7, 8, 16, 1000, 16384):
        factor_of_row = row.bus_factor(n)
        assert isinstance(factor_of_row, Fraction)
        assert factor_of_row == FACTORS[factor](n)


@ALL
@given(st.integers(0, 1 << 33), st.integers(1, 64), st.sampled_from(DTYPES))
def test_buffers_and_bytes_are_those_of_nccl_tests(
    row: Collective, c: int, n: int, dtype: DType
) -> None:
    send, recv, in_place, units, _ = NCCL_TESTS[row.name]
    base = c // n // (16 // dtype.itemsize) * (16 // dtype.itemsize)
    elements = {"c": c, "b": base, "n": base * n}
    buffers = row.buffers(c, n, dtype.itemsize)
    assert (buffers.send, buffers.recv) == (elements[send], elements[recv])
    assert buffers.count == (c if send == recv == "c" else base)
    assert row.in_place is in_place
    assert row.algbw_multiple(n) == UNITS[units](n)
    assert max(buffers.send, buffers.recv) <= c, (
        "a sweep's buffers are as large as its largest size"
    )


@pytest.mark.parametrize(
    ("name", "size", "ranks", "itemsize", "count"),
    [
        ("all_gather", 8, 2, 4, 0),
        ("all_gather", 32, 2, 4, 4),
        ("alltoall", 63, 4, 1, 0),
        ("scatter", 64, 4, 1, 16),
        ("gather", 100, 3, 8, 4),
    ],
)
def test_parts_are_multiples_of_16_bytes(
    name: str, size: int, ranks: int, itemsize: int, count: int
) -> None:
    assert collective(name).buffers(size // itemsize, ranks, itemsize).count == count


def test_which_collectives_reduce_have_a_root_or_skip_checks() -> None:
    assert {row.name for row in COLLECTIVES if row.reduces} == {
        "all_reduce",
        "reduce",
        "reduce_scatter",
    }
    assert {row.name for row in COLLECTIVES if row.rooted} == {
        "reduce",
        "broadcast",
        "gather",
        "scatter",
    }
    assert {row.name for row in COLLECTIVES if not row.in_place_checked} == {
        "alltoall",
        "alltoallv",
        "sendrecv",
    }
    assert {
        row.name: row.redop_column
        for row in COLLECTIVES
        if not row.reduces and row.redop_column != "none"
    } == {"sendrecv": "op", "hypercube": ""}


@ALL
def test_every_spelling_of_a_name_finds_its_row(row: Collective) -> None:
    for name in (row.name, row.title, row.torch_name, *row.aliases):
        for spelling in (
            name,
            name.upper(),
            name.replace("_", "-"),
            name.replace("_", " "),
            name.replace("_", ""),
        ):
            assert collective(spelling) is row


def test_no_spelling_belongs_to_two_rows() -> None:
    def key(name: str) -> str:
        return name.replace("_", "").lower()

    keys = [
        sorted({key(name) for name in (row.name, row.title, row.torch_name, *row.aliases)})
        for row in COLLECTIVES
    ]
    spellings = [name for names in keys for name in names]
    assert len(spellings) == len(set(spellings))


def test_an_unknown_name_is_refused_with_the_valid_names() -> None:
    with pytest.raises(UsageError, match="unknown collective 'allredcue'") as caught:
        collective("allredcue")
    assert caught.value.hint.startswith(
        "did you mean all_reduce? the collectives are all_reduce, all_gather"
    )
    assert all(row.name in caught.value.hint for row in COLLECTIVES)


def test_a_dissimilar_name_gets_no_suggestion() -> None:
    with pytest.raises(UsageError) as caught:
        collective("xyzzy")
    assert caught.value.hint.startswith("the collectives are ")
