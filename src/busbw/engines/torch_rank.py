"""One rank of torch.distributed: its device, its process group, and its collectives.

The engine measures on it, and trainings run on it. Each collective is torch.distributed calls on
typed views of the buffers.
"""

import gc
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from types import CellType
from typing import Any

import torch
import torch.distributed as dist

from busbw.core.errors import NoMeasurement
from busbw.core.result import EngineLibrary, RankDevice
from busbw.engines import torch_nccl
from busbw.engines.base import CollectiveCall, Launch, LaunchSequence
from busbw.host.addresses import address
from busbw.launch.control import Control

SETUP_LIMIT = timedelta(seconds=120)
CALLBACKS_S = 5.0
# References to an object in a caller's variable, in a parameter and in that of getrefcount.
CALLERS = 3


@dataclass(slots=True)
class Tensors:
    """The views of one call's buffers; `scratch` exists for rooted reductions."""

    group: Any
    call: CollectiveCall
    send: torch.Tensor
    recv: torch.Tensor
    scratch: torch.Tensor | None

    @property
    def rank(self) -> int:
        return int(dist.get_rank(self.group))

    @property
    def ranks(self) -> int:
        return int(dist.get_world_size(self.group))

    @property
    def root(self) -> int:
        """The root, as PyTorch counts it: in the whole job."""
        return self.job_rank(self.call.root)

    def job_rank(self, rank: int) -> int:
        """The rank in the whole job of a rank of the group."""
        return int(dist.get_global_rank(self.group, rank))

    @property
    def op(self) -> Any:
        """torch's operator; mulsum is NCCL's pre-multiplied sum."""
        name = self.call.op.name if self.call.op else "sum"
        if name == "mulsum":
            return dist._make_nccl_premul_sum(float(1 + self.rank % 2))
        return getattr(dist.ReduceOp, {"prod": "PRODUCT"}.get(name, name.upper()))

    def parts(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """A view for each rank's part."""
        count = self.call.layout.count
        return [tensor[rank * count : (rank + 1) * count] for rank in range(self.ranks)]


def _after_copy(target: torch.Tensor, source: torch.Tensor, launch: Launch) -> Launch:
    def run() -> None:
        target.copy_(source)
        launch()

    return run


def _all_reduce(t: Tensors) -> Launch:
    launch = partial(dist.all_reduce, t.recv, t.op, t.group)
    return launch if t.call.in_place else _after_copy(t.recv, t.send, launch)


def _reduce(t: Tensors) -> Launch:
    if t.rank == t.call.root:
        launch = partial(dist.reduce, t.recv, t.root, t.op, t.group)
        return launch if t.call.in_place else _after_copy(t.recv, t.send, launch)
    assert t.scratch is not None
    # PyTorch may leave partial results in the tensor of a rank that receives nothing.
    return _after_copy(t.scratch, t.send, partial(dist.reduce, t.scratch, t.root, t.op, t.group))


def _broadcast(t: Tensors) -> Launch:
    launch = partial(dist.broadcast, t.recv, t.root, t.group)
    if t.rank == t.call.root and not t.call.in_place:
        return _after_copy(t.recv, t.send, launch)
    return launch


def _gather(t: Tensors) -> Launch:
    targets = t.parts(t.recv) if t.rank == t.call.root else None
    return partial(dist.gather, t.send, targets, t.root, t.group)


def _scatter(t: Tensors) -> Launch:
    sources = t.parts(t.send) if t.rank == t.call.root else None
    return partial(dist.scatter, t.recv, sources, t.root, t.group)


def _alltoallv(t: Tensors) -> Launch:
    matrix = t.call.layout.matrix
    recvs, sends = [row[t.rank] for row in matrix], list(matrix[t.rank])
    # In place the two buffers are one, of the larger total; PyTorch needs each side exactly as long
    # as its counts.
    recv, send = t.recv[: sum(recvs)], t.send[: sum(sends)]
    return partial(dist.all_to_all_single, recv, send, recvs, sends, t.group)


def _exchange(
    t: Tensors, receiver: int, source: torch.Tensor, sender: int, target: torch.Tensor
) -> Launch:
    """Send `source` to one rank while `target` is received from another."""
    if receiver == t.rank:
        return lambda: target.copy_(source)

    def run() -> None:
        pair = [
            dist.P2POp(dist.isend, source, t.job_rank(receiver), t.group),
            dist.P2POp(dist.irecv, target, t.job_rank(sender), t.group),
        ]
        for work in dist.batch_isend_irecv(pair):
            work.wait()

    return run


def _hypercube(t: Tensors) -> Launch:
    count, rank = t.call.layout.count, t.rank
    steps: list[Launch] = [] if t.call.in_place else [lambda: t.parts(t.recv)[rank].copy_(t.send)]
    for step in range(t.ranks.bit_length() - 1):
        partner, length = rank ^ 1 << step, count << step
        held_start = (rank >> step << step) * count
        missing_start = (partner >> step << step) * count
        held = t.recv[held_start : held_start + length]
        missing = t.recv[missing_start : missing_start + length]
        steps.append(_exchange(t, partner, held, partner, missing))
    return LaunchSequence(steps)


CALLS: dict[str, Callable[[Tensors], Launch]] = {
    "all_reduce": _all_reduce,
    "all_gather": lambda t: partial(dist.all_gather_into_tensor, t.recv, t.send, t.group),
    "reduce_scatter": lambda t: partial(dist.reduce_scatter_tensor, t.recv, t.send, t.op, t.group),
    "broadcast": _broadcast,
    "reduce": _reduce,
    "alltoall": lambda t: partial(dist.all_to_all_single, t.recv, t.send, None, None, t.group),
    "alltoallv": _alltoallv,
    "gather": _gather,
    "scatter": _scatter,
    "sendrecv": lambda t: _exchange(
        t, (t.rank + 1) % t.ranks, t.send, (t.rank - 1) % t.ranks, t.recv
    ),
    "hypercube": _hypercube,
}


class TorchRank:
    """A process on the GPU of its local number, or on the CPU if PyTorch sees no GPU.

    Its creation is collective.
    """

    name = "torch"

    def __init__(
        self,
        control: Control,
        local: int,
        group: int,
        process: int,
        *,
        parent: bool = False,
        ctas: int = 0,
    ) -> None:
        """Join the process group.

        With `parent`, some of its ranks can create a group without the others: NCCL does not split
        it from this one. `ctas` limits the thread blocks of NCCL's kernels; 0: NCCL's choice.
        """
        self._group, self._process = group, process
        self.size = control.processes
        self.ranks: Sequence[int] = (control.process,)
        self._gpu = _pick_gpu(local) if torch.cuda.is_available() else None
        self.device = torch.device("cpu") if self._gpu is None else torch.device("cuda", self._gpu)
        self.backend = "gloo" if self._gpu is None else "nccl"
        options = _limited(ctas) if ctas and self._gpu is not None else None
        self.process_group = _join(control, self.backend, None if parent else self.device, options)

    def devices(self) -> list[RankDevice]:
        """The GPU, or on CPUs the process."""
        device = RankDevice(
            rank=self._process,
            pid=os.getpid(),
            host=platform.node(),
            index=0,
            bus="",
            name=f"CPU, PyTorch {torch.__version__}",
            group=self._group,
            process=self._process,
        )
        if self._gpu is not None:
            gpu = torch.cuda.get_device_properties(self._gpu)
            device.index, device.name = self._gpu, gpu.name
            device.memory_bytes = gpu.total_memory
            device.bus = f"{gpu.pci_domain_id:04x}:{gpu.pci_bus_id:02x}:{gpu.pci_device_id:02x}"
        return [device]

    def library(self) -> EngineLibrary:
        versions = {"torch": str(torch.__version__), "backend": self.backend}
        number = torch_nccl.version() if self.backend == "nccl" else 0
        return EngineLibrary("torch", number, versions)

    def close(self, *, abort: bool = False) -> None:
        """Leave the process group; with `abort` without waiting for the other ranks."""
        if not abort and dist.is_initialized():  # the first of several engines ends all groups
            group, self.process_group = self.process_group, None
            dist.destroy_process_group()
            wait_for_callbacks(group)


def wait_for_callbacks(group: Any) -> None:
    """Wait until no callback in a thread of Gloo holds a destroyed group.

    The caller holds the group in one variable. PowerSGD of torch leaves such callbacks. If one
    frees the last reference, the group ends in its own thread, which joins itself and aborts the
    process.
    """
    end_s = time.monotonic() + CALLBACKS_S
    while sys.getrefcount(group) > CALLERS and time.monotonic() < end_s:
        if not any(isinstance(holder, CellType) for holder in gc.get_referrers(group)):
            return
        time.sleep(0.001)


def _pick_gpu(local: int) -> int:
    """The GPU of the process: the launcher may show each process only its own."""
    count = torch.cuda.device_count()
    if local >= count and count != 1:
        raise NoMeasurement(
            f"local rank {local} has no GPU: {platform.node()} has {count}",
            f"start at most {count} ranks on this host",
        )
    index = local if count > 1 else 0
    torch.cuda.set_device(index)
    return index


def _limited(ctas: int) -> Any:
    """Options of a communicator whose kernels have at most so many thread blocks."""
    options = dist.ProcessGroupNCCL.Options()
    options.config.max_ctas = ctas
    options._timeout = SETUP_LIMIT  # PyTorch warns if it is not the group's
    return options


def _join(control: Control, backend: str, device: torch.device | None, options: Any = None) -> Any:
    """A process group over the processes of the control channel.

    They meet at a store that process 0 opens on a free port. The first group must have all
    processes that later ones have.
    """
    if dist.is_initialized():
        return dist.new_group(
            control.allgather(dist.get_rank()),
            backend=backend,
            pg_options=options,
            timeout=SETUP_LIMIT,
            use_local_synchronization=True,
        )
    store, hosts = None, set(control.allgather(platform.node()))
    if control.process == 0:
        own_address = store_address(len(hosts))
        store = dist.TCPStore(
            own_address, 0, control.processes, True, SETUP_LIMIT, wait_for_workers=False
        )
    host, port = control.bcast((store.host, store.port) if store else None)
    if store is None:
        store = dist.TCPStore(host, port, control.processes, False, SETUP_LIMIT)
    device_id = device if device is not None and device.type == "cuda" else None
    dist.init_process_group(
        backend,
        store=store,
        rank=control.process,
        world_size=control.processes,
        timeout=SETUP_LIMIT,
        pg_options=options,
        device_id=device_id,
    )
    return dist.group.WORLD


def store_address(hosts: int) -> str:
    """The address of process 0's store.

    It is the loopback, that of the interface chosen for sockets, or the host name.
    """
    if hosts == 1:
        return "127.0.0.1"
    names = os.environ.get("GLOO_SOCKET_IFNAME") or os.environ.get("NCCL_SOCKET_IFNAME") or ""
    interface = names.split(",")[0].lstrip("=")
    interface_address = address(interface) if interface else None
    return str(interface_address.ip) if interface_address else platform.node()
