"""The steps of a lookup and an update, in plain torch.

`Steps` documents the steps, and `TableMemory` is the memory that they work on. The folder kernels
has the same steps in Triton. Two more steps are the same for both:

* `rebuild` makes a new index when the index is full. Rows do not move.
* `evict` takes the rows of the ids with the lowest scores. Their entries stay in the index.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from busbw.core.errors import NoMeasurement
from busbw_accel.embedding import counters as counted
from busbw_accel.embedding import optimizers
from busbw_accel.embedding.index import EMPTY, Index, probe, slots_for
from busbw_accel.embedding.optimizers import RecordLayout, UpdateStep, initial
from busbw_accel.embedding.settings import TableSettings
from busbw_accel.embedding.store import Store, Tier

MOST_SIGHTINGS = 1 << 30
EVICTED_SCORE = -1  # the score of a row that was evicted
# An eviction frees at least 1/MIN_EVICTION_DIVISOR of the rows, since it scans the whole index.
MIN_EVICTION_DIVISOR = 16


@dataclass(slots=True)
class TableMemory:
    """The memory of a table, and its settings.

    `counters`: see counters.py. `tier`: None if no rows are in host memory.
    """

    settings: TableSettings
    form: RecordLayout
    index: Index
    store: Store
    counters: torch.Tensor
    tier: Tier | None = None


class Steps(Protocol):
    """The steps of lookups and updates.

    A batch holds the results of `find` and `place` for the ids of one lookup. Only these steps know
    its type.
    """

    def find(self, parts: TableMemory, ids: torch.Tensor, epoch: int, *, insert: bool) -> Any:
        """Find the entries of ids, which may repeat, and group the positions of equal ids.

        Marks the entries with `epoch` or more. `insert`: make entries without rows for new ids.
        """

    def wanting(self, parts: TableMemory, batch: Any, admission: int) -> int:
        """The number of ids of a batch that would get a row. Waits for the device."""

    def place(self, parts: TableMemory, batch: Any, *, admission: int | None, stamp: int) -> None:
        """Look up the rows of a batch, and give free rows to ids with enough lookups.

        `admission`: the lookups that are enough; None: no id gets a row. `stamp`: the score of
        these rows for LRU.
        """

    def rows_of(self, batch: Any) -> torch.Tensor:
        """The row of each position of a placed batch; -1: none."""

    def values(self, parts: TableMemory, batch: Any) -> torch.Tensor:
        """The rows of a batch, [n, dim]; new rows are written first."""

    def peek(self, parts: TableMemory, ids: torch.Tensor) -> torch.Tensor:
        """The rows of ids, [n, dim]. Changes nothing but counters."""

    def update(
        self, parts: TableMemory, batch: Any, gradients: torch.Tensor, step: UpdateStep
    ) -> None:
        """Sum the gradients of each row, and apply the optimizer's rule."""

    def read(self, store: Store, rows: torch.Tensor) -> torch.Tensor:
        """The records of rows."""

    def write(self, store: Store, rows: torch.Tensor, records: torch.Tensor) -> None:
        """Replace the records of rows, which are unique."""

    def fill(self, index: Index, ids: torch.Tensor, rows: torch.Tensor) -> None:
        """Put entries into an empty index."""


@dataclass(slots=True)
class Lookup:
    """One lookup. All but `ids` and `inverse` have a value for each unique id."""

    ids: torch.Tensor  # unique
    inverse: torch.Tensor  # for each position of the lookup the index of its id in `ids`
    counts: torch.Tensor  # positions with this id
    slots: torch.Tensor
    rows: torch.Tensor  # -1: none
    new: torch.Tensor  # whether the id just got its row


def find(parts: TableMemory, ids: torch.Tensor, epoch: int, *, insert: bool) -> Lookup:
    unique, inverse, counts = ids.unique(return_inverse=True, return_counts=True)
    slots, inserted = probe(parts.index, unique, insert=insert)
    parts.counters[counted.ENTRIES] += inserted
    parts.index.marks[slots[slots >= 0]] = epoch
    if not insert:
        parts.counters[counted.SKIPPED] += counts[slots < 0].sum()
    return Lookup(
        unique,
        inverse,
        counts,
        slots,
        torch.full_like(slots, -1),
        torch.zeros_like(slots, dtype=torch.bool),
    )


def _sightings(parts: TableMemory, batch: Lookup) -> torch.Tensor:
    """The lookups of each id, including those of this batch; 0 for an id with a row."""
    row = parts.index.rows[batch.slots].long()
    return torch.where(row < 0, (-1 - row + batch.counts).clamp(max=MOST_SIGHTINGS), 0)


def wanting(parts: TableMemory, batch: Lookup, admission: int) -> int:
    return int((_sightings(parts, batch) >= admission).sum())


def place(parts: TableMemory, batch: Lookup, *, admission: int | None, stamp: int) -> None:
    inside = batch.slots >= 0
    batch.rows = torch.where(inside, parts.index.rows[batch.slots].long(), -1)
    if admission is None:
        parts.counters[counted.SKIPPED] += batch.counts[inside & (batch.rows < 0)].sum()
    else:
        _give_rows(parts, batch, admission)
        _stamp(parts, batch, stamp)
    batch.rows.clamp_(min=-1)


