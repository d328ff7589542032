"""The kernel that gives rows to ids, and orders the groups of a batch for the update."""

import triton
import triton.language as tl

from busbw.accel.embedding import counters, torch_steps

BLOCK = 256
CUT = 32  # a larger group is summed in parts of this size, by programs of their own
# A batch's totals: positions in groups with a row, such groups, parts of large groups, and rows in
# host memory.
POSITIONS, GROUPS, PARTS, MISSED, TOTALS = range(5)
_POSITIONS, _GROUPS, _PARTS, _MISSED = (
    tl.constexpr(number) for number in (POSITIONS, GROUPS, PARTS, MISSED)
)
_INSERTED, _REFUSED, _NOT_ADMITTED, _SKIPPED = (
    tl.constexpr(number)
    for number in (counters.INSERTED, counters.REFUSED, counters.NOT_ADMITTED, counters.SKIPPED)
)
_MOST = tl.constexpr(torch_steps.MOST_SIGHTINGS)
NO_SCORE, LFU, LRU = (tl.constexpr(number) for number in (0, 1, 2))


@triton.jit
def _add(counter, flags):
    total = tl.sum(flags.to(tl.int32))
    if total > 0:
        tl.atomic_add(counter, total.to(tl.int64), sem="relaxed")


@triton.jit
def _taken(wanted, free, available):
    """Rows from the stack of free rows for lanes that want one, and which lanes got one."""
    need = tl.sum(wanted.to(tl.int32))
    row, got = tl.where(wanted, -1, -1), wanted & False
    if need > 0:
        before = tl.atomic_add(available, -need.to(tl.int64), sem="relaxed")
        at = before - tl.cumsum(wanted.to(tl.int32), 0)
        got = wanted & (at >= 0)
        missing = need - tl.sum(got.to(tl.int32))
        if missing > 0:
            tl.atomic_add(available, missing.to(tl.int64), sem="relaxed")
        row = tl.load(free + at, mask=got, other=-1)
    return row, got


@triton.jit(do_not_specialize=["n", "admission", "stamp"])
def place(
    slot,
    leader,
    count,
    start,
    code,
    row,
    first,
    size,
    part,
    pieces,
    totals,
    words,
    free,
    available,
    tally,
    score,
    n,
    admission,
    stamp,
    GIVE: tl.constexpr,
    SCORE: tl.constexpr,
    CUT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """For each leader: `code` (its row; -1: none; -2 minus its row: new), and `start`, where its
    group starts in the list of positions.

    For each group with a row: row, first position in the list, size, and number of its first part.
    Pieces: the starts and sizes of parts.
    """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    leads = (i < n) & (tl.load(leader + i, mask=i < n, other=-1) == i)
    seen = tl.load(count + i, mask=leads, other=0)
    entry = words + tl.load(slot + i, mask=leads, other=0).to(tl.int64) * 4 + 2
    own = tl.load(entry, mask=leads, other=-1)
    without = leads & (own < 0)
    new = without & False
    if GIVE:
        if tl.max(without.to(tl.int32)) > 0:
            sightings = tl.minimum(-1 - own + tl.minimum(seen, _MOST), _MOST)
            wanted = without & (sightings >= admission)
            given, new = _taken(wanted, free, available)
            own = tl.where(new, given, tl.where(without, -1 - sightings, own))
            tl.store(entry, own, mask=without)
            _add(tally + _INSERTED, new)
            _add(tally + _REFUSED, wanted & ~new)
            _add(tally + _NOT_ADMITTED, without & ~wanted)
    else:
        _add(tally + _SKIPPED, tl.where(without, seen, 0))
    stored = leads & (own >= 0)
    tl.store(code + i, tl.where(new, -2 - own, tl.maximum(own, -1)), mask=leads)
    if SCORE == LRU:
        tl.store(score + own, tl.zeros((BLOCK,), tl.int32) + stamp, mask=stored)
    if SCORE == LFU:
        before = tl.load(score + own, mask=stored & ~new, other=0)
        # sums stay below 2**31
        tl.store(score + own, tl.minimum(before, _MOST) + seen, mask=stored)
    _groups(i, own, seen, stored, start, row, first, size, part, pieces, totals, n, CUT)


@triton.jit
def _groups(
    i, own, seen, stored, start, row, first, size, part, pieces, totals, n, CUT: tl.constexpr
):
    seen = tl.where(stored, seen, 0)
    begin = (
        tl.atomic_add(totals + _POSITIONS, tl.sum(seen), sem="relaxed") + tl.cumsum(seen, 0) - seen
    )
    tl.store(start + i, begin, mask=stored)
    one = stored.to(tl.int32)
    group = tl.atomic_add(totals + _GROUPS, tl.sum(one), sem="relaxed") + tl.cumsum(one, 0) - one
    tl.store(row + group, own, mask=stored)
    tl.store(first + group, begin, mask=stored)
    tl.store(size + group, seen, mask=stored)
    many = tl.where(seen > CUT, (seen + CUT - 1) // CUT, 0)
    most = tl.max(many)
    if most > 0:
        number = (
            tl.atomic_add(totals + _PARTS, tl.sum(many), sem="relaxed") + tl.cumsum(many, 0) - many
        )
        tl.store(part + group, number, mask=many > 0)
        for turn in range(most):
            tl.store(pieces + (number + turn) * 2, begin + turn * CUT, mask=turn < many)
            tl.store(
                pieces + (number + turn) * 2 + 1,
                tl.minimum(seen - turn * CUT, CUT),
                mask=turn < many,
            )
