"""Bytes with a scale for each block, in three passes over memory: 13 bytes an element to pack an fp32 gradient, 5 to unpack it.

The bytes and scales are those of plain torch, but for a rounding now and then.
"""

import torch
import triton
import triton.language as tl

from busbw.accel.codecs.rules import BLOCK, LEAST_SCALE, SCALE_BYTES, STEPS

BLOCKS = 16  # that one program reads at a time
# Lengths of gradients are not named below: where they are multiples of 16, as most are, Triton makes loads wide by it.
# Added and taken away again, it rounds to the nearest integer, halves to even.
_ROUNDER = tl.constexpr(12_582_912.0)
_LEAST_SCALE, _STEPS = tl.constexpr(LEAST_SCALE), tl.constexpr(float(STEPS))


@triton.jit
def _rounded(blocks):
    """Steps and scales of blocks (a row each); a block with a value that is not finite has a scale that is no number."""
    magnitude = tl.abs(blocks)
    finite = tl.min((magnitude < float("inf")).to(tl.int32), 1) == 1
    scales = tl.div_rn(tl.max(tl.where(magnitude < float("inf"), magnitude, 0.0), 1), _STEPS)
    scales = tl.where(scales < _LEAST_SCALE, 0.0, scales)
    usable = finite & (scales > 0)
    shares = tl.div_rn(tl.where(usable[:, None], blocks, 0.0), tl.where(usable, scales, 1.0)[:, None])
    return (shares + _ROUNDER) - _ROUNDER, tl.where(finite, scales, float("nan"))


