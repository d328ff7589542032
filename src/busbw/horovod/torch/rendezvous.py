"""How the processes of a job find each other: a store that rank 0 keeps, for as long as its process lives."""

import os
import socket
from datetime import timedelta

import torch.distributed as dist

from busbw.horovod.torch import environment
from busbw.horovod.torch.environment import Place
from busbw.horovod.torch.errors import Refused

# torchrun's agent keeps the store; it outlives the workers that it starts again.
_AGENT, _ATTEMPT = "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT"
_kept: list[dist.Store] = []
_times = 0


def store(place: Place, timeout: timedelta) -> dist.Store:
    """A store of its own for each call; all ranks call as often.

    Raises:
        Refused: nobody says where rank 0 is.
    """
    global _times
    _times += 1
    if not _kept:
        _kept.append(_open(place, timeout))
    return dist.PrefixStore(f"busbw.horovod/{os.environ.get(_ATTEMPT, '0')}/{_times}", _kept[0])


def _open(place: Place, timeout: timedelta) -> dist.Store:
    if place.size == 1:
        return dist.HashStore()
    where = environment.meeting_point(os.environ)
    if where is None:
        return _by_mpi(place, timeout)
    host, port = where
    keeps = place.rank == 0 and os.environ.get(_AGENT) != "True"
    return dist.TCPStore(host, port, is_master=keeps, timeout=timeout, wait_for_workers=False)


def _by_mpi(place: Place, timeout: timedelta) -> dist.Store:
    """mpirun gives no address, and MPI can carry one."""
    try:
        from mpi4py import MPI
    except ImportError:
        raise Refused(
            f"rank {place.rank} of {place.size} does not know where rank 0 is",
            "set MASTER_ADDR and MASTER_PORT on all ranks, or install mpi4py and start with mpirun",
        ) from None
    world = MPI.COMM_WORLD
    if world.size != place.size:
        raise Refused(f"MPI has {world.size} ranks and the launcher says {place.size}", "set MASTER_ADDR and MASTER_PORT on all ranks")
    kept = None
    if place.rank == 0:
        kept = dist.TCPStore("0.0.0.0", 0, is_master=True, timeout=timeout, wait_for_workers=False)
    host, port = world.bcast((socket.gethostname(), kept.port) if kept else None, root=0)
    return kept or dist.TCPStore(host, port, is_master=False, timeout=timeout, wait_for_workers=False)
