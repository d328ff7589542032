"""The kernel that gives rows to ids, and orders the groups of a batch for the update."""

import triton
import triton.language as tl

from busbw_accel.embedding import counters, torch_steps

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
    row, served = tl.where(wanted, -1, -1), wanted & False
    if need > 0:
        before = tl.atomic_add(available, -need.to(tl.int64), sem="relaxed")
        at = before - tl.cumsum(wanted.to(tl.int32), 0)
        served = wanted & (at >= 0)
        missing = need - tl.sum(served.to(tl.int32))
        if missing > 0:
            tl.atomic_add(available, missing.to(tl.int64), sem="relaxed")
        row = tl.load(free + at, mask=served, other=-1)
    return row, served


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
    lookups = tl.load(count + i, mask=leads, other=0)
    entry = words + tl.load(slot + i, mask=leads, other=0).to(tl.int64) * 4 + 2
    number = tl.load(entry, mask=leads, other=-1)
    without = leads & (number < 0)
    new = without & False
    if GIVE:
        if tl.max(without.to(tl.int32)) > 0:
            sightings = tl.minimum(-1 - number + tl.minimum(lookups, _MOST), _MOST)
            admitted = without & (sightings >= admission)
            rows, new = _taken(admitted, free, available)
            number = tl.where(new, rows, tl.where(without, -1 - sightings, number))
            tl.store(entry, number, mask=without)
            _add(tally + _INSERTED, new)
            _add(tally + _REFUSED, admitted & ~new)
            _add(tally + _NOT_ADMITTED, without & ~admitted)
    else:
        _add(tally + _SKIPPED, tl.where(without, lookups, 0))
    stored = leads & (number >= 0)
    tl.store(code + i, tl.where(new, -2 - number, tl.maximum(number, -1)), mask=leads)
    if SCORE == LRU:
        tl.store(score + number, tl.zeros((BLOCK,), tl.int32) + stamp, mask=stored)
    if SCORE == LFU:
        before = tl.load(score + number, mask=stored & ~new, other=0)
        # Sums stay below 2**31.
        tl.store(score + number, tl.minimum(before, _MOST) + lookups, mask=stored)
    _groups(i, number, lookups, stored, start, row, first, size, part, pieces, totals, n, CUT)


@triton.jit
def _groups(
    i, own, seen, stored, start, row, first, size, part, pieces, totals, n, CUT: tl.constexpr
):
    lookups = tl.where(stored, seen, 0)
    begin = (
        tl.atomic_add(totals + _POSITIONS, tl.sum(lookups), sem="relaxed")
        + tl.cumsum(lookups, 0)
        - lookups
    )
    tl.store(start + i, begin, mask=stored)
    grouped = stored.to(tl.int32)
    group = (
        tl.atomic_add(totals + _GROUPS, tl.sum(grouped), sem="relaxed")
        + tl.cumsum(grouped, 0)
        - grouped
    )
    tl.store(row + group, own, mask=stored)
    tl.store(first + group, begin, mask=stored)
    tl.store(size + group, lookups, mask=stored)
    many = tl.where(lookups > CUT, (lookups + CUT - 1) // CUT, 0)
    largest = tl.max(many)
    if largest > 0:
        number = (
            tl.atomic_add(totals + _PARTS, tl.sum(many), sem="relaxed") + tl.cumsum(many, 0) - many
        )
        tl.store(part + group, number, mask=many > 0)
        for turn in range(largest):
            tl.store(pieces + (number + turn) * 2, begin + turn * CUT, mask=turn < many)
            tl.store(
                pieces + (number + turn) * 2 + 1,
                tl.minimum(lookups - turn * CUT, CUT),
                mask=turn < many,
            )
