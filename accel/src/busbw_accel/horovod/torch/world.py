"""`init` and `shutdown`: how a process joins a job and leaves it."""

import atexit
import dataclasses
import gc
import os
import socket
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

# torch.optim imports this module, whose functions have the default group of that time as a default
# argument. Imported before there is one, it keeps none. A group that lives until the interpreter
# ends aborts the process if one of Gloo's threads frees a tensor then.
import torch.distributed.nn.functional
from torch.distributed import distributed_c10d

from busbw_accel import CommWorker, Settings, lightcc_env
from busbw_accel.communicator import Communicator
from busbw_accel.horovod.elastic import processes as worker
from busbw_accel.horovod.elastic.processes import World
from busbw_accel.horovod.torch import context, environment, ops, rendezvous
from busbw_accel.horovod.torch.context import Context, ProcessSet, global_process_set, registered
from busbw_accel.horovod.torch.controller import Controller
from busbw_accel.horovod.torch.environment import Options, RankInfo
from busbw_accel.horovod.torch.errors import HorovodInternalError, Refused
from busbw_accel.horovod.torch.executor import Executor, Members
from busbw_accel.horovod.torch.timeline import Timeline
from busbw_accel.mesh import Mesh, make
from busbw_accel.methods import DENSE

_named: set[str] = set()
_joined = 0  # jobs that this process has joined
_at_exit = False
_ATTEMPTS = 3  # to form a world of an elastic job
# The limit of the first attempt, which doubles with each further attempt. If a rank is lost
# meanwhile, the others wait that long.
FORM_S = 10.0


