"""One rank of torch.distributed: its device and its process group.

The engine measures on it, and trainings run on it.
"""

import gc
import os
import platform
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from types import CellType
from typing import Any

import torch
import torch.distributed as dist

from busbw.core.errors import NoMeasurement
from busbw.core.result import Device, Library
from busbw.host.addresses import address
from busbw.launch.control import Control

SETUP_LIMIT = timedelta(seconds=120)
CALLBACKS_S = 5.0
# references to an object in a caller's variable, in a parameter and in that of getrefcount
CALLERS = 3


class TorchRank:
    """A process on the GPU of its local number, or on the CPU where PyTorch sees no GPU.

    Made on all processes together.
    """

    name = "torch"

    def __init__(
        self, control: Control, local: int, group: int, process: int, *, parent: bool = False
    ) -> None:
        """With `parent`, groups of some of its ranks can be made by these alone: NCCL does not
        split them from this one.
        """
        self._group, self._process = group, process
        self.size = control.processes
        self.ranks: Sequence[int] = (control.process,)
        self._gpu = _pick_gpu(local) if torch.cuda.is_available() else None
        self.device = torch.device("cpu") if self._gpu is None else torch.device("cuda", self._gpu)
        self.backend = "gloo" if self._gpu is None else "nccl"
        self.process_group = _join(control, self.backend, None if parent else self.device)

    def devices(self) -> list[Device]:
        """The GPU, or the process."""
        found = Device(
            self._process,
            os.getpid(),
            platform.node(),
            0,
            "",
            f"CPU, PyTorch {torch.__version__}",
            self._group,
        )
        found.process = self._process
        if self._gpu is not None:
            facts = torch.cuda.get_device_properties(self._gpu)
            found.index, found.name, found.memory_bytes = self._gpu, facts.name, facts.total_memory
            found.bus = (
                f"{facts.pci_domain_id:04x}:{facts.pci_bus_id:02x}:{facts.pci_device_id:02x}"
            )
        return [found]

    def library(self) -> Library:
        """Versions of PyTorch and of the NCCL it carries."""
        versions = {"torch": str(torch.__version__), "backend": self.backend}
        number = 0
        if self.backend == "nccl":
            major, minor, patch = torch.cuda.nccl.version()[:3]
            number = major * 10000 + minor * 100 + patch
        return Library("torch", number, versions)

    def close(self, *, abort: bool = False) -> None:
        """Leave the process group; with `abort` without waiting for the other ranks."""
        if not abort and dist.is_initialized():  # the first of several engines ends all groups
            group, self.process_group = self.process_group, None
            dist.destroy_process_group()
            wait_for_callbacks(group)


def wait_for_callbacks(group: Any) -> None:
    """Wait until no callback in a thread of Gloo holds a destroyed group, which the caller holds in
    one variable.

    PowerSGD of torch leaves such callbacks. If one frees the last reference, the group ends in its
    own thread, which joins itself and aborts the process.
    """
    end_s = time.monotonic() + CALLBACKS_S
    while sys.getrefcount(group) > CALLERS and time.monotonic() < end_s:
        if not any(isinstance(holder, CellType) for holder in gc.get_referrers(group)):
            return
        time.sleep(0.001)


def _pick_gpu(local: int) -> int:
    """The process' GPU: the launcher may show each process its own alone."""
    count = torch.cuda.device_count()
    if local >= count and count != 1:
        raise NoMeasurement(
            f"local rank {local} has no GPU: {platform.node()} has {count}",
            f"start at most {count} ranks on this host",
        )
    index = local if count > 1 else 0
    torch.cuda.set_device(index)
    return index


def _join(control: Control, backend: str, device: torch.device | None) -> Any:
    """A process group over the control channel's processes, meeting at a store that process 0 opens
    on a free port.

    The first one must have all processes that later ones have.
    """
    if dist.is_initialized():
        return dist.new_group(
            control.allgather(dist.get_rank()), backend=backend, use_local_synchronization=True
        )
    store, hosts = None, set(control.allgather(platform.node()))
    if control.process == 0:
        store = dist.TCPStore(
            _store_address(len(hosts)),
            0,
            control.processes,
            True,
            SETUP_LIMIT,
            wait_for_workers=False,
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
        device_id=device_id,
    )
    return dist.group.WORLD


def _store_address(hosts: int) -> str:
    """The address of process 0's store: the loopback, the interface chosen for sockets, or the
    host name.
    """
    if hosts == 1:
        return "127.0.0.1"
    chosen = (
        (os.environ.get("GLOO_SOCKET_IFNAME") or os.environ.get("NCCL_SOCKET_IFNAME") or "")
        .split(",")[0]
        .lstrip("=")
    )
    found = address(chosen) if chosen else None
    return str(found.ip) if found else platform.node()
