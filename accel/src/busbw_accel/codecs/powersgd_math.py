"""The arithmetic of PowerSGD in plain torch, and the layout of matrices in a gradient.

The four steps are `project`, `answer`, `multiply` and `next_basis`. The kernels have the same.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch

from busbw_accel.codecs.base import State, carried, is_finite
from busbw_accel.communicator import Communicator

# A matrix is factored if it has this many times the elements of both factors
MIN_ELEMENTS_RATIO = 2
# This share of the mean eigenvalue is added to a Gram matrix. It damps nearly dependent columns;
# the error stays in the residual.
DIAGONAL_SHARE = 1e-9
MIN_FACTOR_SIZE = 1e-30  # a factor with smaller values counts as zero


@dataclass(frozen=True, slots=True)
class Matrix:
    """A parameter in a part of a gradient: its offset, rows and columns.

    `left` and `right` are the first rows of its P and W in the stacked P and W of all matrices.
    """

    begin: int
    rows: int
    columns: int
    left: int
    right: int

    @property
    def end(self) -> int:
        return self.begin + self.rows * self.columns

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        """The elements of the matrix, [rows, columns]."""
        return flat[self.begin : self.end].view(self.rows, self.columns)

    def left_of(self, stacked: torch.Tensor) -> torch.Tensor:
        """The rows of the matrix in the stacked P."""
        return stacked[self.left : self.left + self.rows]

    def right_of(self, stacked: torch.Tensor) -> torch.Tensor:
        """The rows of the matrix in the stacked W."""
        return stacked[self.right : self.right + self.columns]


@dataclass(frozen=True, slots=True)
class MatrixLayout:
    """The matrices of a part, and the stretches between them (begin, end).

    `left` and `right` are the total rows of P and W.
    """

    matrices: tuple[Matrix, ...]
    others: tuple[tuple[int, int], ...]
    left: int
    right: int

    def stretches(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """The stretches of a part that are not in a matrix."""
        return [flat[begin:end] for begin, end in self.others]


@lru_cache(maxsize=1024)
def layout(shapes: tuple[tuple[int, ...], ...], rank: int) -> MatrixLayout:
    """The layout of a part.

    A parameter is a matrix of its first dimension times all others, if two factors of this rank are
    worth it.
    """
    matrices: list[Matrix] = []
    others: list[tuple[int, int]] = []
    begin = left = right = 0
    for shape in shapes:
        elements = math.prod(shape)
        rows = shape[0] if len(shape) > 1 and elements else 1
        columns = elements // rows
        if rows * columns >= MIN_ELEMENTS_RATIO * rank * (rows + columns):
            matrices.append(Matrix(begin, rows, columns, left, right))
            left, right = left + rows, right + columns
        elif others and others[-1][1] == begin:
            others[-1] = (others[-1][0], begin + elements)
        elif elements:
            others.append((begin, begin + elements))
        begin += elements
    return MatrixLayout(tuple(matrices), tuple(others), left, right)


def project(
    parts: MatrixLayout,
    part: torch.Tensor,
    comm: Communicator,
    state: State,
    basis: torch.Tensor,
    *,
    feedback: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's share plus residual, and what it sends first.

    It first sends P of all matrices, and then the stretches between them.
    """
    total, rank = carried(part, comm, state, feedback), basis.shape[1]
    sent = room(parts, rank, total.device)
    left, others = apart(parts, sent, rank)
    if parts.matrices:
        owners = _owners(parts, total.device, left=False)
        turned = _times(basis, _orthonormal(basis, owners), owners)
        for matrix in parts.matrices:
            torch.mm(matrix.of(total), matrix.right_of(turned), out=matrix.left_of(left))
    if parts.others:
        torch.cat(parts.stretches(total), out=others)
    return total, sent


def answer(parts: MatrixLayout, total: torch.Tensor, sent: torch.Tensor, rank: int) -> torch.Tensor:
    """This rank's W of all matrices, from the sum of P over ranks in `sent`."""
    right = torch.empty(parts.right, rank, dtype=torch.float32, device=total.device)
    if parts.matrices:
        left, owners = apart(parts, sent, rank)[0], _owners(parts, total.device, left=True)
        turns = _orthonormal(left, owners)
        inverted = _times(_times(left, turns, owners), turns.mT, owners)
        for matrix in parts.matrices:
            torch.mm(matrix.of(total).T, matrix.left_of(inverted), out=matrix.right_of(right))
    return right


