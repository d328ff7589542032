"""GPUs, streams, events, graphs and gates through the CUDA driver API, with busbw's errors.

Only this module calls the driver. A Gate holds streams until a number in host memory is reached, so
that work is enqueued before any of it runs.
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

from busbw.core.errors import CudaFailed, NoMeasurement

INSTALL = "pip install 'busbw[cuda13]'"
STREAM_NON_BLOCKING = 1
EVENT_DISABLE_TIMING = 2
THREADS_PER_BLOCK = 256
BLOCKS_PER_MULTIPROCESSOR = 8
PORTABLE, DEVICE_MAP = 1, 2  # CU_MEMHOSTALLOC_*
AT_LEAST = 0  # CU_STREAM_WAIT_VALUE_GEQ
NUMBERS = 1 << 30  # the comparison is cyclic over 2^32


@lru_cache(maxsize=1)
def driver() -> Any:
    """The initialized driver API; NoMeasurement if the package or the driver is missing."""
    try:
        from cuda.bindings import driver as api
    except ImportError as error:
        raise NoMeasurement(
            f"GPUs need the package cuda-bindings, which cannot be imported: {error}", INSTALL
        ) from error
    try:
        status = api.cuInit(0)[0]
    # The errors of cuda.pathfinder, if the library cannot be loaded, have no common base.
    except Exception as error:
        message = f"no NVIDIA driver on this host: {error}"
        hint = "install it, or use --engine mpi for CPUs"
        raise NoMeasurement(message, hint, options=["engine"]) from error
    if int(status):
        raise NoMeasurement(
            f"the NVIDIA driver does not start: cuInit returned {status.name}",
            "look at `nvidia-smi` and the kernel log",
        )
    return api


def call(name: str, *arguments: Any) -> Any:
    """The values that a driver function returns, without its status.

    CudaFailed with the driver's message if the function fails.
    """
    api = driver()
    status, *answer = getattr(api, name)(*arguments)
    refuse(name, status)
    return answer[0] if len(answer) == 1 else tuple(answer)


def refuse(name: str, status: Any) -> None:
    """CudaFailed with the driver's message if the function called `name` failed."""
    if int(status):
        raise CudaFailed(f"{name}: {_message(status)}", _hint(status))


def _message(status: Any) -> str:
    _, text = driver().cuGetErrorString(status)
    return f"{status.name}: {text.decode(errors='replace') if text else 'no message'}"


def _hint(status: Any) -> str:
    if "OUT_OF_MEMORY" in status.name:
        return "use a smaller -e, or free the GPU: `nvidia-smi` shows what runs on it"
    return "`nvidia-smi` and the kernel log (`dmesg | grep -i xid`) may say more"


def device_count() -> int:
    """The number of GPUs that this process may use."""
    return int(call("cuDeviceGetCount"))


class CudaGpu:
    """One GPU and its primary context, which NCCL and PyTorch share.

    `index` counts within CUDA_VISIBLE_DEVICES.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self._device = call("cuDeviceGet", index)
        self._context = call("cuDevicePrimaryCtxRetain", self._device)
        self.activate()
        self.name = call("cuDeviceGetName", 256, self._device).decode(errors="replace").strip("\0 ")
        self.memory_bytes = int(call("cuDeviceTotalMem", self._device))
        major = self._attribute("COMPUTE_CAPABILITY_MAJOR")
        minor = self._attribute("COMPUTE_CAPABILITY_MINOR")
        self.sm = 10 * major + minor
        self.unified = bool(self._attribute("INTEGRATED"))  # it uses the host's memory
        self.multiprocessors = self._attribute("MULTIPROCESSOR_COUNT")
        domain, bus = self._attribute("PCI_DOMAIN_ID"), self._attribute("PCI_BUS_ID")
        self.bus = f"{domain:04x}:{bus:02x}:{self._attribute('PCI_DEVICE_ID'):02x}"

    def _attribute(self, name: str) -> int:
        attribute = getattr(driver().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(call("cuDeviceGetAttribute", attribute, self._device))

    @property
    def context(self) -> int:
        """Its context as the driver's functions take it."""
        return int(self._context)

    def activate(self) -> None:
        """Make this thread's driver, runtime and NCCL calls act on this GPU."""
        call("cuCtxSetCurrent", self._context)

    def free_bytes(self) -> int:
        """The free memory of the GPU in bytes."""
        self.activate()
        return int(call("cuMemGetInfo")[0])

    def allocate(self, size: int) -> int:
        """Address of `size` bytes of its memory."""
        self.activate()
        return int(call("cuMemAlloc", size))

    def free(self, address: int) -> None:
        """Free memory that `allocate` returned."""
        self.activate()
        call("cuMemFree", driver().CUdeviceptr(address))

    def load(self, code: bytes, entry: bytes) -> Any:
        """A kernel of a cubin or PTX; its module stays loaded until the process ends."""
        self.activate()
        return call("cuModuleGetFunction", call("cuModuleLoadData", code), entry)


