"""The product of two narrow factors into the gradient, and what it leaves out, in one pass over both."""

import torch
import triton
import triton.language as tl

ROWS, COLUMNS = 16, 256  # of a matrix, that one program makes


@triton.jit(do_not_specialize=["size"])
def _apply(
    part,
    total,
    left,
    right,
    wrong,
    rows,
    columns,
    size,
    FED: tl.constexpr,
    RANK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A tile of part = left right^T, in its own type, and of total, less a rank's share of it; `wrong` becomes 1 where it is not finite."""
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    tall, wide = row < rows, column < columns
    made = tl.zeros((ROWS, COLUMNS), tl.float32)
    for number in tl.static_range(RANK):
        one = tl.load(left + row * RANK + number, mask=tall, other=0.0)
        other = tl.load(right + column * RANK + number, mask=wide, other=0.0)
        made += one[:, None] * other[None, :]
    at, inside = row[:, None] * columns + column[None, :], tall[:, None] & wide[None, :]
    if FED:
        tl.store(total + at, tl.load(total + at, mask=inside, other=0.0) - tl.div_rn(made, size), mask=inside)
    value = made.to(part.dtype.element_ty)
    tl.store(part + at, value, mask=inside)
    if tl.sum((~(tl.abs(value.to(tl.float32)) < float("inf"))).to(tl.int32)) > 0:
        tl.store(wrong, 1)


def apply(
    part: torch.Tensor, total: torch.Tensor, left: torch.Tensor, right: torch.Tensor, wrong: torch.Tensor, size: int, *, feedback: bool
) -> None:
    """`part` (flat) becomes left right^T, and `total`, as long, with feedback what a rank of `size` did not send of it.

    `left` is [rows, rank], `right` [columns, rank]; `wrong` (int32, on the device) becomes 1 where `part` is not finite.
    """
    (rows, rank), columns = left.shape, right.shape[0]
    grid = (triton.cdiv(rows, ROWS), triton.cdiv(columns, COLUMNS))
    _apply[grid](
        part,
        total,
        left,
        right,
        wrong,
        rows,
        columns,
        float(size),
        FED=feedback,
        RANK=rank,
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        enable_fp_fusion=False,
    )
