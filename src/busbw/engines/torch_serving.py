"""The all-reduce of engines that serve models, for GPUs of one host: vLLM's and FlashInfer's.

Both are called as vLLM calls them, and never work in place.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from busbw.core.errors import NoMeasurement
from busbw.core.sweep import SweepSpec, dtypes
from busbw.engines.base import CollectiveCall, Launch
from busbw.engines.cuda_ipc import SharedMemory
from busbw.engines.cuda_runtime import CudaGpu
from busbw.engines.serving_packages import FLASHINFER_SUM, HIDDEN, VLLM_SUM, Summing, named, tokens
from busbw.engines.torch import TorchEngine
from busbw.launch.agreement import of_all_ranks
from busbw.launch.control import Control

PAGE = 2 << 20
RANK_DATA_BYTES = 8 << 20  # for 131072 registered addresses
EARLY_TOKENS = 16  # with more, a kernel lets the next one start only at its end


class ServingEngine(TorchEngine):
    """An all-reduce of another package."""

    summing: Summing

    def __init__(
        self, control: Control, spec: SweepSpec, place: tuple[int, int, int], *, copies: bool
    ) -> None:
        """`place` is the number of the process on its host, of its group, and in the job."""
        super().__init__(control, spec, *place)
        self._copies = copies
        self._package, self._calls = self.summing.load()

    def operands(self, call: CollectiveCall) -> tuple[torch.Tensor, torch.Tensor]:
        """Typed views of what is summed and of the sum; NoMeasurement for a size it refuses."""
        refusal = self.summing.refusal(call.send * call.dtype.itemsize)
        if refusal:
            raise NoMeasurement(refusal)
        kind = getattr(torch, call.dtype.torch)
        return self.view(call, "send").view(kind), self.view(call, "recv").view(kind)


class VllmEngine(ServingEngine):
    """vLLM's kernels, which read buffers whose addresses all ranks have registered.

    With `copies` each call copies the tensor into one such buffer, as vLLM does outside of graphs.
    """

    summing = VLLM_SUM
    _handle = 0

    def allocate(self, send_bytes: int, recv_bytes: int) -> None:
        """Allocate both buffers, and room for registered addresses."""
        super().allocate(send_bytes, recv_bytes)
        self._rank_data = torch.empty(RANK_DATA_BYTES, dtype=torch.uint8, device=self.device)
        # Signals, and the sums of the kernel that has two stages.
        with named(f"{self._package.name} has no such kernels"):
            signals = int(self._calls.meta_size())
        self._start = -(-(signals + self.summing.max_bytes) // PAGE) * PAGE

    def share(self) -> None:
        """Share the first buffer, or the one for copies."""
        assert self._gpu is not None
        start = self._start
        size = self.summing.max_bytes if self._copies else self._buffers["send"].numel()
        shared = SharedMemory(CudaGpu(self._gpu), start + size, self._control)
        self._bases = [address + start for address in shared.addresses]
        self._handle = self._calls.init_custom_ar(
            shared.addresses, self._rank_data, self._control.process, True
        )
        self._registered: set[int] = set()
        if self._copies:
            self._register(0)
        else:
            self._buffers["send"] = _tensor(shared.address + start, size, self.device)

    def _register(self, offset: int) -> None:
        """Let calls begin at `offset` bytes of the shared buffer."""
        if offset not in self._registered:
            self._registered.add(offset)
            self._calls.register_buffer(self._handle, [base + offset for base in self._bases])

    def bind(self, call: CollectiveCall) -> Launch:
        source, out = self.operands(call)
        copied_to = (0, 0)
        if self._copies:
            copied_to = self._bases[self._control.process], self.summing.max_bytes
        else:
            self._register(self.view(call, "send").storage_offset())
        arguments = (self._handle, source, out, *copied_to, *self._package.more)
        return partial(self._calls.all_reduce, *arguments)

    def capture(self, launches: Sequence[Launch]) -> Launch:
        """A graph, whose addresses are registered before it runs. Collective."""
        graphs = []

        def record() -> tuple[list[int], list[int]]:
            graphs.append(super(VllmEngine, self).capture(launches))
            handles, offsets = self._calls.get_graph_buffer_ipc_meta(self._handle)
            return list(handles), list(offsets)

        handles, offsets = zip(*of_all_ranks(self._control, record), strict=True)
        self._calls.register_graph_buffers(self._handle, list(handles), list(offsets))
        return graphs[0]

    def close(self, *, abort: bool = False) -> None:
        if self._handle and not abort:
            self._calls.dispose(self._handle)
        super().close(abort=abort)


class FlashInferEngine(ServingEngine):
    """FlashInfer's kernels of TensorRT-LLM, which copy into memory of their own: so `copies` adds
    nothing.
    """

    summing = FLASHINFER_SUM
    _workspace: Any = None

    def share(self) -> None:
        """Allocate what the kernels copy into, and map it into the other GPUs."""
        dtype = dtypes(self._spec)[0]
        with named("FlashInfer does not start"):
            self._workspace = self._calls.create_allreduce_fusion_workspace(
                backend="trtllm",
                world_size=self.size,
                rank=self._control.process,
                max_token_num=self.summing.max_bytes // dtype.itemsize // HIDDEN,
                hidden_dim=HIDDEN,
                dtype=getattr(torch, dtype.torch),
                group=self.process_group,
            )

    def bind(self, call: CollectiveCall) -> Launch:
        source, out = self.operands(call)
        shape = tokens(source.numel())
        return partial(
            self._calls.allreduce_fusion,
            input=source.view(shape),
            workspace=self._workspace,
            pattern=self._calls.AllReduceFusionPattern.kAllReduce,
            launch_with_pdl=True,
            trigger_completion_at_end=shape[0] > EARLY_TOKENS,
            output=out.view(shape),
        )

    def close(self, *, abort: bool = False) -> None:
        if self._workspace is not None:
            self._workspace.destroy()
        super().close(abort=abort)


class _Bytes:
    """Memory of a GPU as PyTorch takes it (CUDA Array Interface)."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }


def _tensor(address: int, size: int, device: torch.device) -> torch.Tensor:
    return torch.as_tensor(_Bytes(address, size), device=device)
