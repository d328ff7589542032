"""The steps of codecs/powersgd_math.py in Triton.

They take three passes over a gradient, and a few small kernels for all its matrices at once. Tables
on the device, made once for each layout, assign tiles of matrices to programs.
"""

import torch
import triton
import triton.language as tl

from busbw_accel.codecs.base import RESIDUAL, State
from busbw_accel.codecs.kernels.averaging import divided, exact, share
from busbw_accel.codecs.kernels.not_finite import note_not_finite, restore
from busbw_accel.codecs.kernels.orthonormal import (
    narrow,
    orthonormal,
    turned,
    turned_back,
    turns_of,
)
from busbw_accel.codecs.kernels.tables import DEEP, FEW, WIDE, tables_of, tile_of
from busbw_accel.codecs.powersgd_math import MatrixLayout, apart, room
from busbw_accel.communicator import Communicator

__all__ = ["answer", "multiply", "next_basis", "project", "restore"]

AT_ONCE = 4096  # elements of a factor per iteration


@triton.jit
def _tile(tiles):
    """A tile: its offset, rows, columns and matrix (-1: none), and the offsets of its P and W."""
    tile = tiles + tl.program_id(0) * 6
    rows, columns, matrix = (
        tl.load(tile + 1).to(tl.int32),
        tl.load(tile + 2).to(tl.int32),
        tl.load(tile + 3).to(tl.int32),
    )
    return tl.load(tile), rows, columns, matrix, tl.load(tile + 4), tl.load(tile + 5)


@triton.jit
def _carried(part, residual, total, at, inside, size, KEPT: tl.constexpr, EXACT: tl.constexpr):
    value = share(part + at, inside, size, EXACT)
    if KEPT:
        value += tl.load(residual + at, mask=inside, other=0.0)
    tl.store(total + at, value, mask=inside)
    return value


