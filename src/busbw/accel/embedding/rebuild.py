"""A new index for a table whose index is full. Rows do not move."""

import torch

from busbw.accel.embedding.index import EMPTY, Index, slots_for
from busbw.accel.embedding.table_state import Steps
from busbw.core.errors import NoMeasurement


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
