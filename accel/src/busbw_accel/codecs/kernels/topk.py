"""Kernels for top-k in four passes over memory: sum and count, pack, clear, add.

An fp32 gradient takes 20 bytes of traffic per element.

A tile is what one program reads at a time. A prefix sum over the counts of tiles gives each tile
the index of its first entry, so positions are in ascending order, as in plain torch.
"""

import torch
import triton
import triton.language as tl

from busbw_accel.codecs import sparse_packing
from busbw_accel.codecs.base import CORRECTION, FAR, FILL, STEP_TURN, TURN, State, is_finite
from busbw_accel.codecs.kernels.averaging import exact, share
from busbw_accel.codecs.kernels.not_finite import note_not_finite

TILE = 1024  # larger tiles are slower because of their inner prefix sum
SAMPLE = 1 << 15
# in the state: from the previous step, from the sample, and the one in use
THRESHOLDS = "thresholds"
_CARRIED, _SAMPLED, _USED = (tl.constexpr(index) for index in range(3))
# Facts of a selection: elements that reach the threshold, those of them before the start, and the
# threshold (0 or 1) that was counted.
_FOUND, _BEFORE, _COLUMN = (tl.constexpr(index) for index in range(3))
_BLOCK = tl.constexpr(sparse_packing.BLOCK)


@triton.jit
def _total(part, residual, at, inside, size, KEPT: tl.constexpr, EXACT: tl.constexpr):
    """This rank's share plus residual, in fp32."""
    total = share(part + at, inside, size, EXACT)
    if KEPT:
        total += tl.load(residual + at, mask=inside, other=0.0)
    return total


@triton.jit(do_not_specialize=["length", "size", "stride", "seed", "wanted"])
def _sample(
    part,
    residual,
    thresholds,
    length,
    size,
    stride,
    seed,
    wanted,
    KEPT: tl.constexpr,
    EXACT: tl.constexpr,
    SAMPLE: tl.constexpr,
):
    """The `wanted`-th largest magnitude of a sample with one element per stride, at most 0.4 %
    too small, by bisection of its bits.
    """
    number = tl.arange(0, SAMPLE).to(tl.int64)
    at = number * stride + (number * 2654435761 + seed) % 65521 % stride
    inside = at < length
    bits = tl.abs(_total(part, residual, at, inside, size, KEPT, EXACT)).to(tl.int32, bitcast=True)
    bits = tl.where(inside, bits, -1)
    low = 0
    for bit in range(16):  # the exponent, and 8 bits below it
        high = low | (1 << (30 - bit))
        low = tl.where(tl.sum((bits >= high).to(tl.int32)) >= wanted, high, low)
    low = tl.maximum(low, 0x00800000)  # the smallest normal number, so that zeros do not reach it
    tl.store(thresholds + _SAMPLED, low.to(tl.float32, bitcast=True))


@triton.jit(do_not_specialize=["size", "tiles"])
def _sum(
    part,
    residual,
    total,
    thresholds,
    counts,
    largest,
    wrong,
    length,
    size,
    tiles,
    KEPT: tl.constexpr,
    EXACT: tl.constexpr,
    SCALED: tl.constexpr,
    TILE: tl.constexpr,
):
    """Store the total, the number of elements of the tile that reach each threshold, and its
    largest finite magnitude.

    Sets `wrong` to 1 if an element is not finite.
    """
    tile = tl.program_id(0)
    at = tile.to(tl.int64) * TILE + tl.arange(0, TILE)
    inside = at < length
    summed = _total(part, residual, at, inside, size, KEPT, EXACT)
    tl.store(total + at, summed, mask=inside)
    note_not_finite(summed, wrong)
    magnitude = tl.abs(summed)
    for column in tl.static_range(2):
        # NaN does, so that it spreads to all ranks
        reach = inside & ~(magnitude < tl.load(thresholds + column))
        tl.store(counts + column * tiles + tile, tl.sum(reach.to(tl.int32)))
    if SCALED:
        tl.store(largest + tile, tl.max(tl.where(magnitude < float("inf"), magnitude, 0.0)))


@triton.jit
def _earlier(ends, column, tile, tiles):
    """The number of elements in earlier tiles that reach the threshold.

    `ends` has one column after the other.
    """
    at = column * tiles + tile
    return tl.load(ends + at - 1, mask=at > 0, other=0) - tl.load(ends + tiles - 1) * column