def init(comm: Any = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
    """Join the job. All ranks must call it; a second call does nothing.

    If torch.distributed is initialized, its ranks are used. Otherwise it is initialized here and
    destroyed at `shutdown`. `comm`: a list of all ranks, a communicator of mpi4py with all, or
    None. `process_sets`: sets to register, or "dynamic" to allow `add_process_set` later.

    In an elastic job the process joins the next world, which the launcher forms. If a rank is lost
    meanwhile, it joins the world after that.

    Raises:
        Refused: an invalid variable or argument.
        HorovodInternalError: several worlds of an elastic job in a row could not be formed.
        SystemExit: the elastic job continues without this process.
    """
    global _at_exit
    if context.is_initialized():
        return
    options = environment.read_options(os.environ)
    if process_sets == "dynamic":
        options = dataclasses.replace(options, dynamic_sets=True)
    elif isinstance(process_sets, str):
        raise Refused(
            f"process_sets is '{process_sets}'", 'give a list of hvd.ProcessSet, or "dynamic"'
        )
    assigned: World | None = None
    if worker.is_elastic():
        current, assigned = _join_elastic(options)
    else:
        current = _join(options, comm)
    context.replace(current)
    context.handles.reset()
    global_process_set.ranks = list(range(current.info.size))
    if options.timeline and current.info.rank == 0:
        path = Path(options.timeline)
        if assigned and assigned.number > 1:  # keep the traces of earlier worlds
            path = path.with_stem(f"{path.stem}.world{assigned.number}")
        current.timeline.start(str(path), options.mark_cycles)
    if not _at_exit:
        atexit.register(_leave_at_exit)
        _at_exit = True
    if process_sets and not isinstance(process_sets, str):
        _register(process_sets)


def _register(process_sets: Sequence[ProcessSet]) -> None:
    rank_lists = [tuple(process_set.ranks or ()) for process_set in process_sets]
    if len(set(rank_lists)) < len(rank_lists):
        raise Refused("a process set is given twice", "give each once")
    for process_set in process_sets:
        ops.register(process_set)


def _settings(options: Options) -> Settings | None:
    """The settings for an optimizer's gradients. None: a plain all-reduce."""
    settings = lightcc_env.from_env(os.environ)
    if options.two_d and not settings.two_d:
        settings = dataclasses.replace(settings, two_d=True)
    return settings if settings.two_d or settings.method != DENSE else None


def _join_elastic(options: Options) -> tuple[Context, World | None]:
    """Join the next world of an elastic job."""
    if dist.is_initialized():
        raise Refused(
            "torch.distributed is initialized, and ranks of an elastic job change",
            "call hvd.init() without it",
        )
    failures = 0
    while True:
        assigned = worker.join_world()
        try:
            form_s = min(options.timeout_s, FORM_S * 2**failures)
            return _join(options, None, assigned, form_s), assigned
        except RuntimeError as error:  # a rank may be lost
            if not dist.is_initialized():
                # PyTorch numbers groups, which must be the same on all ranks, and begins anew only
                # after a group was destroyed.
                dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            dist.destroy_process_group()
            failures += 1
            failed = HorovodInternalError(
                f"a world of the elastic job could not be formed ({error})"
            )
            if failures == _ATTEMPTS:
                raise failed from error
            sys.stderr.write(f"busbw horovod: {failed}\n")


def _join(
    options: Options, comm: Any, assigned: World | None = None, form_s: float | None = None
) -> Context:
    """Form a world.

    `form_s`: the limit of waits for other ranks meanwhile; None: the limit of later waits.
    """
    info, settings = environment.rank_info(os.environ), _settings(options)
    timeout = timedelta(seconds=form_s or options.timeout_s)
    owned = not dist.is_initialized()
    if os.environ.get("HOROVOD_GLOO_IFACE"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", os.environ["HOROVOD_GLOO_IFACE"])
    if owned:
        _init_torch(info, timeout, assigned)
    else:
        info = dataclasses.replace(info, rank=dist.get_rank(), size=dist.get_world_size())
    if comm is not None and not _has_all_ranks(comm, info):
        raise Refused(
            f"init(comm={comm!r}) is not all {info.size} ranks in order",
            "use process sets for some of them",
        )
    control = dist.new_group(backend="gloo", timeout=timeout)
    everyone = dist.group.WORLD if owned else dist.new_group()
    info, hosts, local_sizes = _locate(info, control)
    world = Communicator(control, info.size, info.rank, hosts.count(hosts[info.rank]))
    mesh = Mesh(world, None, None, hosts)
    exchange = CommWorker(settings, make(settings, timeout)) if settings else None
    if form_s is not None:
        groups = [everyone, *_groups_of(mesh)]
        if exchange:
            groups += _groups_of(exchange.mesh)
        for group in groups:
            _set_timeout(group, timedelta(seconds=options.timeout_s))
    _announce(info, settings, exchange)
    timeline = Timeline()
    members = Members(tuple(range(info.size)), everyone)
    executor = Executor(info.rank, members, options.fusion, exchange, timeline)
    global _joined
    _joined = assigned.number if assigned else _joined + 1
    controller = Controller(mesh, executor, options, timeline, _joined)
    groups_to_close = None if owned else [control, everyone]
    return Context(
        info, options, controller, executor, timeline, exchange, local_sizes, groups_to_close
    )


def _init_torch(info: RankInfo, timeout: timedelta, assigned: World | None) -> None:
    """Initialize torch.distributed for this rank."""
    backend = "gloo"
    if torch.cuda.is_available() and dist.is_nccl_available():
        backend = "cpu:gloo,cuda:nccl"
    store = rendezvous.connect_store(info, timeout, assigned)
    dist.init_process_group(
        backend, store=store, rank=info.rank, world_size=info.size, timeout=timeout
    )


def _groups_of(mesh: Mesh) -> list[dist.ProcessGroup | None]:
    return [comm.group for comm in (mesh.world, mesh.inside, mesh.across) if comm]


def _has_all_ranks(comm: Any, info: RankInfo) -> bool:
    """Whether a list of ranks, or a communicator of mpi4py, has all ranks in order."""
    if hasattr(comm, "Get_rank"):
        return (comm.Get_rank(), comm.Get_size()) == (info.rank, info.size)
    return sorted(comm) in ([], list(range(info.size)))


def _set_timeout(group: dist.ProcessGroup, timeout: timedelta) -> None:
    if hasattr(dist, "set_timeout"):
        dist.set_timeout(timeout, group)
    else:  # in older releases of PyTorch
        distributed_c10d._set_pg_timeout(timeout, group)


def _locate(
    info: RankInfo, control: dist.ProcessGroup
) -> tuple[RankInfo, tuple[str, ...], tuple[int, ...]]:
    """Fill in local and cross ranks.

    Also returns, for each rank, its host and the number of ranks on that host.
    """
    gathered: list[Any] = [None] * info.size
    name = (
        os.environ.get("HOROVOD_HOSTNAME") or os.environ.get("NCCL_HOSTID") or socket.gethostname()
    )
    dist.all_gather_object(gathered, (name, info.local_rank, info.local_size), group=control)
    hosts = tuple(host for host, _, _ in gathered)
    local_ranks = [
        local if local >= 0 else hosts[:rank].count(hosts[rank])
        for rank, (_, local, _) in enumerate(gathered)
    ]
    sizes = tuple(size if size >= 0 else hosts.count(host) for host, _, size in gathered)
    column = [rank for rank, local in enumerate(local_ranks) if local == local_ranks[info.rank]]
    located = {
        "local_rank": local_ranks[info.rank],
        "local_size": sizes[info.rank],
        "cross_rank": info.cross_rank if info.cross_rank >= 0 else column.index(info.rank),
        "cross_size": info.cross_size if info.cross_size >= 0 else len(column),
    }
    return dataclasses.replace(info, **located), hosts, sizes


def _announce(info: RankInfo, settings: Settings | None, worker: CommWorker | None) -> None:
    """Rank 0 prints how gradients are exchanged, and which variables have no effect.

    It prints each line once per process.
    """
    lines = []
    if settings and worker:
        note = f"; {worker.mesh.note}" if worker.mesh.note else ""
        lines.append(f"gradients are exchanged by {settings.describe()}{note}")
    unsupported = environment.unsupported_variables(os.environ)
    if unsupported:
        lines.append(f"variables without effect: {', '.join(unsupported)}")
    lines += [f"{name} is unknown" for name in lightcc_env.unknown(os.environ)]
    fresh = [line for line in lines if line not in _named]
    _named.update(fresh)
    if info.rank == 0:
        sys.stderr.write("".join(f"busbw horovod: {line}\n" for line in fresh))


def shutdown() -> None:
    """Leave the job. Pending operations fail on all ranks. Does nothing without `init`."""
    current = context.replace(None)
    if current is None:
        return
    current.controller.stop()
    current.timeline.stop()
    if current.worker is not None and not current.controller.lost:
        current.worker.close()
    for process_set in registered:
        process_set.process_set_id = None
    registered.clear()
    context.handles.reset()
    if current.groups is None:
        dist.destroy_process_group()
    else:
        for group in current.groups:
            dist.destroy_process_group(group)


def _leave_at_exit() -> None:
    """Leave the job, and free its groups.

    Exceptions that are not used any more may still refer to them.
    """
    shutdown()
    gc.collect()


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Start a Chrome trace of operations, written by rank 0."""
    if context.current().info.rank == 0:
        context.current().timeline.start(file_path, mark_cycles)


def stop_timeline() -> None:
    """End the trace."""
    context.current().timeline.stop()
