"""The kernels that read rows for a batch, write new rows, and list the positions of each group."""

import triton
import triton.language as tl

from busbw.accel.embedding.kernels.hashing import initial_values


@triton.jit
def place_of(offsets, row, SEGMENT: tl.constexpr, WIDTH: tl.constexpr):
    """The offset of a row's record from the first block, in elements; see store.py."""
    unit = tl.load(offsets + row // SEGMENT) + (row % SEGMENT).to(tl.int64) * (WIDTH // 4)
    return unit * 4


@triton.jit(do_not_specialize=["n"])
def list_positions(leader, turn, start, code, listed, n, BLOCK: tl.constexpr):
    """Put the positions of each group that has a row next to each other."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    lead = tl.load(leader + i, mask=i < n, other=-1)
    stored = (lead >= 0) & (tl.load(code + lead, mask=lead >= 0, other=-1) != -1)
    at = tl.load(start + lead, mask=stored, other=0) + tl.load(turn + i, mask=stored, other=0)
    tl.store(listed + at, i, mask=stored)


@triton.jit(do_not_specialize=["n", "key", "scale"])
def read_rows(
    ids,
    leader,
    turn,
    start,
    code,
    listed,
    base,
    offsets,
    out,
    n,
    key,
    scale,
    TRAIN: tl.constexpr,
    INIT: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    SEGMENT: tl.constexpr,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The row of each position.

    In training also list the positions; the first position of a new row writes its record.
    """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    number = tl.zeros((BLOCK,), tl.int32)
    if TRAIN:
        lead = tl.load(leader + i, mask=inside, other=0)
        own = tl.load(code + lead, mask=inside, other=-1)
        number = tl.load(turn + i, mask=inside, other=0)
        at = tl.load(start + lead, mask=own != -1, other=0) + number
        tl.store(listed + at, i, mask=own != -1)
    else:
        own = tl.load(code + i, mask=inside, other=-1)
    column = tl.arange(0, COLUMNS)
    narrow = (column < DIM)[None, :]
    record = (
        base
        + place_of(offsets, tl.where(own < -1, -2 - own, tl.maximum(own, 0)), SEGMENT, WIDTH)[
            :, None
        ]
    )
    value = tl.load(record + column[None, :], mask=(own >= 0)[:, None] & narrow, other=0.0)
    if tl.min(own) < 0:
        made = initial_values(tl.load(ids + i, mask=inside, other=0), column, key, scale, INIT)
        value = tl.where((own < 0)[:, None], made, value)
        writes = ((own < -1) & (number == 0))[:, None]
        tl.store(
            record + column[None, :],
            tl.where(narrow, value, 0.0),
            mask=writes & (column < WIDTH)[None, :],
        )
        for begin in tl.static_range(COLUMNS, WIDTH, COLUMNS):
            tl.store(
                record + begin + column[None, :],
                tl.zeros((BLOCK, COLUMNS), tl.float32),
                mask=writes & (begin + column < WIDTH)[None, :],
            )
    tl.store(
        out + i.to(tl.int64)[:, None] * DIM + column[None, :], value, mask=inside[:, None] & narrow
    )


@triton.jit(do_not_specialize=["n"])
def move_records(
    rows,
    base,
    offsets,
    records,
    n,
    WRITE: tl.constexpr,
    WIDTH: tl.constexpr,
    SEGMENT: tl.constexpr,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Copy the records of rows to `records`, [n, WIDTH], or from there."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    record = (
        base + place_of(offsets, tl.load(rows + i, mask=inside, other=0), SEGMENT, WIDTH)[:, None]
    )
    copy = records + i.to(tl.int64)[:, None] * WIDTH
    for begin in tl.static_range(0, WIDTH, COLUMNS):
        column = begin + tl.arange(0, COLUMNS)[None, :]
        here = inside[:, None] & (column < WIDTH)
        if WRITE:
            tl.store(record + column, tl.load(copy + column, mask=here), mask=here)
        else:
            tl.store(copy + column, tl.load(record + column, mask=here), mask=here)
