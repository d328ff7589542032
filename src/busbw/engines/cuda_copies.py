"""Copies between pinned memory of the host and a GPU, timed on the GPU."""

import time
from contextlib import ExitStack

from busbw.engines.cuda_runtime import Events, Gpu, Stream, call, driver

# bytes of one copy: 2 ms over 16 lanes of generation 5, so that starting it costs nothing
SIZE = 128 << 20
BATCH = 8  # copies that are enqueued together


class HostCopies:
    """A pinned buffer, one in GPU memory, and a stream; to be closed.

    The buffer is near the CPU on which this thread runs.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._opened = ExitStack()
        with ExitStack() as undo:
            undo.callback(self.close)
            gpu.activate()
            self._host = int(call("cuMemHostAlloc", SIZE, 0))
            self._opened.callback(driver().cuMemFreeHost, self._host)
            self._device = driver().CUdeviceptr(gpu.allocate(SIZE))
            self._opened.callback(gpu.free, int(self._device))
            self._stream = Stream(gpu)
            self._opened.callback(self._stream.close)
            self._events = Events(self._stream)
            self._opened.callback(self._events.close)
            undo.pop_all()

    def run(self, seconds: float, *, to_device: bool) -> float:
        """Copy for about `seconds`, in one direction; bytes per second."""
        done, spent, until = 0, 0.0, time.monotonic() + seconds
        while not done or time.monotonic() < until:
            self._events.record(0)
            for _ in range(BATCH):
                self._copy(to_device=to_device)
            self._events.record(1)
            call("cuStreamSynchronize", self._stream.raw)
            done, spent = done + BATCH * SIZE, spent + self._events.seconds(0, 1)
        return done / spent

    def _copy(self, *, to_device: bool) -> None:
        if to_device:
            call("cuMemcpyHtoDAsync", self._device, self._host, SIZE, self._stream.raw)
        else:
            call("cuMemcpyDtoHAsync", self._host, self._device, SIZE, self._stream.raw)

    def close(self) -> None:
        """Free all of it."""
        self._opened.close()
