"""Kernels for 8-bit and 4-bit integers with a scale per block, in three passes over memory.

For 8 bits, an fp32 gradient takes 13 bytes of traffic per element to pack and 5 to unpack. Integers
and scales equal those of plain torch except for rare roundings.
"""

import torch
import triton
import triton.language as tl

from busbw_accel.codecs.base import LEAST_SCALE, SCALE_BYTES, row_bytes, row_length
from busbw_accel.codecs.kernels.averaging import exact, share
from busbw_accel.codecs.kernels.not_finite import note_not_finite
from busbw_accel.methods import BLOCK

# Lengths of gradients are not in do_not_specialize: most are multiples of 16, for which Triton
# generates wide loads.
# Adding and subtracting this number rounds to the nearest integer, halves to even.
_ROUNDER = tl.constexpr(12_582_912.0)
_INFINITY = tl.constexpr(0x7F800000)  # bits of fp32 infinity
_LEAST_SCALE, _BLOCK = tl.constexpr(LEAST_SCALE), tl.constexpr(BLOCK)
_BLOCKS = tl.constexpr(16)  # blocks per program


@triton.jit
def _rounded(blocks, BITS: tl.constexpr):
    """Integers and scales of blocks (one per row).

    A block with a value that is not finite gets the scale NaN.
    """
    limit: tl.constexpr = (1 << (BITS - 1)) - 1.0
    # Floats without sign sort like their bits; infinity and NaN are last.
    largest = tl.max(blocks.to(tl.int32, bitcast=True) & 0x7FFFFFFF, 1)
    finite = largest < _INFINITY
    scales = tl.div_rn(tl.where(finite, largest, 0).to(tl.float32, bitcast=True), limit)
    scales = tl.where(scales < _LEAST_SCALE, 0.0, scales)
    usable = finite & (scales > 0)
    shares = (
        tl.where(usable[:, None], blocks, 0.0)
        * tl.div_rn(1.0, tl.where(usable, scales, 1.0))[:, None]
    )
    return (shares + _ROUNDER) - _ROUNDER, tl.where(finite, scales, float("nan"))


@triton.jit
def _tile(width: tl.constexpr):
    """Offsets of the elements of a program's blocks from its first, which fit in 32 bits."""
    return tl.arange(0, _BLOCKS)[:, None] * width + tl.arange(0, width)[None, :]


@triton.jit
def _store(steps, first, made, there, BITS: tl.constexpr):
    """Store blocks of integers from block `first` on, one or two per byte."""
    length: tl.constexpr = _BLOCK * BITS // 8
    values = made.to(tl.int8)
    if BITS == 4:
        low, high = tl.split(tl.reshape(values, (_BLOCKS, length, 2)))
        values = (low & 15) | (high << 4)
    tl.store(steps + first * length + _tile(length), values, mask=there[:, None])


@triton.jit
def _load(steps, first, there, BITS: tl.constexpr):
    """The inverse of `_store`, in fp32."""
    length: tl.constexpr = _BLOCK * BITS // 8
    values = tl.load(steps + first * length + _tile(length), mask=there[:, None], other=0)
    if BITS == 4:
        values = tl.reshape(tl.join((values << 4) >> 4, values >> 4), (_BLOCKS, _BLOCK))
    return values.to(tl.float32)


@triton.jit
def _total(scales, steps, first, there, rows, row_scales, row_steps, BITS: tl.constexpr):
    """The sum over rows, in order."""
    total = tl.zeros((_BLOCKS, _BLOCK), tl.float32)
    for _ in range(rows):
        scale = tl.load(scales + first + tl.arange(0, _BLOCKS), mask=there, other=0.0)
        total += _load(steps, first, there, BITS) * scale[:, None]
        scales += row_scales
        steps += row_steps
    return total


@triton.jit
def _first():
    """The first block of a program, in 64 bits."""
    return tl.program_id(0).to(tl.int64) * _BLOCKS