@triton.jit(do_not_specialize=["length", "tiles", "begin", "room", "aim", "far", "power"])
def _decide(
    total, thresholds, ends, facts, length, tiles, begin, room, aim, far, power, TILE: tl.constexpr
):
    """Choose the threshold, store its facts, and compute the threshold of the next step."""
    carried, sampled = tl.load(thresholds + _CARRIED), tl.load(thresholds + _SAMPLED)
    count = tl.load(ends + tiles - 1)
    near = (
        (count <= far * room)
        & (far * count >= aim)
        & (carried < float("inf"))
        & ((carried > 0) | (room == length))
    )
    column = tl.where(near, 0, 1)
    used = tl.where(near, carried, sampled)
    count = _earlier(ends, column, tiles, tiles)
    tile = begin // TILE
    at = tile.to(tl.int64) * TILE + tl.arange(0, TILE)
    before = ~(tl.abs(tl.load(total + at, mask=at < length, other=0.0)) < used) & (at < begin)
    tl.store(facts + _FOUND, count)
    tl.store(facts + _BEFORE, _earlier(ends, column, tile, tiles) + tl.sum(before.to(tl.int32)))
    tl.store(facts + _COLUMN, column)
    tl.store(thresholds + _USED, used)
    tl.store(thresholds + _CARRIED, used * tl.exp2(power * tl.log2((count + 1.0) / (aim + 1.0))))


