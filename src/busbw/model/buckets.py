"""How long a step waits for the exchange of DDP's buckets: one after the other, during backward."""

from collections.abc import Sequence
from itertools import repeat

import msgspec


class Bucket(msgspec.Struct, frozen=True):
    """One of DDP's buckets, in the order of exchange: bytes, and when its gradients are ready in
    a step, on the slowest rank.
    """

    nbytes: int
    ready_s: float


def exposed_s(
    buckets: Sequence[Bucket], bucket_s: Sequence[float], busy_s: Sequence[float]
) -> float:
    """How long a step waits for the exchange of its buckets.

    Each exchange takes `bucket_s` and delays backward by `busy_s`.
    """
    end = late = 0.0
    for bucket, took, busy in zip(buckets, bucket_s, busy_s or repeat(0.0), strict=False):
        end = max(end, bucket.ready_s + late) + took
        late += busy
    return end - buckets[-1].ready_s
