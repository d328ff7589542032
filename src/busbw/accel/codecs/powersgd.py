"""Every matrix as the product of two narrow ones, found by one step of power iteration from the last ones; the rest waits in the residual.

PowerSGD (Vogels, Karimireddy and Jaggi 2019, arXiv 1905.13727) with its error feedback and warm start. A matrix M of n x m, the sum over
ranks of their shares with what was left, becomes P W^T: P = M Q with an orthonormal Q of the step before, and W = M^T P (P^T P)^-1, which
is the projection of M onto the columns of P. P and W are sums over ranks, so every rank multiplies the same bits; what is computed from
P alone, as the inverse is, may differ in its last bits between ranks, and only goes into the sum of W. Biases, norms and small matrices
ride along with P as they are. Nothing waits for the device.
"""

import math
from dataclasses import dataclass

import torch
import torch.distributed as dist

from busbw.accel.codecs import kernels
from busbw.accel.codecs.base import RESIDUAL, Codec, State, carried, ring_bytes
from busbw.accel.mesh import Line

BASIS = "basis"  # W of all matrices, one after the other
WORTH = 2  # times as many elements as both factors must a matrix have
# Of a Gram matrix' mean eigenvalue, added to each: columns that are nearly dependent count for less instead of blowing up, and what that
# leaves out stays in the residual.
LEAST = 1e-12
TINY = 1e-30  # the size below which a factor counts as zeros
SEED = 1905


@dataclass(frozen=True, slots=True)
class Matrix:
    """One parameter of a part: where it begins, its rows and columns, and where its P and W lie in what is exchanged."""

    begin: int
    rows: int
    columns: int
    left: int
    right: int

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        """Its elements as a matrix."""
        return flat[self.begin : self.begin + self.rows * self.columns].view(self.rows, self.columns)


@dataclass(frozen=True, slots=True)
class Layout:
    """The matrices of a part, the stretches between them (begin, end), and the elements of all P and all W."""

    matrices: tuple[Matrix, ...]
    others: tuple[tuple[int, int], ...]
    left: int
    right: int


Factors = list[tuple[torch.Tensor, torch.Tensor]]  # P and W of each matrix


class PowerSgd(Codec):
    """Sends 4 `matrix_rank` bytes for each row and column of a matrix, each twice as an all-reduce does."""

    def exchange(self, part: torch.Tensor, line: Line, state: State, step: int) -> int:
        """See Codec.exchange."""
        if step < self.settings.warmup_steps:
            return self._densely(part, line)
        made = layout(self.shapes, self.settings.matrix_rank)
        rank = self.settings.matrix_rank
        total = carried(part, line, state, self.settings.feedback)
        if BASIS not in state:
            state[BASIS] = _begin(made.right, part.device)
        sent = self._left(made, total, state[BASIS], rank)
        dist.all_reduce(sent, group=line.group)
        right = self._right(made, total, sent, rank)
        if made.matrices:
            dist.all_reduce(right, group=line.group)
        factors = [
            (_factor(sent, matrix.left, matrix.rows, rank), _factor(right, matrix.right, matrix.columns, rank)) for matrix in made.matrices
        ]
        rests = {BASIS: self._basis(made, right, state[BASIS], rank)}
        if self.settings.feedback:
            rests[RESIDUAL] = total
        multiply = self._in_kernels if kernels.usable(part) else self._plain
        wrong = multiply(made, factors, sent[made.left :], part, total, line.size)
        for name, rest in rests.items():
            _restore(rest, state.get(name), wrong)
            state[name] = rest
        return line.ring(ring_bytes(sent.nbytes, line.size)) + line.ring(ring_bytes(right.nbytes, line.size))

    def _in_kernels(
        self, made: Layout, factors: Factors, others: torch.Tensor, part: torch.Tensor, total: torch.Tensor, size: int
    ) -> torch.Tensor:
        """`part` becomes what was sent, and `total` what was not; whether that is not finite somewhere (on the device)."""
        from busbw.accel.codecs.kernels import powersgd  # Triton takes a second to import

        wrong = (~torch.isfinite(others.to(part.dtype)).all()).to(torch.int32).view(1)
        for matrix, (left, right) in zip(made.matrices, factors, strict=True):
            inside = slice(matrix.begin, matrix.begin + matrix.rows * matrix.columns)
            powersgd.apply(part[inside], total[inside], left, right, wrong, size, feedback=self.settings.feedback)
        _unpack_others(made, others, part)
        _without_others(made, total)
        return wrong

    def _plain(
        self, made: Layout, factors: Factors, others: torch.Tensor, part: torch.Tensor, total: torch.Tensor, size: int
    ) -> torch.Tensor:
        """As `_in_kernels`."""
        result = torch.empty_like(total)
        for matrix, (left, right) in zip(made.matrices, factors, strict=True):
            _product(left, right, matrix.of(result))
        _unpack_others(made, others, result)
        part.copy_(result)
        _without_others(made, total.sub_(result, alpha=1 / size))
        return ~torch.isfinite(torch.linalg.vector_norm(part, ord=torch.inf))

    def _densely(self, part: torch.Tensor, line: Line) -> int:
        part.div_(line.size)
        dist.all_reduce(part, group=line.group)
        return line.ring(ring_bytes(part.nbytes, line.size))

    def _left(self, made: Layout, total: torch.Tensor, basis: torch.Tensor, rank: int) -> torch.Tensor:
        """This rank's P of all matrices, then all else as it is."""
        sent = torch.empty(made.left + sum(end - begin for begin, end in made.others), dtype=torch.float32, device=total.device)
        bases = [_factor(basis, matrix.right, matrix.columns, rank) for matrix in made.matrices]
        for matrix, before, turn in zip(made.matrices, bases, _orthonormal(bases), strict=True):
            torch.mm(matrix.of(total), _times(before, turn), out=_factor(sent, matrix.left, matrix.rows, rank))
        at = made.left
        for begin, end in made.others:
            sent[at : at + end - begin] = total[begin:end]
            at += end - begin
        return sent

    def _right(self, made: Layout, total: torch.Tensor, sent: torch.Tensor, rank: int) -> torch.Tensor:
        """This rank's W of all matrices."""
        right = torch.empty(made.right, dtype=torch.float32, device=total.device)
        lefts = [_factor(sent, matrix.left, matrix.rows, rank) for matrix in made.matrices]
        for matrix, left, turn in zip(made.matrices, lefts, _orthonormal(lefts), strict=True):
            torch.mm(matrix.of(total).T, _times(_times(left, turn), turn.T), out=_factor(right, matrix.right, matrix.columns, rank))
        return right

    def _basis(self, made: Layout, right: torch.Tensor, before: torch.Tensor, rank: int) -> torch.Tensor:
        """W, but for matrices that were zero: a basis of zeros would stay one."""
        now = right.clone()
        for matrix in made.matrices:
            mine, old = _factor(now, matrix.right, matrix.columns, rank), _factor(before, matrix.right, matrix.columns, rank)
            mine.copy_(torch.where(mine.any(), mine, old))
        return now


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
            left, right = left + rows * rank, right + columns * rank
        elif others and others[-1][1] == begin:
            others[-1] = (others[-1][0], begin + elements)
        elif elements:
            others.append((begin, begin + elements))
        begin += elements
    return Layout(tuple(matrices), tuple(others), left, right)


