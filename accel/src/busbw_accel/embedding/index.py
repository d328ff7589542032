"""The index of a table: a hash table from ids to rows, with open addressing and linear probing.

An entry has 16 bytes: the id, the number of its row, and a mark. An entry without a row holds -1
minus the lookups of the id so far. So the index also counts lookups before admission, and an
evicted id keeps its entry. When the index is filled to LOAD, it is built anew: larger if the stored
rows need it, and without ids that have no row. With admission it keeps those with the most lookups,
at least two, which bounds the memory: the lookups of the others are forgotten, and counted.
"""

import torch

from busbw.core.errors import UsageError
from busbw_accel.embedding.optimizers import mix

# Marks an entry as free. The id with this value has its own entry, behind the others.
EMPTY = -(1 << 63)
LOAD = 0.75
MIN_SLOTS = 64
MAX_SLOTS = 1 << 30


class Index:
    """The entries on a device.

    `entries` is [slots + 1, 2] in int64, and `words` the same memory as [slots + 1, 4] in int32.
    """

    def __init__(self, slots: int, device: torch.device) -> None:
        self.slots = slots
        self.entries = torch.empty(slots + 1, 2, dtype=torch.int64, device=device)
        self.entries[:, 0] = EMPTY
        self.words = self.entries.view(torch.int32)
        self.words[:, 2] = -1
        self.words[:, 3] = 0

    @property
    def ids(self) -> torch.Tensor:
        """The id of each slot."""
        return self.entries[:, 0]

    @property
    def rows(self) -> torch.Tensor:
        """The row of each slot, or -1 minus the lookups so far."""
        return self.words[:, 2]

    @property
    def marks(self) -> torch.Tensor:
        """The lookup that last used each slot, see table.py."""
        return self.words[:, 3]

    def stored(self) -> torch.Tensor:
        """The slots with a row, in ascending order of ids, whatever the order of insertion was."""
        slots = (self.rows >= 0).nonzero().flatten()
        order: torch.Tensor = slots[self.ids[slots].argsort()]
        return order


def slots_for(rows: int, batch: int) -> int:
    """The number of slots, a power of two, of which `rows` and `batch` ids fill at most half.

    Raises:
        UsageError: it exceeds MAX_SLOTS.
    """
    slots = 1 << (max(MIN_SLOTS, 2 * (rows + batch)) - 1).bit_length()
    if slots > MAX_SLOTS:
        raise UsageError(
            f"a table of {rows} rows, and {batch} ids in a lookup",
            f"a table has at most {MAX_SLOTS // 2} of both",
        )
    return slots


def _home(index: Index, ids: torch.Tensor) -> torch.Tensor:
    return torch.where(ids == EMPTY, index.slots, mix(ids) & (index.slots - 1))


def probe(index: Index, ids: torch.Tensor, *, insert: bool) -> tuple[torch.Tensor, int]:
    """The slot of each id (-1: none), and how many entries were inserted. The ids are unique."""
    at, inserted = _home(index, ids), 0
    slots = torch.full_like(ids, -1)
    pending = torch.arange(len(ids), device=ids.device)
    while pending.numel():
        slot, keys = at[pending], ids[pending]
        free = (index.ids[slot] == EMPTY) & (keys != EMPTY)
        if insert:
            # Of several ids that hash to the same slot, one gets it.
            index.ids[slot[free]] = keys[free]
            inserted += int((free & (index.ids[slot] == keys)).sum())
        same = index.ids[slot] == keys
        slots[pending[same]] = slot[same]
        pending = pending[~same] if insert else pending[~same & ~free]
        at[pending] = (at[pending] + 1) & (index.slots - 1)
    return slots, inserted
