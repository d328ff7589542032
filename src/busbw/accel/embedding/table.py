"""A table of embedding rows by 64-bit id that grows on its device.

One process uses it, on one stream.

A lookup in training finds or makes the entries of its ids, gives rows to new ids, and returns the
rows; positions with equal ids form a group. An update sums the gradients of each group and applies
the optimizer's rule. No step waits for the device as long as there is room for all ids of a batch,
which the host knows from counters that it reads back some lookups late.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from busbw.accel.embedding import index as indexes
from busbw.accel.embedding import kernels, torch_steps
from busbw.accel.embedding.counters import (
    ENTRIES,
    INSERTED,
    LENGTH,
    NOT_FINITE,
    TAKEN,
    Counters,
    Readback,
)
from busbw.accel.embedding.index import Index
from busbw.accel.embedding.optimizers import Layout, Step, layout
from busbw.accel.embedding.settings import TableSettings
from busbw.accel.embedding.store import Store, Tier, places_of
from busbw.accel.embedding.torch_steps import Parts, Steps, rebuilt
from busbw.core.errors import NoMeasurement, UsageError

__all__ = ["Handle", "Table", "TableSettings"]
MOST_IDS = 1 << 28  # of a lookup
SPARE = 16  # rows per id of a lookup from which on a table keeps free rows for a whole lookup
_MARKS = 1 << 31  # marks are 32-bit numbers


@dataclass(slots=True)
class Handle:
    """What `apply` needs of a lookup.

    Evictions since then make its rows stale, and it is looked up again.
    """

    ids: torch.Tensor
    batch: Any
    evictions: int


class Table:
    """Rows of `dim` values in fp32, with the states of their optimizer.

    Attributes:
        step: updates so far, which the optimizer's bias correction needs. `export` does not have
            it: save it too, and set it after `load`.
        settings: those given, with the capacity that gpu_bytes and host_bytes allow.
    """

    def __init__(self, dim: int, settings: TableSettings, device: torch.device) -> None:
        if dim < 1:
            raise UsageError(f"a table with rows of {dim} values", "dim is at least 1")
        device = torch.device(device)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        # where Triton starts kernels
        if device.type == "cuda" and device.index != torch.cuda.current_device():
            raise UsageError(
                f"a table on {device}, and cuda:{torch.cuda.current_device()} is current",
                f"torch.cuda.set_device({device.index})",
            )
        self._steps: Steps = _steps_for(device)
        form = layout(settings, dim)
        near, most = places_of(settings, form.nbytes, device, self._steps is not torch_steps)
        settings = replace(settings, capacity=most)
        self.dim, self.settings, self.device = dim, settings, device
        self.step = 0
        store = Store(form.width, device, near)
        first = Index(
            indexes.slots_for(settings.initial if most is None else min(settings.initial, most), 0),
            device,
        )
        self._parts = Parts(
            settings, form, first, store, torch.zeros(LENGTH, dtype=torch.int64, device=device)
        )
        store.grow(store.step_for(settings.initial, most))
        if near is not None:
            self._parts.tier = Tier(near, device)
        self._epoch, self._lookups, self._evictions, self._forgotten, self._reported = 1, 0, 0, 0, 0
        self._read = Readback(self.device)
        self._wait()

    def rows(self, ids: torch.Tensor, *, train: bool = True) -> torch.Tensor:
        """The rows of ids, [n, dim].

        `train`: admitted ids get a row. Ids without a row have their initial values.
        """
        if train:
            return self.lookup(ids)[0]
        self._check_ids(ids)
        return self._steps.peek(self._parts, ids) if len(ids) else self._nothing()

    def lookup(self, ids: torch.Tensor) -> tuple[torch.Tensor, Handle]:
        """The rows of ids in training, [n, dim], and what `apply` needs. Ids may repeat.

        Raises:
            NoMeasurement: no memory for more rows. All rows and states are as before.
            UsageError: the settings are strict, and the table is full or an earlier gradient was
                not finite.
        """
        self._check_ids(ids)
        batch = self._placed(ids, self.settings.admission, strict=self.settings.strict)
        if len(ids):
            self._promote(batch, len(ids))
        values = self._steps.values(self._parts, batch) if len(ids) else self._nothing()
        self._read.note(len(ids), self._parts.counters, self._parts.store.available)
        return values, Handle(ids, batch, self._evictions)

    def update(self, ids: torch.Tensor, gradients: torch.Tensor, lr: float | None = None) -> None:
        """Apply the optimizer to rows of ids.

        Ids without a row are skipped and counted; gradients of repeated ids are summed.
        """
        self._check_ids(ids)
        self.apply(Handle(ids, None, -1), gradients, lr)

    def apply(self, handle: Handle, gradients: torch.Tensor, lr: float | None = None) -> None:
        """Apply the optimizer to the rows of a lookup.

        `gradients`: [n, dim] in fp32; `lr`: None takes that of the settings.

        Raises:
            UsageError: the gradients have another shape, type or device.
        """
        wanted = (len(handle.ids), self.dim)
        if (
            tuple(gradients.shape) != wanted
            or gradients.dtype != torch.float32
            or gradients.device != handle.ids.device
        ):
            seen = f"{gradients.dtype} {list(gradients.shape)} on {gradients.device}"
            raise UsageError(
                f"gradients are {seen}", f"torch.float32 {list(wanted)} on {handle.ids.device}"
            )
        self.step += 1
        if not len(handle.ids):
            return
        if handle.evictions != self._evictions:
            handle.batch, handle.evictions = self._found(handle.ids), self._evictions
        rule = Step(self.settings, self.settings.lr if lr is None else lr, self.step)
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
    def layout(self) -> Layout:
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
        ids = self._checked(chunk)
        # An eviction spares the ids that are being placed. Many of them would leave no row to
        # evict.
        capacity = self.settings.capacity
        most = max(
            1,
            (
                len(ids)
                if self.settings.eviction == "none" or capacity is None
                else capacity // torch_steps.SHARE
            ),
        )
        for first in range(0, len(ids), most):
            part = slice(first, first + most)
            self._load(ids[part], {name: values[part] for name, values in chunk.items()})

    def _load(self, ids: torch.Tensor, chunk: Mapping[str, torch.Tensor]) -> None:
        form, store = self._parts.form, self._parts.store
        batch = self._placed(ids, 1, strict=self.settings.eviction == "none")
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

    def _checked(self, chunk: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The ids of a chunk, on the device."""
        form, count = self._parts.form, len(chunk["ids"]) if "ids" in chunk else 0
        shapes = {"ids": (count,), "rows": (count, self.dim), "score": (count,)}
        shapes |= dict.fromkeys(form.states, (count, self.dim)) | dict.fromkeys(
            form.rowwise, (count,)
        )
        for name, shape in shapes.items():
            seen = tuple(chunk[name].shape) if name in chunk else None
            if seen != shape:
                raise UsageError(
                    f"'{name}' of a chunk is {'missing' if seen is None else list(seen)}",
                    f"its shape must be {list(shape)}",
                )
        ids = chunk["ids"].to(self.device)
        self._check_ids(ids)
        if len(ids.unique()) != count:
            raise UsageError(
                f"{count} ids of a chunk with {len(ids.unique())} different ones",
                "load each id once",
            )
        return ids

    def _check_ids(self, ids: torch.Tensor) -> None:
        if (
            ids.dtype != torch.int64
            or ids.dim() != 1
            or ids.device != self.device
            or not ids.is_contiguous()
        ):
            seen = (
                f"{ids.dtype} {list(ids.shape)} on"
                f" {ids.device}{'' if ids.is_contiguous() else ', not contiguous'}"
            )
            raise UsageError(
                f"ids are {seen}", f"torch.int64, one-dimensional and contiguous, on {self.device}"
            )
        if len(ids) > MOST_IDS:
            raise UsageError(f"a lookup of {len(ids)} ids", f"look up at most {MOST_IDS} at a time")

    def _nothing(self) -> torch.Tensor:
        return torch.empty(0, self.dim, device=self.device)

    def _placed(self, ids: torch.Tensor, admission: int, *, strict: bool) -> Any:
        """A batch whose ids have entries, and rows where they get one."""
        self._check_reports()
        self._lookups += 1
        if not len(ids):
            return None
        self._room_in_index(len(ids))
        epoch = self._next_epoch(len(ids))
        batch = self._steps.find(self._parts, ids, epoch, insert=True)
        self._room_for_rows(batch, admission, epoch, len(ids), strict=strict)
        self._steps.place(self._parts, batch, admission=admission, stamp=self._lookups)
        return batch

    def _promote(self, batch: Any, ids: int) -> None:
        """Bring the rows of a batch to the GPU, if some may be in host memory."""
        tier, store = self._parts.tier, self._parts.store
        if tier is None or store.rows == tier.places:
            return
        from busbw.accel.embedding.kernels import steps

        self._read.poll()
        scores = None if self._parts.settings.eviction == "none" else store.score
        tier.list_victims(
            scores, self._parts.counters[TAKEN], self._lookups, ids, self._read.numbers[TAKEN]
        )
        steps.promote(self._parts, batch, tier, self._lookups)

    def _found(self, ids: torch.Tensor) -> Any:
        """A batch of ids as they are, without new entries and rows."""
        batch = self._steps.find(self._parts, ids, self._next_epoch(len(ids)), insert=False)
        self._steps.place(self._parts, batch, admission=None, stamp=0)
        return batch

    def _next_epoch(self, ids: int) -> int:
        """The first of the marks of a lookup: above all marks so far."""
        if self._epoch + ids >= _MARKS:
            self._parts.index.marks.zero_()
            self._epoch = 1
        epoch = self._epoch
        self._epoch += ids
        return epoch

    def _check_reports(self) -> None:
        """Raise for what an earlier update reported, in strict tables."""
        seen = self._read.numbers[NOT_FINITE]
        if self.settings.strict and seen > self._reported:
            count, self._reported = seen - self._reported, seen
            raise UsageError(
                f"the gradients of {count} rows of a table were NaN or infinite; these rows were"
                " not updated",
                "look for the loss that is not finite; strict=False counts such rows instead",
            )

    def _wait(self) -> None:
        self._read.wait(self._parts.counters, self._parts.store.available)

    def _know(self, enough: Callable[[], bool]) -> bool:
        """Whether the numbers that were read back show that there is enough.

        If they do not, take newer ones, at last those of now.
        """
        if enough():
            return True
        self._read.poll()
        if enough():
            return True
        self._wait()
        return enough()

    def _room_in_index(self, ids: int) -> None:
        """Make sure that the entries of a batch fit into the index."""
        most = indexes.LOAD * self._parts.index.slots
        if self._know(lambda: self._read.numbers[ENTRIES] + self._read.unknown + ids <= most):
            return
        self._parts.index, forgotten = rebuilt(
            self._parts.index, self._steps, ids, counting=self.settings.admission > 1
        )
        self._forgotten += forgotten
        self._parts.counters[ENTRIES] = int((self._parts.index.ids != indexes.EMPTY).sum())
        self._wait()

    def _room_for_rows(
        self, batch: Any, admission: int, epoch: int, ids: int, *, strict: bool
    ) -> None:
        """Grow or evict, if there may not be enough rows for the new ids of a batch."""
        settings, store = self.settings, self._parts.store
        if store.rows == settings.capacity and settings.eviction == "none" and not strict:
            return  # new ids may be refused
        if self._know(lambda: self._read.numbers[LENGTH] - self._read.unknown >= ids):
            return
        free = self._read.numbers[LENGTH]
        # Free rows for a whole batch spare later lookups the wait, but only where they are few
        # compared with the table.
        spare = ids * SPARE <= store.rows
        short = (ids if spare else self._steps.wanting(self._parts, batch, admission)) - free
        if short <= 0:
            return
        if more := store.step_for(short, settings.capacity):
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
        free = self._read.numbers[LENGTH]
        if (
            strict
            and free < ids
            and (needed := self._steps.wanting(self._parts, batch, admission)) > free
        ):
            raise UsageError(
                f"{needed} new ids for {free} free rows of a table with a capacity of"
                f" {settings.capacity} rows",
                (
                    "raise capacity, or set eviction"
                    if settings.eviction == "none"
                    else "raise capacity, or look up fewer ids at a time"
                ),
            )


def _steps_for(device: torch.device) -> Steps:
    if kernels.usable(device):
        from busbw.accel.embedding.kernels import steps

        return steps
    return torch_steps