@triton.jit(do_not_specialize=["size", "row_scales"])
def _pack(
    part,
    residual,
    rest,
    scales,
    steps,
    elements,
    length,
    size,
    row_scales,
    row_steps,
    KEPT: tl.constexpr,
    FED: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A row's blocks of share and residual."""
    row, block = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    within = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = block * BLOCK < length
    at = row * length + within
    inside = (within < length) & (at < elements)
    total = tl.div_rn(tl.load(part + at, mask=inside, other=0.0).to(tl.float32), size)
    if KEPT:
        total += tl.load(residual + at, mask=inside, other=0.0)
    made, scale = _rounded(total)
    tl.store(scales + row * row_scales + block, scale, mask=there)
    tl.store(steps + row * row_steps + within, made.to(tl.int8), mask=there[:, None])
    if FED:
        tl.store(rest + at, total - made * scale[:, None], mask=inside)


@triton.jit(do_not_specialize=["rows", "row_scales"])
def _sum(
    scales,
    steps,
    before,
    rest,
    made_scales,
    made_steps,
    length,
    rows,
    row_scales,
    row_steps,
    KEPT: tl.constexpr,
    FED: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The sum of all rows, one after the other, and of what was kept, packed again."""
    block = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    within = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    there, inside = block * BLOCK < length, within < length
    total = tl.zeros((BLOCKS, BLOCK), tl.float32)
    for _ in range(rows):
        scale = tl.load(scales + block, mask=there, other=0.0)
        total += tl.load(steps + within, mask=inside, other=0).to(tl.float32) * scale[:, None]
        scales += row_scales
        steps += row_steps
    if KEPT:
        total += tl.load(before + within, mask=inside, other=0.0)
    made, scale = _rounded(total)
    tl.store(made_scales + block, scale, mask=there)
    tl.store(made_steps + within, made.to(tl.int8), mask=inside)
    if FED:
        tl.store(rest + within, total - made * scale[:, None], mask=inside)


@triton.jit(do_not_specialize=["row_scales"])
def _unpack(part, scales, steps, wrong, elements, length, row_scales, row_steps, BLOCKS: tl.constexpr, BLOCK: tl.constexpr):
    """A row's blocks into the gradient, in its own type; `wrong` becomes 1 where that is not finite."""
    row, block = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    within = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    at = row * length + within
    inside = (within < length) & (at < elements)
    scale = tl.load(scales + row * row_scales + block, mask=block * BLOCK < length, other=0.0)
    value = tl.load(steps + row * row_steps + within, mask=inside, other=0).to(tl.float32) * scale[:, None]
    value = value.to(part.dtype.element_ty)
    tl.store(part + at, value, mask=inside)
    if tl.sum((~(tl.abs(value.to(tl.float32)) < float("inf"))).to(tl.int32)) > 0:
        tl.store(wrong, 1)


@triton.jit(do_not_specialize=["rows", "row_scales"])
def _add(part, scales, steps, wrong, elements, rows, row_scales, row_steps, BLOCKS: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of all rows, one after the other, into the gradient; `wrong` becomes 1 where that is not finite."""
    block = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    within = block.to(tl.int64)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    there, inside = block.to(tl.int64) * BLOCK < elements, within < elements
    total = tl.zeros((BLOCKS, BLOCK), tl.float32)
    for _ in range(rows):
        scale = tl.load(scales + block, mask=there, other=0.0)
        total += tl.load(steps + within, mask=inside, other=0).to(tl.float32) * scale[:, None]
        scales += row_scales
        steps += row_steps
    value = total.to(part.dtype.element_ty)
    tl.store(part + within, value, mask=inside)
    if tl.sum((~(tl.abs(value.to(tl.float32)) < float("inf"))).to(tl.int32)) > 0:
        tl.store(wrong, 1)


def packed(
    part: torch.Tensor, residual: torch.Tensor | None, size: int, rows: int, length: int, *, feedback: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of uint8, `length` elements each, and what the rounding lost of share (of `size` ranks) and residual, of the part's length."""
    sent = torch.empty(rows, _row_bytes(length), dtype=torch.uint8, device=part.device)
    rest = torch.empty(part.numel() if feedback else 0, dtype=torch.float32, device=part.device)
    kept = residual is not None
    _pack[(_programs(length), rows)](
        part,
        residual if kept else rest,
        rest,
        *_views(sent, length),
        part.numel(),
        length,
        float(size),
        *_strides(length),
        KEPT=kept,
        FED=feedback,
        BLOCKS=BLOCKS,
        BLOCK=BLOCK,
    )
    return sent, rest


def summed(came: torch.Tensor, before: torch.Tensor | None, length: int, *, feedback: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """One row of uint8: the sum of all rows and of what was kept; and what the rounding lost of it."""
    mine = torch.empty(1, _row_bytes(length), dtype=torch.uint8, device=came.device)
    rest = torch.empty(length if feedback else 0, dtype=torch.float32, device=came.device)
    kept = before is not None
    _sum[(_programs(length),)](
        *_views(came, length),
        before if kept else rest,
        rest,
        *_views(mine, length),
        length,
        came.shape[0],
        *_strides(length),
        KEPT=kept,
        FED=feedback,
        BLOCKS=BLOCKS,
        BLOCK=BLOCK,
        enable_fp_fusion=False,
    )
    return mine, rest


def unpack(every: torch.Tensor, length: int, part: torch.Tensor) -> torch.Tensor:
    """All rows into `part`; whether that is not finite somewhere (int32, on the device)."""
    wrong = torch.zeros(1, dtype=torch.int32, device=part.device)
    grid = (_programs(length), every.shape[0])
    _unpack[grid](
        part, *_views(every, length), wrong, part.numel(), length, *_strides(length), BLOCKS=BLOCKS, BLOCK=BLOCK, enable_fp_fusion=False
    )
    return wrong


def add(every: torch.Tensor, length: int, part: torch.Tensor) -> torch.Tensor:
    """`part` becomes the sum of all rows; whether that is not finite somewhere (int32, on the device)."""
    wrong = torch.zeros(1, dtype=torch.int32, device=part.device)
    _add[(_programs(length),)](
        part,
        *_views(every, length),
        wrong,
        part.numel(),
        every.shape[0],
        *_strides(length),
        BLOCKS=BLOCKS,
        BLOCK=BLOCK,
        enable_fp_fusion=False,
    )
    return wrong


def _row_bytes(length: int) -> int:
    return SCALE_BYTES * length // BLOCK + length


def _programs(length: int) -> int:
    return int(triton.cdiv(length, BLOCKS * BLOCK))


def _views(rows: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Where the first row's scales and steps begin."""
    return rows.view(torch.float32), rows[:, SCALE_BYTES * length // BLOCK :].view(torch.int8)


def _strides(length: int) -> tuple[int, int]:
    """From row to row, of scales and of steps."""
    return _row_bytes(length) // SCALE_BYTES, _row_bytes(length)
