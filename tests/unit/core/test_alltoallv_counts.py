"""The text of --counts: a power law of ids, or a matrix file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.alltoallv import MatrixFile, Zipf, parse_counts
from busbw.core.errors import UsageError
from busbw.core.sweep import SweepSpec, check_spec


def test_the_forms_of_a_spec() -> None:
    assert parse_counts("zipf:1.05") == Zipf(1.05)
    assert parse_counts("zipf:0,rows=1e3,ids=64,dedup,seed=7") == Zipf(
        0.0, rows=1000, ids=64, seed=7, dedup=True
    )
    assert parse_counts("zipf:2,sorted") == Zipf(2.0, sorted=True)
    assert parse_counts("file:counts.csv") == parse_counts("counts.csv") == MatrixFile("counts.csv")


def test_the_complete_text_of_counts() -> None:
    assert Zipf(1.05).text == "zipf:1.05,rows=10000000,seed=1"
    assert (
        Zipf(1.05, dedup=True, sorted=True).text == "zipf:1.05,rows=10000000,ids=65536,dedup,sorted"
    )


@given(
    st.floats(0, 10).map(lambda value: float(f"{value:g}")),
    st.integers(1, 10**12),
    st.booleans(),
    st.booleans(),
)
def test_the_complete_text_means_the_same(
    exponent: float, rows: int, dedup: bool, in_order: bool
) -> None:
    spec = Zipf(exponent, rows=rows, dedup=dedup, sorted=in_order)
    assert parse_counts(spec.text) == spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("zipf:-1", "the exponent '-1' is not a number from 0 to 10"),
        ("zipf:", "the exponent '' is not a number"),
        ("zipf", "the exponent '' is not a number"),
        ("zipf:nan", "the exponent 'nan' is not a number"),
        ("zipf:1,row=3", "'row=3' is none of rows, ids, seed, dedup, sorted"),
        ("zipf:1,", "'' is none of rows"),
        ("zipf:1,dedup=1", "'dedup=1' is none of rows"),
        ("zipf:1,rows=0", "rows '0' is not a whole number from 1 to 1e+12"),
        ("zipf:1,rows=1.5", "rows '1.5' is not a whole number"),
        ("zipf:1,rows", "rows '' is not a whole number"),
        ("zipf:1,rows=3,rows=4", "rows is given twice"),
        ("zipf:1,ids=5", "depends on ids only with dedup"),
        ("zipf:1,sorted,seed=2", "sorted scatters nothing, so seed has no effect"),
    ],
)
def test_an_invalid_spec_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_spec(SweepSpec(collective="alltoallv", step_factor=2, counts=text), strict=True)
    assert caught.value.message.startswith(f"--counts {text}: ")
    assert message in caught.value.message
    assert caught.value.hint


def test_only_alltoallv_has_counts() -> None:
    with pytest.raises(
        UsageError, match="--counts zipf:1: alltoall moves the same bytes between all ranks"
    ):
        check_spec(SweepSpec(collective="alltoall", step_factor=2, counts="zipf:1"), strict=True)
