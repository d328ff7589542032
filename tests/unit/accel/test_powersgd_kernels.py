"""PowerSGD's kernels compared with plain torch, step by step; see test_kernels.py."""

import math
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")
DEVICE = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
if DEVICE.type == "cpu" and Path("/dev/nvidiactl").exists():  # as tests/conftest.py asks
    pytest.skip("kernels that are compiled have no GPU here", allow_module_level=True)
if DEVICE.type == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"

from busbw.accel.codecs import powersgd_math  # noqa: E402
from busbw.accel.codecs.base import RESIDUAL  # noqa: E402
from busbw.accel.codecs.kernels import powersgd, tables  # noqa: E402

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
# Each rank with one, and rank 3 with every kind of gradient and feedback: the interpreter takes up
# to a second for a case.
CASES = [
    *(
        (3, 2, kind, feedback)
        for kind in (torch.float32, torch.bfloat16)
        for feedback in (True, False)
    ),
    (1, 3, torch.float32, False),
    (4, 3, torch.bfloat16, True),
    (9, 2, torch.float32, True),
    (16, 3, torch.bfloat16, False),
]


@pytest.fixture(autouse=True)
def where(monkeypatch: pytest.MonkeyPatch) -> None:
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
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return (made * torch.logspace(0, -3, shape[1]) if len(shape) == 2 else made).to(DEVICE)


def given(
    rank: int,
) -> tuple[powersgd_math.Layout, torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """The layout, a gradient, a basis and a residual."""
    shapes = SHAPES if rank <= tables.FEW else LARGE
    made, length = powersgd_math.layout(shapes, rank), sum(map(math.prod, shapes))
    assert len(made.matrices) == 4 and len(made.others) >= 4
    return made, random(1, length), random(2, made.right, rank), {RESIDUAL: random(3, length)}


def alike(one: torch.Tensor, other: torch.Tensor, least: float = 1e-5) -> bool:
    return bool((one - other).abs().max() <= least * other.abs().max())


@pytest.mark.parametrize(("rank", "size", "kind", "feedback"), CASES)
def test_the_first_factor_matches_plain_torch(rank, size, kind, feedback):
    made, gradient, basis, state = given(rank)
    comm = SimpleNamespace(size=size)
    total, sent = powersgd.project(made, gradient.to(kind), comm, state, basis, feedback=feedback)
    wanted_total, wanted = powersgd_math.project(
        made, gradient.to(kind), comm, state, basis, feedback=feedback
    )
    # CUDA divides by numbers as it multiplies by their inverse
    assert torch.allclose(total, wanted_total, rtol=1e-6, atol=1e-6)
    left, others = powersgd_math.apart(made, sent, rank)
    wanted_left, wanted_others = powersgd_math.apart(made, wanted, rank)
    assert torch.allclose(others, wanted_others, rtol=1e-6, atol=1e-6)
    assert all(
        alike(matrix.left_of(left), matrix.left_of(wanted_left), 1e-4) for matrix in made.matrices
    )


@pytest.mark.parametrize("rank", RANKS)
def test_the_second_factor_matches_plain_torch(rank):
    made, gradient, _, _ = given(rank)
    sent = random(4, made.left, rank).flatten()
    right, wanted = (
        means.answer(made, gradient, sent, rank) for means in (powersgd, powersgd_math)
    )
    assert all(
        alike(matrix.right_of(right), matrix.right_of(wanted), 1e-4) for matrix in made.matrices
    )


@pytest.mark.parametrize(("rank", "size", "kind", "feedback"), CASES)
def test_factor_product_and_residual_match_plain_torch(rank, size, kind, feedback):
    made, gradient, _, state = given(rank)
    right, total = random(5, made.right, rank), state[RESIDUAL]
    sent = random(6, powersgd_math.room(made, rank, DEVICE).numel())
    part, wanted = torch.empty_like(gradient, dtype=kind), torch.empty_like(gradient, dtype=kind)
    rest, wanted_rest = total.clone(), total.clone()
    wrong = powersgd.multiply(made, sent, right, part, rest, size, feedback=feedback)
    powersgd_math.multiply(made, sent, right, wanted, wanted_rest, size, feedback=feedback)
    # Triton's interpreter does not round to bf16 as GPUs do.
    assert (
        torch.equal(part, wanted)
        if kind == torch.float32 or DEVICE.type == "cuda"
        else torch.allclose(part, wanted, rtol=1e-2)
    )
    if feedback:
        assert torch.allclose(rest, wanted_rest, rtol=1e-6, atol=1e-6)
    else:
        assert torch.equal(rest, total)
    assert int(wrong) == 0


@pytest.mark.filterwarnings("ignore:invalid value")  # the interpreter's numpy says so of infinities
@pytest.mark.parametrize("place", [0, -1])
def test_infinite_factors_and_vectors_are_detected(place):
    made, gradient, _, _ = given(3)
    sent, right = random(6, powersgd_math.room(made, 3, DEVICE).numel()), random(5, made.right, 3)
    sent[place] = torch.nan
    assert (
        int(powersgd.multiply(made, sent, right, gradient, gradient.clone(), 3, feedback=True)) == 1
    )


def test_zero_and_skipped_bases_are_not_kept():
    made, _, before, _ = given(3)
    right = random(5, made.right, 3)
    made.matrices[1].right_of(right).zero_()
    wanted = right.clone()
    made.matrices[1].right_of(wanted).copy_(made.matrices[1].right_of(before))
    no, yes = (torch.tensor([value], dtype=torch.int32, device=DEVICE) for value in (0, 1))
    assert torch.equal(powersgd_math.next_basis(made, right, before, no.bool()), wanted)
    assert torch.equal(powersgd.next_basis(made, right.clone(), before, no), wanted)
    assert torch.equal(powersgd.next_basis(made, right, before, yes), before)


def test_a_factor_of_zeros_and_dependent_columns_stay_finite():
    made, gradient, _, _ = given(3)
    left = random(4, made.left, 1).expand(-1, 3).clone()
    made.matrices[0].left_of(left).zero_()
    assert bool(torch.isfinite(powersgd.answer(made, gradient, left.flatten(), 3)).all())
