"""Tables on the device that assign tiles of matrices to the programs of PowerSGD's kernels.

They are made once for each layout.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from busbw_accel.codecs.powersgd_math import Matrix, MatrixLayout

# Rows and columns of a tile. Factors with more columns than FEW use squares, which are multiplied
# as matrices.
ROWS, COLUMNS, SQUARE, FEW = 4, 256, 32, 8
DEEP, WIDE = 128, 64  # rows per iteration and columns of a stack
MAX_ROWS = 1024
STRETCH = 4096  # elements outside matrices per program
SPAN = 1024  # rows of a factor per program


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """The stacked P or W of all matrices."""

    rows: torch.Tensor  # of each matrix: first row, rows
    spans: torch.Tensor  # of each span of rows: first row, rows, matrix
    owned: torch.Tensor  # of each matrix: first span, number of spans


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """The work of programs: tiles, stacks, and the stacked P and W (`left` and `right`).

    A tile is some rows of a matrix. A stack is some columns, split by rows into at most `splits`.

    A tile: offset, rows, columns and number of its matrix (-1: none), offset of its P (outside
    matrices: its offset in what is sent first), offset of W of its matrix. A stack: offset, rows,
    columns and number of its matrix, offsets of its P and W, its columns.
    """

    tiles: torch.Tensor
    stacks: torch.Tensor
    splits: int
    left: Factors
    right: Factors


@lru_cache(maxsize=1024)
def tables_of(layout: MatrixLayout, rank: int, device: torch.device) -> Tables:
    """The tables of a part with this layout, on a device."""

    def table(lines: Sequence[tuple[int, ...]], width: int) -> torch.Tensor:
        return torch.tensor(lines, dtype=torch.int64).view(-1, width).to(device)

    def factors(rows: list[tuple[int, int]]) -> Factors:
        spans: list[tuple[int, ...]] = []
        owned: list[tuple[int, ...]] = []
        for matrix, (first, count) in enumerate(rows):
            owned.append((len(spans), -(-count // SPAN)))
            spans += [
                (first + begin, min(SPAN, count - begin), matrix) for begin in range(0, count, SPAN)
            ]
        return Factors(table(rows, 2), table(spans, 3), table(owned, 2))

    tiles: list[tuple[int, ...]] = []
    stacks: list[tuple[int, ...]] = []
    others = layout.left * rank
    for number, entry in enumerate(layout.matrices):
        tiles += _tiles_of(entry, number, rank)
        stacks += _stacks_of(entry, number, rank, layout.right)
    for begin, end in layout.others:
        tiles += [
            (at, 1, min(STRETCH, end - at), -1, others + at - begin, 0)
            for at in range(begin, end, STRETCH)
        ]
        others += end - begin
    splits = max((-(-entry.rows // MAX_ROWS) for entry in layout.matrices), default=1)
    left = factors([(entry.left, entry.rows) for entry in layout.matrices])
    right = factors([(entry.right, entry.columns) for entry in layout.matrices])
    return Tables(table(tiles, 6), table(stacks, 7), splits, left, right)


def tile_of(rank: int) -> tuple[int, int]:
    """Rows and columns of a tile."""
    return (ROWS, COLUMNS) if rank <= FEW else (SQUARE, SQUARE)


def _tiles_of(matrix: Matrix, number: int, rank: int) -> list[tuple[int, ...]]:
    tile_rows, _ = tile_of(rank)
    return [
        (
            matrix.begin + first * matrix.columns,
            min(tile_rows, matrix.rows - first),
            matrix.columns,
            number,
            (matrix.left + first) * rank,
            matrix.right * rank,
        )
        for first in range(0, matrix.rows, tile_rows)
    ]


def _stacks_of(matrix: Matrix, number: int, rank: int, width: int) -> list[tuple[int, ...]]:
    return [
        (
            matrix.begin + top * matrix.columns + first,
            min(MAX_ROWS, matrix.rows - top),
            matrix.columns,
            number,
            (matrix.left + top) * rank,
            (split * width + matrix.right + first) * rank,
            min(WIDE, matrix.columns - first),
        )
        for split, top in enumerate(range(0, matrix.rows, MAX_ROWS))
        for first in range(0, matrix.columns, WIDE)
    ]
