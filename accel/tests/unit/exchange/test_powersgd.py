"""Which gradients become two factors, and how the factors are computed."""

import math
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from busbw_accel.codecs import powersgd, powersgd_math  # noqa: E402 - needs torch

Shapes = st.lists(st.lists(st.integers(0, 40), max_size=4).map(tuple), max_size=8).map(tuple)


@given(Shapes, st.integers(1, 9))
def test_every_element_is_in_a_matrix_or_sent_densely(
    shapes: tuple[tuple[int, ...], ...], rank: int
) -> None:
    layout = powersgd_math.layout(shapes, rank)
    stretches = sorted(
        [(matrix.begin, matrix.begin + matrix.rows * matrix.columns) for matrix in layout.matrices]
        + list(layout.others)
    )
    assert sum(end - begin for begin, end in stretches) == sum(map(math.prod, shapes))
    assert all(before[1] <= after[0] for before, after in pairwise(stretches))
    assert all(begin < end for begin, end in stretches)
    assert all(
        2 * rank * (matrix.rows + matrix.columns) <= matrix.rows * matrix.columns
        for matrix in layout.matrices
    )
    assert layout.left == sum(matrix.rows for matrix in layout.matrices)
    assert layout.right == sum(matrix.columns for matrix in layout.matrices)


def test_a_convolution_is_a_matrix_of_its_outputs() -> None:
    (matrix,) = powersgd_math.layout(((512, 256, 3, 3), (512,)), 4).matrices
    assert (matrix.rows, matrix.columns) == (512, 2304)


def orthonormal(*bases: torch.Tensor) -> list[torch.Tensor]:
    """Each with what makes its columns orthonormal."""
    layout = powersgd_math.MatrixLayout(
        tuple(powersgd_math.Matrix(0, len(basis), 0, 0, 0) for basis in bases), (), 0, 0
    )
    owners = powersgd_math._owners(layout, torch.device("cpu"), left=True)
    stacked = torch.cat(bases)
    return list(
        powersgd_math._times(stacked, powersgd_math._orthonormal(stacked, owners), owners).split(
            [len(basis) for basis in bases]
        )
    )


@settings(deadline=None)
@given(
    st.integers(1, 6), st.lists(st.floats(1e-25, 1e25), min_size=1, max_size=4), st.integers(0, 99)
)
def test_columns_of_any_size_become_orthonormal(rank: int, sizes: list[float], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for basis in orthonormal(
        *(
            size * torch.randn(20 + 10 * number, rank, generator=generator)
            for number, size in enumerate(sizes)
        )
    ):
        assert torch.allclose(basis.T @ basis, torch.eye(rank), atol=1e-3)


def test_dependent_and_zero_columns_stay_bounded() -> None:
    column = torch.randn(50, 1)
    for basis in orthonormal(
        torch.cat([column, column, 2 * column], 1), torch.zeros(50, 3), torch.randn(50, 3)
    ):
        assert torch.isfinite(basis).all()
        assert torch.linalg.matrix_norm(basis, 2) <= 1.001


@settings(deadline=None)
@given(st.integers(0, 9), st.integers(0, 9))
@example(3, 0)
def test_only_the_rough_part_of_two_ranks_is_rounded(rough: int, exact: int) -> None:
    assume(rough + exact)
    gradient = torch.linspace(1, 2, rough + exact)
    two_ranks = SimpleNamespace(size=2, all_gather=lambda blob: torch.stack([blob, blob]))
    total, nbytes = powersgd._sum(gradient, rough, two_ranks)
    assert torch.equal(total[rough:], 2 * gradient[rough:])
    assert torch.equal(total[:rough], 2 * gradient[:rough].bfloat16().float())
    assert nbytes == 2 * rough + 4 * exact