@triton.jit(do_not_specialize=["size"])
def _project(
    part,
    residual,
    total,
    sent,
    basis,
    turns,
    tiles,
    size,
    KEPT: tl.constexpr,
    EXACT: tl.constexpr,
    DOT: tl.constexpr,
    RANK: tl.constexpr,
    NARROW: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Store the total of a tile, and P = (total basis) turn.

    Outside matrices, store the total in what is sent first.
    """
    begin, rows, columns, matrix, left, right = _tile(tiles)
    part, residual, total, sent, basis = (
        part + begin,
        residual + begin,
        total + begin,
        sent + left,
        basis + right,
    )
    if matrix < 0:
        for first in range(0, columns, ROWS * COLUMNS):
            at = first + tl.arange(0, ROWS * COLUMNS)
            tl.store(
                sent + at,
                _carried(part, residual, total, at, at < columns, size, KEPT, EXACT),
                mask=at < columns,
            )
    else:
        row, number = tl.arange(0, ROWS)[:, None], tl.arange(0, NARROW)[None, :]
        product = tl.zeros((ROWS, NARROW), tl.float32)
        for first in range(0, columns, COLUMNS):
            column = first + tl.arange(0, COLUMNS)
            at, inside = row * columns + column[None, :], (row < rows) & (column < columns)[None, :]
            value = _carried(part, residual, total, at, inside, size, KEPT, EXACT)
            if DOT:
                other = tl.load(
                    basis + column[:, None] * RANK + number,
                    mask=(column < columns)[:, None] & (number < RANK),
                    other=0.0,
                )
                product = tl.dot(value, other, product, input_precision="ieee")
            else:
                for index in tl.static_range(RANK):
                    other = tl.load(basis + column * RANK + index, mask=column < columns, other=0.0)
                    product += tl.where(
                        number == index, tl.sum(value * other[None, :], axis=1)[:, None], 0.0
                    )
        product = turned(product, turns, matrix, NARROW)
        tl.store(sent + row * RANK + number, product, mask=(row < rows) & (number < RANK))


@triton.jit
def _answer(
    total,
    base,
    answers,
    turns,
    tiles,
    DOT: tl.constexpr,
    RANK: tl.constexpr,
    NARROW: tl.constexpr,
    DEEP: tl.constexpr,
    WIDE: tl.constexpr,
):
    """W = (total^T base) turn^T for a stack, where the columns of `base` are orthonormal."""
    tile = tiles + tl.program_id(0) * 7
    rows, columns, width = (
        tl.load(tile + 1).to(tl.int32),
        tl.load(tile + 2).to(tl.int32),
        tl.load(tile + 6).to(tl.int32),
    )
    total, base, answers = (
        total + tl.load(tile),
        base + tl.load(tile + 4),
        answers + tl.load(tile + 5),
    )
    column, number = tl.arange(0, WIDE), tl.arange(0, NARROW)[None, :]
    product = tl.zeros((WIDE, NARROW), tl.float32)
    for first in range(0, rows, DEEP):
        row = first + tl.arange(0, DEEP)
        inside = (row < rows)[:, None] & (column < width)[None, :]
        value = tl.load(total + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
        if DOT:
            other = tl.load(
                base + row[:, None] * RANK + number,
                mask=(row < rows)[:, None] & (number < RANK),
                other=0.0,
            )
            product = tl.dot(tl.trans(value), other, product, input_precision="ieee")
        else:
            for index in tl.static_range(RANK):
                other = tl.load(base + row * RANK + index, mask=row < rows, other=0.0)
                product += tl.where(
                    number == index, tl.sum(value * other[:, None], axis=0)[:, None], 0.0
                )
    product = turned_back(product, turns, tl.load(tile + 3), NARROW)
    tl.store(
        answers + column[:, None] * RANK + number,
        product,
        mask=(column < width)[:, None] & (number < RANK),
    )


@triton.jit(do_not_specialize=["size"])
def _multiply(
    part,
    total,
    sent,
    right,
    wrong,
    tiles,
    size,
    FED: tl.constexpr,
    EXACT: tl.constexpr,
    RANK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A tile of part = P W^T, and of the residual: total minus a rank's share of it.

    Sets `wrong` to 1 if a value is not finite.
    """
    begin, rows, columns, matrix, lefts, rights = _tile(tiles)
    part, total, sent, right = part + begin, total + begin, sent + lefts, right + rights
    if matrix < 0:
        for first in range(0, columns, ROWS * COLUMNS):
            at = first + tl.arange(0, ROWS * COLUMNS)
            value = tl.load(sent + at, mask=at < columns, other=0.0).to(part.dtype.element_ty)
            tl.store(part + at, value, mask=at < columns)
            if FED:
                tl.store(total + at, tl.zeros((ROWS * COLUMNS,), tl.float32), mask=at < columns)
            note_not_finite(value, wrong)
    else:
        row = tl.arange(0, ROWS)
        for first in range(0, columns, COLUMNS):
            column = first + tl.arange(0, COLUMNS)
            at, inside = (
                row[:, None] * columns + column[None, :],
                (row < rows)[:, None] & (column < columns)[None, :],
            )
            product = tl.zeros((ROWS, COLUMNS), tl.float32)
            for number in tl.static_range(RANK):
                left_column = tl.load(sent + row * RANK + number, mask=row < rows, other=0.0)
                right_column = tl.load(
                    right + column * RANK + number, mask=column < columns, other=0.0
                )
                product += left_column[:, None] * right_column[None, :]
            if FED:
                tl.store(
                    total + at,
                    tl.load(total + at, mask=inside, other=0.0) - divided(product, size, EXACT),
                    mask=inside,
                )
            value = product.to(part.dtype.element_ty)
            tl.store(part + at, value, mask=inside)
            note_not_finite(value, wrong)


@triton.jit
def _next_basis(right, before, wrong, every, RANK: tl.constexpr, AT_ONCE: tl.constexpr):
    """Reset W of a matrix to `before` if it is zero or the step is skipped."""
    first, rows = tl.load(every + tl.program_id(0) * 2), tl.load(every + tl.program_id(0) * 2 + 1)
    largest = tl.zeros((AT_ONCE,), tl.float32)
    for begin in range(0, rows * RANK, AT_ONCE):
        at = begin + tl.arange(0, AT_ONCE)
        largest = tl.maximum(
            largest, tl.abs(tl.load(right + first * RANK + at, mask=at < rows * RANK, other=0.0))
        )
    if (tl.max(largest) == 0.0) | (tl.load(wrong) != 0):
        for begin in range(0, rows * RANK, AT_ONCE):
            at = first * RANK + begin + tl.arange(0, AT_ONCE)
            inside = begin + tl.arange(0, AT_ONCE) < rows * RANK
            tl.store(right + at, tl.load(before + at, mask=inside, other=0.0), mask=inside)


def project(
    layout: MatrixLayout,
    part: torch.Tensor,
    comm: Communicator,
    state: State,
    basis: torch.Tensor,
    *,
    feedback: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    rank, residual = basis.shape[1], state.get(RESIDUAL) if feedback else None
    tables = tables_of(layout, rank, part.device)
    total = torch.empty(part.shape, dtype=torch.float32, device=part.device)
    sent, turns = room(layout, rank, part.device), turns_of(basis, tables.right)
    before = total if residual is None else residual
    shape = {"DOT": rank > FEW, "RANK": rank, "NARROW": narrow(rank), **_tiled(rank, comm.size)}
    arguments = part, before, total, sent, basis, turns, tables.tiles, float(comm.size)
    _project[(len(tables.tiles),)](
        *arguments, KEPT=residual is not None, **shape, enable_fp_fusion=False
    )
    return total, sent


def _tiled(rank: int, size: int) -> dict[str, int | bool]:
    rows, columns = tile_of(rank)
    return {"ROWS": rows, "COLUMNS": columns, "EXACT": exact(size), **_staged(rank)}


def _staged(rank: int) -> dict[str, int]:
    """Compiler options.

    Prefetching squares uses so much shared memory that a pass takes four times as long.
    """
    return {"num_stages": 1} if rank > FEW else {}


def answer(
    layout: MatrixLayout, total: torch.Tensor, sent: torch.Tensor, rank: int
) -> torch.Tensor:
    tables = tables_of(layout, rank, total.device)
    shape = {"DOT": rank > FEW, "RANK": rank, "NARROW": narrow(rank), **_staged(rank)}
    new = torch.zeros if tables.splits > 1 else torch.empty
    answers = new(tables.splits, layout.right, rank, dtype=torch.float32, device=total.device)
    if layout.matrices:
        left = apart(layout, sent, rank)[0]
        turns = turns_of(left, tables.left)
        base = orthonormal(left, turns, tables.left)
        _answer[(len(tables.stacks),)](
            total, base, answers, turns, tables.stacks, DEEP=DEEP, WIDE=WIDE, **shape
        )
    return answers.sum(0) if tables.splits > 1 else answers[0]


def multiply(
    layout: MatrixLayout,
    sent: torch.Tensor,
    right: torch.Tensor,
    part: torch.Tensor,
    total: torch.Tensor,
    size: int,
    *,
    feedback: bool,
) -> torch.Tensor:
    """See powersgd_math.multiply. `part` has the same bits."""
    rank = right.shape[1]
    tiles = tables_of(layout, rank, part.device).tiles
    wrong = torch.zeros(1, dtype=torch.int32, device=part.device)
    shape = {"FED": feedback, "RANK": rank, **_tiled(rank, size), "enable_fp_fusion": False}
    _multiply[(len(tiles),)](part, total, sent, right, wrong, tiles, float(size), **shape)
    return wrong


def next_basis(
    layout: MatrixLayout, right: torch.Tensor, before: torch.Tensor, wrong: torch.Tensor
) -> torch.Tensor:
    """See powersgd_math.next_basis. Changes `right` in place."""
    if layout.matrices:
        rows = tables_of(layout, right.shape[1], right.device).right.rows
        _next_basis[(len(rows),)](right, before, wrong, rows, RANK=right.shape[1], AT_ONCE=AT_ONCE)
    return right
