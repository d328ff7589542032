"""The steps of a lookup and an update in plain torch; parts.Steps documents them."""

from dataclasses import dataclass

import torch

from busbw.accel.embedding import counters as counted
from busbw.accel.embedding import optimizers
from busbw.accel.embedding.index import Index, probe
from busbw.accel.embedding.init_values import initial
from busbw.accel.embedding.optimizers import Step
from busbw.accel.embedding.store import Store
from busbw.accel.embedding.table_state import MOST_SIGHTINGS, Parts


@dataclass(slots=True)
class Batch:
    """The unique ids of a lookup, the unique id of each position, how often each occurs, their
    slots (-1: none) and rows (-1: none).
    """

    ids: torch.Tensor
    inverse: torch.Tensor
    counts: torch.Tensor
    slots: torch.Tensor
    rows: torch.Tensor
    new: torch.Tensor


def find(parts: Parts, ids: torch.Tensor, epoch: int, *, insert: bool) -> Batch:
    unique, inverse, counts = ids.unique(return_inverse=True, return_counts=True)
    slots, inserted = probe(parts.index, unique, insert=insert)
    parts.counters[counted.ENTRIES] += inserted
    parts.index.marks[slots[slots >= 0]] = epoch
    if not insert:
        parts.counters[counted.SKIPPED] += counts[slots < 0].sum()
    return Batch(
        unique,
        inverse,
        counts,
        slots,
        torch.full_like(slots, -1),
        torch.zeros_like(slots, dtype=torch.bool),
    )


def _sightings(parts: Parts, batch: Batch) -> torch.Tensor:
    """Lookups of each id with those of this batch; 0 where it has a row."""
    row = parts.index.rows[batch.slots].long()
    return torch.where(row < 0, (-1 - row + batch.counts).clamp(max=MOST_SIGHTINGS), 0)


def wanting(parts: Parts, batch: Batch, admission: int) -> int:
    return int((_sightings(parts, batch) >= admission).sum())


def place(parts: Parts, batch: Batch, *, admission: int | None, stamp: int) -> None:
    inside = batch.slots >= 0
    batch.rows = torch.where(inside, parts.index.rows[batch.slots].long(), -1)
    if admission is None:
        parts.counters[counted.SKIPPED] += batch.counts[inside & (batch.rows < 0)].sum()
    else:
        _give_rows(parts, batch, admission)
        _stamp(parts, batch, stamp)
    batch.rows.clamp_(min=-1)


def _give_rows(parts: Parts, batch: Batch, admission: int) -> None:
    index, store, seen = parts.index, parts.store, _sightings(parts, batch)
    wanted = (seen >= admission).nonzero().flatten()
    free = int(store.available)
    given = wanted[:free]
    batch.rows[given] = store.free[free - len(given) : free].flip(0).long()
    batch.new[given] = True
    store.available -= len(given)
    index.rows[batch.slots] = torch.where(batch.rows < 0, -1 - seen, batch.rows).int()
    without = int((batch.rows < 0).sum())
    for at, count in ((counted.INSERTED, len(given)), (counted.REFUSED, len(wanted) - len(given))):
        parts.counters[at] += count
    parts.counters[counted.NOT_ADMITTED] += without - (len(wanted) - len(given))


def _stamp(parts: Parts, batch: Batch, stamp: int) -> None:
    """The scores of rows that were looked up."""
    stored, score = batch.rows >= 0, parts.store.score
    rows = batch.rows[stored]
    if parts.settings.eviction == "lru":
        score[rows] = stamp
    elif parts.settings.eviction == "lfu":
        # sums stay below 2**31
        before = torch.where(batch.new[stored], 0, score[rows]).clamp(max=MOST_SIGHTINGS)
        score[rows] = before + batch.counts[stored].int()


def rows_of(batch: Batch) -> torch.Tensor:
    return batch.rows[batch.inverse]


def values(parts: Parts, batch: Batch) -> torch.Tensor:
    made = _values_of(parts, batch.ids, torch.where(batch.new, -1, batch.rows))
    if bool(batch.new.any()):
        records = made.new_zeros(int(batch.new.sum()), parts.form.width)
        records[:, : parts.form.dim] = made[batch.new]
        parts.store.write(batch.rows[batch.new], records)
    return made[batch.inverse]


def peek(parts: Parts, ids: torch.Tensor) -> torch.Tensor:
    unique, inverse, counts = ids.unique(return_inverse=True, return_counts=True)
    slots, _ = probe(parts.index, unique, insert=False)
    rows = torch.where(slots >= 0, parts.index.rows[slots], -1)
    parts.counters[counted.ABSENT] += counts[rows < 0].sum()
    return _values_of(parts, unique, rows)[inverse]


def _values_of(parts: Parts, ids: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    settings, dim, absent = parts.settings, parts.form.dim, rows < 0
    made = torch.empty(len(ids), dim, device=ids.device)
    made[absent] = initial(ids[absent], dim, settings.init, settings.init_scale, settings.seed)
    made[~absent] = parts.store.read(rows[~absent])[:, :dim]
    return made


def update(parts: Parts, batch: Batch, gradients: torch.Tensor, step: Step) -> None:
    total = gradients.new_zeros(len(batch.ids), parts.form.dim).index_add_(
        0, batch.inverse, gradients
    )
    stored, finite = batch.rows >= 0, total.isfinite().all(1)
    parts.counters[counted.NOT_FINITE] += (stored & ~finite).sum()
    rows = batch.rows[stored & finite]
    records = parts.store.read(rows)
    optimizers.update(records, total[stored & finite], parts.form, step)
    parts.store.write(rows, records)


def read(store: Store, rows: torch.Tensor) -> torch.Tensor:
    return store.read(rows)


def write(store: Store, rows: torch.Tensor, records: torch.Tensor) -> None:
    store.write(rows, records)


def fill(index: Index, ids: torch.Tensor, rows: torch.Tensor) -> None:
    slots, _ = probe(index, ids, insert=True)
    index.rows[slots] = rows
