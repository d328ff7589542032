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
    """

    stored: int  # rows at present
    forgotten: int  # ids without a row whose lookups were forgotten, when the index was built anew
    inserted: int  # ids that got a row, with those that were loaded
    evicted: int  # ids that lost their row
    refused: int  # ids without a row because the table was full, once per lookup
    not_admitted: int  # ids that had too few lookups so far, once per lookup
    absent: int  # lookups without training of ids without a row
    skipped: int  # gradients of ids without a row, in `update`
    not_finite: int  # rows left as they were, because their gradient was NaN or infinite
    promoted: int  # rows that a lookup brought from host memory to the GPU, `Layout.nbytes` each
    demoted: int  # rows moved from the GPU to the host for them or new rows, `Layout.nbytes` each
    # rows that kernels used in host memory, because the batch fills the GPU, or ("lfu") all rows on
    # the GPU were looked up more often
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
