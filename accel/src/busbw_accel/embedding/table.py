"""A table of embedding rows by 64-bit id that grows on its device.

One process uses it, on one stream.

A lookup in training finds or makes the entries of its ids, gives rows to new ids, and returns the
rows. Positions with equal ids form a group. An update sums the gradients of each group and applies
the optimizer's rule. No step waits for the device while there is room for all ids of a batch. The
host knows that from counters that it reads back some lookups late.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from busbw.core.errors import NoMeasurement, UsageError
from busbw_accel.embedding import index as indexes
from busbw_accel.embedding import kernels, torch_steps
from busbw_accel.embedding.checks import check_gradients, check_ids, checked_ids
from busbw_accel.embedding.counters import (
    ENTRIES,
    INSERTED,
    LENGTH,
    NOT_FINITE,
    TAKEN,
    Counters,
    Readback,
)
from busbw_accel.embedding.index import Index
from busbw_accel.embedding.optimizers import RecordLayout, UpdateStep, layout
from busbw_accel.embedding.settings import TableSettings
from busbw_accel.embedding.store import Store, Tier, places_of
from busbw_accel.embedding.torch_steps import Steps, TableMemory, rebuild

__all__ = ["EmbeddingTable", "LookupHandle", "TableSettings"]
# A table with this many rows per id of a lookup keeps free rows for a whole lookup.
SPARE = 16
_MARKS = 1 << 31  # marks are 32-bit numbers


@dataclass(slots=True)
class LookupHandle:
    """A lookup, for `apply`.

    After an eviction its rows may be stale, and `apply` finds them again.
    """

    ids: torch.Tensor
    batch: Any
    evictions: int


class EmbeddingTable:
    """Rows of `dim` values in fp32, with the states of their optimizer.

    Attributes:
        step: updates so far, which the optimizer's bias correction needs. `export` does not have
            it: save it too, and set it after `load`.
        settings: the given settings, with the capacity that gpu_bytes and host_bytes allow.
    """

    def __init__(self, dim: int, settings: TableSettings, device: torch.device) -> None:
        if dim < 1:
            raise UsageError(f"a table with rows of {dim} values", "dim is at least 1")
        device = torch.device(device)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        # Triton starts kernels on the current device.
        if device.type == "cuda" and device.index != torch.cuda.current_device():
            raise UsageError(
                f"a table on {device}, and cuda:{torch.cuda.current_device()} is current",
                f"torch.cuda.set_device({device.index})",
            )
        self._steps: Steps = _steps_for(device)
        form = layout(settings, dim)
        near, capacity = places_of(settings, form.nbytes, device, self._steps is not torch_steps)
        settings = replace(settings, capacity=capacity)
        self.dim, self.settings, self.device = dim, settings, device
        self.step = 0
        store = Store(form.width, device, near)
        initial = settings.initial if capacity is None else min(settings.initial, capacity)
        index = Index(indexes.slots_for(initial, 0), device)
        counters = torch.zeros(LENGTH, dtype=torch.int64, device=device)
        self._parts = TableMemory(settings, form, index, store, counters)
        store.grow(store.step_for(settings.initial, capacity))
        if near is not None:
            self._parts.tier = Tier(near, device)
        self._epoch = 1  # the next mark of an entry
        self._lookups = self._evictions = self._forgotten = 0
        self._reported = 0  # rows with a gradient that is not finite, for which an error was raised
        self._read = Readback(self.device)
        self._wait()

    def rows(self, ids: torch.Tensor, *, train: bool = True) -> torch.Tensor:
        """The rows of ids, [n, dim].

        `train`: admitted ids get a row. Ids without a row have their initial values.
        """
        if train:
            return self.lookup(ids)[0]
        check_ids(ids, self.device)
        return self._steps.peek(self._parts, ids) if len(ids) else self._no_rows()

    def lookup(self, ids: torch.Tensor) -> tuple[torch.Tensor, LookupHandle]:
        """The rows of ids in training, [n, dim], and the handle for `apply`. Ids may repeat.

        Raises:
            NoMeasurement: no memory for more rows. All rows and states are as before.
            UsageError: the settings are strict, and the table is full or an earlier gradient was
                not finite.
        """
        check_ids(ids, self.device)
        batch = self._place(ids, self.settings.admission, strict=self.settings.strict)
        if len(ids):
            self._promote(batch, len(ids))
        values = self._steps.values(self._parts, batch) if len(ids) else self._no_rows()
        self._read.note(len(ids), self._parts.counters, self._parts.store.available)
        return values, LookupHandle(ids, batch, self._evictions)

    def update(self, ids: torch.Tensor, gradients: torch.Tensor, lr: float | None = None) -> None:
        """Apply the optimizer to the rows of ids.

        Ids without a row are skipped and counted. Gradients of repeated ids are summed.
        """
        check_ids(ids, self.device)
        self.apply(LookupHandle(ids, None, -1), gradients, lr)

    def apply(self, handle: LookupHandle, gradients: torch.Tensor, lr: float | None = None) -> None:
        """Apply the optimizer to the rows of a lookup.

        `gradients`: [n, dim] in fp32; `lr`: None takes that of the settings.

        Raises:
            UsageError: the gradients have another shape, type or device.
        """
        check_gradients(gradients, handle.ids, self.dim)
        self.step += 1
        if not len(handle.ids):
            return
        if handle.evictions != self._evictions:
            handle.batch, handle.evictions = self._find_again(handle.ids), self._evictions
        rule = UpdateStep(self.settings, self.settings.lr if lr is None else lr, self.step)
        self._steps.update(self._parts, handle.batch, gradients.contiguous(), rule)
        if self.settings.strict:
            self._read.note(0, self._parts.counters, self._parts.store.available)

    def __len__(self) -> int:
        """Rows in use. Waits for the device."""
        return self._parts.store.rows - int(self._parts.store.available)

    @property
    def counters(self) -> Counters:
        """The counts so far. Waits for the device."""
        return Counters(len(self), self._forgotten, *self._parts.counters.tolist()[INSERTED:TAKEN])

    @property
    def layout(self) -> RecordLayout:
        """The parts of a record."""
        return self._parts.form

    @property
    def nbytes(self) -> int:
        """Bytes of records and index."""
        return self._parts.store.nbytes + 16 * self._parts.index.slots

    def export(self, chunk: int) -> Iterator[Mapping[str, torch.Tensor]]:
        """All rows in ascending order of ids, `chunk` at a time, on the CPU: "ids", "rows", the
        states by name, and "score".

        The score is the number of lookups of an id ("lfu"), the number of the last lookup ("lru"),
        or 0. The table must not change meanwhile.
        """
        if chunk < 1:
            raise UsageError(f"a chunk of {chunk} rows", "export at least 1 at a time")
        form, index, store = self._parts.form, self._parts.index, self._parts.store
        for slots in index.stored().split(chunk):
            rows = index.rows[slots]
            records = self._steps.read(store, rows).cpu()
            states = {name: state.clone() for name, state in form.split(records).items()}
            score = store.score[rows.long()].cpu()
            yield {
                "ids": index.ids[slots].cpu(),
                "rows": records[:, : self.dim].clone(),
                **states,
                "score": score,
            }

    def load(self, chunk: Mapping[str, torch.Tensor]) -> None:
        """Insert rows of `export`, or replace them.

        Raises:
            UsageError: a tensor is missing or has another shape, ids repeat, or the rows exceed the
                capacity.
        """
        ids = checked_ids(chunk, self._parts.form, self.device)
        # An eviction spares the ids that are being placed. Many of them would leave no row to
        # evict.
        capacity = self.settings.capacity
        length = max(1, len(ids))
        if self.settings.eviction != "none" and capacity is not None:
            length = max(1, capacity // torch_steps.MIN_EVICTION_DIVISOR)
        for first in range(0, len(ids), length):
            part = slice(first, first + length)
            self._load(ids[part], {name: values[part] for name, values in chunk.items()})

    def _load(self, ids: torch.Tensor, chunk: Mapping[str, torch.Tensor]) -> None:
        form, store = self._parts.form, self._parts.store
        batch = self._place(ids, 1, strict=self.settings.eviction == "none")
        self._steps.values(self._parts, batch)
        rows = self._steps.rows_of(batch)
        records = torch.zeros(len(ids), form.width, device=self.device)
        records[:, : self.dim] = chunk["rows"].to(self.device)
        for name, state in form.split(records).items():
            state.copy_(chunk[name])
        self._steps.write(store, rows, records)
        store.score[rows.long()] = chunk["score"].to(self.device, torch.int32)
        if self.settings.eviction == "lru":
            self._lookups = max(self._lookups, int(chunk["score"].max()))
        self._read.note(len(ids), self._parts.counters, store.available)

    def _no_rows(self) -> torch.Tensor:
        return torch.empty(0, self.dim, device=self.device)

    def _place(self, ids: torch.Tensor, admission: int, *, strict: bool) -> Any:
        """Make a batch: find or make the entries of ids, and give rows to those that get one."""
        self._check_reports()
        self._lookups += 1
        if not len(ids):
            return None
        self._ensure_index_room(len(ids))
        epoch = self._next_epoch(len(ids))
        batch = self._steps.find(self._parts, ids, epoch, insert=True)
        self._ensure_rows(batch, admission, epoch, len(ids), strict=strict)
        self._steps.place(self._parts, batch, admission=admission, stamp=self._lookups)
        return batch

    def _promote(self, batch: Any, ids: int) -> None:
        """Bring the rows of a batch to the GPU, if some may be in host memory."""
        tier, store = self._parts.tier, self._parts.store
        if tier is None or store.rows == tier.places:
            return
        from busbw_accel.embedding.kernels import steps

        self._read.poll()
        scores = None if self._parts.settings.eviction == "none" else store.score
        tier.list_victims(
            scores, self._parts.counters[TAKEN], self._lookups, ids, self._read.numbers[TAKEN]
        )
        steps.promote(self._parts, batch, tier, self._lookups)

    def _find_again(self, ids: torch.Tensor) -> Any:
        """Make a batch without new entries and rows."""
        batch = self._steps.find(self._parts, ids, self._next_epoch(len(ids)), insert=False)
        self._steps.place(self._parts, batch, admission=None, stamp=0)
        return batch

    def _next_epoch(self, ids: int) -> int:
        """The first mark of a lookup of `ids` ids, above all marks so far."""
        if self._epoch + ids >= _MARKS:
            self._parts.index.marks.zero_()
            self._epoch = 1
        epoch = self._epoch
        self._epoch += ids
        return epoch

    def _check_reports(self) -> None:
        """In a strict table, raise if an earlier update counted gradients that are not finite."""
        reported = self._read.numbers[NOT_FINITE]
        if self.settings.strict and reported > self._reported:
            count, self._reported = reported - self._reported, reported
            raise UsageError(
                f"the gradients of {count} rows of a table were NaN or infinite; these rows were"
                " not updated",
                "look for the loss that is not finite; strict=False counts such rows instead",
            )

    def _wait(self) -> None:
        self._read.wait(self._parts.counters, self._parts.store.available)

    def _confirm(self, enough: Callable[[], bool]) -> bool:
        """Whether the counters that were read back show that there is enough.

        If they do not, newer ones are read: first without waiting, then the present ones.
        """
        if enough():
            return True
        self._read.poll()
        if enough():
            return True
        self._wait()
        return enough()

    def _ensure_index_room(self, ids: int) -> None:
        """Make sure that the entries of a batch fit into the index."""
        limit = indexes.LOAD * self._parts.index.slots
        if self._confirm(lambda: self._read.numbers[ENTRIES] + self._read.unknown + ids <= limit):
            return
        self._parts.index, forgotten = rebuild(
            self._parts.index, self._steps, ids, counting=self.settings.admission > 1
        )
        self._forgotten += forgotten
        self._parts.counters[ENTRIES] = int((self._parts.index.ids != indexes.EMPTY).sum())
        self._wait()

    def _ensure_rows(
        self, batch: Any, admission: int, epoch: int, ids: int, *, strict: bool
    ) -> None:
        """Grow or evict, if there may not be enough rows for the new ids of a batch."""
        settings, store = self.settings, self._parts.store
        if store.rows == settings.capacity and settings.eviction == "none" and not strict:
            return  # new ids may be refused
        if self._confirm(lambda: self._read.numbers[LENGTH] - self._read.unknown >= ids):
            return
        free = self._read.numbers[LENGTH]
        # Free rows for a whole batch spare later lookups the wait, but only where they are few
        # compared with the table.
        needed = ids
        if ids * SPARE > store.rows:
            needed = self._steps.wanting(self._parts, batch, admission)
        short = needed - free
        if short <= 0:
            return
        more = store.step_for(short, settings.capacity)
        if more:
            try:
                store.grow(more)
                short, free = short - more, free + more
            except NoMeasurement:
                if self._steps.wanting(self._parts, batch, admission) > free:
                    raise
        if short > 0 and settings.eviction != "none":
            torch_steps.evict(self._parts, short, epoch)
            self._evictions += 1
        self._wait()
        if strict:
            self._check_free_rows(batch, admission, ids)

    def _check_free_rows(self, batch: Any, admission: int, ids: int) -> None:
        """Raise if some new ids of a batch would get no row."""
        free = self._read.numbers[LENGTH]
        if free >= ids:
            return
        needed = self._steps.wanting(self._parts, batch, admission)
        if needed <= free:
            return
        hint = "raise capacity, or look up fewer ids at a time"
        if self.settings.eviction == "none":
            hint = "raise capacity, or set eviction"
        raise UsageError(
            f"{needed} new ids for {free} free rows of a table with a capacity of"
            f" {self.settings.capacity} rows",
            hint,
        )


def _steps_for(device: torch.device) -> Steps:
    if kernels.usable(device):
        from busbw_accel.embedding.kernels import steps

        return steps
    return torch_steps
