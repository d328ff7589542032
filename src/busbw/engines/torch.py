"""Collectives through torch.distributed: GPUs with the NCCL that PyTorch carries, CPUs with Gloo.

What PyTorch adds to every call is part of what is measured; that is the point of this engine. PyTorch has no out-of-place all_reduce,
broadcast and reduce: those copy first, as a program that needs both buffers would.
"""

import os
import platform
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from busbw.core.collectives import Collective
from busbw.core.dtypes import DType
from busbw.core.errors import NoMeasurement, TimedOut
from busbw.core.layouts import Layout
from busbw.core.redops import RedOp
from busbw.core.result import Device, Library
from busbw.core.sweep import SweepSpec
from busbw.engines import torch_calls
from busbw.engines.base import Call, Control, Launch, Memory, in_turn, placement
from busbw.engines.host_memory import HostMemory
from busbw.host.addresses import address
from busbw.host.memory import usable_bytes

SETUP_LIMIT = timedelta(seconds=120)
PROBE_ELEMENTS = 32
POLL_S = 50e-6


class TorchEngine:
    """One rank a process, on the GPU of its local number or on the CPU."""

    name = "torch"

    def __init__(self, control: Control, spec: SweepSpec, local: int, group: int, process: int) -> None:
        self._control, self._spec, self._group, self._process = control, spec, group, process
        self.size = control.size
        self.ranks: Sequence[int] = (control.rank,)
        self._gpu = _pick_gpu(local) if torch.cuda.is_available() else None
        self._device = torch.device("cpu") if self._gpu is None else torch.device("cuda", self._gpu)
        self.backend = "gloo" if self._gpu is None else "nccl"
        self.process_group = _join(control, self.backend, self._device)
        self._buffers: dict[str, torch.Tensor] = {}
        self._marks: dict[int, Any] = {}
        self.queued = self._gpu is not None
        self._gate: Any = None
        self._refused: dict[tuple[str, str, str], str | None] = {}

    @property
    def device(self) -> torch.device:
        """Where this rank's tensors live."""
        return self._device

    def clock(self) -> float:
        """The host's clock."""
        return time.perf_counter()

    def devices(self) -> list[Device]:
        """The GPU, or the process."""
        found = Device(self._process, os.getpid(), platform.node(), 0, "", f"CPU, PyTorch {torch.__version__}", self._group)
        found.process = self._process
        if self._gpu is not None:
            facts = torch.cuda.get_device_properties(self._gpu)
            found.index, found.name, found.memory_bytes = self._gpu, facts.name, facts.total_memory
            found.bus = f"{facts.pci_domain_id:04x}:{facts.pci_bus_id:02x}:{facts.pci_device_id:02x}"
        return [found]

    def library(self) -> Library:
        """Versions of PyTorch and of the NCCL it carries."""
        versions = {"torch": str(torch.__version__), "backend": self.backend}
        number = 0
        if self.backend == "nccl":
            major, minor, patch = torch.cuda.nccl.version()[:3]
            number = major * 10000 + minor * 100 + patch
        return Library("torch", number, versions)

    def memory_bytes(self) -> int | None:
        """Memory of the GPU, or this host's over the ranks that share it."""
        if self._gpu is not None:
            return int(torch.cuda.get_device_properties(self._gpu).total_memory)
        hosts = self._control.allgather(platform.node())
        return usable_bytes() // hosts.count(platform.node())

    def memory_use(self) -> dict[str, int]:
        """Nothing is accounted here."""
        return {}

    def unsupported(self, collective: Collective, dtype: DType, op: RedOp | None) -> str | None:
        """What this PyTorch refuses, found by asking it with a small call: its own words. Collective over the ranks."""
        key = (collective.name, dtype.name, op.name if op else "")
        if key not in self._refused:
            reasons = [reason for reason in self._control.allgather(self._try(collective, dtype, op)) if reason]
            self._refused[key] = reasons[0] if reasons else None
        return self._refused[key]

    def _try(self, collective: Collective, dtype: DType, op: RedOp | None) -> str | None:
        if not hasattr(torch, dtype.torch):
            return f"PyTorch {torch.__version__} has no {dtype.torch}"
        part = -(-PROBE_ELEMENTS // self.size) * 16
        buffers = collective.buffers(part * self.size, self.size, dtype.itemsize)
        matrix = tuple((buffers.count,) * self.size for _ in range(self.size)) if collective.uneven else ()
        call = Call(collective, dtype, op, Layout(buffers.count, self.size, 0, matrix), buffers.send, buffers.recv, in_place=False)
        try:
            self.bind(call)()
            self.synchronize(0)
        except (RuntimeError, ValueError, TypeError) as error:
            return f"PyTorch with {self.backend} refuses: {str(error).splitlines()[0]}"
        return None

    def allocate(self, send_bytes: int, recv_bytes: int) -> None:
        """Make both buffers, and one to reduce in where PyTorch would overwrite what must stay."""
        least = PROBE_ELEMENTS * 64 * self.size * 8
        sizes = {"send": max(send_bytes, least), "recv": max(recv_bytes, least)}
        if self._spec.row.rooted and self._spec.row.reduces:
            sizes["scratch"] = sizes["recv"]
        self._buffers = {name: torch.zeros(size, dtype=torch.uint8, device=self._device) for name, size in sizes.items()}

    def memories(self) -> Sequence[Memory]:
        """Access to the one rank's buffers."""
        if self._gpu is None:
            return (HostMemory(lambda call, buffer: self.view(call, buffer).numpy()),)
        from busbw.engines.cuda_memory import CudaMemory

        stream = torch.cuda.current_stream(self._gpu).cuda_stream
        return (CudaMemory(self._gpu, stream, lambda call, buffer: int(self.view(call, buffer).data_ptr())),)

    def view(self, call: Call, buffer: str) -> torch.Tensor:
        """Bytes of the call's "send" or "recv" data."""
        where = placement(call, self.ranks[0])
        name, offset = (where.send_buffer, where.send_offset) if buffer == "send" else ("recv", where.recv_offset)
        elements = call.send if buffer == "send" else call.recv
        return self._buffers[name][offset : offset + elements * call.dtype.itemsize]

    def scratch(self, call: Call) -> torch.Tensor:
        """Bytes as many as the send buffer's, that no check looks at."""
        return self._buffers["scratch"][: call.send * call.dtype.itemsize]

    def bind(self, call: Call) -> Launch:
        """A thunk that calls torch.distributed; asynchronous on GPUs, complete on CPUs."""
        kind = getattr(torch, call.dtype.torch)
        send, recv = self.view(call, "send").view(kind), self.view(call, "recv").view(kind)
        scratch = self.scratch(call).view(kind) if "scratch" in self._buffers else None
        return torch_calls.CALLS[call.collective.name](torch_calls.Tensors(self.process_group, call, send, recv, scratch))

    def grouped(self, launches: Sequence[Launch]) -> Launch:
        """One after the other: torch.distributed has no public group of collectives."""
        return in_turn(launches)

    def synchronize(self, limit_s: float) -> None:
        """Wait for the GPU."""
        if self._gpu is None:
            return
        if not limit_s:
            torch.cuda.synchronize(self._gpu)
            return
        stream, end = torch.cuda.current_stream(self._gpu), time.monotonic() + limit_s
        while not stream.query():
            if time.monotonic() > end:
                raise TimedOut(f"rank {self._process}: the GPU was not done within {limit_s:g} s", "raise -T, or look at the other ranks")
            time.sleep(POLL_S)

    def capture(self, launches: Sequence[Launch]) -> Launch:
        """A CUDA graph of the launches."""
        if self._gpu is None:
            raise NoMeasurement("-G: Gloo runs on CPUs and has no CUDA graphs", "leave out -G")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for launch in launches:
                launch()
        replay: Launch = graph.replay
        return replay

    def held(self) -> AbstractContextManager[None]:
        """PyTorch's current stream waits until it is left."""
        if self._gpu is None:
            return nullcontext()
        from busbw.engines.cuda_gate import Gate
        from busbw.engines.cuda_runtime import Gpu, Stream

        if self._gate is None:
            gpu = Gpu(self._gpu)
            self._gate = Gate(gpu), Stream(gpu, torch.cuda.current_stream(self._gpu).cuda_stream)
        gate, stream = self._gate
        shut: AbstractContextManager[None] = gate.shut([stream])
        return shut

    def fence(self) -> Launch:
        """An all_reduce of one float."""
        one = torch.zeros(1, device=self._device)
        return partial(dist.all_reduce, one, group=self.process_group)

    def mark(self, index: int) -> None:
        """Record an event, or note the clock."""
        if self._gpu is None:
            self._marks[index] = time.perf_counter()
            return
        event = self._marks.get(index)
        if event is None:
            event = self._marks[index] = torch.cuda.Event(enable_timing=True)
        event.record()

    def elapsed_s(self, first: int, last: int) -> list[float]:
        """Seconds between two marks."""
        if self._gpu is None:
            return [self._marks[last] - self._marks[first]]
        return [self._marks[first].elapsed_time(self._marks[last]) * 1e-3]

    def explained(self, error: Exception) -> Exception:
        """PyTorch's errors (all are RuntimeErrors) as NoMeasurement."""
        if not isinstance(error, RuntimeError):
            return error
        words = (str(error).strip() or type(error).__name__).splitlines()[0]
        message = f"PyTorch with {self.backend} failed on rank {self._process} on {platform.node()}: {words}"
        return NoMeasurement(message, "another rank may have ended first; TORCH_CPP_LOG_LEVEL=INFO says more")

    def close(self, *, abort: bool = False) -> None:
        """Leave the process group; without waiting for anyone when the job is being aborted."""
        self._buffers.clear()
        if self._gate is not None and not abort:
            self._gate[0].close()
        if not abort:
            dist.destroy_process_group()


def _pick_gpu(local: int) -> int:
    """The process' GPU: the launcher may show each process its own alone."""
    count = torch.cuda.device_count()
    if local >= count and count != 1:
        raise NoMeasurement(f"local rank {local} has no GPU: {platform.node()} has {count}", f"start at most {count} ranks on this host")
    index = local if count > 1 else 0
    torch.cuda.set_device(index)
    return index


def _join(control: Control, backend: str, device: torch.device) -> Any:
    """A process group over the control channel's processes, meeting at a store that process 0 opens on a free port."""
    if dist.is_initialized():
        return dist.group.WORLD if dist.get_backend() == backend else dist.new_group(backend=backend)
    store, hosts = None, set(control.allgather(platform.node()))
    if control.rank == 0:
        store = dist.TCPStore(_meeting_place(len(hosts)), 0, control.size, True, SETUP_LIMIT, wait_for_workers=False)
    host, port = control.bcast((store.host, store.port) if store else None)
    if store is None:
        store = dist.TCPStore(host, port, control.size, False, SETUP_LIMIT)
    device_id = device if device.type == "cuda" else None
    dist.init_process_group(backend, store=store, rank=control.rank, world_size=control.size, timeout=SETUP_LIMIT, device_id=device_id)
    return dist.group.WORLD


def _meeting_place(hosts: int) -> str:
    """Where process 0's store is reached: this machine's own address, or that of the interface chosen for sockets, or its name."""
    if hosts == 1:
        return "127.0.0.1"
    chosen = (os.environ.get("GLOO_SOCKET_IFNAME") or os.environ.get("NCCL_SOCKET_IFNAME") or "").split(",")[0].lstrip("=")
    found = address(chosen) if chosen else None
    return str(found.ip) if found else platform.node()