def _give_rows(parts: TableMemory, batch: Lookup, admission: int) -> None:
    index, store, sightings = parts.index, parts.store, _sightings(parts, batch)
    admitted = (sightings >= admission).nonzero().flatten()
    free = int(store.available)
    placed = admitted[:free]
    batch.rows[placed] = store.free[free - len(placed) : free].flip(0).long()
    batch.new[placed] = True
    store.available -= len(placed)
    index.rows[batch.slots] = torch.where(batch.rows < 0, -1 - sightings, batch.rows).int()
    without, refused = int((batch.rows < 0).sum()), len(admitted) - len(placed)
    parts.counters[counted.INSERTED] += len(placed)
    parts.counters[counted.REFUSED] += refused
    parts.counters[counted.NOT_ADMITTED] += without - refused


def _stamp(parts: TableMemory, batch: Lookup, stamp: int) -> None:
    """Update the scores of the rows that were looked up."""
    stored, score = batch.rows >= 0, parts.store.score
    rows = batch.rows[stored]
    if parts.settings.eviction == "lru":
        score[rows] = stamp
    elif parts.settings.eviction == "lfu":
        # Sums stay below 2**31.
        before = torch.where(batch.new[stored], 0, score[rows]).clamp(max=MOST_SIGHTINGS)
        score[rows] = before + batch.counts[stored].int()


def rows_of(batch: Lookup) -> torch.Tensor:
    return batch.rows[batch.inverse]


def values(parts: TableMemory, batch: Lookup) -> torch.Tensor:
    rows = _values_of(parts, batch.ids, torch.where(batch.new, -1, batch.rows))
    if bool(batch.new.any()):
        records = rows.new_zeros(int(batch.new.sum()), parts.form.width)
        records[:, : parts.form.dim] = rows[batch.new]
        parts.store.write(batch.rows[batch.new], records)
    return rows[batch.inverse]


def peek(parts: TableMemory, ids: torch.Tensor) -> torch.Tensor:
    unique, inverse, counts = ids.unique(return_inverse=True, return_counts=True)
    slots, _ = probe(parts.index, unique, insert=False)
    rows = torch.where(slots >= 0, parts.index.rows[slots], -1)
    parts.counters[counted.ABSENT] += counts[rows < 0].sum()
    return _values_of(parts, unique, rows)[inverse]


def _values_of(parts: TableMemory, ids: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    settings, dim, absent = parts.settings, parts.form.dim, rows < 0
    result = torch.empty(len(ids), dim, device=ids.device)
    result[absent] = initial(ids[absent], dim, settings.init, settings.init_scale, settings.seed)
    result[~absent] = parts.store.read(rows[~absent])[:, :dim]
    return result


def update(parts: TableMemory, batch: Lookup, gradients: torch.Tensor, step: UpdateStep) -> None:
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


def rebuild(index: Index, steps: Steps, batch: int, *, counting: bool) -> tuple[Index, int]:
    """A new index with room for `batch` more ids.

    Returns it, and the number of ids that were forgotten before they got a row. Waits for the
    device.

    `counting`: keep ids without a row, for their lookups so far. Those with the most lookups are
    kept, as long as the entries fill at most half of the index.

    Raises:
        NoMeasurement: no memory for it. The old index is unchanged.
    """
    rows = index.rows
    slots = max(index.slots, slots_for(int((rows >= 0).sum()), batch))
    lookups = torch.where(rows < 0, -1 - rows, 0) if counting else torch.zeros_like(rows)
    # The lookups of an id that is kept. The index fills mainly with ids of a single lookup.
    least = 1 if slots > index.slots else 2
    while int(((rows >= 0) | (lookups >= least)).sum()) + batch > slots / 2:
        least *= 2
    keep = (rows >= 0) | (lookups >= least)
    try:
        fresh = Index(slots, index.entries.device)
    except (torch.OutOfMemoryError, RuntimeError) as error:
        raise NoMeasurement(
            f"no memory for an index of {slots} slots ({16 * slots} B) beside that of"
            f" {index.slots}: {error}",
            "give the table a capacity and an eviction, or more ranks",
        ) from error
    chosen = keep.nonzero().flatten()
    normal = chosen[index.ids[chosen] != EMPTY]  # the entry behind the others has its own place
    steps.fill(fresh, index.ids[normal], rows[normal])
    if bool(keep[-1]):
        fresh.rows[-1] = rows[-1]
    return fresh, int((~keep & (lookups > 0)).sum())


def evict(parts: TableMemory, needed: int, epoch: int) -> None:
    """Free at least `needed` more rows, or as many as there are.

    Rows whose entries are marked with `epoch` or more stay. Among equal scores the lowest ids are
    evicted. Waits for the device.
    """
    index, store = parts.index, parts.store
    slots = ((index.rows >= 0) & (index.marks < epoch)).nonzero().flatten()
    count = min(len(slots), max(needed, store.rows // MIN_EVICTION_DIVISOR))
    if not count:
        return
    rows = index.rows[slots].long()
    chosen = _lowest(store.score[rows], index.ids[slots], count)
    index.rows[slots[chosen]] = -1
    store.score[rows[chosen]] = EVICTED_SCORE
    store.free.index_copy_(
        0, store.available + torch.arange(count, device=rows.device), rows[chosen].int()
    )
    store.available += count
    parts.counters[counted.EVICTED] += count


def _lowest(score: torch.Tensor, ids: torch.Tensor, count: int) -> torch.Tensor:
    """Positions of the `count` lowest scores, with ties by id. Sorts only the ties."""
    # Not kthvalue, which runs on a single multiprocessor of a GPU.
    limit = score.topk(count, largest=False, sorted=False).values.max()
    below = (score < limit).nonzero().flatten()
    ties = (score == limit).nonzero().flatten()
    return torch.cat([below, ties[ids[ties].argsort()[: count - len(below)]]])
