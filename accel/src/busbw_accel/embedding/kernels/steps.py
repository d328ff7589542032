"""The steps of a lookup and an update by kernels; torch_steps.Steps documents them.

Only `wanting` waits for the device.
"""

from dataclasses import dataclass

import torch
import triton

from busbw_accel.embedding import counters as counted
from busbw_accel.embedding.index import Index
from busbw_accel.embedding.kernels import find as finding
from busbw_accel.embedding.kernels import place as placing
from busbw_accel.embedding.kernels import promote as promoting
from busbw_accel.embedding.kernels import update as reading
from busbw_accel.embedding.kernels import update as updating
from busbw_accel.embedding.optimizers import UpdateStep, key_of
from busbw_accel.embedding.settings import INITS, OPTIMIZERS
from busbw_accel.embedding.store import Store, Tier
from busbw_accel.embedding.torch_steps import MOST_SIGHTINGS, TableMemory

READ, UPDATE, MOVE, SWAP = (8, 4), (8, 4), (8, 4), (8, 4)  # rows of a tile, and warps of a program
ALIGNED = 4  # numbers in 16 bytes; Triton compiles a kernel anew for other alignments
PROGRAMS = 4096  # of kernels that loop, since the host does not know how much there is to do
_SCORES = {"none": placing.NO_SCORE, "lfu": placing.LFU, "lru": placing.LRU}


@dataclass(slots=True)
class KernelLookup:
    """What the kernels find out about the ids of one lookup, all in int32 but `ids`.

    The positions with the same id form a group. Its leader is the position that all of them agree
    on; what holds for a group stands at its leader. The groups with a row are numbered anew.
    """

    ids: torch.Tensor  # of each position
    count: torch.Tensor  # at a leader: the size of its group
    totals: torch.Tensor  # of the lookup: kernels.place.POSITIONS and what follows it
    pieces: torch.Tensor  # the starts and sizes of the parts of large groups
    slot: torch.Tensor  # of each position: the entry of its id in the index
    leader: torch.Tensor  # of each position; -1: the id has no entry
    turn: torch.Tensor  # of each position: its number within its group
    start: torch.Tensor  # at a leader: where its group starts in `listed`
    code: torch.Tensor  # at a leader: its row; -1: none; -2 minus the row: new, not yet written
    listed: torch.Tensor  # positions, group by group
    row: torch.Tensor  # of each group with a row
    first: torch.Tensor  # of each group with a row: its start in `listed`
    size: torch.Tensor  # of each group with a row
    part: torch.Tensor  # of each group with a row: the number of its first part
    is_listed: bool = False


def _new_batch(ids: torch.Tensor) -> KernelLookup:
    n = len(ids)
    zeros = torch.zeros(ALIGNED + n, dtype=torch.int32, device=ids.device)
    pieces = torch.empty(_most_parts(n), 2, dtype=torch.int32, device=ids.device)
    numbers = torch.empty(
        10, triton.cdiv(n, ALIGNED) * ALIGNED, dtype=torch.int32, device=ids.device
    )
    return KernelLookup(
        ids, zeros[ALIGNED:], zeros[: placing.TOTALS], pieces, *numbers[:, :n].unbind()
    )


def _most_parts(n: int) -> int:
    """Groups of more than CUT positions have at most 2 n / CUT parts."""
    return 2 * n // placing.CUT + 1


def _blocks(n: int, block: int) -> tuple[int]:
    return (triton.cdiv(n, block),)


def find(parts: TableMemory, ids: torch.Tensor, epoch: int, *, insert: bool) -> KernelLookup:
    batch, index, n = _new_batch(ids), parts.index, len(ids)
    entered, skipped = parts.counters[counted.ENTRIES :], parts.counters[counted.SKIPPED :]
    finding.find[_blocks(n, finding.BLOCK)](
        ids,
        index.entries,
        index.words,
        batch.slot,
        batch.leader,
        batch.turn,
        batch.count,
        entered,
        skipped,
        n,
        index.slots - 1,
        epoch,
        INSERT=insert,
        BLOCK=finding.BLOCK,
    )
    return batch


