"""PowerSGD's kernels compared with plain torch, step by step; see test_kernels.py."""

import math
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")
DEVICE = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
if DEVICE.type == "cpu" and Path("/dev/nvidiactl").exists():  # as the root's conftest.py asks
    pytest.skip("kernels that are compiled have no GPU here", allow_module_level=True)
if DEVICE.type == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"

from busbw_accel.codecs import powersgd_math  # noqa: E402
from busbw_accel.codecs.base import RESIDUAL  # noqa: E402
from busbw_accel.codecs.kernels import powersgd, tables  # noqa: E402

os.environ.pop("TRITON_INTERPRET", None)
pytestmark = pytest.mark.torch

# Matrices of less and of more than a tile, a stack and a span, with other parameters before,
# between and after them.
SHAPES = ((3,), (10, 70), (7,), (18, 3, 30), (70, 47), (3, 3), (13, 200), (11,))
# for factors of more columns
LARGE = ((3,), (70, 66), (7,), (50, 5, 33), (3, 3), (66, 100), (11,), (60, 3, 50), (2,))
RANKS = [1, 3, 4, 9, 16]
# A case: columns of a factor, number of ranks (powers of two are multiplied, others divided by),
# kind of gradient, feedback.
# Every kind of gradient with and without feedback: the interpreter takes up to a second for a case.
CASES = [
    (3, 2, torch.bfloat16, False),
    (1, 3, torch.float32, False),
    (4, 3, torch.bfloat16, True),
    (9, 2, torch.float32, True),
]


@pytest.fixture(autouse=True)
def use_device(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE.type == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    # so that there are several of each
    for name, small in {"MAX_ROWS": 50, "STRETCH": 4, "SPAN": 60}.items():
        monkeypatch.setattr(tables, name, small)
    tables.tables_of.cache_clear()
    yield
    tables.tables_of.cache_clear()


def random(seed: int, *shape: int) -> torch.Tensor:
    """Columns of a matrix are of unequal sizes."""
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return (values * torch.logspace(0, -3, shape[1]) if len(shape) == 2 else values).to(DEVICE)


def make_inputs(
    rank: int,
) -> tuple[powersgd_math.MatrixLayout, torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """The layout, a gradient, a basis and a residual."""
    shapes = SHAPES if rank <= tables.FEW else LARGE
    layout, length = powersgd_math.layout(shapes, rank), sum(map(math.prod, shapes))
    assert len(layout.matrices) == 4 and len(layout.others) >= 4
    return layout, random(1, length), random(2, layout.right, rank), {RESIDUAL: random(3, length)}


def alike(first: torch.Tensor, other: torch.Tensor, least: float = 1e-5) -> bool:
    return bool((first - other).abs().max() <= least * other.abs().max())


@pytest.mark.parametrize(("rank", "size", "kind", "feedback"), CASES)
def test_the_first_factor_matches_plain_torch(rank, size, kind, feedback):
    layout, gradient, basis, state = make_inputs(rank)
    comm = SimpleNamespace(size=size)
    total, sent = powersgd.project(layout, gradient.to(kind), comm, state, basis, feedback=feedback)
    expected_total, expected = powersgd_math.project(
        layout, gradient.to(kind), comm, state, basis, feedback=feedback
    )
    # CUDA divides by numbers as it multiplies by their inverse
    assert torch.allclose(total, expected_total, rtol=1e-6, atol=1e-6)
    left_factor, dense = powersgd_math.apart(layout, sent, rank)
    expected_left_factor, expected_dense = powersgd_math.apart(layout, expected, rank)
    assert torch.allclose(dense, expected_dense, rtol=1e-6, atol=1e-6)
    assert all(
        alike(matrix.left_of(left_factor), matrix.left_of(expected_left_factor), 1e-4)
        for matrix in layout.matrices
    )


@pytest.mark.parametrize("rank", RANKS)
def test_the_second_factor_matches_plain_torch(rank):
    layout, gradient, _, _ = make_inputs(rank)
    sent = random(4, layout.left, rank).flatten()
    right, expected = (
        means.answer(layout, gradient, sent, rank) for means in (powersgd, powersgd_math)
    )
    assert all(
        alike(matrix.right_of(right), matrix.right_of(expected), 1e-4) for matrix in layout.matrices
    )


@pytest.mark.parametrize(("rank", "size", "kind", "feedback"), CASES)
def test_factor_product_and_residual_match_plain_torch(rank, size, kind, feedback):
    layout, gradient, _, state = make_inputs(rank)
    right, total = random(5, layout.right, rank), state[RESIDUAL]
    sent = random(6, powersgd_math.room(layout, rank, DEVICE).numel())
    part, expected = torch.empty_like(gradient, dtype=kind), torch.empty_like(gradient, dtype=kind)
    residual, expected_residual = total.clone(), total.clone()
    wrong = powersgd.multiply(layout, sent, right, part, residual, size, feedback=feedback)
    powersgd_math.multiply(
        layout, sent, right, expected, expected_residual, size, feedback=feedback
    )
    # Triton's interpreter does not round to bf16 as GPUs do.
    assert (
        torch.equal(part, expected)
        if kind == torch.float32 or DEVICE.type == "cuda"
        else torch.allclose(part, expected, rtol=1e-2)
    )
    if feedback:
        assert torch.allclose(residual, expected_residual, rtol=1e-6, atol=1e-6)
    else:
        assert torch.equal(residual, total)
    assert int(wrong) == 0


@pytest.mark.filterwarnings("ignore:invalid value")  # the interpreter's numpy says so of infinities
@pytest.mark.parametrize("index", [0, -1])
def test_infinite_factors_and_vectors_are_detected(index):
    layout, gradient, _, _ = make_inputs(3)
    sent, right = (
        random(6, powersgd_math.room(layout, 3, DEVICE).numel()),
        random(5, layout.right, 3),
    )
    sent[index] = torch.nan
    assert (
        int(powersgd.multiply(layout, sent, right, gradient, gradient.clone(), 3, feedback=True))
        == 1
    )


def test_zero_and_skipped_bases_are_not_kept():
    layout, _, before, _ = make_inputs(3)
    right = random(5, layout.right, 3)
    layout.matrices[1].right_of(right).zero_()
    expected = right.clone()
    layout.matrices[1].right_of(expected).copy_(layout.matrices[1].right_of(before))
    no, yes = (torch.tensor([value], dtype=torch.int32, device=DEVICE) for value in (0, 1))
    assert torch.equal(powersgd_math.next_basis(layout, right, before, no.bool()), expected)
    assert torch.equal(powersgd.next_basis(layout, right.clone(), before, no), expected)
    assert torch.equal(powersgd.next_basis(layout, right, before, yes), before)


def test_a_factor_of_zeros_and_dependent_columns_stay_finite():
    layout, gradient, _, _ = make_inputs(3)
    left_factor = random(4, layout.left, 1).expand(-1, 3).clone()
    layout.matrices[0].left_of(left_factor).zero_()
    assert bool(torch.isfinite(powersgd.answer(layout, gradient, left_factor.flatten(), 3)).all())
