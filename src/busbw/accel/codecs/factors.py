"""What PowerSGD computes, in plain torch, and which parts of a gradient are matrices. The kernels beside it have the same four steps."""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch

from busbw.accel.codecs.base import State, carried
from busbw.accel.communicator import Communicator

WORTH = 2  # times as many elements as both factors must a matrix have
# Of a Gram matrix' mean eigenvalue, added to each: columns that are nearly dependent count for less instead of blowing up, and what that
# leaves out stays in the residual.
LEAST = 1e-9
TINY = 1e-30  # the size below which a factor counts as zeros


@dataclass(frozen=True, slots=True)
class Matrix:
    """One parameter of a part: where it begins, its rows and columns, and the rows of its P and W among those of all."""

    begin: int
    rows: int
    columns: int
    left: int
    right: int

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.begin + self.rows * self.columns

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        """Its elements as a matrix."""
        return flat[self.begin : self.end].view(self.rows, self.columns)

    def left_of(self, every: torch.Tensor) -> torch.Tensor:
        """Its P among all, [rows, rank] each."""
        return every[self.left : self.left + self.rows]

    def right_of(self, every: torch.Tensor) -> torch.Tensor:
        """Its W among all."""
        return every[self.right : self.right + self.columns]


@dataclass(frozen=True, slots=True)
class Layout:
    """The matrices of a part, the stretches between them (begin, end), and the rows of all P and all W."""

    matrices: tuple[Matrix, ...]
    others: tuple[tuple[int, int], ...]
    left: int
    right: int

    def stretches(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """What of a part is in no matrix."""
        return [flat[begin:end] for begin, end in self.others]


@lru_cache(maxsize=1024)
def layout(shapes: tuple[tuple[int, ...], ...], rank: int) -> Layout:
    """Which parameters are worth two factors of this rank: seen as matrices of their first dimension and all others."""
    matrices: list[Matrix] = []
    others: list[tuple[int, int]] = []
    begin = left = right = 0
    for shape in shapes:
        elements = math.prod(shape)
        rows, columns = (shape[0], elements // shape[0]) if len(shape) > 1 and elements else (1, elements)
        if rows * columns >= WORTH * rank * (rows + columns):
            matrices.append(Matrix(begin, rows, columns, left, right))
            left, right = left + rows, right + columns
        elif others and others[-1][1] == begin:
            others[-1] = (others[-1][0], begin + elements)
        elif elements:
            others.append((begin, begin + elements))
        begin += elements
    return Layout(tuple(matrices), tuple(others), left, right)


def project(
    made: Layout, part: torch.Tensor, comm: Communicator, state: State, basis: torch.Tensor, *, feedback: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """What this rank has to send in all, and what of it goes first: its P of all matrices, then all else as it is."""
    total, rank = carried(part, comm, state, feedback), basis.shape[1]
    sent = room(made, rank, total.device)
    left, others = apart(made, sent, rank)
    if made.matrices:
        owners = _owners(made, total.device, left=False)
        turned = _times(basis, _orthonormal(basis, owners), owners)
        for one in made.matrices:
            torch.mm(one.of(total), one.right_of(turned), out=one.left_of(left))
    if made.others:
        torch.cat(made.stretches(total), out=others)
    return total, sent


def answer(made: Layout, total: torch.Tensor, sent: torch.Tensor, rank: int) -> torch.Tensor:
    """This rank's W of all matrices, [columns, rank] each, to the P of all ranks in `sent`."""
    right = torch.empty(made.right, rank, dtype=torch.float32, device=total.device)
    if made.matrices:
        left, owners = apart(made, sent, rank)[0], _owners(made, total.device, left=True)
        turns = _orthonormal(left, owners)
        inverted = _times(_times(left, turns, owners), turns.mT, owners)
        for one in made.matrices:
            torch.mm(one.of(total).T, one.left_of(inverted), out=one.right_of(right))
    return right


def multiply(
    made: Layout, sent: torch.Tensor, right: torch.Tensor, part: torch.Tensor, total: torch.Tensor, size: int, *, feedback: bool
) -> torch.Tensor:
    """`part` becomes what all have sent, and `total`, with feedback, what this rank of `size` has not; whether the part is not finite."""
    left, others = apart(made, sent, right.shape[1])
    result = torch.empty_like(total)
    for one in made.matrices:
        _product(one.left_of(left), one.right_of(right), one.of(result))
    if feedback:
        total.sub_(result, alpha=1 / size)
    _take_others(made, others, result, total)
    part.copy_(result)
    return ~torch.isfinite(torch.linalg.vector_norm(part, ord=torch.inf))


def next_basis(made: Layout, right: torch.Tensor, before: torch.Tensor, wrong: torch.Tensor) -> torch.Tensor:
    """W, but what there was before for matrices that are zero, since a basis of zeros would stay one, and where nobody takes the step."""
    if not made.matrices:
        return right
    owners = _owners(made, right.device, left=False)
    return torch.where((_sizes(right, owners) == 0)[owners.of, None] | wrong, before, right)


def restore(rest: torch.Tensor, before: torch.Tensor | None, wrong: torch.Tensor) -> None:
    """`rest` becomes what was there before (None: nothing), where nobody takes this step; on the device."""
    rest.copy_(torch.where(wrong, 0.0 if before is None else before, rest))


def room(made: Layout, rank: int, device: torch.device) -> torch.Tensor:
    """For what goes first."""
    return torch.empty(made.left * rank + sum(end - begin for begin, end in made.others), dtype=torch.float32, device=device)


def apart(made: Layout, sent: torch.Tensor, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of what goes first P of all matrices, and all else."""
    return sent[: made.left * rank].view(-1, rank), sent[made.left * rank :]


@dataclass(frozen=True, slots=True, eq=False)
class Owners:
    """Of the rows of all P, or all W, on a device: the matrix that each is of, and each matrix' last row."""

    of: torch.Tensor
    last: torch.Tensor


@lru_cache(maxsize=1024)
def _owners(made: Layout, device: torch.device, *, left: bool) -> Owners:
    lengths = torch.tensor([one.rows if left else one.columns for one in made.matrices])
    return Owners(torch.arange(len(lengths)).repeat_interleave(lengths).to(device), (lengths.cumsum(0) - 1).to(device))


def _sizes(factors: torch.Tensor, owners: Owners) -> torch.Tensor:
    """Each matrix' largest magnitude."""
    found = torch.zeros(owners.last.numel(), dtype=torch.float32, device=factors.device)
    return found.scatter_reduce_(0, owners.of, factors.abs().amax(1), "amax")


def _orthonormal(factors: torch.Tensor, owners: Owners) -> torch.Tensor:
    """What makes the columns of each factor orthonormal, multiplied from the right: [factors, rank, rank], by Cholesky's factors of their
    Gram matrices, in fp64: differences of their elements may be small.
    """
    sizes = _sizes(factors, owners).clamp(min=TINY)
    exact = factors.double() / sizes.double()[owners.of, None]
    sums = (exact[:, :, None] * exact[:, None, :]).cumsum(0)[owners.last]
    grams = torch.cat([sums[:1], sums.diff(dim=0)])
    mean = grams.diagonal(dim1=1, dim2=2).mean(1) + (sizes <= TINY)  # zeros get a Gram matrix all the same
    grams += torch.diag_embed((LEAST * mean)[:, None].expand(-1, grams.shape[1]))
    lower = torch.linalg.cholesky_ex(grams).L  # without a look at errors, which would wait for the device
    one = torch.eye(lower.shape[1], dtype=lower.dtype, device=lower.device).expand_as(lower)
    return torch.linalg.solve_triangular(lower, one, upper=False).mT.float() / sizes[:, None, None]


def _times(factors: torch.Tensor, small: torch.Tensor, owners: Owners) -> torch.Tensor:
    """Each factor's rows by its own [rank, rank], in fp32 whatever matrix products may be."""
    return (factors[:, :, None] * small[owners.of]).sum(1)


def _product(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
    """left right^T, one column after the other and each operation rounded: every host and the kernels make the same bits."""
    torch.mul(left[:, :1], right[:, 0], out=out)
    for column in range(1, left.shape[1]):
        out.add_(left[:, column : column + 1] * right[:, column])


def _take_others(made: Layout, others: torch.Tensor, result: torch.Tensor, rest: torch.Tensor) -> None:
    """What went as it is, is in the result as it came, and nothing of it waits."""
    if made.others:
        torch._foreach_copy_(made.stretches(result), list(others.split([end - begin for begin, end in made.others])))
        torch._foreach_zero_(made.stretches(rest))