class Stream:
    """A stream of a GPU: a new one, or the existing one of `handle` (0: the NULL stream)."""

    def __init__(self, gpu: CudaGpu, handle: int | None = None) -> None:
        self.gpu = gpu
        self._owned = handle is None
        gpu.activate()
        if handle is None:
            self.raw = call("cuStreamCreate", STREAM_NON_BLOCKING)
        else:
            self.raw = driver().CUstream(handle)
        self.handle = int(self.raw)
        self._passed: Any = None  # an event of another stream
        self._query = driver().cuStreamQuery
        self._not_ready = driver().CUresult.CUDA_ERROR_NOT_READY

    def idle(self) -> bool:
        """Whether all enqueued work is done; NoMeasurement if some of it failed."""
        status = self._query(self.raw)[0]
        if status == self._not_ready:
            return False
        if int(status):
            raise NoMeasurement(
                f"GPU {self.gpu.index} ({self.gpu.bus}): {_message(status)}", _hint(status)
            )
        return True

    def wait_for(self, other: "Stream") -> None:
        """Let what is enqueued from now on begin after all that was enqueued on `other`.

        Both are streams of the same GPU.
        """
        api = driver()
        if self._passed is None:
            self.gpu.activate()
            self._passed = call("cuEventCreate", EVENT_DISABLE_TIMING)
        # A wait for an event is for its last recording, so one event serves all waits.
        for status in (
            api.cuEventRecord(self._passed, other.raw)[0],
            api.cuStreamWaitEvent(self.raw, self._passed, 0)[0],
        ):
            if int(status):
                raise CudaFailed(f"waiting for a stream: {_message(status)}", _hint(status))

    def set_bytes(self, address: int, value: int, size: int) -> None:
        """Enqueue setting each of `size` bytes to `value`."""
        self.gpu.activate()
        call("cuMemsetD8Async", driver().CUdeviceptr(address), value, size, self.raw)

    def copying(self, target: int, source: int, size: int) -> "Copying":
        """A thunk that enqueues a copy within the GPU."""
        return Copying(self, target, source, size)

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes of GPU memory, read after all work enqueued before."""
        self.gpu.activate()
        buffer = ctypes.create_string_buffer(size)
        call(
            "cuMemcpyDtoHAsync",
            ctypes.addressof(buffer),
            driver().CUdeviceptr(address),
            size,
            self.raw,
        )
        call("cuStreamSynchronize", self.raw)
        return buffer.raw

    def launch(
        self,
        kernel: Any,
        threads: int,
        arguments: Sequence["ctypes.Structure | ctypes._SimpleCData[Any]"],
    ) -> None:
        """Enqueue a kernel for `threads` units of work; it may have fewer threads."""
        self.gpu.activate()
        blocks = min(
            -(-threads // THREADS_PER_BLOCK), BLOCKS_PER_MULTIPROCESSOR * self.gpu.multiprocessors
        )
        pointers = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        call(
            "cuLaunchKernel",
            kernel,
            blocks,
            1,
            1,
            THREADS_PER_BLOCK,
            1,
            1,
            0,
            self.raw,
            ctypes.addressof(pointers),
            0,
        )

    def begin_capture(self) -> None:
        """Record what is enqueued from now on instead of running it."""
        self.gpu.activate()
        call(
            "cuStreamBeginCapture",
            self.raw,
            driver().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        )

    def end_capture(self) -> Any:
        """The recording, for `instantiate`.

        CUDA refuses to instantiate it while another stream of this thread is recording.
        """
        self.gpu.activate()
        return call("cuStreamEndCapture", self.raw)

    def instantiate(self, recorded: Any) -> "CudaGraph":
        self.gpu.activate()
        try:
            return CudaGraph(self, call("cuGraphInstantiate", recorded, 0))
        finally:
            driver().cuGraphDestroy(recorded)

    def abandon_capture(self) -> None:
        """End a failed recording, so that the stream can be used again."""
        self.gpu.activate()
        status, graph = driver().cuStreamEndCapture(self.raw)
        if not int(status):
            driver().cuGraphDestroy(graph)

    def close(self) -> None:
        """Destroy the stream, unless it was created elsewhere."""
        if self._passed is not None:
            call("cuEventDestroy", self._passed)
            self._passed = None
        if self._owned:
            self.gpu.activate()
            call("cuStreamDestroy", self.raw)
            self._owned = False


class Copying:
    """A thunk that enqueues a copy of `size` bytes within a GPU.

    It is one call of the driver, because its cost is part of a timed operation. The stream decides
    where a copy runs, whichever GPU is current (CUDA programming guide, Stream and Event Behavior).
    """

    def __init__(self, stream: Stream, target: int, source: int, size: int) -> None:
        self.stream, self.target, self.source, self.size = stream.handle, target, source, size
        api = driver()
        self._copy = partial(
            api.cuMemcpyDtoDAsync,
            api.CUdeviceptr(target),
            api.CUdeviceptr(source),
            size,
            stream.raw,
        )

    def __call__(self) -> None:
        refuse("cuMemcpyDtoDAsync", self._copy()[0])


class CudaGraph:
    """A recorded sequence of work of one stream."""

    def __init__(self, stream: Stream, executable: Any) -> None:
        self._stream, self._executable = stream, executable

    def launch(self) -> None:
        self._stream.gpu.activate()
        call("cuGraphLaunch", self._executable, self._stream.raw)

    def close(self) -> None:
        if self._executable is not None:
            self._stream.gpu.activate()
            call("cuGraphExecDestroy", self._executable)
            self._executable = None


class Events:
    """Numbered events on one stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._events: list[Any] = []
        self._record = driver().cuEventRecord

    def record(self, index: int) -> None:
        """Record event `index` behind all work enqueued before."""
        if index >= len(self._events):
            self._create(index + 1)
        status = self._record(self._events[index], self._stream.raw)[0]
        refuse("cuEventRecord", status)

    def handle(self, index: int) -> int:
        """Event `index` as the driver's functions take it."""
        if index >= len(self._events):
            self._create(index + 1)
        return int(self._events[index])

    def _create(self, count: int) -> None:
        """Have at least `count` events."""
        self._stream.gpu.activate()
        missing = max(count, 2 * len(self._events)) - len(self._events)
        self._events.extend(call("cuEventCreate", 0) for _ in range(missing))

    def seconds(self, first: int, last: int) -> float:
        """Seconds from one event to another."""
        self._stream.gpu.activate()
        return float(call("cuEventElapsedTime", self._events[first], self._events[last])) / 1e3

    def close(self) -> None:
        self._stream.gpu.activate()
        for event in self._events:
            call("cuEventDestroy", event)
        self._events.clear()


class Gate:
    """A gate for the streams of a process.

    It is made in the context of the first GPU, and all GPUs of the process can read it.
    """

    def __init__(self, gpu: CudaGpu) -> None:
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
                pointer = call("cuMemHostGetDevicePointer", self._address, 0)
                call("cuStreamWaitValue32", stream.raw, pointer, ticket, AT_LEAST)
            yield
        finally:
            self._number.value = ticket

    def close(self) -> None:
        """Free the gate; no stream may be waiting."""
        self._gpu.activate()
        driver().cuMemFreeHost(self._address)
