"""Collectives over symmetric memory: buffers that the GPUs of a host map into each other, on which
kernels of PyTorch or of NCCL work without copies into NCCL's own buffers.

A program whose tensors are elsewhere must copy them into such a buffer and back. With `copies` the
engines do so in each call.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed._symmetric_memory as symmetric_memory

from busbw.core.errors import NoMeasurement
from busbw.core.sweep import SweepSpec
from busbw.engines.base import CollectiveCall, Launch, LaunchSequence
from busbw.engines.torch import TorchEngine
from busbw.launch.control import Control

OP = "sum"
MULTICAST_HINT = "it needs NVSwitch, and a driver and a container that allow NVLink multicast"


@dataclass(slots=True)
class Operands:
    """Typed views of one call: what the program has, as many elements of the mapped buffer, and
    where the sum goes if not there.
    """

    group: str
    local: torch.Tensor
    mapped: torch.Tensor
    out: torch.Tensor


@dataclass(frozen=True, slots=True)
class SumKernel:
    """A kernel of PyTorch that adds up mapped buffers, in place or into other memory.

    `copying` copies the program's tensor into the mapped buffer first, by the same kernel.
    """

    run: Callable[[Operands], Launch]
    in_place: bool = True
    multicast: bool = False
    copying: Callable[[Operands], Launch] | None = None


def _one_shot(operands: Operands) -> Launch:
    call = torch.ops.symm_mem.one_shot_all_reduce_out
    return partial(call, operands.mapped, OP, operands.group, operands.out)


def _one_shot_copying(operands: Operands) -> Launch:
    call = torch.ops.symm_mem.one_shot_all_reduce_copy_out
    return partial(call, operands.mapped, operands.local, OP, operands.group, operands.out)


def _two_shot(operands: Operands) -> Launch:
    return partial(torch.ops.symm_mem.two_shot_all_reduce_, operands.mapped, OP, operands.group)


def _multimem(operands: Operands) -> Launch:
    return partial(torch.ops.symm_mem.multimem_all_reduce_, operands.mapped, OP, operands.group)


# Each GPU reads all buffers; each adds up its part and writes it into all; the switches add up.
KERNELS = {
    "one_shot": SumKernel(_one_shot, in_place=False, copying=_one_shot_copying),
    "two_shot": SumKernel(_two_shot),
    "multimem": SumKernel(_multimem, multicast=True),
}


class SymmetricEngine(TorchEngine):
    """all_reduce by a kernel of PyTorch."""

    def __init__(
        self,
        control: Control,
        spec: SweepSpec,
        place: tuple[int, int, int],
        *,
        kernel: str,
        copies: bool,
    ) -> None:
        """`place` is the number of the process on its host, of its group, and in the job. `kernel`
        is one of KERNELS.
        """
        super().__init__(control, spec, *place)
        self._kernel, self._copies = KERNELS[kernel], copies
        self._source = "recv" if self._kernel.in_place else "send"

    def allocate(self, send_bytes: int, recv_bytes: int) -> None:
        """Allocate both buffers, one of them to be mapped into the other GPUs."""
        super().allocate(send_bytes, recv_bytes)
        size = self._buffers[self._source].numel()
        self._mapped = symmetric_memory.empty(size, dtype=torch.uint8, device=self.device)

    def share(self) -> None:
        """Map the buffer; NoMeasurement without the multicast memory that the kernel needs."""
        handle: Any = symmetric_memory.rendezvous(self._mapped, self.process_group)
        if self._kernel.multicast and not handle.multicast_ptr:
            raise NoMeasurement("these GPUs have no multicast memory", MULTICAST_HINT)
        if not self._copies:
            self._buffers[self._source] = self._mapped

    def bind(self, call: CollectiveCall) -> Launch:
        """A thunk of the kernel, with the copies that were asked for."""
        kind = getattr(torch, call.dtype.torch)
        source = self.view(call, self._source)
        start = source.storage_offset()
        mapped = self._mapped[start : start + source.numel()].view(kind)
        out = self.view(call, "recv").view(kind)
        operands = Operands(self.process_group.group_name, source.view(kind), mapped, out)
        if not self._copies:
            return self._kernel.run(operands)
        if self._kernel.copying:
            return self._kernel.copying(operands)
        return _copied(operands.local, mapped, self._kernel.run(operands))


class NcclSymmetricEngine(TorchEngine):
    """NCCL on buffers that are registered as a window of all ranks, as `-R 2` of nccl-tests.

    NCCL 2.27 and newer have kernels of their own for these.
    """

    def __init__(
        self, control: Control, spec: SweepSpec, place: tuple[int, int, int], *, copies: bool
    ) -> None:
        super().__init__(control, spec, *place)
        self._copies = copies

    def allocate(self, send_bytes: int, recv_bytes: int) -> None:
        """Allocate both buffers by NCCL. Collective."""
        self.fence()()  # creates the communicator, without which nothing can be registered
        self._pool = torch.cuda.MemPool(self._nccl().mem_allocator)
        with torch.cuda.use_mem_pool(self._pool):
            super().allocate(send_bytes, recv_bytes)
        self.synchronize(self._spec.timeout)
        self._mapped = dict(self._buffers)
        if self._copies:
            self._buffers = {
                name: torch.zeros_like(tensor) for name, tensor in self._mapped.items()
            }

    def share(self) -> None:
        """Register the buffers as a window."""
        self._nccl().register_mem_pool(self._pool, symm=True)

    def _nccl(self) -> Any:
        return self.process_group._get_backend(self.device)

    def bind(self, call: CollectiveCall) -> Launch:
        """A thunk of NCCL's call, with the copies that were asked for."""
        if not self._copies:
            return super().bind(call)
        local, self._buffers = self._buffers, self._mapped
        launch = super().bind(call)
        send, recv = self.view(call, "send"), self.view(call, "recv")
        self._buffers = local
        copy_in = partial(send.copy_, self.view(call, "send"))
        copy_out = partial(self.view(call, "recv").copy_, recv)
        return LaunchSequence([copy_in, launch, copy_out])


def _copied(local: torch.Tensor, mapped: torch.Tensor, launch: Launch) -> Launch:
    """Copy into the mapped buffer, run, and copy back."""
    return LaunchSequence([partial(mapped.copy_, local), launch, partial(local.copy_, mapped)])
