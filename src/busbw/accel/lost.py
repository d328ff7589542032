"""Which ranks are gone when an exchange has failed."""

import time
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import distributed_c10d

from busbw.accel.mesh import Mesh

# For the other ranks to notice the same failure.
PATIENCE_S = 5.0
PAUSE_S = 0.1
_KEY = "busbw.accel/failed/{}"


def lost_ranks(mesh: Mesh) -> list[str]:
    """Ranks, with their hosts, that do not say within some seconds that they have noticed: all that live come here.

    Rank 0 as a rule keeps the store that ranks talk over; where it cannot be reached, that is who is lost.
    """
    ranks = range(mesh.world.size)
    missing = set(ranks)
    try:
        store = distributed_c10d._get_default_store()
        store.set_timeout(timedelta(seconds=PATIENCE_S))
        store.set(_KEY.format(dist.get_rank()), "1")
        end = time.monotonic() + PATIENCE_S
        while missing and time.monotonic() < end:
            missing -= {rank for rank in missing if store.check([_KEY.format(rank)])}
            time.sleep(PAUSE_S)
    except Exception:  # noqa: BLE001 - whatever it is: the store is out of reach
        return [mesh.name(0)]
    return [mesh.name(rank) for rank in sorted(missing)]
