"""Kernels that code gradients in fewer bytes, and back, in the bytes of `codecs.exponents`.

A program takes a block. Coding is in two passes, since the first gives the lengths of blocks, whose
sums say where the second writes each.
"""

import torch
import triton
import triton.language as tl

from busbw_accel.codecs.exponents import (
    ALIGNMENT,
    HEADER_BYTES,
    MOST_WIDTH,
    PLANE_BYTES,
    PROLOGUE,
    SPARSE,
    WHOLE,
)
from busbw_accel.methods import BLOCK

_BLOCK, _PLANE = tl.constexpr(BLOCK), tl.constexpr(PLANE_BYTES)
_SPARSE, _WHOLE = tl.constexpr(SPARSE), tl.constexpr(WHOLE)
_WIDTHS = tl.constexpr(MOST_WIDTH + 1)
_HEADER, _ALIGNMENT = tl.constexpr(HEADER_BYTES), tl.constexpr(ALIGNMENT)
_PROLOGUE = tl.constexpr(PROLOGUE)
_WORDS = {2: torch.int16, 4: torch.int32}


@triton.jit
def _split(words, elements, SIZE: tl.constexpr):
    """The top bytes and the rests of this program's block."""
    at = tl.program_id(0) * _BLOCK + tl.arange(0, _BLOCK)
    word = tl.load(words + at, mask=at < elements, other=0).to(tl.int32)
    shift: tl.constexpr = 8 * SIZE - 9
    sign = (word >> (8 * SIZE - 1)) & 1
    return (word >> shift) & 255, (word & ((1 << shift) - 1)) | (sign << shift)


@triton.jit
def _number(flags):
    """The number of elements with a flag."""
    return tl.sum(flags.to(tl.int32), 0)


@triton.jit(do_not_specialize=["elements"])
def _describe(words, headers, lengths, elements, SIZE: tl.constexpr):
    """Make the header of a block, and its length without it."""
    tops, rests = _split(words, elements, SIZE)
    base = tl.max(tops, 0)
    offsets = base - tops
    best = 8 * (_PLANE * _WIDTHS + _BLOCK)
    for width in tl.static_range(1, _WIDTHS):
        escaped = _number(offsets >= (1 << width) - 1)
        best = tl.minimum(best, 8 * (_PLANE * width + escaped) + width)
    best = tl.where(tl.max(offsets, 0) == 0, 0, best)
    header = base | ((best & 7) << 8)
    length = best >> 3
    for plane in tl.static_range(SIZE - 1):
        count = _number(((rests >> (8 * plane)) & 255) != 0)
        mode = tl.where(count + _PLANE < _BLOCK, _SPARSE, _WHOLE)
        header |= tl.where(count == 0, 0, mode) << (12 + 2 * plane)
        kept = tl.minimum(count + _PLANE, _BLOCK)
        length += tl.where(count == 0, 0, kept)
    tl.store(headers + tl.program_id(0), header | (length << 18))
    tl.store(lengths + tl.program_id(0), length)


@triton.jit
def _store_bits(flags, out):
    """Store a plane of bits."""
    bits = tl.reshape(flags.to(tl.int32), (_PLANE, 8)) << tl.arange(0, 8)[None, :]
    tl.store(out + tl.arange(0, _PLANE), tl.sum(bits, 1).to(tl.uint8))


@triton.jit
def _store_listed(values, kept, out):
    """Store the kept values one after the other. Returns their number."""
    flags = kept.to(tl.int32)
    # compared, since the interpreter takes no mask with a scalar part
    tl.store(out + tl.cumsum(flags, 0) - 1, values.to(tl.uint8), mask=flags != 0)
    return tl.sum(flags, 0)


