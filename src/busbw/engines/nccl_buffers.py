"""Send and receive buffers of the local GPUs from ncclMemAlloc, and their registration with the
communicators.
"""

import platform
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from busbw.core.errors import NoMeasurement
from busbw.engines.cuda_runtime import Gpu
from busbw.engines.nccl_comms import failure

MEM_ALLOC_SINCE = 21900
REGISTER_SINCE, SYMMETRIC_SINCE = 21900, 22700
LOCAL, SYMMETRIC = 1, 2  # SweepSpec.local_register
SYMMETRIC_WINDOW = 1  # NCCL_WIN_COLL_SYMMETRIC


class Buffers:
    """Pairs of (send, recv) addresses, one per GPU; `how` is SweepSpec.local_register, with
    nccl-tests' fallback on an old NCCL.
    """

    def __init__(
        self, nccl: Any, version: int, gpus: Sequence[Gpu], comms: Sequence[Any], how: int
    ) -> None:
        self._nccl, self._version, self._gpus, self._comms = nccl, version, gpus, comms
        self._how = LOCAL if how == SYMMETRIC and version < SYMMETRIC_SINCE else how
        self.pairs: list[tuple[int, int]] = []
        self._registered: list[tuple[Callable[[Any], object], Any]] = []

    @property
    def source(self) -> str:
        """Their allocator."""
        return "ncclMemAlloc" if self._version >= MEM_ALLOC_SINCE else "cudaMalloc"

    def allocate(self, size: int) -> None:
        """Allocate and register both buffers of every GPU, of `size` bytes each; NoMeasurement
        when memory is short.
        """
        self.pairs = [(self._new(gpu, size), self._new(gpu, size)) for gpu in self._gpus]
        if self._how not in (LOCAL, SYMMETRIC):
            return
        if self._version < REGISTER_SINCE:
            raise NoMeasurement(
                "-R: this NCCL is older than 2.19 and cannot register buffers",
                "leave out -R, or use a newer NCCL",
            )
        for side in (0, 1):
            self._register([pair[side] for pair in self.pairs], size)

    def _new(self, gpu: Gpu, size: int) -> int:
        if self._version < MEM_ALLOC_SINCE:
            return gpu.allocate(size)
        gpu.activate()
        try:
            return int(self._nccl.mem_alloc(size))
        except self._nccl.NCCLError as error:
            hint = "use a smaller -e, or free the GPU: `nvidia-smi` shows what runs on it"
            raise NoMeasurement(
                f"no buffer of {size} bytes on GPU {gpu.index} ({gpu.bus}) of {platform.node()}:"
                f" {error}",
                hint,
            ) from error

    def _register(self, addresses: Sequence[int], size: int) -> None:
        """One buffer of every GPU.

        A symmetric window is collective, so that several GPUs of a process need a group.
        """
        nccl, grouped = self._nccl, self._how == SYMMETRIC and len(self._gpus) > 1
        try:
            if grouped:
                nccl.group_start()
            for gpu, comm, address in zip(self._gpus, self._comms, addresses, strict=True):
                gpu.activate()
                if self._how == SYMMETRIC:
                    window = nccl.comm_window_register(comm, address, size, SYMMETRIC_WINDOW)
                    self._registered.append((partial(nccl.comm_window_deregister, comm), window))
                else:
                    handle = nccl.comm_register(comm, address, size)
                    self._registered.append((partial(nccl.comm_deregister, comm), handle))
            if grouped:
                nccl.group_end()
        except nccl.NCCLError as error:
            failed = failure(error, self._comms[0], ())
            raise NoMeasurement(f"-R {self._how}: {failed.message}", failed.hint) from error

    def deregister(self) -> None:
        """Undo the registrations; to be called before the communicators are destroyed."""
        for undo, handle in reversed(self._registered):
            undo(handle)
        self._registered.clear()

    def free(self) -> None:
        """Free the buffers; to be called after the communicators, which may use them, are
        destroyed.
        """
        for gpu, pair in zip(self._gpus, self.pairs, strict=False):
            gpu.activate()
            for address in pair:
                if self._version >= MEM_ALLOC_SINCE:
                    self._nccl.mem_free(address)
                else:
                    gpu.free(address)
        self.pairs = []