def wanting(parts: TableMemory, batch: KernelLookup, admission: int) -> int:
    leads = batch.leader == torch.arange(len(batch.ids), device=batch.ids.device)
    row = parts.index.rows[batch.slot[leads]].long()
    sightings = (-1 - row + batch.count[leads]).clamp(max=MOST_SIGHTINGS)
    return int(((row < 0) & (sightings >= admission)).sum())


def place(parts: TableMemory, batch: KernelLookup, *, admission: int | None, stamp: int) -> None:
    index, store, n = parts.index, parts.store, len(batch.ids)
    score = _SCORES[parts.settings.eviction] if admission is not None else placing.NO_SCORE
    placing.place[_blocks(n, placing.BLOCK)](
        batch.slot,
        batch.leader,
        batch.count,
        batch.start,
        batch.code,
        batch.row,
        batch.first,
        batch.size,
        batch.part,
        batch.pieces,
        batch.totals,
        index.words,
        store.free,
        store.available,
        parts.counters,
        store.score,
        n,
        admission or 0,
        stamp,
        GIVE=admission is not None,
        SCORE=score.value,
        CUT=placing.CUT,
        BLOCK=placing.BLOCK,
    )


def promote(parts: TableMemory, batch: KernelLookup, tier: Tier, stamp: int) -> None:
    """Bring the rows of a placed batch to the GPU, as far as there is room.

    `stamp`: the number of the lookup.
    """
    store, n = parts.store, len(batch.ids)
    missed = torch.empty(n, dtype=torch.int32, device=batch.ids.device)
    promoting.miss[_blocks(n, promoting.BLOCK)](
        batch.leader,
        batch.code,
        store.offsets,
        tier.used,
        missed,
        batch.totals,
        n,
        stamp,
        tier.places * store.units,
        UNITS=store.units,
        BLOCK=promoting.BLOCK,
    )
    block, warps = SWAP
    promoting.promote[(min(PROGRAMS, triton.cdiv(n, block)),)](
        missed,
        batch.totals,
        store.offsets,
        store.base,
        tier.owner,
        tier.used,
        tier.victims,
        tier.begin,
        store.score,
        parts.counters,
        len(tier.victims),
        tier.listed,
        stamp,
        LFU=parts.settings.eviction == "lfu",
        WIDTH=store.width,
        UNITS=store.units,
        BLOCK=block,
        COLUMNS=min(triton.next_power_of_2(store.width), 128),
        num_warps=warps,
    )


def rows_of(batch: KernelLookup) -> torch.Tensor:
    code = batch.code[batch.leader.clamp(min=0)]
    return torch.where(batch.leader < 0, -1, torch.where(code < -1, -2 - code, code))


def values(parts: TableMemory, batch: KernelLookup) -> torch.Tensor:
    batch.is_listed = True
    return _read(parts, batch.ids, batch.code, batch)


def peek(parts: TableMemory, ids: torch.Tensor) -> torch.Tensor:
    index, n = parts.index, len(ids)
    row = torch.empty(n, dtype=torch.int32, device=ids.device)
    absent = parts.counters[counted.ABSENT :]
    finding.peek[_blocks(n, finding.BLOCK)](
        ids, index.entries, index.words, row, absent, n, index.slots - 1, BLOCK=finding.BLOCK
    )
    return _read(parts, ids, row, None)