def _factor(flat: torch.Tensor, begin: int, rows: int, rank: int) -> torch.Tensor:
    return flat[begin : begin + rows * rank].view(rows, rank)


def _begin(elements: int, device: torch.device) -> torch.Tensor:
    """The same on every rank."""
    return torch.randn(elements, generator=torch.Generator().manual_seed(SEED), dtype=torch.float32).to(device)


def _orthonormal(factors: list[torch.Tensor]) -> torch.Tensor:
    """What makes the columns of each factor orthonormal, multiplied from the right: [factors, rank, rank], by Cholesky's factors of their
    Gram matrices.
    """
    if not factors:
        return torch.empty(0)
    sizes = torch.stack([factor.abs().amax() for factor in factors]).clamp(min=TINY)
    grams = torch.stack([_gram(factor / size) for factor, size in zip(factors, sizes, strict=True)])
    mean = grams.diagonal(dim1=1, dim2=2).mean(1) + (sizes <= TINY)  # zeros get a Gram matrix all the same
    grams += torch.diag_embed((LEAST * mean)[:, None].expand(-1, grams.shape[1]))
    lower = torch.linalg.cholesky_ex(grams).L  # without a look at errors, which would wait for the device
    one = torch.eye(lower.shape[1], dtype=lower.dtype, device=lower.device).expand_as(lower)
    return torch.linalg.solve_triangular(lower, one, upper=False).mT.float() / sizes[:, None, None]


def _gram(factor: torch.Tensor) -> torch.Tensor:
    """Products of the columns, in fp64: their differences may be small."""
    exact = factor.double()
    return exact.T @ exact


def _times(factor: torch.Tensor, small: torch.Tensor) -> torch.Tensor:
    """[rows, rank] by [rank, rank], in fp32 whatever matrix products may be."""
    return (factor[:, :, None] * small[None]).sum(1)


def _product(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
    """left right^T. On CPUs one column after the other: how a matrix product adds depends on a host's number of threads."""
    if out.is_cuda:
        torch.mm(left, right.T, out=out)
        return
    torch.mul(left[:, :1], right[:, 0], out=out)
    for column in range(1, left.shape[1]):
        out.addcmul_(left[:, column : column + 1], right[:, column])


def _unpack_others(made: Layout, others: torch.Tensor, result: torch.Tensor) -> None:
    at = 0
    for begin, end in made.others:
        result[begin:end] = others[at : at + end - begin]
        at += end - begin


def _without_others(made: Layout, rest: torch.Tensor) -> None:
    """Of what went as it is, nothing waits."""
    for begin, end in made.others:
        rest[begin:end] = 0.0


def _restore(rest: torch.Tensor, before: torch.Tensor | None, wrong: torch.Tensor) -> None:
    """`rest` becomes what was there before (None: nothing), where nobody takes this step; on the device."""
    if kernels.usable(rest):
        from busbw.accel.codecs.kernels import kept

        kept.restore(rest, before, wrong)
    else:
        rest.copy_(torch.where(wrong, 0.0 if before is None else before, rest))
