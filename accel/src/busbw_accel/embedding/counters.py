"""The counters of a table: kept on its device, read by the host without waiting."""

from dataclasses import dataclass

import torch

# Positions on the device.
(
    ENTRIES,
    INSERTED,
    EVICTED,
    REFUSED,
    NOT_ADMITTED,
    ABSENT,
    SKIPPED,
    NOT_FINITE,
    PROMOTED,
    DEMOTED,
    IN_PLACE,
    TAKEN,
) = range(12)
LENGTH = 12  # TAKEN: GPU places taken from the lists of store.Tier; internal


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts since the table was made.

    Every id of a lookup in training is stored, refused or not admitted, so none is lost.

    Attributes:
        stored: rows at present.
        forgotten: ids without a row whose lookups so far were forgotten, when the index was built
            anew.
        inserted: ids that got a row, with those that were loaded.
        evicted: ids that lost their row.
        refused: ids without a row because the table was full; an id counts once per lookup.
        not_admitted: ids that had too few lookups so far; an id counts once per lookup.
        absent: lookups without training of ids without a row.
        skipped: gradients of ids without a row, in `update`.
        not_finite: rows that an update left as they were, because their gradient was NaN or
            infinite.
        promoted: rows that a lookup brought from host memory to the GPU, `Layout.nbytes` each.
        demoted: rows that went from the GPU to host memory for them, or for new rows,
            `Layout.nbytes` each.
        in_place: rows that a lookup left in host memory, because its batch fills the GPU, or
            ("lfu") all rows on the GPU were looked up more often. Kernels read and write them in
            host memory.
    """

    stored: int
    forgotten: int
    inserted: int
    evicted: int
    refused: int
    not_admitted: int
    absent: int
    skipped: int
    not_finite: int
    promoted: int
    demoted: int
    in_place: int
    lost: int = 0


class Readback:
    """The counters of a table as they were some lookups ago.

    They are copied to pinned memory in stream order.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._room = torch.zeros(LENGTH + 1, dtype=torch.int64, pin_memory=self._on_gpu)
        self._event = torch.cuda.Event() if self._on_gpu else None
        self._pending = False
        self._since = 0  # ids of lookups after the pending copy
        self.numbers = [0] * (LENGTH + 1)  # counters, then free rows
        self.unknown = 0  # ids of lookups whose effect on `numbers` is unknown

    def note(self, ids: int, counters: torch.Tensor, available: torch.Tensor) -> None:
        """Queue a copy after a lookup of `ids` ids, unless a copy is pending."""
        self.unknown += ids
        if self._pending:
            self._since += ids
            return
        self._room[:LENGTH].copy_(counters, non_blocking=True)
        self._room[LENGTH].copy_(available, non_blocking=True)
        if self._event is not None:
            self._event.record()
        self._pending, self._since = True, 0
        self.poll()

    def poll(self) -> None:
        """Take the copied numbers if they have arrived."""
        if self._pending and (self._event is None or self._event.query()):
            self.numbers, self.unknown, self._pending = self._room.tolist(), self._since, False

    def wait(self, counters: torch.Tensor, available: torch.Tensor) -> None:
        """Read the present numbers. Waits for the device."""
        self.numbers, self.unknown, self._pending = [*counters.tolist(), int(available)], 0, False
