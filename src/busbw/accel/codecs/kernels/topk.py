"""Top-k in four passes over memory: sum and count, pack, clear, add; 20 bytes an element of an fp32 gradient, which has 4 itself.

A tile is what one program reads at a time. A prefix sum over the tiles' counts tells each tile where its entries go, so positions come out
in ascending order, as in plain torch.
"""

import torch
import triton
import triton.language as tl

from busbw.accel.codecs import entries
from busbw.accel.codecs.base import State
from busbw.accel.codecs.kernels.shares import exact, share
from busbw.accel.codecs.rules import CORRECTION, FAR, FILL, STEP_TURN, TURN

TILE = 1024  # larger ones are slower, by the prefix sum inside them
SAMPLE = 1 << 15
THRESHOLDS = "thresholds"  # of a state: the carried one, that of the sample, the one that was used
_CARRIED, _SAMPLED, _USED = (tl.constexpr(place) for place in range(3))
# Facts of a selection: how many elements reach the threshold, how many of them lie before the begin, and by which of two that was counted.
_FOUND, _BEFORE, _COLUMN = (tl.constexpr(place) for place in range(3))
_BLOCK = tl.constexpr(entries.BLOCK)


@triton.jit
def _total(part, residual, at, inside, size, KEPT: tl.constexpr, EXACT: tl.constexpr):
    """This rank's share of the average with what was left before, in fp32."""
    total = share(part + at, inside, size, EXACT)
    if KEPT:
        total += tl.load(residual + at, mask=inside, other=0.0)
    return total


@triton.jit(do_not_specialize=["length", "size", "stride", "seed", "wanted"])
def _sample(part, residual, thresholds, length, size, stride, seed, wanted, KEPT: tl.constexpr, EXACT: tl.constexpr, SAMPLE: tl.constexpr):
    """The `wanted`-th largest magnitude of one element of each stride, less at most 0.4 %, by bisection of its first bits."""
    number = tl.arange(0, SAMPLE).to(tl.int64)
    at = number * stride + (number * 2654435761 + seed) % 65521 % stride
    inside = at < length
    bits = tl.abs(_total(part, residual, at, inside, size, KEPT, EXACT)).to(tl.int32, bitcast=True)
    bits = tl.where(inside, bits, -1)
    low = 0
    for done in range(16):  # the exponent, and 8 bits below it
        high = low | (1 << (30 - done))
        low = tl.where(tl.sum((bits >= high).to(tl.int32)) >= wanted, high, low)
    low = tl.maximum(low, 0x00800000)  # the smallest normal number: zeros have no size
    tl.store(thresholds + _SAMPLED, low.to(tl.float32, bitcast=True))


@triton.jit(do_not_specialize=["size", "tiles"])
def _sum(
    part,
    residual,
    total,
    thresholds,
    counts,
    largest,
    length,
    size,
    tiles,
    KEPT: tl.constexpr,
    EXACT: tl.constexpr,
    SCALED: tl.constexpr,
    TILE: tl.constexpr,
):
    """The total; how many elements of the tile reach each threshold; the tile's largest finite magnitude."""
    tile = tl.program_id(0)
    at = tile.to(tl.int64) * TILE + tl.arange(0, TILE)
    inside = at < length
    summed = _total(part, residual, at, inside, size, KEPT, EXACT)
    tl.store(total + at, summed, mask=inside)
    magnitude = tl.abs(summed)
    for column in tl.static_range(2):
        reach = inside & ~(magnitude < tl.load(thresholds + column))  # what is not a number does, for all to see
        tl.store(counts + column * tiles + tile, tl.sum(reach.to(tl.int32)))
    if SCALED:
        tl.store(largest + tile, tl.max(tl.where(magnitude < float("inf"), magnitude, 0.0)))


@triton.jit
def _earlier(ends, column, tile, tiles):
    """How many elements of earlier tiles reach the threshold: `ends` goes through one column after the other."""
    place = column * tiles + tile
    return tl.load(ends + place - 1, mask=place > 0, other=0) - tl.load(ends + tiles - 1) * column


