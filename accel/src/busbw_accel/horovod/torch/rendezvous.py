"""The rendezvous of a job: a store hosted by rank 0 for the lifetime of its process."""

import contextlib
import os
import socket
from datetime import timedelta

import torch.distributed as dist

from busbw.host import addresses
from busbw.launch import interfaces
from busbw_accel.horovod.elastic.processes import World
from busbw_accel.horovod.torch import environment
from busbw_accel.horovod.torch.environment import RankInfo
from busbw_accel.horovod.torch.errors import Refused

REACH_LIMIT_S = 5.0  # of the attempt to connect to each address of rank 0

# torchrun's agent hosts the store, which outlives restarted workers.
_AGENT, _ATTEMPT = "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT"
_stores: list[dist.Store] = []
_times = 0


def connect_store(info: RankInfo, timeout: timedelta, world: World | None = None) -> dist.Store:
    """A new store for each call.

    All ranks must call it equally often, except in an elastic job, where each world has its own
    file.

    Raises:
        Refused: the address of rank 0 is unknown or unreachable.
        NoMeasurement: this host has no interface of the network that horovodrun was given.
    """
    if world is not None:
        store_of_world = dist.FileStore(f"/proc/self/fd/{world.store}")
        store_of_world.set_timeout(timeout)
        return store_of_world
    global _times
    _times += 1
    if not _stores:
        interfaces.set_interface_variables(os.environ)
        _stores.append(_open(info, timeout))
    return dist.PrefixStore(
        f"busbw_accel.horovod/{os.environ.get(_ATTEMPT, '0')}/{_times}", _stores[0]
    )


def _open(info: RankInfo, timeout: timedelta) -> dist.Store:
    if info.size == 1:
        return dist.HashStore()
    where = environment.meeting_point(os.environ)
    if where is None:
        return _open_by_mpi(info, timeout)
    host, port = where
    keeps = info.rank == 0 and os.environ.get(_AGENT) != "True"
    return dist.TCPStore(host, port, is_master=keeps, timeout=timeout, wait_for_workers=False)


def _open_by_mpi(info: RankInfo, timeout: timedelta) -> dist.Store:
    """Open a store at an address that rank 0 broadcasts over MPI, since mpirun sets none."""
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
    store = None
    if info.rank == 0:
        store = dist.TCPStore("0.0.0.0", 0, is_master=True, timeout=timeout, wait_for_workers=False)
    hosts = world.allgather(socket.gethostname())
    alone = len(set(hosts)) == 1
    offer = None
    if store:
        offer = (["127.0.0.1"] if alone else _list_own_addresses(), store.port)
    offered: list[str]
    offered, port = world.bcast(offer, root=0)
    # All ranks learn if one finds no route, so that none keeps waiting.
    routes = world.allgather(offered[0] if store else _find_route(offered, port))
    if None in routes:
        raise Refused(
            f"rank {routes.index(None)} cannot reach rank 0 at any of {', '.join(offered)},"
            f" port {port}",
            "name the network that all hosts share: horovodrun --network-interfaces 10.1.0.0/16",
        )
    if not alone:
        # On rank 0's host every address answers, so the address that other hosts found is used.
        route = routes[info.rank]
        if hosts[info.rank] == hosts[0]:
            pairs = zip(routes, hosts, strict=True)
            route = next(other for other, host in pairs if host != hosts[0])
        interfaces.name_for_gloo(route)
    return store or dist.TCPStore(
        routes[info.rank], port, is_master=False, timeout=timeout, wait_for_workers=False
    )


def _list_own_addresses() -> list[str]:
    """Addresses of this host, the most likely first.

    This is the address of the chosen interface, or else that of the host name and then all others.
    """
    chosen = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    by_interface = addresses.local()
    own = by_interface.get(chosen)
    if own:
        return [str(own.ip)]
    known = [address for address in by_interface.values() if address]
    candidates = [str(address.ip) for address in known if not address.is_loopback]
    named = socket.gethostbyname(socket.gethostname()) if interfaces.own_name_leads_here() else ""
    return sorted(candidates, key=lambda address: address != named)


def _find_route(hosts: list[str], port: int) -> str | None:
    """The first of rank 0's addresses that accepts a connection."""
    for host in hosts:
        with contextlib.suppress(OSError), socket.create_connection((host, port), REACH_LIMIT_S):
            return host
    return None
