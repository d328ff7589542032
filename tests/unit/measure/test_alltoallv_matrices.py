"""alltoallv's matrix at each size, from --counts: scaled to the size, in whole 16 bytes, and
only one source.
"""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw.core.sweep import Series, SweepSpec
from busbw.measure.alltoallv import Matrices, scaled_bytes
from busbw.measure.plan import Calls

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "embedding-traffic.md"
VARIABLES = [f"NCCL_TESTS_ALLTOALLV_{name}" for name in ("MATRIX_FILE", "MATRIX_SCALE", "SPREAD")]


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def calls(counts: str, ranks: int) -> Calls:
    return Calls(
        SweepSpec(collective="alltoallv", step_factor=2, counts=counts),
        Series("float", "", -1),
        ranks,
    )


@given(
    st.integers(2, 9).flatmap(
        lambda n: st.lists(
            st.lists(st.floats(0.001, 1e6), min_size=n, max_size=n), min_size=n, max_size=n
        )
    ),
    st.integers(0, 1 << 34),
)
def test_the_largest_total_becomes_the_size(weights: list[list[float]], size: int) -> None:
    matrix = scaled_bytes(weights, size)
    assert all(value % 16 == 0 for row in matrix for value in row)
    totals = [*map(sum, matrix), *map(sum, zip(*matrix, strict=True))]
    assert size - 17 * len(matrix) <= max(totals) <= size


@given(st.floats(0, 4), st.integers(2, 16), st.integers(8, 30))
def test_a_power_law_keeps_the_size_and_repeats_a_senders_row(
    exponent: float, ranks: int, power: int
) -> None:
    first, second = (calls(f"zipf:{exponent:.3f},rows=20000", ranks) for _ in range(2))
    matrix = first.matrix_bytes(1 << power)
    assert matrix == second.matrix_bytes(1 << power)
    assert all(len(set(row)) == 1 for row in matrix), "all ranks ask for the same expected rows"
    call = first.at(1 << power, in_place=False)
    sent_bytes = (1 << power) // ranks // 16 * 16
    assert first.moved_bytes(call) == (sent_bytes * ranks, sent_bytes // 4, sent_bytes * ranks)


def test_exponent_0_is_alltoall() -> None:
    assert calls("zipf:0,rows=4000", 4).matrix_bytes(4096) == [[1024] * 4] * 4


def test_a_file_is_a_shape_and_keeps_its_bytes_at_its_own_size(tmp_path: Path) -> None:
    file = tmp_path / "counts.csv"
    file.write_text("0,640\n160,48\n")
    alltoallv = calls(f"file:{file}", 2)
    assert alltoallv.matrix_bytes(688) == [[0, 640], [160, 48]]
    assert alltoallv.matrix_bytes(6880) == [[0, 6400], [1600, 480]]
    assert alltoallv.moved_bytes(alltoallv.at(688, in_place=False)) == (688, 0, 688)
    file.write_text("0 1e-6 # as rows, not bytes\n25e-8 75e-9\n")
    assert calls(str(file), 2).matrix_bytes(6880) == [[0, 6400], [1600, 480]]


def test_the_recipe_for_real_ids_in_the_documentation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (recipe,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    # Rank 0 asks for rows 0 and 1, which rank 0 holds, and one of rank 1; rank 1 for one row of
    # rank 0, twice.
    np.save("ids.npy", np.array([[0, 1, 9_999_999], [0, 0, 0]]))
    exec(recipe, {})
    printed = capsys.readouterr().out
    assert printed == "busbw run alltoallv -np 2 --counts file:counts.csv -b 1536 -e 1536\n"
    assert calls("file:counts.csv", 2).matrix_bytes(1536) == [[2 * 512, 512], [512, 0]]


def test_equal_values_are_the_same_source_wherever_the_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (
        ("a", "0,640\n160,48\n"),
        ("b", "0 640.0 # more\n160 48\n"),
        ("c", "0 640\n160 64\n"),
    ):
        (tmp_path / name).write_text(text)
    a, b, c = (calls(str(tmp_path / name), 2).matrices.source for name in "abc")
    assert a == b != c
    assert a.startswith("matrix sha256:")
    monkeypatch.setenv(VARIABLES[0], str(tmp_path / "a"))
    assert (
        Matrices(SweepSpec(collective="alltoallv", min_bytes=1024, max_bytes=1024), 2).source == a
    )


def test_sources_of_nccl_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = SweepSpec(collective="alltoallv")
    assert Matrices(spec, 2).source == ""
    monkeypatch.setenv(VARIABLES[2], "0.5")
    assert Matrices(spec, 2).source == "spread 0.5"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1\n1 0\n", "2 rows for 3 ranks"),
        ("0 1 1 1\n" * 4, "4 rows for 3 ranks"),
        ("0 1 1\n1 0\n1 1 0\n", "row of rank 1 has 2 values in a matrix of 3 rows"),
        ("0 1 1\n1 x 1\n1 1 0\n", "row of rank 1: 'x' is not a number of bytes"),
        ("0 0 0\n" * 3, "all values are 0"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "counts.csv").write_text(text)
    with pytest.raises(UsageError) as caught:
        Matrices(SweepSpec(collective="alltoallv", counts=str(tmp_path / "counts.csv")), 3)
    assert message in caught.value.message
    assert caught.value.hint


def test_a_missing_file_names_the_forms_of_the_option() -> None:
    with pytest.raises(UsageError) as caught:
        Matrices(SweepSpec(collective="alltoallv", counts="ziph:1"), 3)
    assert caught.value.message == "--counts ziph:1: No such file or directory"
    assert "--counts zipf:1.05" in caught.value.hint


@pytest.mark.parametrize("name", VARIABLES)
def test_two_sources_are_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "0.5")
    with pytest.raises(UsageError) as caught:
        Matrices(SweepSpec(collective="alltoallv", counts="zipf:1"), 3)
    assert caught.value.message == f"--counts zipf:1 with {name}=0.5: both give the bytes"
