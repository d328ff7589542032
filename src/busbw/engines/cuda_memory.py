"""Verification's access to buffers in GPU memory.

Kernels write and compare on the GPU, and only their findings are read back.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from busbw.core.dtypes import DType
from busbw.core.redops import RedOp
from busbw.engines import cuda_kernels
from busbw.engines.base import SENTINEL_BYTE, CollectiveCall, Probe, Region, WrongData, buffer_slice
from busbw.engines.cuda_kernels import KINDS, Found, RegionArgument
from busbw.engines.cuda_runtime import CudaGpu, Stream
from busbw.engines.host_memory import expected

VECTOR_BYTES = 16  # what one thread of probe.cu takes at once

Address = Callable[[CollectiveCall, str], int]


def placed(rank: int, send: int, recv: int) -> Address:
    """A function from a call and "send" or "recv" to the address of that data on `rank`.

    `send` and `recv` are the addresses of the buffers. In-place calls follow nccl-tests' rule.
    """

    def address(call: CollectiveCall, buffer: str) -> int:
        name, where = buffer_slice(call, rank, buffer)
        return (send if name == "send" else recv) + int(where.start)

    return address


class CudaMemory:
    """Buffers of one rank on GPU `device`, used in order with the work of `stream`.

    As an integer, `stream` is a CUstream or torch's `cuda_stream`. `address(call, buffer)` gives
    where the call's data of that buffer begins; it must be a multiple of the element's size.
    """

    def __init__(self, device: int | CudaGpu, stream: int | Stream, address: Address) -> None:
        self._gpu = device if isinstance(device, CudaGpu) else CudaGpu(device)
        self._stream = stream if isinstance(stream, Stream) else Stream(self._gpu, stream)
        self._address = address
        self._cubins = cuda_kernels.cubins(self._gpu.sm)
        self._kernels: dict[tuple[str, str], Any] = {}
        self._results, self._slots = 0, 0

    def prepare(self, dtype: DType, op: RedOp | None) -> None:
        """Start compiling the kernels for this type and operator."""
        self._cubins.start(dtype, op)

    def write(
        self, call: CollectiveCall, buffer: str, regions: Sequence[Region], probe: Probe
    ) -> None:
        start, size = self._address(call, buffer), probe.dtype.itemsize
        for region in regions:
            if region.length <= 0:
                continue
            if region.kind == "untouched":
                self._stream.set_bytes(
                    start + region.offset * size, SENTINEL_BYTE, region.length * size
                )
            else:
                self._launch(start, region, probe, write=True, result=0)

    def check(
        self, call: CollectiveCall, buffer: str, regions: Sequence[Region], probe: Probe
    ) -> WrongData:
        """Count elements that differ from their region's values, and read back the first one."""
        start, size = self._address(call, buffer), probe.dtype.itemsize
        regions = [region for region in regions if region.length > 0]
        if not regions:
            return WrongData(0)
        result_size = ctypes.sizeof(Found)
        self._reserve(len(regions))
        self._stream.set_bytes(self._results, 0, result_size * len(regions))
        for number, region in enumerate(regions):
            result = self._results + number * result_size
            self._launch(start, region, probe, write=False, result=result)
        data = self._stream.read(self._results, result_size * len(regions))
        results = (Found * len(regions)).from_buffer_copy(data)
        wrong = sum(int(result.wrong) for result in results)
        if not wrong:
            return WrongData(0)
        number = next(number for number, result in enumerate(results) if result.wrong)
        region, first = regions[number], results[number].first
        offset = region.offset + first
        value = expected(region.kind, probe, region.rank, region.first + first, 1).tobytes()
        got = self._stream.read(start + offset * size, size)
        return WrongData(wrong, offset, value, got)

    def close(self) -> None:
        if self._slots:
            self._gpu.free(self._results)
            self._results, self._slots = 0, 0

    def _reserve(self, slots: int) -> None:
        if slots > self._slots:
            self.close()
            self._results, self._slots = self._gpu.allocate(ctypes.sizeof(Found) * slots), slots

    def _launch(
        self, start: int, region: Region, probe: Probe, *, write: bool, result: int
    ) -> None:
        size = probe.dtype.itemsize
        average_limit = probe.average_limit if probe.op and probe.op.name == "avg" else 0
        argument = RegionArgument(
            start + region.offset * size,
            region.first,
            region.length,
            probe.seed & (1 << 64) - 1,
            probe.ranks,
            region.rank,
            average_limit,
            probe.tolerance,
        )
        arguments = (
            argument,
            ctypes.c_uint32(KINDS[region.kind]),
            ctypes.c_uint32(write),
            ctypes.c_void_p(result),
        )
        vectors = region.length * size // VECTOR_BYTES + 2
        self._stream.launch(self._kernel(probe.dtype, probe.op), vectors, arguments)

    def _kernel(self, dtype: DType, op: RedOp | None) -> Any:
        key = (dtype.name, op.name if op else "")
        if key not in self._kernels:
            self._kernels[key] = self._gpu.load(self._cubins.get(dtype, op), cuda_kernels.ENTRY)
        return self._kernels[key]