@triton.jit
def _left(length, first):
    """Which blocks of a program exist in a row of `length` elements, and their elements."""
    left = tl.minimum(length - first * _BLOCK, _BLOCKS * _BLOCK).to(tl.int32)
    return tl.arange(0, _BLOCKS) * _BLOCK < left, left


@triton.jit
def _inside(row, first, within, elements, width):
    """Where the blocks of a row begin in a gradient, and which of their elements are in it."""
    begin = row * width + first * _BLOCK
    left = tl.minimum(elements - begin, width - first * _BLOCK)
    return begin, within < tl.minimum(left, _BLOCKS * _BLOCK).to(tl.int32)


@triton.jit(do_not_specialize=["size", "row_scales"])
def _pack(
    part,
    residual,
    rest,
    scales,
    steps,
    wrong,
    elements,
    width,
    length,
    size,
    row_scales,
    row_steps,
    KEPT: tl.constexpr,
    FED: tl.constexpr,
    NOTED: tl.constexpr,
    EXACT: tl.constexpr,
    BITS: tl.constexpr,
):
    """Pack blocks of share plus residual of one row: `width` elements, then zeros to `length`.

    With NOTED, sets `wrong` to 1 if a value is not finite.
    """
    row, first, within = tl.program_id(1).to(tl.int64), _first(), _tile(_BLOCK)
    there, _ = _left(length, first)
    begin, inside = _inside(row, first, within, elements, width)
    total = share(part + begin + within, inside, size, EXACT)
    if KEPT:
        total += tl.load(residual + begin + within, mask=inside, other=0.0)
    integers, scale = _rounded(total, BITS)
    tl.store(scales + row * row_scales + first + tl.arange(0, _BLOCKS), scale, mask=there)
    _store(steps + row * row_steps, first, integers, there, BITS)
    if FED:
        tl.store(rest + begin + within, total - integers * scale[:, None], mask=inside)
    if NOTED:
        note_not_finite(scale, wrong)


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
    """Sum all rows in order, add the kept rounding error, and pack the result."""
    first, within = _first(), _tile(_BLOCK)
    there, left = _left(length, first)
    begin, inside = first * _BLOCK, within < left
    total = _total(scales, steps, first, there, rows, row_scales, row_steps, BITS)
    if KEPT:
        total += tl.load(before + begin + within, mask=inside, other=0.0)
    integers, scale = _rounded(total, BITS)
    tl.store(made_scales + first + tl.arange(0, _BLOCKS), scale, mask=there)
    _store(made_steps, first, integers, there, BITS)
    if FED:
        tl.store(rest + begin + within, total - integers * scale[:, None], mask=inside)


@triton.jit(do_not_specialize=["row_scales"])
def _unpack(
    part,
    scales,
    steps,
    wrong,
    elements,
    width,
    length,
    row_scales,
    row_steps,
    NOTED: tl.constexpr,
    BITS: tl.constexpr,
):
    """Unpack blocks of a row into the gradient. See `_pack`."""
    row, first, within = tl.program_id(1).to(tl.int64), _first(), _tile(_BLOCK)
    there, _ = _left(length, first)
    begin, inside = _inside(row, first, within, elements, width)
    scale = tl.load(
        scales + row * row_scales + first + tl.arange(0, _BLOCKS), mask=there, other=0.0
    )
    value = _load(steps + row * row_steps, first, there, BITS) * scale[:, None]
    _put(part + begin, within, inside, value, wrong, NOTED)


@triton.jit(do_not_specialize=["rows", "row_scales"])
def _add(
    part,
    scales,
    steps,
    wrong,
    elements,
    rows,
    row_scales,
    row_steps,
    NOTED: tl.constexpr,
    BITS: tl.constexpr,
):
    """Sum all rows in order into the gradient. See `_pack`."""
    first, within = _first(), _tile(_BLOCK)
    there, left = _left(elements, first)
    total = _total(scales, steps, first, there, rows, row_scales, row_steps, BITS)
    _put(part + first * _BLOCK, within, within < left, total, wrong, NOTED)