def _read(
    parts: TableMemory, ids: torch.Tensor, code: torch.Tensor, batch: KernelLookup | None
) -> torch.Tensor:
    form, store, settings, n = parts.form, parts.store, parts.settings, len(ids)
    out = torch.empty(n, form.dim, device=ids.device)
    leader = turn = start = listed = code  # not used without a batch
    if batch is not None:
        leader, turn, start, listed = batch.leader, batch.turn, batch.start, batch.listed
    rows, warps = READ
    reading.read_rows[_blocks(n, rows)](
        ids,
        leader,
        turn,
        start,
        code,
        listed,
        store.base,
        store.offsets,
        out,
        n,
        key_of(settings.seed),
        settings.init_scale,
        TRAIN=batch is not None,
        INIT=INITS.index(settings.init),
        DIM=form.dim,
        WIDTH=form.width,
        SEGMENT=store.segment,
        BLOCK=rows,
        COLUMNS=triton.next_power_of_2(form.dim),
        num_warps=warps,
    )
    return out


def update(
    parts: TableMemory, batch: KernelLookup, gradients: torch.Tensor, step: UpdateStep
) -> None:
    form, store, settings, n = parts.form, parts.store, parts.settings, len(batch.ids)
    columns = triton.next_power_of_2(form.dim)
    listed = _list_positions(batch, deterministic=settings.deterministic)
    partial = torch.empty(_most_parts(n), form.dim, device=gradients.device)
    updating.sum_parts[(min(PROGRAMS, _most_parts(n)),)](
        gradients,
        listed,
        batch.pieces,
        batch.totals,
        partial,
        DIM=form.dim,
        CUT=placing.CUT,
        COLUMNS=columns,
    )
    first, second = settings.betas
    rows, warps = UPDATE
    updating.update[(min(PROGRAMS, triton.cdiv(n, rows)),)](
        gradients,
        listed,
        partial,
        batch.row,
        batch.first,
        batch.size,
        batch.part,
        batch.totals,
        store.base,
        store.offsets,
        parts.counters[counted.NOT_FINITE :],
        step.lr,
        step.rate,
        step.root,
        step.decay,
        first,
        1 - first,
        second,
        1 - second,
        settings.eps,
        RULE=OPTIMIZERS.index(settings.optimizer),
        DIM=form.dim,
        PITCH=form.pitch,
        TAIL=form.tail,
        WIDTH=form.width,
        SEGMENT=store.segment,
        CUT=placing.CUT,
        BLOCK=rows,
        COLUMNS=columns,
        num_warps=warps,
    )


def _list_positions(batch: KernelLookup, *, deterministic: bool) -> torch.Tensor:
    """The positions of each group with a row, adjacent; ascending if deterministic."""
    n = len(batch.ids)
    if deterministic:
        lead = batch.leader.clamp(min=0)
        stored = (batch.leader >= 0) & (batch.code[lead] != -1)
        return torch.where(stored, batch.start[lead], n).sort(stable=True).indices.int()
    if not batch.is_listed:
        reading.list_positions[_blocks(n, finding.BLOCK)](
            batch.leader, batch.turn, batch.start, batch.code, batch.listed, n, BLOCK=finding.BLOCK
        )
        batch.is_listed = True
    return batch.listed


def read(store: Store, rows: torch.Tensor) -> torch.Tensor:
    records = torch.empty(len(rows), store.width, device=rows.device)
    _move(store, rows, records, write=False)
    return records


def write(store: Store, rows: torch.Tensor, records: torch.Tensor) -> None:
    _move(store, rows, records, write=True)


def _move(store: Store, rows: torch.Tensor, records: torch.Tensor, *, write: bool) -> None:
    if not len(rows):
        return
    block, warps = MOVE
    reading.move_records[_blocks(len(rows), block)](
        rows.int(),
        store.base,
        store.offsets,
        records,
        len(rows),
        WRITE=write,
        WIDTH=store.width,
        SEGMENT=store.segment,
        BLOCK=block,
        COLUMNS=min(triton.next_power_of_2(store.width), 128),
        num_warps=warps,
    )


def fill(index: Index, ids: torch.Tensor, rows: torch.Tensor) -> None:
    if len(ids):
        finding.fill[_blocks(len(ids), finding.BLOCK)](
            ids, rows, index.entries, index.words, len(ids), index.slots - 1, BLOCK=finding.BLOCK
        )