@triton.jit(do_not_specialize=["elements", "most", "room"])
def _write(words, headers, ends, head, content, plain, elements, most, room, SIZE: tl.constexpr):
    """Write a block and its header, if the coded row has at most `most` bytes; otherwise its
    elements. The last program also writes the head, and zeros after the content.
    """
    block, last = tl.program_id(0), tl.num_programs(0) - 1
    first = _HEADER * (last + 1)
    end = first + tl.load(ends + last)
    total = (end + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
    if total <= most:
        header = tl.load(headers + block)
        tl.store(content.to(tl.pointer_type(tl.int32)) + block, header)
        out = content + first + tl.load(ends + block) - ((header >> 18) & 16383)
        _write_content(words, header, out, elements, SIZE)
        if block == last:
            padding = end + tl.arange(0, _ALIGNMENT)
            zeros = tl.zeros((_ALIGNMENT,), tl.uint8)
            tl.store(content + padding, zeros, mask=padding < total)
            tl.store(head, total + _PROLOGUE)
    else:
        at = block * _BLOCK + tl.arange(0, _BLOCK)
        word = tl.load(words + at, mask=at < elements)
        tl.store(plain + at, word, mask=at < elements)
        if block == last:
            tl.store(head, room + _PROLOGUE)
    if block == last:
        tl.store(head + 1, elements)


@triton.jit
def _write_content(words, header, out, elements, SIZE: tl.constexpr):
    """Write the content of a block."""
    tops, rests = _split(words, elements, SIZE)
    width = (header >> 8) & 7
    escape = (1 << width) - 1
    offsets = (header & 255) - tops
    codes = tl.minimum(offsets, escape)
    at = _PLANE * width
    for bit in tl.static_range(_WIDTHS - 1):
        if bit < width:
            _store_bits((codes >> bit) & 1, out + _PLANE * bit)
    for plane in tl.static_range(SIZE - 1):
        if ((header >> (12 + 2 * plane)) & 3) == _SPARSE:
            _store_bits(((rests >> (8 * plane)) & 255) != 0, out + at)
            at += _PLANE
    at += _store_listed(tops, (width > 0) & (codes == escape), out + at)
    for plane in tl.static_range(SIZE - 1):
        mode = (header >> (12 + 2 * plane)) & 3
        rest = (rests >> (8 * plane)) & 255
        at += _store_listed(rest, (mode == _WHOLE) | ((mode == _SPARSE) & (rest != 0)), out + at)


@triton.jit
def _load_bytes(content, at, there, left):
    """Bytes of a block's content; 0 for those that its row does not have."""
    flags = (there & (at < left)).to(tl.int32)
    return tl.load(content + at, mask=flags != 0, other=0).to(tl.int32)


@triton.jit
def _load_bits(content, at, there, left):
    """A plane of bits; without bits if it is not there."""
    lane = tl.arange(0, _BLOCK)
    return (_load_bytes(content, at + lane // 8, (lane >= 0) & there, left) >> (lane % 8)) & 1


@triton.jit(do_not_specialize=["elements", "room", "whole"])
def _read(head, content, ends, plain, words, wrong, elements, room, whole, SIZE: tl.constexpr):
    """Read a block. Sets `wrong` to 1 if it does not match its header, and its elements to NaN.

    `room`: the bytes of `content`; `whole`: those of elements that are not coded.
    """
    block = tl.program_id(0)
    at = block * _BLOCK + tl.arange(0, _BLOCK)
    length = tl.load(head) - _PROLOGUE
    length = tl.where((tl.load(head + 1) != elements) | (length > room), 0, length)
    if length == whole:
        tl.store(words + at, tl.load(plain + at, mask=at < elements), mask=at < elements)
    else:
        header = tl.load(content.to(tl.pointer_type(tl.int32)) + block)
        start = _HEADER * tl.num_programs(0) + tl.load(ends + block) - ((header >> 18) & 16383)
        left = length - start
        word, end = _read_content(header, content + start, left, SIZE)
        if (end != ((header >> 18) & 16383)) | (end > left):
            tl.store(wrong, 1)
            word |= (1 << (8 * SIZE - 1)) - 1  # NaN in every format
        tl.store(words + at, word.to(words.dtype.element_ty), mask=at < elements)


@triton.jit
def _read_content(header, content, left, SIZE: tl.constexpr):
    """The elements of a block, and where its content ends."""
    width = (header >> 8) & 7
    codes = tl.zeros((_BLOCK,), tl.int32)
    at = _PLANE * width
    for bit in tl.static_range(_WIDTHS - 1):
        codes |= _load_bits(content, _PLANE * bit, bit < width, left) << bit
    escaped = (codes == (1 << width) - 1) & (width > 0)
    marks_at = at
    for plane in tl.static_range(SIZE - 1):
        at += tl.where(((header >> (12 + 2 * plane)) & 3) == _SPARSE, _PLANE, 0)
    place = at + tl.cumsum(escaped.to(tl.int32), 0) - 1
    at += _number(escaped)
    tops = ((header & 255) - codes) & 255
    tops = tl.where(escaped, _load_bytes(content, place, escaped, left), tops)
    rests = tl.zeros((_BLOCK,), tl.int32)
    for plane in tl.static_range(SIZE - 1):
        mode = (header >> (12 + 2 * plane)) & 3
        marks = _load_bits(content, marks_at, mode == _SPARSE, left)
        marks_at += tl.where(mode == _SPARSE, _PLANE, 0)
        kept = (mode == _WHOLE) | (marks != 0)
        place = at + tl.cumsum(kept.to(tl.int32), 0) - 1
        rests |= _load_bytes(content, place, kept, left) << (8 * plane)
        at += _number(kept)
    shift: tl.constexpr = 8 * SIZE - 9
    word = ((rests >> shift) << (8 * SIZE - 1)) | (rests & ((1 << shift) - 1)) | (tops << shift)
    return word, at


def encode(
    row: torch.Tensor, head: torch.Tensor, content: torch.Tensor, plain: torch.Tensor, most: int
) -> None:
    """Write the bytes of `exponents.encode` to `content`, or, if there are more than `most`, the
    elements to `plain`. `head`: see `coder`.
    """
    size, blocks = row.element_size(), triton.cdiv(row.numel(), BLOCK)
    headers, lengths = torch.empty(2, blocks, dtype=torch.int32, device=row.device)
    words = row.view(_WORDS[size])
    _describe[(blocks,)](words, headers, lengths, row.numel(), SIZE=size, num_warps=1)
    _write[(blocks,)](
        words,
        headers,
        lengths.cumsum(0),
        head,
        content,
        plain.view(words.dtype),
        row.numel(),
        most,
        content.numel(),
        SIZE=size,
        num_warps=1,
    )


def decode(
    head: torch.Tensor,
    content: torch.Tensor,
    plain: torch.Tensor,
    row: torch.Tensor,
    wrong: torch.Tensor,
) -> None:
    """Fill `row` by what `encode` has written.

    If a block does not match its header, its elements become NaN, and `wrong` (int32) becomes 1.
    """
    size, blocks = row.element_size(), triton.cdiv(row.numel(), BLOCK)
    room = content.numel()
    if room < HEADER_BYTES * blocks:
        raise ValueError(f"{room} bytes of {blocks} coded blocks, less than their headers")
    headers = content[: HEADER_BYTES * blocks].view(torch.int32)
    _read[(blocks,)](
        head,
        content,
        ((headers >> 18) & 16383).cumsum(0),
        plain.view(_WORDS[size]),
        row.view(_WORDS[size]),
        wrong,
        row.numel(),
        room,
        triton.cdiv(row.nbytes, ALIGNMENT) * ALIGNMENT,
        SIZE=size,
        num_warps=1,
    )
