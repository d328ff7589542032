"""Integers of 8 or 4 bits with a scale for each block, in three passes over memory: for 8, 13 bytes an element to pack an fp32 gradient,
5 to unpack it.

Integers and scales are those of plain torch, but for a rounding now and then.
"""

import torch
import triton
import triton.language as tl

from busbw.accel.codecs.kernels.shares import exact, share
from busbw.accel.codecs.rules import BLOCK, LEAST_SCALE, SCALE_BYTES, row_bytes

# Lengths of gradients are not named below: where they are multiples of 16, as most are, Triton makes loads wide by it.
# Added and taken away again, it rounds to the nearest integer, halves to even.
_ROUNDER = tl.constexpr(12_582_912.0)
_INFINITY = tl.constexpr(0x7F800000)  # its bits
_LEAST_SCALE, _BLOCK = tl.constexpr(LEAST_SCALE), tl.constexpr(BLOCK)
_BLOCKS = tl.constexpr(16)  # that one program reads at a time


@triton.jit
def _rounded(blocks, BITS: tl.constexpr):
    """Steps and scales of blocks (a row each); a block with a value that is not finite has a scale that is not a number."""
    most: tl.constexpr = (1 << (BITS - 1)) - 1.0
    # Without their signs floats are in the order of their bits, infinity and then what is not a number at the end.
    largest = tl.max(blocks.to(tl.int32, bitcast=True) & 0x7FFFFFFF, 1)
    finite = largest < _INFINITY
    scales = tl.div_rn(tl.where(finite, largest, 0).to(tl.float32, bitcast=True), most)
    scales = tl.where(scales < _LEAST_SCALE, 0.0, scales)
    usable = finite & (scales > 0)
    shares = tl.where(usable[:, None], blocks, 0.0) * tl.div_rn(1.0, tl.where(usable, scales, 1.0))[:, None]
    return (shares + _ROUNDER) - _ROUNDER, tl.where(finite, scales, float("nan"))


@triton.jit
def _tile(width: tl.constexpr):
    """Where the elements of a program's blocks lie behind its first: in 32 bits, whatever lies before it."""
    return tl.arange(0, _BLOCKS)[:, None] * width + tl.arange(0, width)[None, :]


@triton.jit
def _store(steps, first, made, there, BITS: tl.constexpr):
    """Whole blocks of steps from the `first` block on, one or two to a byte."""
    length: tl.constexpr = _BLOCK * BITS // 8
    values = made.to(tl.int8)
    if BITS == 4:
        low, high = tl.split(tl.reshape(values, (_BLOCKS, length, 2)))
        values = (low & 15) | (high << 4)
    tl.store(steps + first * length + _tile(length), values, mask=there[:, None])


@triton.jit
def _load(steps, first, there, BITS: tl.constexpr):
    """What `_store` stored, in fp32."""
    length: tl.constexpr = _BLOCK * BITS // 8
    values = tl.load(steps + first * length + _tile(length), mask=there[:, None], other=0)
    if BITS == 4:
        values = tl.reshape(tl.join((values << 4) >> 4, values >> 4), (_BLOCKS, _BLOCK))
    return values.to(tl.float32)


@triton.jit
def _total(scales, steps, first, there, rows, row_scales, row_steps, BITS: tl.constexpr):
    """The sum of all rows' blocks, one after the other."""
    total = tl.zeros((_BLOCKS, _BLOCK), tl.float32)
    for _ in range(rows):
        scale = tl.load(scales + first + tl.arange(0, _BLOCKS), mask=there, other=0.0)
        total += _load(steps, first, there, BITS) * scale[:, None]
        scales += row_scales
        steps += row_steps
    return total


@triton.jit
def _first():
    """A program's first block, and as many bits as any address takes."""
    return tl.program_id(0).to(tl.int64) * _BLOCKS


@triton.jit
def _left(length, first):
    """Which of a program's blocks there are, of so many elements; and how many elements, at most what it has."""
    left = tl.minimum(length - first * _BLOCK, _BLOCKS * _BLOCK).to(tl.int32)
    return tl.arange(0, _BLOCKS) * _BLOCK < left, left


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
    EXACT: tl.constexpr,
    BITS: tl.constexpr,
):
    """A row's blocks of share and residual."""
    row, first, within = tl.program_id(1).to(tl.int64), _first(), _tile(_BLOCK)
    there, left = _left(length, first)
    begin = row * length + first * _BLOCK
    inside = within < tl.minimum(elements - begin, left).to(tl.int32)
    total = share(part + begin + within, inside, size, EXACT)
    if KEPT:
        total += tl.load(residual + begin + within, mask=inside, other=0.0)
    made, scale = _rounded(total, BITS)
    tl.store(scales + row * row_scales + first + tl.arange(0, _BLOCKS), scale, mask=there)
    _store(steps + row * row_steps, first, made, there, BITS)
    if FED:
        tl.store(rest + begin + within, total - made * scale[:, None], mask=inside)


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
    BITS: tl.constexpr,
):
    """The sum of all rows, one after the other, and of what was kept, packed again."""
    first, within = _first(), _tile(_BLOCK)
    there, left = _left(length, first)
    begin, inside = first * _BLOCK, within < left
    total = _total(scales, steps, first, there, rows, row_scales, row_steps, BITS)
    if KEPT:
        total += tl.load(before + begin + within, mask=inside, other=0.0)
    made, scale = _rounded(total, BITS)
    tl.store(made_scales + first + tl.arange(0, _BLOCKS), scale, mask=there)
    _store(made_steps, first, made, there, BITS)
    if FED:
        tl.store(rest + begin + within, total - made * scale[:, None], mask=inside)


