"""What the steps of a lookup and an update work on. plain.py has them in torch, kernels/ in
Triton.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from busbw.accel.embedding.host_tier import Tier
from busbw.accel.embedding.index import Index
from busbw.accel.embedding.optimizers import Layout, Step
from busbw.accel.embedding.settings import TableSettings
from busbw.accel.embedding.store import Store

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
