"""The rendezvous of a job: a store hosted by rank 0 for the lifetime of its process."""

import contextlib
import os
import socket
from datetime import timedelta

import torch.distributed as dist

from busbw.horovod.elastic.processes import World
from busbw.horovod.torch import environment
from busbw.horovod.torch.environment import RankInfo
from busbw.horovod.torch.errors import Refused
from busbw.host import addresses
from busbw.launch import interfaces

REACH_LIMIT_S = 5.0  # for each address of rank 0 that may be unreachable

# torchrun's agent hosts the store, which outlives restarted workers.
_AGENT, _ATTEMPT = "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT"
_kept: list[dist.Store] = []
_times = 0


def store(info: RankInfo, timeout: timedelta, world: World | None = None) -> dist.Store:
    """A new store for each call.

    All ranks must call it equally often, except in an elastic job, where each world has its own
    file.

    Raises:
        Refused: the address of rank 0 is unknown or unreachable.
        NoMeasurement: this host has no interface of the network that horovodrun was given.
    """
    if world is not None:
        kept = dist.FileStore(f"/proc/self/fd/{world.store}")
        kept.set_timeout(timeout)
        return kept
    global _times
    _times += 1
    if not _kept:
        interfaces.settle(os.environ)
        _kept.append(_open(info, timeout))
    return dist.PrefixStore(f"busbw.horovod/{os.environ.get(_ATTEMPT, '0')}/{_times}", _kept[0])


def _open(info: RankInfo, timeout: timedelta) -> dist.Store:
    if info.size == 1:
        return dist.HashStore()
    where = environment.meeting_point(os.environ)
    if where is None:
        return _by_mpi(info, timeout)
    host, port = where
    keeps = info.rank == 0 and os.environ.get(_AGENT) != "True"
    return dist.TCPStore(host, port, is_master=keeps, timeout=timeout, wait_for_workers=False)


def _by_mpi(info: RankInfo, timeout: timedelta) -> dist.Store:
    """mpirun sets no address for rank 0, so MPI broadcasts one."""
    try:
        from mpi4py import MPI
    except ImportError:
        raise Refused(
            f"rank {info.rank} of {info.size} does not know where rank 0 is",
            "set MASTER_ADDR and MASTER_PORT on all ranks, or install mpi4py and start with mpirun",
        ) from None
    world = MPI.COMM_WORLD
    if world.size != info.size:
        raise Refused(
            f"MPI has {world.size} ranks and the launcher says {info.size}",
            "set MASTER_ADDR and MASTER_PORT on all ranks",
        )
    kept = None
    if info.rank == 0:
        kept = dist.TCPStore("0.0.0.0", 0, is_master=True, timeout=timeout, wait_for_workers=False)
    hosts = world.allgather(socket.gethostname())
    alone = len(set(hosts)) == 1
    offered: tuple[list[str], int] = world.bcast(
        (["127.0.0.1"] if alone else _own_addresses(), kept.port) if kept else None, root=0
    )
    # All ranks learn if one finds no route, so that none keeps waiting.
    routes = world.allgather(offered[0][0] if kept else _reached(*offered))
    if None in routes:
        raise Refused(
            f"rank {routes.index(None)} cannot reach rank 0 at any of {', '.join(offered[0])}, port"
            f" {offered[1]}",
            "name the network that all hosts share: horovodrun --network-interfaces 10.1.0.0/16",
        )
    if not alone:
        # On rank 0's host every address answers, so the address that other hosts found is used.
        from_others = next(
            route for route, host in zip(routes, hosts, strict=True) if host != hosts[0]
        )
        interfaces.name_for_gloo(from_others if hosts[info.rank] == hosts[0] else routes[info.rank])
    return kept or dist.TCPStore(
        routes[info.rank], offered[1], is_master=False, timeout=timeout, wait_for_workers=False
    )


def _own_addresses() -> list[str]:
    """Addresses of this host, most likely first: the chosen interface, the address of the host
    name, all others.
    """
    chosen = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    found = addresses.local()
    if own := found.get(chosen):
        return [str(own.ip)]
    every = [str(one.ip) for one in found.values() if one and not one.is_loopback]
    named = socket.gethostbyname(socket.gethostname()) if interfaces.own_name_leads_here() else ""
    return sorted(every, key=lambda one: one != named)


def _reached(hosts: list[str], port: int) -> str | None:
    """The first of rank 0's addresses that accepts a connection."""
    for host in hosts:
        with contextlib.suppress(OSError), socket.create_connection((host, port), REACH_LIMIT_S):
            return host
    return None