@triton.jit(do_not_specialize=["row_scales"])
def _unpack(part, scales, steps, wrong, elements, length, row_scales, row_steps, BITS: tl.constexpr):
    """A row's blocks into the gradient, in its own type; `wrong` becomes 1 where that is not finite."""
    row, first, within = tl.program_id(1).to(tl.int64), _first(), _tile(_BLOCK)
    there, left = _left(length, first)
    begin = row * length + first * _BLOCK
    scale = tl.load(scales + row * row_scales + first + tl.arange(0, _BLOCKS), mask=there, other=0.0)
    value = _load(steps + row * row_steps, first, there, BITS) * scale[:, None]
    _put(part + begin, within, within < tl.minimum(elements - begin, left).to(tl.int32), value, wrong)


@triton.jit(do_not_specialize=["rows", "row_scales"])
def _add(part, scales, steps, wrong, elements, rows, row_scales, row_steps, BITS: tl.constexpr):
    """The sum of all rows, one after the other, into the gradient; `wrong` becomes 1 where that is not finite."""
    first, within = _first(), _tile(_BLOCK)
    there, left = _left(elements, first)
    total = _total(scales, steps, first, there, rows, row_scales, row_steps, BITS)
    _put(part + first * _BLOCK, within, within < left, total, wrong)


@triton.jit
def _put(part, within, inside, value, wrong):
    value = value.to(part.dtype.element_ty)
    tl.store(part + within, value, mask=inside)
    if tl.sum((~(tl.abs(value.to(tl.float32)) < float("inf"))).to(tl.int32)) > 0:
        tl.store(wrong, 1)


def packed(
    part: torch.Tensor, residual: torch.Tensor | None, size: int, rows: int, length: int, bits: int, *, feedback: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of uint8, `length` elements each, and what the rounding lost of share (of `size` ranks) and residual, of the part's length."""
    sent = torch.empty(rows, row_bytes(length, bits), dtype=torch.uint8, device=part.device)
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
        *_strides(length, bits),
        KEPT=kept,
        FED=feedback,
        EXACT=exact(size),
        BITS=bits,
        enable_fp_fusion=False,
    )
    return sent, rest


def summed(came: torch.Tensor, before: torch.Tensor | None, length: int, bits: int, *, feedback: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """One row of uint8: the sum of all rows and of what was kept; and what the rounding lost of it."""
    mine = torch.empty(1, row_bytes(length, bits), dtype=torch.uint8, device=came.device)
    rest = torch.empty(length if feedback else 0, dtype=torch.float32, device=came.device)
    kept = before is not None
    _sum[(_programs(length),)](
        *_views(came, length),
        before if kept else rest,
        rest,
        *_views(mine, length),
        length,
        came.shape[0],
        *_strides(length, bits),
        KEPT=kept,
        FED=feedback,
        BITS=bits,
        enable_fp_fusion=False,
    )
    return mine, rest


def unpack(every: torch.Tensor, length: int, bits: int, part: torch.Tensor) -> torch.Tensor:
    """All rows into `part`; whether that is not finite somewhere (int32, on the device)."""
    wrong = torch.zeros(1, dtype=torch.int32, device=part.device)
    grid = (_programs(length), every.shape[0])
    _unpack[grid](part, *_views(every, length), wrong, part.numel(), length, *_strides(length, bits), BITS=bits, enable_fp_fusion=False)
    return wrong


def add(every: torch.Tensor, length: int, bits: int, part: torch.Tensor) -> torch.Tensor:
    """`part` becomes the sum of all rows; whether that is not finite somewhere (int32, on the device)."""
    wrong = torch.zeros(1, dtype=torch.int32, device=part.device)
    _add[(_programs(length),)](
        part,
        *_views(every, length),
        wrong,
        part.numel(),
        every.shape[0],
        *_strides(length, bits),
        BITS=bits,
        enable_fp_fusion=False,
    )
    return wrong


def _programs(length: int) -> int:
    return int(triton.cdiv(length, _BLOCKS.value * BLOCK))


def _views(rows: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Where the first row's scales and steps begin."""
    return rows.view(torch.float32), rows[:, SCALE_BYTES * length // BLOCK :].view(torch.int8)


def _strides(length: int, bits: int) -> tuple[int, int]:
    """From row to row, of scales and of steps."""
    return row_bytes(length, bits) // SCALE_BYTES, row_bytes(length, bits)