@triton.jit
def _put(part, within, inside, value, wrong, NOTED: tl.constexpr):
    value = value.to(part.dtype.element_ty)
    tl.store(part + within, value, mask=inside)
    if NOTED:
        note_not_finite(value, wrong)


def packed(
    part: torch.Tensor,
    residual: torch.Tensor | None,
    size: int,
    rows: int,
    width: int,
    bits: int,
    *,
    feedback: bool,
    wrong: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pack share (of `size` ranks) plus residual into `rows` rows of `width` elements each.

    Returns them (uint8), padded to `row_length(width)`, and with `feedback` the rounding errors.
    Sets `wrong` (int32, on the device) to 1 if a value is not finite.
    """
    length = row_length(width)
    sent = torch.empty(rows, row_bytes(length, bits), dtype=torch.uint8, device=part.device)
    rounding_errors = torch.empty(
        part.numel() if feedback else 0, dtype=torch.float32, device=part.device
    )
    has_residual = residual is not None
    _pack[(_programs(length), rows)](
        part,
        residual if has_residual else rounding_errors,
        rounding_errors,
        *_views(sent, length),
        part if wrong is None else wrong,
        part.numel(),
        width,
        length,
        float(size),
        *_strides(length, bits),
        KEPT=has_residual,
        FED=feedback,
        NOTED=wrong is not None,
        EXACT=exact(size),
        BITS=bits,
        enable_fp_fusion=False,
    )
    return sent, rounding_errors


def summed(
    came: torch.Tensor, before: torch.Tensor | None, length: int, bits: int, *, feedback: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pack the sum of all rows and the kept rounding error into one row (uint8).

    Also returns the new rounding error.
    """
    packed_sum = torch.empty(1, row_bytes(length, bits), dtype=torch.uint8, device=came.device)
    rounding_errors = torch.empty(
        length if feedback else 0, dtype=torch.float32, device=came.device
    )
    has_errors = before is not None
    _sum[(_programs(length),)](
        *_views(came, length),
        before if has_errors else rounding_errors,
        rounding_errors,
        *_views(packed_sum, length),
        length,
        came.shape[0],
        *_strides(length, bits),
        KEPT=has_errors,
        FED=feedback,
        BITS=bits,
        enable_fp_fusion=False,
    )
    return packed_sum, rounding_errors


def unpack(
    every: torch.Tensor,
    width: int,
    bits: int,
    part: torch.Tensor,
    wrong: torch.Tensor | None = None,
) -> None:
    """Unpack all rows, of `width` elements each, into `part`; `wrong` is as in `packed`."""
    length = row_length(width)
    _unpack[(_programs(length), every.shape[0])](
        part,
        *_views(every, length),
        part if wrong is None else wrong,
        part.numel(),
        width,
        length,
        *_strides(length, bits),
        NOTED=wrong is not None,
        BITS=bits,
        enable_fp_fusion=False,
    )


def add(
    every: torch.Tensor, bits: int, part: torch.Tensor, wrong: torch.Tensor | None = None
) -> None:
    """Set `part` to the sum of all rows; `wrong` is as in `packed`."""
    length = row_length(part.numel())
    _add[(_programs(length),)](
        part,
        *_views(every, length),
        part if wrong is None else wrong,
        part.numel(),
        every.shape[0],
        *_strides(length, bits),
        NOTED=wrong is not None,
        BITS=bits,
        enable_fp_fusion=False,
    )


def _programs(length: int) -> int:
    return int(triton.cdiv(length, _BLOCKS.value * BLOCK))


def _views(rows: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Views that begin at the scales and the integers of the first row."""
    return rows.view(torch.float32), rows[:, SCALE_BYTES * length // BLOCK :].view(torch.int8)


def _strides(length: int, bits: int) -> tuple[int, int]:
    """Row strides of scales and of integers."""
    return row_bytes(length, bits) // SCALE_BYTES, row_bytes(length, bits)
