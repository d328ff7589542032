"""Kernels that make the columns of factors orthonormal, for all matrices of a part at once."""

import torch
import triton
import triton.language as tl

from busbw_accel.codecs.kernels.tables import Factors
from busbw_accel.codecs.powersgd_math import DIAGONAL_SHARE, MIN_FACTOR_SIZE

CELLS = 4096  # products of two columns' elements at a time


@triton.jit
def turned(value, turns, matrix, NARROW: tl.constexpr) -> tl.tensor:
    """Rows of a factor times the turn of its matrix."""
    row, column = tl.arange(0, NARROW)[:, None], tl.arange(0, NARROW)[None, :]
    return _product(
        value, tl.load(turns + matrix * NARROW * NARROW + row * NARROW + column), NARROW
    )


@triton.jit
def turned_back(value, turns, matrix, NARROW: tl.constexpr) -> tl.tensor:
    """Rows of a factor times the transposed turn of its matrix."""
    row, column = tl.arange(0, NARROW)[:, None], tl.arange(0, NARROW)[None, :]
    return _product(
        value, tl.load(turns + matrix * NARROW * NARROW + column * NARROW + row), NARROW
    )


@triton.jit
def _product(value, turn, NARROW: tl.constexpr) -> tl.tensor:
    """Rows times a square matrix.

    Triton 3.6 turns the sum over 16 or more columns into a TF32 product, with three digits only.
    """
    return (
        tl.dot(value, turn, input_precision="ieee")
        if NARROW >= 16
        else tl.sum(value[:, :, None] * turn[None, :, :], axis=1)
    )


@triton.jit
def _gram(factors, grams, spans, RANK: tl.constexpr, NARROW: tl.constexpr, AT_ONCE: tl.constexpr):
    """The Gram matrix of a span of rows of a factor."""
    first, rows = tl.load(spans + tl.program_id(0) * 3), tl.load(spans + tl.program_id(0) * 3 + 1)
    number = tl.arange(0, NARROW)
    gram = tl.zeros((NARROW, NARROW), tl.float64)
    for begin in range(0, rows, AT_ONCE):
        row = begin + tl.arange(0, AT_ONCE)
        inside = (row < rows)[:, None] & (number < RANK)[None, :]
        value = tl.load(
            factors + (first + row)[:, None] * RANK + number[None, :], mask=inside, other=0.0
        ).to(tl.float64)
        gram += tl.sum(value[:, :, None] * value[:, None, :], axis=0)
    tl.store(
        grams + tl.program_id(0) * NARROW * NARROW + number[:, None] * NARROW + number[None, :],
        gram,
    )


@triton.jit
def _turns(grams, turns, owned, least, tiny, RANK: tl.constexpr, NARROW: tl.constexpr):
    """The turn of one matrix: the Cholesky factor of the Gram matrix, inverted and transposed."""
    first, count = tl.load(owned + tl.program_id(0) * 2), tl.load(owned + tl.program_id(0) * 2 + 1)
    row, column = tl.arange(0, NARROW)[:, None], tl.arange(0, NARROW)[None, :]
    gram = tl.zeros((NARROW, NARROW), tl.float64)
    for index in range(count):
        gram += tl.load(grams + (first + index) * NARROW * NARROW + row * NARROW + column)
    on = (row == column) & (row < RANK)
    mean = tl.sum(tl.where(on, gram, 0.0)) / RANK
    # Zero factors get a mean of 1, so that they have a Cholesky factor too.
    mean += tl.where(mean > tiny * tiny, 0.0, 1.0)
    gram += tl.where(on, least * mean, 0.0)
    lower = tl.zeros((NARROW, NARROW), tl.float64)
    inverse = tl.zeros((NARROW, NARROW), tl.float64)
    for index in tl.static_range(RANK):
        pivot = tl.sqrt(tl.sum(tl.where(on & (row == index), gram, 0.0)))
        down = tl.where(
            row >= index, tl.sum(tl.where(column == index, gram, 0.0), axis=1)[:, None] / pivot, 0.0
        )
        across = tl.where(
            column >= index, tl.sum(tl.where(row == index, gram, 0.0), axis=0)[None, :] / pivot, 0.0
        )
        gram -= down * across
        lower += tl.where(column == index, down, 0.0)
    for index in tl.static_range(RANK):
        pivot = tl.sum(tl.where(on & (row == index), lower, 0.0))
        before = tl.sum(tl.where((row == index) & (column < index), lower, 0.0), axis=0)
        solved = tl.sum(before[:, None] * inverse, axis=0)[None, :]
        inverse += tl.where(
            row == index, (tl.where(column == index, 1.0, 0.0) - solved) / pivot, 0.0
        )
    transposed = turns + tl.program_id(0) * NARROW * NARROW + column * NARROW + row
    tl.store(transposed, tl.where((row < RANK) & (column < RANK), inverse, 0.0).to(tl.float32))


@triton.jit
def _turn(
    factors, result, turns, spans, RANK: tl.constexpr, NARROW: tl.constexpr, AT_ONCE: tl.constexpr
):
    """Multiply a span of rows of a factor by its turn."""
    span, number = spans + tl.program_id(0) * 3, tl.arange(0, NARROW)[None, :]
    first, rows, matrix = tl.load(span), tl.load(span + 1), tl.load(span + 2)
    for begin in range(0, rows, AT_ONCE):
        row = begin + tl.arange(0, AT_ONCE)[:, None]
        inside, at = (row < rows) & (number < RANK), (first + row) * RANK + number
        tl.store(
            result + at,
            turned(tl.load(factors + at, mask=inside, other=0.0), turns, matrix, NARROW),
            mask=inside,
        )


def turns_of(factors: torch.Tensor, tables: Factors) -> torch.Tensor:
    """The turn of each matrix, padded with zeros to `narrow`: multiplied from the right, it
    makes the columns of its factor orthonormal.
    """
    rank, count = factors.shape[1], len(tables.rows)
    width = narrow(rank)
    turns = torch.empty(count, width, width, dtype=torch.float32, device=factors.device)
    if count:
        grams = torch.empty(
            len(tables.spans), width, width, dtype=torch.float64, device=factors.device
        )
        _gram[(len(tables.spans),)](
            factors, grams, tables.spans, RANK=rank, NARROW=width, AT_ONCE=CELLS // width**2
        )
        _turns[(count,)](
            grams, turns, tables.owned, DIAGONAL_SHARE, MIN_FACTOR_SIZE, RANK=rank, NARROW=width
        )
    return turns


def orthonormal(factors: torch.Tensor, turns: torch.Tensor, tables: Factors) -> torch.Tensor:
    """All factors with orthonormal columns."""
    rank, result = factors.shape[1], torch.empty_like(factors)
    width = narrow(rank)
    _turn[(len(tables.spans),)](
        factors, result, turns, tables.spans, RANK=rank, NARROW=width, AT_ONCE=CELLS // width**2
    )
    return result


def narrow(rank: int) -> int:
    """The columns of a factor padded to a power of two."""
    return int(triton.next_power_of_2(rank))
