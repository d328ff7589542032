"""The kernels of the index (embedding/index.py), a hash table from ids to rows: find or make the
entries of ids, and group the positions of equal ids.

The hash of ids and the initial values of rows are computed as in embedding/optimizers.py.
"""

import triton
import triton.language as tl

from busbw_accel.embedding import index, optimizers

_FIRST, _SECOND, _GAMMA = (
    tl.constexpr(word) for word in (optimizers.FIRST, optimizers.SECOND, optimizers.GAMMA)
)
EMPTY = tl.constexpr(index.EMPTY)
# Positions in settings.INITS; 2 is zeros.
UNIFORM, NORMAL = (tl.constexpr(number) for number in (0, 1))
TURN = tl.constexpr(6.283185307179586 * 2.0**-24)


@triton.jit
def mix(word):
    """The finalizer of SplitMix64; `word` is uint64."""
    word = (word ^ (word >> 30)) * _FIRST
    word = (word ^ (word >> 27)) * _SECOND
    return word ^ (word >> 31)


@triton.jit
def initial_values(ids, columns, key, scale, INIT: tl.constexpr):
    """A tile of initial values, [ids, columns] in fp32. `key`: see optimizers.key_of."""
    if INIT > NORMAL:
        return tl.zeros((ids.shape[0], columns.shape[0]), tl.float32)
    start = mix((ids ^ key).to(tl.uint64, bitcast=True))
    word = mix(start[:, None] + ((columns + 1).to(tl.uint64) * _GAMMA)[None, :])
    high = (word >> 40).to(tl.int32).to(tl.float32)
    if INIT == UNIFORM:
        return (high * 1.1920928955078125e-07 - 1.0) * scale
    low = ((word >> 16) & 0xFFFFFF).to(tl.int32).to(tl.float32)
    radius = tl.sqrt(-2.0 * tl.log((high + 1.0) * 5.9604644775390625e-08))
    return radius * tl.cos(low * TURN) * scale


BLOCK = 256


@triton.jit
def slots_of(entries, wanted, inside, last, INSERT: tl.constexpr):
    """The slots of ids, whether they have one, and how many were inserted. `last`: slots - 1.

    Compare-and-swap has no mask. Lanes that want no slot swap an entry for what they read there,
    which changes nothing.
    """
    at = tl.where(
        wanted == EMPTY,
        last + 1,
        (mix(wanted.to(tl.uint64, bitcast=True)).to(tl.int64, bitcast=True)) & last,
    )
    active, present = inside, inside & False
    inserted = tl.sum(present.to(tl.int32))
    while tl.max(active.to(tl.int32)) > 0:
        key = tl.load(entries + at * 2, mask=active, other=EMPTY)
        same = active & (key == wanted)
        free = active & (key == EMPTY) & (wanted != EMPTY)
        if INSERT:
            if tl.max(free.to(tl.int32)) > 0:
                before = tl.atomic_cas(
                    entries + at * 2, key, tl.where(free, wanted, key), sem="relaxed"
                )
                won = free & (before == EMPTY)
                same = same | won | (free & (before == wanted))
                inserted += tl.sum(won.to(tl.int32))
            active = active & ~same
        else:
            active = active & ~same & ~free
        present = present | same
        at = tl.where(active, (at + 1) & last, at)
    return at, present, inserted


@triton.jit(do_not_specialize=["n", "last", "epoch"])
def find(
    ids,
    entries,
    words,
    slot,
    leader,
    turn,
    count,
    entered,
    skipped,
    n,
    last,
    epoch,
    INSERT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Find the entry of the id at each position, and group the positions of equal ids.

    `slot` gets the entry's slot, `leader` a position that all with this id agree on (-1: not
    found), `turn` the number of the position within its group. Positions agree by the entry's mark:
    the first one there sets it to `epoch` plus itself. A mark below `epoch` is of an earlier batch.
    """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    keys = tl.load(ids + i, mask=inside, other=0)
    at, present, inserted = slots_of(entries, keys, inside, last.to(tl.int64), INSERT)
    if inserted > 0:
        tl.atomic_add(entered, inserted.to(tl.int64), sem="relaxed")
    marks = words + at * 4 + 3
    mark = tl.load(marks, mask=present, other=epoch)
    stale = present & (mark < epoch)
    first = mark - epoch
    if tl.max(stale.to(tl.int32)) > 0:
        before = tl.atomic_cas(marks, mark, tl.where(stale, epoch + i, mark), sem="relaxed")
        first = tl.where(stale, tl.where(before == mark, i, before - epoch), first)
    first = tl.where(present, first, -1)
    number = tl.atomic_add(count + first, 1, mask=present, sem="relaxed")
    tl.store(slot + i, at.to(tl.int32), mask=inside)
    tl.store(leader + i, first, mask=inside)
    tl.store(turn + i, number, mask=inside)
    missing = tl.sum((inside & ~present).to(tl.int32))
    if missing > 0:
        tl.atomic_add(skipped, missing.to(tl.int64), sem="relaxed")


@triton.jit(do_not_specialize=["n", "last"])
def peek(ids, entries, words, row, absent, n, last, BLOCK: tl.constexpr):
    """The row of each id, -1: none."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    keys = tl.load(ids + i, mask=inside, other=0)
    at, present, _ = slots_of(entries, keys, inside, last.to(tl.int64), False)
    number = tl.maximum(tl.load(words + at * 4 + 2, mask=present, other=-1), -1)
    tl.store(row + i, number, mask=inside)
    missing = tl.sum((inside & (number < 0)).to(tl.int32))
    if missing > 0:
        tl.atomic_add(absent, missing.to(tl.int64), sem="relaxed")


@triton.jit(do_not_specialize=["n", "last"])
def fill(ids, rows, entries, words, n, last, BLOCK: tl.constexpr):
    """Insert ids with their rows. The ids are unique."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    keys = tl.load(ids + i, mask=inside, other=0)
    at, _, _ = slots_of(entries, keys, inside, last.to(tl.int64), True)
    tl.store(words + at * 4 + 2, tl.load(rows + i, mask=inside, other=0), mask=inside)
