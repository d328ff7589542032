"""The steps of a lookup and an update in plain torch; parts.Steps documents them.

What the steps of a lookup and an update work on. plain.py has them in torch, kernels/ in
Triton.

A new index for a table whose index is full. Rows do not move.

Eviction: ids with the lowest scores lose their rows, which are then free.

Their entries stay in the index.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from busbw.accel.embedding import counters as counted
from busbw.accel.embedding import optimizers
from busbw.accel.embedding.index import EMPTY, Index, probe, slots_for
from busbw.accel.embedding.optimizers import Layout, Step, initial
from busbw.accel.embedding.settings import TableSettings
from busbw.accel.embedding.store import Store, Tier
from busbw.core.errors import NoMeasurement

MOST_SIGHTINGS = 1 << 30


@dataclass(slots=True)
class Parts:
    """The memory of a table, and its settings.

    `counters`: see counters.py; `tier`: None without rows in host memory.
    """

    settings: TableSettings
    form: Layout
    index: Index
    store: Store
    counters: torch.Tensor
    tier: Tier | None = None


class Steps(Protocol):
    """The steps.

    A batch holds what `find` and `place` learned of the ids of one lookup; only these steps know
    its type.
    """

    def find(self, parts: Parts, ids: torch.Tensor, epoch: int, *, insert: bool) -> Any:
        """Find the entries of ids, which may repeat, and group the positions of equal ids.

        Marks entries with `epoch` or more.

        `insert`: make entries for new ids, without rows.
        """

    def wanting(self, parts: Parts, batch: Any, admission: int) -> int:
        """How many ids would get a row. Waits for the device."""

    def place(self, parts: Parts, batch: Any, *, admission: int | None, stamp: int) -> None:
        """Look up the rows of a batch, and give rows to ids with enough lookups while rows are
        free.

        `admission` None: to none. `stamp`: the score of these rows for LRU.
        """

    def rows_of(self, batch: Any) -> torch.Tensor:
        """The row of each position of a placed batch; -1: none."""

    def values(self, parts: Parts, batch: Any) -> torch.Tensor:
        """The rows of a batch, [n, dim]; new rows are written first."""

    def peek(self, parts: Parts, ids: torch.Tensor) -> torch.Tensor:
        """The rows of ids, without any change but of counters."""

    def update(self, parts: Parts, batch: Any, gradients: torch.Tensor, step: Step) -> None:
        """Sum the gradients of each row, and apply the optimizer's rule."""

    def read(self, store: Store, rows: torch.Tensor) -> torch.Tensor:
        """The records of rows."""

    def write(self, store: Store, rows: torch.Tensor, records: torch.Tensor) -> None:
        """Replace the records of rows, which are unique."""

    def fill(self, index: Index, ids: torch.Tensor, rows: torch.Tensor) -> None:
        """Put entries into an empty index."""


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


def rebuilt(index: Index, steps: Steps, batch: int, *, counting: bool) -> tuple[Index, int]:
    """An index with room for a batch of so many ids, and how many ids were forgotten before they
    got a row.

    Waits for the device.

    `counting`: keep ids without a row for their lookups so far, those with the most, as far as they
    fill at most half of the index.

    Raises:
        NoMeasurement: no memory for it; the old one is as it was.
    """
    rows = index.rows
    slots = max(index.slots, slots_for(int((rows >= 0).sum()), batch))
    lookups = torch.where(rows < 0, -1 - rows, 0) if counting else torch.zeros_like(rows)
    # at least so many lookups; most ids without a row have one
    least = 1 if slots > index.slots else 2
    while int(((rows >= 0) | (lookups >= least)).sum()) + batch > slots / 2:
        least *= 2
    kept = (rows >= 0) | (lookups >= least)
    try:
        made = Index(slots, index.entries.device)
    except (torch.OutOfMemoryError, RuntimeError) as error:
        raise NoMeasurement(
            f"no memory for an index of {slots} slots ({16 * slots} B) beside that of"
            f" {index.slots}: {error}",
            "give the table a capacity and an eviction, or more ranks",
        ) from error
    chosen = kept.nonzero().flatten()
    normal = chosen[index.ids[chosen] != EMPTY]  # the entry behind the others has its own place
    steps.fill(made, index.ids[normal], rows[normal])
    if bool(kept[-1]):
        made.rows[-1] = rows[-1]
    return made, int((~kept & (lookups > 0)).sum())


FREE = -1  # the score of a row that was evicted
# an eviction frees at least this fraction of the capacity, since it scans the whole index
SHARE = 16


def evict(parts: Parts, needed: int, epoch: int) -> None:
    """Free at least `needed` more rows, or as many as there are.

    Rows whose entries are marked with `epoch` or more stay.

    Among equal scores the lowest ids are evicted. Waits for the device.
    """
    index, store = parts.index, parts.store
    slots = ((index.rows >= 0) & (index.marks < epoch)).nonzero().flatten()
    count = min(len(slots), max(needed, store.rows // SHARE))
    if not count:
        return
    rows = index.rows[slots].long()
    chosen = _lowest(store.score[rows], index.ids[slots], count)
    index.rows[slots[chosen]] = -1
    store.score[rows[chosen]] = FREE
    store.free.index_copy_(
        0, store.available + torch.arange(count, device=rows.device), rows[chosen].int()
    )
    store.available += count
    parts.counters[counted.EVICTED] += count


def _lowest(score: torch.Tensor, ids: torch.Tensor, count: int) -> torch.Tensor:
    """Positions of the `count` lowest scores, with ties by id. Sorts only the ties."""
    # kthvalue runs on a single multiprocessor
    most = score.topk(count, largest=False, sorted=False).values.max()
    sure = (score < most).nonzero().flatten()
    ties = (score == most).nonzero().flatten()
    return torch.cat([sure, ties[ids[ties].argsort()[: count - len(sure)]]])
