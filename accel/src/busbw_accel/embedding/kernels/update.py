"""The kernels that read and update records.

For a lookup they read the rows of a batch, write new rows, and list the positions of each group.
For an update they sum the gradients of each group, and apply the optimizer's rule to its record.
"""

import triton
import triton.language as tl

from busbw_accel.embedding.kernels.find import initial_values
from busbw_accel.embedding.kernels.place import _GROUPS, _PARTS


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
        row_code = tl.load(code + lead, mask=inside, other=-1)
        number = tl.load(turn + i, mask=inside, other=0)
        at = tl.load(start + lead, mask=row_code != -1, other=0) + number
        tl.store(listed + at, i, mask=row_code != -1)
    else:
        row_code = tl.load(code + i, mask=inside, other=-1)
    column = tl.arange(0, COLUMNS)
    narrow = (column < DIM)[None, :]
    record = (
        base
        + place_of(
            offsets, tl.where(row_code < -1, -2 - row_code, tl.maximum(row_code, 0)), SEGMENT, WIDTH
        )[:, None]
    )
    value = tl.load(record + column[None, :], mask=(row_code >= 0)[:, None] & narrow, other=0.0)
    if tl.min(row_code) < 0:
        initial = initial_values(tl.load(ids + i, mask=inside, other=0), column, key, scale, INIT)
        value = tl.where((row_code < 0)[:, None], initial, value)
        writes = ((row_code < -1) & (number == 0))[:, None]
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
        mask = inside[:, None] & (column < WIDTH)
        if WRITE:
            tl.store(record + column, tl.load(copy + column, mask=mask), mask=mask)
        else:
            tl.store(copy + column, tl.load(record + column, mask=mask), mask=mask)


# Positions in settings.OPTIMIZERS.
SGD, ADAM, ROWWISE_ADAM, ROWWISE_ADAGRAD = (tl.constexpr(number) for number in range(4))


@triton.jit
def sum_parts(
    gradients,
    listed,
    pieces,
    totals,
    partial,
    DIM: tl.constexpr,
    CUT: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The sums of the parts of large groups."""
    turn, column = tl.arange(0, CUT), tl.arange(0, COLUMNS)
    for piece in range(tl.program_id(0), tl.load(totals + _PARTS), tl.num_programs(0)):
        begin, size = tl.load(pieces + piece * 2), tl.load(pieces + piece * 2 + 1)
        i = tl.load(listed + begin + turn, mask=turn < size, other=0).to(tl.int64)
        value = tl.load(
            gradients + i[:, None] * DIM + column[None, :],
            mask=(turn < size)[:, None] & (column < DIM)[None, :],
            other=0.0,
        )
        at = (tl.zeros((COLUMNS,), tl.int64) + piece) * DIM + column
        tl.store(partial + at, tl.sum(value, axis=0), mask=column < DIM)


@triton.jit
def _summed(
    gradients, listed, partial, first, size, part, column, DIM: tl.constexpr, CUT: tl.constexpr
):
    """The sums of the gradients of groups, [groups, columns].

    Those of large groups come from the sums of their parts.
    """
    narrow = (column < DIM)[None, :]
    total = tl.zeros((first.shape[0], column.shape[0]), tl.float32)
    small = tl.where(size > CUT, 0, size)
    for turn in range(tl.max(small)):
        mask = turn < small
        i = tl.load(listed + first + turn, mask=mask, other=0).to(tl.int64)
        total += tl.load(
            gradients + i[:, None] * DIM + column[None, :], mask=mask[:, None] & narrow, other=0.0
        )
    many = tl.where(size > CUT, (size + CUT - 1) // CUT, 0)
    for turn in range(tl.max(many)):
        mask = (turn < many)[:, None] & narrow
        total += tl.load(
            partial + (part.to(tl.int64) + turn)[:, None] * DIM + column[None, :],
            mask=mask,
            other=0.0,
        )
    return total


@triton.jit(
    do_not_specialize=["lr", "rate", "root", "decay", "beta", "fresh", "beta2", "fresh2", "eps"]
)
def update(
    gradients,
    listed,
    partial,
    row,
    first,
    size,
    part,
    totals,
    base,
    offsets,
    bad,
    lr,
    rate,
    root,
    decay,
    beta,
    fresh,
    beta2,
    fresh2,
    eps,
    RULE: tl.constexpr,
    DIM: tl.constexpr,
    PITCH: tl.constexpr,
    TAIL: tl.constexpr,
    WIDTH: tl.constexpr,
    SEGMENT: tl.constexpr,
    CUT: tl.constexpr,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Sum and apply. Rows whose gradient is not finite stay as they are, and are counted in `bad`.

    `fresh` is 1 - beta, `fresh2` 1 - beta2: in fp32 the difference would lose digits.
    """
    groups, column = tl.load(totals + _GROUPS), tl.arange(0, COLUMNS)
    for tile in range(tl.program_id(0), tl.cdiv(groups, BLOCK), tl.num_programs(0)):
        group = tile * BLOCK + tl.arange(0, BLOCK)
        inside = group < groups
        begin, many = (
            tl.load(first + group, mask=inside, other=0),
            tl.load(size + group, mask=inside, other=0),
        )
        record = base + place_of(
            offsets, tl.load(row + group, mask=inside, other=0), SEGMENT, WIDTH
        )
        number = tl.load(part + group, mask=many > CUT, other=0)
        gradient = _summed(gradients, listed, partial, begin, many, number, column, DIM, CUT)
        wrong = inside & (tl.max((~(tl.abs(gradient) < float("inf"))).to(tl.int32), axis=1) > 0)
        if tl.max(wrong.to(tl.int32)) > 0:
            tl.atomic_add(bad, tl.sum(wrong.to(tl.int32)).to(tl.int64), sem="relaxed")
            inside = inside & ~wrong
        at = record[:, None] + column[None, :]
        mask = inside[:, None] & (column < DIM)[None, :]
        weight = tl.load(at, mask=mask, other=0.0) * decay
        if RULE == SGD:
            change = lr * gradient
        elif RULE == ROWWISE_ADAGRAD:
            square = (
                tl.load(record + TAIL, mask=inside, other=0.0)
                + tl.sum(gradient * gradient, axis=1) / DIM
            )
            tl.store(record + TAIL, square, mask=inside)
            change = lr * gradient / (tl.sqrt(square) + eps)[:, None]
        else:
            moment = beta * tl.load(at + PITCH, mask=mask, other=0.0) + fresh * gradient
            tl.store(at + PITCH, moment, mask=mask)
            if RULE == ROWWISE_ADAM:
                mean = tl.sum(gradient * gradient, axis=1) / DIM
                square = beta2 * tl.load(record + TAIL, mask=inside, other=0.0) + fresh2 * mean
                tl.store(record + TAIL, square, mask=inside)
                change = rate * moment / (tl.sqrt(square) * root + eps)[:, None]
            else:
                square = (
                    beta2 * tl.load(at + 2 * PITCH, mask=mask, other=0.0)
                    + fresh2 * gradient * gradient
                )
                tl.store(at + 2 * PITCH, square, mask=mask)
                change = rate * moment / (tl.sqrt(square) * root + eps)
        tl.store(at, weight - change, mask=mask)
