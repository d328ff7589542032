"""Memory of a GPU that the other processes of its host map."""

import ctypes

from busbw.engines.cuda_runtime import CudaGpu, call, driver
from busbw.launch.agreement import of_all_ranks
from busbw.launch.control import Control

HANDLE_BYTES = 64  # CU_IPC_HANDLE_SIZE
PEERS_HINT = "`nvidia-smi topo -p2p r` may say why"


class SharedMemory:
    """Zeroed memory of this process' GPU, and the addresses here of that of each rank.

    Its creation is collective. It stays until the process ends: another rank may have it mapped.
    """

    def __init__(self, gpu: CudaGpu, size: int, control: Control) -> None:
        """NoMeasurement on all ranks if one cannot allocate, share or map it."""
        self._gpu = gpu

        def share() -> tuple[int, bytes]:
            own = gpu.allocate(size)
            call("cuMemsetD8", driver().CUdeviceptr(own), 0, size)
            call("cuCtxSynchronize")
            handle = call("cuIpcGetMemHandle", driver().CUdeviceptr(own))
            return own, ctypes.string_at(int(handle.getPtr()), HANDLE_BYTES)

        shared = of_all_ranks(control, share)
        self.address = shared[control.process][0]

        def map_all() -> list[int]:
            return [
                self.address if rank == control.process else self._map(handle)
                for rank, (_, handle) in enumerate(shared)
            ]

        self.addresses = of_all_ranks(control, map_all, PEERS_HINT)[control.process]

    def _map(self, handle_bytes: bytes) -> int:
        """The address here of another rank's memory."""
        handle = driver().CUipcMemHandle()
        ctypes.memmove(int(handle.getPtr()), handle_bytes, HANDLE_BYTES)
        flag = driver().CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
        self._gpu.activate()
        return int(call("cuIpcOpenMemHandle", handle, int(flag)))
