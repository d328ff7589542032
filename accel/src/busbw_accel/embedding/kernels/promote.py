"""The kernels that bring the rows of a batch from host memory to the GPU; see store.Tier."""

import triton
import triton.language as tl

from busbw_accel.embedding import counters
from busbw_accel.embedding.kernels.place import _MISSED, _add

BLOCK = 256
_PROMOTED, _DEMOTED, _IN_PLACE, _TAKEN = (
    tl.constexpr(number)
    for number in (counters.PROMOTED, counters.DEMOTED, counters.IN_PLACE, counters.TAKEN)
)


@triton.jit(do_not_specialize=["n", "stamp", "near"])
def miss(
    leader,
    code,
    offsets,
    used,
    missed,
    totals,
    n,
    stamp,
    near,
    UNITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Stamp the places of the batch's rows on the GPU, and list the codes of its rows in host
    memory.

    `near`: units on the GPU.
    """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    leads = (i < n) & (tl.load(leader + i, mask=i < n, other=-1) == i)
    code_here = tl.load(code + i, mask=leads, other=-1)
    stored = code_here != -1
    unit = tl.load(
        offsets + tl.where(code_here < -1, -2 - code_here, code_here), mask=stored, other=0
    )
    on_gpu = stored & (unit >= 0) & (unit < near)
    tl.store(used + unit // UNITS, tl.zeros((BLOCK,), tl.int32) + stamp, mask=on_gpu)
    away = (stored & ~on_gpu).to(tl.int32)
    count = tl.sum(away)
    if count > 0:
        at = tl.atomic_add(totals + _MISSED, count, sem="relaxed") + tl.cumsum(away, 0) - away
        tl.store(missed + at, code_here, mask=away > 0)


@triton.jit
def _taken(wanting, tally, first, victims, length, used, listed):
    """Places from the list for lanes that want one; -1: none is left.

    Places that were used since the list was made are passed over.
    """
    place = tl.where(wanting, -1, -1).to(tl.int64)
    while tl.max(wanting.to(tl.int32)) > 0:
        wants = wanting.to(tl.int64)
        at = (
            tl.atomic_add(tally + _TAKEN, tl.sum(wants), sem="relaxed")
            - first
            + tl.cumsum(wants, 0)
            - wants
        )
        listed_here = wanting & (at < length)
        candidate = tl.load(victims + at, mask=listed_here, other=0)
        idle = listed_here & (tl.load(used + candidate, mask=listed_here, other=0) < listed)
        place = tl.where(idle, candidate, place)
        wanting = listed_here & ~idle
    return place


@triton.jit(do_not_specialize=["length", "listed", "stamp"])
def promote(
    missed,
    totals,
    offsets,
    base,
    owner,
    used,
    victims,
    begin,
    score,
    tally,
    length,
    listed,
    stamp,
    LFU: tl.constexpr,
    WIDTH: tl.constexpr,
    UNITS: tl.constexpr,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Swap the rows of `missed` with rows on the GPU.

    Records that hold nothing, of new and of evicted rows, are not copied.
    """
    count, first = tl.load(totals + _MISSED), tl.load(begin)
    for tile in range(tl.program_id(0), tl.cdiv(count, BLOCK), tl.num_programs(0)):
        i = tile * BLOCK + tl.arange(0, BLOCK)
        inside = i < count
        code = tl.load(missed + i, mask=inside, other=0)
        row = tl.where(code < -1, -2 - code, code)
        place = _taken(inside, tally, first, victims, length, used, listed)
        swaps = place >= 0
        other = tl.load(owner + place, mask=swaps, other=0)
        other_score = tl.load(score + other, mask=swaps, other=0)
        if LFU:
            # By more than one: rows of the same frequency would swap places again and again.
            swaps = swaps & (
                (other_score < 0) | (tl.load(score + row, mask=swaps, other=0) > other_score + 1)
            )
        away = tl.load(offsets + row, mask=swaps, other=0)
        up = swaps & (code >= 0)
        down = swaps & (other_score >= 0)
        near, far = base + place[:, None] * (UNITS * 4), base + away[:, None] * 4
        for start in tl.static_range(0, WIDTH, COLUMNS):
            column = start + tl.arange(0, COLUMNS)[None, :]
            rising, falling = up[:, None] & (column < WIDTH), down[:, None] & (column < WIDTH)
            coming = tl.load(far + column, mask=rising, other=0.0)
            going = tl.load(near + column, mask=falling, other=0.0)
            tl.store(near + column, coming, mask=rising)
            tl.store(far + column, going, mask=falling)
        tl.store(offsets + row, place * UNITS, mask=swaps)
        tl.store(offsets + other, away, mask=swaps)
        tl.store(owner + place, row, mask=swaps)
        tl.store(used + place, tl.zeros((BLOCK,), tl.int32) + stamp, mask=swaps)
        _add(tally + _PROMOTED, up)
        _add(tally + _DEMOTED, down)
        _add(tally + _IN_PLACE, inside & ~swaps)
