"""Holds streams until a number in host memory is reached, so that work is enqueued before any of
it runs.
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from busbw.engines.cuda_runtime import Gpu, Stream, call, driver

PORTABLE, DEVICE_MAP = 1, 2  # CU_MEMHOSTALLOC_*
AT_LEAST = 0  # CU_STREAM_WAIT_VALUE_GEQ
NUMBERS = 1 << 30  # the comparison is cyclic over 2^32


class Gate:
    """One gate for the streams of a process, made in the context of the first GPU; all its GPUs
    can read it.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        gpu.activate()
        self._address = int(call("cuMemHostAlloc", 4, PORTABLE | DEVICE_MAP))
        self._number = ctypes.c_uint32.from_address(self._address)
        self._number.value = 0

    @contextmanager
    def shut(self, streams: Sequence[Stream]) -> Iterator[None]:
        """Work enqueued on the streams in this context begins when it exits, also by an error."""
        ticket = (self._number.value + 1) % NUMBERS
        try:
            for stream in streams:
                stream.gpu.activate()
                where = call("cuMemHostGetDevicePointer", self._address, 0)
                call("cuStreamWaitValue32", stream.raw, where, ticket, AT_LEAST)
            yield
        finally:
            self._number.value = ticket

    def close(self) -> None:
        """Free it; no stream may be waiting."""
        self._gpu.activate()
        driver().cuMemFreeHost(self._address)
