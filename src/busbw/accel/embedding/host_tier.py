"""Rows in host memory: which rows are on the GPU, and which of them make room.

A row is in one place: on the GPU or in host memory. A lookup swaps its rows that are in host memory
with rows on the GPU that were not used lately: a kernel reads and writes pinned memory through its
address on the GPU, both ways at the same time. Rows that find no room are used where they are, so
that a small GPU part costs time only.
"""

import torch

from busbw.accel.embedding.settings import MOST_ROWS, TableSettings
from busbw.accel.offloading import host_memory
from busbw.core.errors import UsageError

SHARE = 16  # a list has at least this fraction of the places: it needs a pass over all scores


class Tier:
    """The places of the GPU: the row in each, the lookup that last used it, and a list of those
    that make room next.
    """

    def __init__(self, places: int, device: torch.device) -> None:
        self.places = places
        self.owner = torch.arange(places, dtype=torch.int32, device=device)
        self.used = torch.zeros(places, dtype=torch.int32, device=device)
        self.victims = torch.empty(0, dtype=torch.int64, device=device)
        self.listed = 0  # the lookup of the list
        # what had been taken when it was made
        self.begin = torch.zeros((), dtype=torch.int64, device=device)
        self._taken = 0  # the same as the host knew it: at most as much

    def list_victims(
        self, scores: torch.Tensor | None, counter: torch.Tensor, lookup: int, ids: int, taken: int
    ) -> None:
        """Make a new list, if half of the last one may have been taken.

        Does not wait for the device.

        Args:
            scores: of all rows, for eviction; None: rows that were not used lately make room.
            counter: TAKEN, on the device.
            lookup: its number.
            ids: its length.
            taken: the counter as far as the host knows it.
        """
        if len(self.victims) and 2 * (taken - self._taken) < len(self.victims):
            return
        count = min(self.places, max(self.places // SHARE, 2 * ids))
        score = self.used if scores is None else scores[self.owner.long()]
        is_long = 4 * count > self.places  # then it matters which are taken first
        self.victims = torch.topk(score, count, largest=False, sorted=is_long).indices
        self.begin.copy_(counter)
        self.listed, self._taken = lookup, taken


def places_of(
    settings: TableSettings, record: int, device: torch.device, usable: bool
) -> tuple[int | None, int | None]:
    """The rows on the GPU (None: all), and the capacity of the table.

    `record`: bytes of a row; `usable`: there are kernels.

    Raises:
        UsageError: the table is not on a GPU with kernels, or the rows of the capacity do not fit.
        NoMeasurement: less host memory is usable than these rows need.
    """
    if settings.gpu_bytes is None:
        return None, settings.capacity
    if not usable:
        raise UsageError(
            f"gpu_bytes is {settings.gpu_bytes}, and there are no kernels for {device}",
            "rows in host memory need a GPU, Triton and a C compiler: leave gpu_bytes and"
            " host_bytes out, or apt install gcc",
        )
    near, far = settings.gpu_bytes // record, settings.host_bytes // record
    if not near:
        raise UsageError(
            f"gpu_bytes is {settings.gpu_bytes}, and a row with its states has {record} B",
            "give at least the bytes of a batch",
        )
    capacity = min(near + far, MOST_ROWS) if settings.capacity is None else settings.capacity
    if capacity > near + far:
        raise UsageError(
            f"a capacity of {capacity} rows needs {capacity * record} B; gpu_bytes"
            f" ({settings.gpu_bytes}) and host_bytes ({settings.host_bytes}) hold {near + far}"
            " rows",
            f"host_bytes={(capacity - near) * record}, or a capacity of {near + far}",
        )
    near = min(near, capacity)
    advice = (
        f"host_bytes={host_memory.usable() // record * record} is the most here; free -g shows what"
        " is free"
    )
    host_memory.require(
        (capacity - near) * record, f"{capacity - near} rows of a table in host memory", advice
    )
    return near, capacity
