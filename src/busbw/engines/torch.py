"""Collectives through torch.distributed: GPUs with the NCCL that PyTorch carries, CPUs with Gloo.

Times include what PyTorch adds to every call. PyTorch has no out-of-place all_reduce,
broadcast and reduce: those copy first, as a program that needs both buffers would.
"""

import platform
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from busbw.core.collectives import Collective
from busbw.core.dtypes import DType
from busbw.core.errors import BusbwError, NoMeasurement, TimedOut, first_line
from busbw.core.layouts import Layout
from busbw.core.redops import RedOp
from busbw.core.sweep import SweepSpec
from busbw.engines import torch_rank
from busbw.engines.base import BufferAccess, CollectiveCall, Engine, Launch, buffer_slice
from busbw.engines.host_memory import HostMemory
from busbw.engines.nccl_profiler import NcclProfiler
from busbw.engines.nccl_tuner import NcclTuner
from busbw.engines.torch_rank import TorchRank
from busbw.host.cpu import usable_by_gpu, usable_bytes
from busbw.launch.control import Control

PROBE_ELEMENTS = 32
POLL_S = 50e-6


class TorchEngine(TorchRank, Engine):
    """One rank per process, on the GPU of its local number or on the CPU."""

    def __init__(
        self,
        control: Control,
        spec: SweepSpec,
        local: int,
        group: int,
        process: int,
        *,
        ctas: int = 0,
    ) -> None:
        super().__init__(control, local, group, process, ctas=ctas)
        self._control, self._spec = control, spec
        self._buffers: dict[str, torch.Tensor] = {}
        self._marks: dict[int, Any] = {}
        self.asynchronous = self._gpu is not None
        self._gate: Any = None
        self._refused: dict[tuple[str, str, str], str | None] = {}

    def memory_bytes(self) -> int | None:
        """What a sweep may use of the GPU's memory, or that of this host divided by its ranks."""
        if self._gpu is not None:
            gpu = torch.cuda.get_device_properties(self._gpu)
            unified = bool(getattr(gpu, "is_integrated", False))
            return usable_by_gpu(int(gpu.total_memory), unified=unified)
        hosts = self._control.allgather(platform.node())
        return usable_bytes() // hosts.count(platform.node())

    def unsupported(self, collective: Collective, dtype: DType, op: RedOp | None) -> str | None:
        """The message with which this PyTorch refuses a small call. Collective over the ranks."""
        key = (collective.name, dtype.name, op.name if op else "")
        if key not in self._refused:
            reasons = self._control.allgather(self._refusal(collective, dtype, op))
            self._refused[key] = next(filter(None, reasons), None)
        return self._refused[key]

    def _refusal(self, collective: Collective, dtype: DType, op: RedOp | None) -> str | None:
        if not hasattr(torch, dtype.torch):
            return f"PyTorch {torch.__version__} has no {dtype.torch}"
        part = -(-PROBE_ELEMENTS // self.size) * 16
        buffers = collective.buffers(part * self.size, self.size, dtype.itemsize)
        matrix = ((buffers.count,) * self.size,) * self.size if collective.uneven else ()
        layout = Layout(buffers.count, self.size, 0, matrix)
        call = CollectiveCall(
            collective, dtype, op, layout, buffers.send, buffers.recv, in_place=False
        )
        try:
            self.bind(call)()
            self.synchronize(0)
        except BusbwError as error:
            return error.message
        except (RuntimeError, ValueError, TypeError) as error:
            return f"PyTorch with {self.backend} refuses: {first_line(error)}"
        return None

    def tuner(self) -> NcclTuner | None:
        """The tuner plugin of busbw-native; None for Gloo."""
        return NcclTuner() if self._gpu is not None else None

    def profiler(self) -> NcclProfiler | None:
        """The profiler plugin of busbw-native; None for Gloo."""
        return NcclProfiler() if self._gpu is not None else None

    def allocate(self, send_bytes: int, recv_bytes: int) -> None:
        """Allocate both buffers, and one for reductions that would overwrite what must stay."""
        least = PROBE_ELEMENTS * 64 * self.size * 8
        sizes = {"send": max(send_bytes, least), "recv": max(recv_bytes, least)}
        if self._spec.row.rooted and self._spec.row.reduces:
            sizes["scratch"] = sizes["recv"]
        self._buffers = {
            name: torch.zeros(size, dtype=torch.uint8, device=self.device)
            for name, size in sizes.items()
        }

    def memories(self) -> Sequence[BufferAccess]:
        if self._gpu is None:
            return (HostMemory(lambda call, buffer: self.view(call, buffer).numpy()),)
        from busbw.engines.cuda_memory import CudaMemory

        def address(call: CollectiveCall, buffer: str) -> int:
            return int(self.view(call, buffer).data_ptr())

        stream = torch.cuda.current_stream(self._gpu).cuda_stream
        return (CudaMemory(self._gpu, stream, address),)

    def view(self, call: CollectiveCall, buffer: str) -> torch.Tensor:
        name, used_bytes = buffer_slice(call, self.ranks[0], buffer)
        return self._buffers[name][used_bytes]

    def scratch(self, call: CollectiveCall) -> torch.Tensor:
        """As many bytes as the call sends, in a buffer that no check reads."""
        return self._buffers["scratch"][: call.send * call.dtype.itemsize]

    def bind(self, call: CollectiveCall) -> Launch:
        """A thunk that calls torch.distributed; asynchronous on GPUs, complete on CPUs."""
        kind = getattr(torch, call.dtype.torch)
        send, recv = self.view(call, "send").view(kind), self.view(call, "recv").view(kind)
        scratch = self.scratch(call).view(kind) if "scratch" in self._buffers else None
        tensors = torch_rank.Tensors(self.process_group, call, send, recv, scratch)
        return torch_rank.CALLS[call.collective.name](tensors)

    def synchronize(self, limit_s: float) -> None:
        if self._gpu is None:
            return
        if not limit_s:
            torch.cuda.synchronize(self._gpu)
            return
        stream, end = torch.cuda.current_stream(self._gpu), time.monotonic() + limit_s
        while not stream.query():
            if time.monotonic() > end:
                raise TimedOut(
                    f"rank {self._process}: the GPU did not finish within {limit_s:g} s",
                    "raise -T, or look at the other ranks",
                )
            time.sleep(POLL_S)

    def capture(self, launches: Sequence[Launch]) -> Launch:
        if self._gpu is None:
            raise NoMeasurement("-G: Gloo runs on CPUs and has no CUDA graphs", "leave out -G")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for launch in launches:
                launch()
        replay: Launch = graph.replay
        return replay

    def held(self) -> AbstractContextManager[None]:
        """PyTorch's current stream waits until the context exits."""
        if self._gpu is None:
            return nullcontext()
        from busbw.engines.cuda_runtime import CudaGpu, Gate, Stream

        if self._gate is None:
            gpu = CudaGpu(self._gpu)
            self._gate = Gate(gpu), Stream(gpu, torch.cuda.current_stream(self._gpu).cuda_stream)
        gate, stream = self._gate
        shut: AbstractContextManager[None] = gate.shut([stream])
        return shut

    def fence(self) -> Launch:
        """An all_reduce of one float."""
        value = torch.zeros(1, device=self.device)
        return partial(dist.all_reduce, value, group=self.process_group)

    def mark(self, index: int) -> None:
        if self._gpu is None:
            self._marks[index] = time.perf_counter()
            return
        event = self._marks.get(index)
        if event is None:
            event = self._marks[index] = torch.cuda.Event(enable_timing=True)
        event.record()

    def elapsed_s(self, first: int, last: int) -> list[float]:
        if self._gpu is None:
            return [self._marks[last] - self._marks[first]]
        return [self._marks[first].elapsed_time(self._marks[last]) * 1e-3]

    def explained(self, error: Exception) -> Exception:
        """PyTorch's errors (all are RuntimeErrors) as NoMeasurement."""
        if not isinstance(error, RuntimeError):
            return error
        message = (
            f"PyTorch with {self.backend} failed on rank {self._process} on {platform.node()}:"
            f" {first_line(error)}"
        )
        return NoMeasurement(
            message, "another rank may have ended first; TORCH_CPP_LOG_LEVEL=INFO logs more"
        )

    def close(self, *, abort: bool = False) -> None:
        """Leave the process group; with `abort`, without waiting for peers."""
        self._buffers.clear()
        if self._gate is not None and not abort:
            self._gate[0].close()
        super().close(abort=abort)
