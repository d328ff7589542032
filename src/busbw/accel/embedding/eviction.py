"""Eviction: ids with the lowest scores lose their rows, which are then free.

Their entries stay in the index.
"""

import torch

from busbw.accel.embedding import counters as counted
from busbw.accel.embedding.table_state import Parts

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