@triton.jit(do_not_specialize=["tiles", "room"])
def _pack(
    total,
    thresholds,
    ends,
    facts,
    scale,
    counts,
    values,
    positions,
    length,
    tiles,
    room,
    FED: tl.constexpr,
    SCALED: tl.constexpr,
    TILE: tl.constexpr,
):
    """Store the tile's entries at their indices, and subtract what receivers read of the total."""
    tile = tl.program_id(0)
    # This kernel is bound by arithmetic, so it counts in 32 bits, four elements per thread.
    base, local = (
        tile.to(tl.int64) * TILE,
        tl.arange(0, TILE // 4)[:, None] * 4 + tl.arange(0, 4)[None, :],
    )
    inside = local < tl.minimum(length - base, TILE).to(tl.int32)
    value = tl.load(total + base + local, mask=inside, other=0.0)
    reach = inside & ~(tl.abs(value) < tl.load(thresholds + _USED))
    count, before, column = (
        tl.load(facts + _FOUND),
        tl.load(facts + _BEFORE),
        tl.load(facts + _COLUMN),
    )
    ones = reach.to(tl.int32)
    fours = tl.sum(ones, 1)
    number = (
        _earlier(ends, column, tile, tiles)
        + (tl.cumsum(fours, 0) - fours)[:, None]
        + tl.cumsum(ones, 1)
        - 1
    )
    entries, at = reach, number
    if count > room:
        # Keep those from `before` on and wrap around; positions after the wrap are the lowest.
        wrapped = tl.maximum(before + room - count, 0)
        entries = reach & (
            tl.where(number < before, number - before + count, number - before) < room
        )
        at = tl.where(number < wrapped, number, number - before + wrapped)
    sent = value
    if SCALED:
        largest = tl.load(scale)
        sent = tl.div_rn(value, largest).to(tl.float16)
    tl.store(values + at, sent, mask=entries)
    tl.store(positions + at, ((base % _BLOCK).to(tl.int32) + local).to(tl.uint16), mask=entries)
    tl.atomic_add(counts + base // _BLOCK, tl.sum(entries.to(tl.int32)))
    if FED:
        read = sent.to(tl.float32)
        if SCALED:
            read *= largest
        tl.store(total + base + local, value - read, mask=entries)


@triton.jit
def _add(out, head, ends, values, positions, wrong, room, length, STEP: tl.constexpr):
    """Add a row's entries of one block of 65536 elements to the result.

    Sets `wrong` to 1 if a value is not finite.
    """
    block = tl.program_id(0)
    # A lost rank leaves arbitrary bytes. They must not lead to accesses outside the buffers.
    end = tl.minimum(tl.maximum(tl.load(ends + block), 0), room)
    begin = tl.maximum(end - tl.load(head + 1 + block), 0)
    scale = tl.load(head).to(tl.float32, bitcast=True)
    for first in range(begin, end, STEP):
        entry = first + tl.arange(0, STEP)
        there = entry < end
        value = tl.load(values + entry, mask=there, other=0.0).to(tl.float32) * scale
        at = (
            tl.load(positions + entry, mask=there, other=0).to(tl.int64)
            + block.to(tl.int64) * _BLOCK
        )
        there &= at < length
        summed = tl.load(out + at, mask=there, other=0.0) + value
        tl.store(out + at, summed, mask=there)
        note_not_finite(summed, wrong)


def packed(
    part: torch.Tensor,
    residual: torch.Tensor | None,
    state: State,
    size: int,
    room: int,
    step: int,
    fmt: str,
    *,
    feedback: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The blob of entries to send (see codecs/topk.py), and the part of the total that is not sent.

    The total is share plus residual. The second result is a new tensor.
    """
    length, device = part.numel(), part.device
    tiles, stride = triton.cdiv(length, TILE), triton.cdiv(length, SAMPLE)
    total = torch.empty(length, dtype=torch.float32, device=device)
    counts = torch.empty(2, tiles, dtype=torch.int32, device=device)
    scaled, has_residual = fmt == "fp16", residual is not None
    largest = torch.empty(tiles if scaled else 1, dtype=torch.float32, device=device)
    facts = torch.empty(3, dtype=torch.int32, device=device)
    wrong = torch.zeros(1, dtype=torch.int32, device=device)
    if THRESHOLDS not in state:
        state[THRESHOLDS] = torch.full((3,), torch.inf, dtype=torch.float32, device=device)
    thresholds, aim = state[THRESHOLDS], room * FILL
    if room == length:
        thresholds.zero_()  # every element reaches it
    seed = step * STEP_TURN % 65_521
    target = max(1, min(triton.cdiv(length, stride), int(aim / stride)))
    from_ = residual if has_residual else total
    flags = {"KEPT": has_residual, "EXACT": exact(size)}
    _sample[(1,)](
        part,
        from_,
        thresholds,
        length,
        float(size),
        stride,
        seed,
        target,
        **flags,
        SAMPLE=SAMPLE,
        num_warps=32,
    )
    summed = part, from_, total, thresholds, counts, largest, wrong, length, float(size), tiles
    _sum[(tiles,)](*summed, **flags, SCALED=scaled, TILE=TILE, num_warps=4)
    # The sum is over a flat tensor, which is much faster than over two rows.
    ends = torch.cumsum(counts.view(-1), 0, dtype=torch.int32)
    begin = step * TURN % length
    _decide[(1,)](
        total,
        thresholds,
        ends,
        facts,
        length,
        tiles,
        begin,
        room,
        aim,
        float(FAR),
        CORRECTION,
        TILE=TILE,
        num_warps=4,
    )
    blob = torch.zeros(sparse_packing.size(room, length, fmt), dtype=torch.uint8, device=device)
    heads, values, positions = sparse_packing.views(blob, room, length, fmt)
    scale = heads[:1].view(torch.float32)
    if scaled:
        torch.amax(largest, 0, keepdim=True, out=scale)
        scale.masked_fill_(scale == 0, 1.0)
    else:
        scale.fill_(1.0)
    scale.masked_fill_(wrong != 0, torch.nan)  # as sparse_packing says
    read = total, thresholds, ends, facts, scale
    _pack[(tiles,)](
        *read,
        heads[1:],
        values,
        positions,
        length,
        tiles,
        room,
        FED=feedback,
        SCALED=scaled,
        TILE=TILE,
        num_warps=4,
    )
    return blob, total


def add(every: torch.Tensor, part: torch.Tensor, room: int, fmt: str) -> torch.Tensor:
    """Set `part` to the sum of all rows of entries, in row order.

    Returns whether a value is not finite (int32, on the device).
    """
    length, rows = part.numel(), every.shape[0]
    out = (
        part.zero_()
        if part.dtype == torch.float32
        else torch.zeros(length, dtype=torch.float32, device=part.device)
    )
    heads, values, positions = sparse_packing.views(every, room, length, fmt)
    ends = torch.cumsum(heads[:, 1:], 1, dtype=torch.int32)
    wrong = torch.zeros(1, dtype=torch.int32, device=part.device)
    blocks = ends.shape[1]
    for row in range(rows):
        _add[(blocks,)](
            out,
            heads[row],
            ends[row],
            values[row],
            positions[row],
            wrong,
            room,
            length,
            STEP=1024,
            enable_fp_fusion=False,
        )
    if out is not part:
        part.copy_(out)
        wrong |= ~is_finite(part)
    return wrong