def multiply(
    parts: MatrixLayout,
    sent: torch.Tensor,
    right: torch.Tensor,
    part: torch.Tensor,
    total: torch.Tensor,
    size: int,
    *,
    feedback: bool,
) -> torch.Tensor:
    """Set `part` to the average, and with feedback `total` to this rank's residual.

    Returns whether `part` is not finite.
    """
    left, others = apart(parts, sent, right.shape[1])
    result = torch.empty_like(total)
    for matrix in parts.matrices:
        p, w, out = matrix.left_of(left), matrix.right_of(right), matrix.of(result)
        # Column by column, rounded after each operation: every host and the kernels get the same
        # bits.
        torch.mul(p[:, :1], w[:, 0], out=out)
        for column in range(1, p.shape[1]):
            out.add_(p[:, column : column + 1] * w[:, column])
    if feedback:
        total.sub_(result, alpha=1 / size)
    if parts.others:
        lengths = [end - begin for begin, end in parts.others]
        torch._foreach_copy_(parts.stretches(result), list(others.split(lengths)))
        torch._foreach_zero_(parts.stretches(total))
    part.copy_(result)
    return ~is_finite(part)


def next_basis(
    parts: MatrixLayout, right: torch.Tensor, before: torch.Tensor, skipped: torch.Tensor
) -> torch.Tensor:
    """The next basis: W.

    It is the former basis in skipped steps, and for zero matrices, since a zero basis would stay
    zero.
    """
    if not parts.matrices:
        return right
    owners = _owners(parts, right.device, left=False)
    return torch.where((_sizes(right, owners) == 0)[owners.of, None] | skipped, before, right)


def restore(residual: torch.Tensor, before: torch.Tensor | None, skipped: torch.Tensor) -> None:
    """In a skipped step, reset `residual` to `before` (None: zeros), on the device."""
    residual.copy_(torch.where(skipped, 0.0 if before is None else before, residual))


def room(parts: MatrixLayout, rank: int, device: torch.device) -> torch.Tensor:
    """A buffer for what is sent first."""
    others = sum(end - begin for begin, end in parts.others)
    return torch.empty(parts.left * rank + others, dtype=torch.float32, device=device)


def apart(parts: MatrixLayout, sent: torch.Tensor, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Split what is sent first into P of all matrices and the stretches."""
    return sent[: parts.left * rank].view(-1, rank), sent[parts.left * rank :]


@dataclass(frozen=True, slots=True, eq=False)
class Owners:
    """The rows of the stacked P or W: the matrix of each row, and the last row of each matrix."""

    of: torch.Tensor
    last: torch.Tensor


@lru_cache(maxsize=1024)
def _owners(parts: MatrixLayout, device: torch.device, *, left: bool) -> Owners:
    lengths = torch.tensor([matrix.rows if left else matrix.columns for matrix in parts.matrices])
    return Owners(
        torch.arange(len(lengths)).repeat_interleave(lengths).to(device),
        (lengths.cumsum(0) - 1).to(device),
    )


def _sizes(factors: torch.Tensor, owners: Owners) -> torch.Tensor:
    largest = torch.zeros(owners.last.numel(), dtype=torch.float32, device=factors.device)
    return largest.scatter_reduce_(0, owners.of, factors.abs().amax(1), "amax")


def _orthonormal(factors: torch.Tensor, owners: Owners) -> torch.Tensor:
    """Matrices [factors, rank, rank] that make the columns of each factor orthonormal.

    They are multiplied from the right. They are computed from Cholesky factors of the Gram
    matrices, in fp64, because differences of their elements may be small.
    """
    sizes = _sizes(factors, owners).clamp(min=MIN_FACTOR_SIZE)
    exact = factors.double() / sizes.double()[owners.of, None]
    sums = (exact[:, :, None] * exact[:, None, :]).cumsum(0)[owners.last]
    grams = torch.cat([sums[:1], sums.diff(dim=0)])
    # Zero factors get a mean of 1, so that they have a Cholesky factor too.
    mean = grams.diagonal(dim1=1, dim2=2).mean(1) + (sizes <= MIN_FACTOR_SIZE)
    grams += torch.diag_embed((DIAGONAL_SHARE * mean)[:, None].expand(-1, grams.shape[1]))
    lower = torch.linalg.cholesky_ex(grams).L  # _ex: checking for errors would wait for the device
    identity = torch.eye(lower.shape[1], dtype=lower.dtype, device=lower.device).expand_as(lower)
    return (
        torch.linalg.solve_triangular(lower, identity, upper=False).mT.float()
        / sizes[:, None, None]
    )


def _times(factors: torch.Tensor, small: torch.Tensor, owners: Owners) -> torch.Tensor:
    """Multiply the rows of each factor by its [rank, rank] matrix.

    This is done in fp32 whatever the TF32 settings are.
    """
    return (factors[:, :, None] * small[owners.of]).sum(1)