@triton.jit(do_not_specialize=["length", "tiles", "begin", "room", "aim", "far", "power"])
def _decide(total, thresholds, ends, facts, length, tiles, begin, room, aim, far, power, TILE: tl.constexpr):
    """By which threshold, the facts of it, and the threshold of the next step."""
    carried, sampled = tl.load(thresholds + _CARRIED), tl.load(thresholds + _SAMPLED)
    found = tl.load(ends + tiles - 1)
    near = (found <= far * room) & (far * found >= aim) & (carried < float("inf")) & ((carried > 0) | (room == length))
    column = tl.where(near, 0, 1)
    used = tl.where(near, carried, sampled)
    found = _earlier(ends, column, tiles, tiles)
    tile = begin // TILE
    at = tile.to(tl.int64) * TILE + tl.arange(0, TILE)
    before = ~(tl.abs(tl.load(total + at, mask=at < length, other=0.0)) < used) & (at < begin)
    tl.store(facts + _FOUND, found)
    tl.store(facts + _BEFORE, _earlier(ends, column, tile, tiles) + tl.sum(before.to(tl.int32)))
    tl.store(facts + _COLUMN, column)
    tl.store(thresholds + _USED, used)
    tl.store(thresholds + _CARRIED, used * tl.exp2(power * tl.log2((found + 1.0) / (aim + 1.0))))


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
    """The tile's entries to their places; what others will read of them leaves the total."""
    tile = tl.program_id(0)
    # This kernel waits for arithmetic: what can be is counted in 32 bits, and numbers by fours that a thread has at once.
    base, local = tile.to(tl.int64) * TILE, tl.arange(0, TILE // 4)[:, None] * 4 + tl.arange(0, 4)[None, :]
    inside = local < tl.minimum(length - base, TILE).to(tl.int32)
    value = tl.load(total + base + local, mask=inside, other=0.0)
    reach = inside & ~(tl.abs(value) < tl.load(thresholds + _USED))
    found, before, column = tl.load(facts + _FOUND), tl.load(facts + _BEFORE), tl.load(facts + _COLUMN)
    ones = reach.to(tl.int32)
    fours = tl.sum(ones, 1)
    number = _earlier(ends, column, tile, tiles) + (tl.cumsum(fours, 0) - fours)[:, None] + tl.cumsum(ones, 1) - 1
    kept, place = reach, number
    if found > room:
        # Those from `before` on, round about; those that come round are the lowest.
        round_about = tl.maximum(before + room - found, 0)
        kept = reach & (tl.where(number < before, number - before + found, number - before) < room)
        place = tl.where(number < round_about, number, number - before + round_about)
    sent = value
    if SCALED:
        largest = tl.load(scale)
        sent = tl.div_rn(value, largest).to(tl.float16)
    tl.store(values + place, sent, mask=kept)
    tl.store(positions + place, ((base % _BLOCK).to(tl.int32) + local).to(tl.uint16), mask=kept)
    tl.atomic_add(counts + base // _BLOCK, tl.sum(kept.to(tl.int32)))
    if FED:
        read = sent.to(tl.float32)
        if SCALED:
            read *= largest
        tl.store(total + base + local, value - read, mask=kept)


@triton.jit
def _add(out, head, ends, values, positions, wrong, room, length, STEP: tl.constexpr):
    """A row's entries of one block of 65536 elements onto the result; `wrong` becomes 1 where that is not finite."""
    block = tl.program_id(0)
    # Whatever came, nothing is read or written but what there is: what a lost rank has not sent is not to be taken, but is looked at.
    end = tl.minimum(tl.maximum(tl.load(ends + block), 0), room)
    begin = tl.maximum(end - tl.load(head + 1 + block), 0)
    scale = tl.load(head).to(tl.float32, bitcast=True)
    for first in range(begin, end, STEP):
        entry = first + tl.arange(0, STEP)
        there = entry < end
        value = tl.load(values + entry, mask=there, other=0.0).to(tl.float32) * scale
        at = tl.load(positions + entry, mask=there, other=0).to(tl.int64) + block.to(tl.int64) * _BLOCK
        there &= at < length
        made = tl.load(out + at, mask=there, other=0.0) + value
        tl.store(out + at, made, mask=there)
        if tl.sum((~(tl.abs(made) < float("inf"))).to(tl.int32)) > 0:
            tl.store(wrong, 1)


def packed(
    part: torch.Tensor, residual: torch.Tensor | None, state: State, size: int, room: int, step: int, fmt: str, *, feedback: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The entries for every rank (see `entries`), and what is left of share and residual without them, a tensor of its own."""
    length, device = part.numel(), part.device
    tiles, stride = triton.cdiv(length, TILE), triton.cdiv(length, SAMPLE)
    total = torch.empty(length, dtype=torch.float32, device=device)
    counts = torch.empty(2, tiles, dtype=torch.int32, device=device)
    scaled, kept = fmt == "fp16", residual is not None
    largest = torch.empty(tiles if scaled else 1, dtype=torch.float32, device=device)
    facts = torch.empty(3, dtype=torch.int32, device=device)
    if THRESHOLDS not in state:
        state[THRESHOLDS] = torch.full((3,), torch.inf, dtype=torch.float32, device=device)
    thresholds, aim = state[THRESHOLDS], room * FILL
    if room == length:
        thresholds.zero_()  # everything reaches it
    seed = step * STEP_TURN % 65_521
    wanted = max(1, min(triton.cdiv(length, stride), int(aim / stride)))
    from_ = residual if kept else total
    way = {"KEPT": kept, "EXACT": exact(size)}
    _sample[(1,)](part, from_, thresholds, length, float(size), stride, seed, wanted, **way, SAMPLE=SAMPLE, num_warps=32)
    summed = part, from_, total, thresholds, counts, largest, length, float(size), tiles
    _sum[(tiles,)](*summed, **way, SCALED=scaled, TILE=TILE, num_warps=4)
    ends = torch.cumsum(counts.view(-1), 0, dtype=torch.int32)  # flat: much faster than two rows
    begin = step * TURN % length
    _decide[(1,)](total, thresholds, ends, facts, length, tiles, begin, room, aim, float(FAR), CORRECTION, TILE=TILE, num_warps=4)
    blob = torch.zeros(entries.size(room, length, fmt), dtype=torch.uint8, device=device)
    heads, values, positions = entries.views(blob, room, length, fmt)
    scale = heads[:1].view(torch.float32)
    if scaled:
        torch.amax(largest, 0, keepdim=True, out=scale)
        scale.masked_fill_(scale == 0, 1.0)
    else:
        scale.fill_(1.0)
    _pack[(tiles,)](
        total,
        thresholds,
        ends,
        facts,
        scale,
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
    """`part` becomes the sum of all rows of blobs; whether it is not finite (int32, on the device).

    One row after the other, so that the order of additions never changes.
    """
    length, rows = part.numel(), every.shape[0]
    out = part.zero_() if part.dtype == torch.float32 else torch.zeros(length, dtype=torch.float32, device=part.device)
    heads, values, positions = entries.views(every, room, length, fmt)
    ends = torch.cumsum(heads[:, 1:], 1, dtype=torch.int32)
    wrong = torch.zeros(1, dtype=torch.int32, device=part.device)
    blocks = ends.shape[1]
    for row in range(rows):
        _add[(blocks,)](out, heads[row], ends[row], values[row], positions[row], wrong, room, length, STEP=1024, enable_fp_fusion=False)
    if out is not part:
        part.copy_(out)
        wrong |= ~torch.isfinite(torch.linalg.vector_norm(part, ord=torch.inf))
    return wrong
