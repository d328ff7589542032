"""The work that busbw itself runs on a GPU: the kernels of verification, and copies.

Cubins compiles probe.cu for an element type and operator with NVRTC, in the background, and stores
the code on disk for the next run. HostCopies times copies between pinned memory of the host and a
GPU.
"""

import ctypes
import hashlib
import os
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any

from busbw.core.cache_folder import cache_folder
from busbw.core.dtypes import DType
from busbw.core.errors import NoMeasurement
from busbw.core.redops import RedOp
from busbw.engines.cuda_runtime import CudaGpu, Events, Stream, call, driver

# The bytes of one copy. It takes 2 ms over 16 lanes of generation 5, so that starting it costs
# nothing.
SIZE = 128 << 20
BATCH = 8  # copies that are enqueued together
ENTRY = b"probe"
KINDS = {"sent": 0, "reduced": 1, "untouched": 2}  # probe.cu's Kind
DIGEST_BYTES = 32
INSTALL = "pip install 'busbw[cuda13]', or leave the data unchecked with -c 0"


class HostCopies:
    """A pinned buffer, one in GPU memory, and a stream; to be closed.

    The pinned buffer is near the CPU on which this thread runs.
    """

    def __init__(self, gpu: CudaGpu) -> None:
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
        """Copy for about `seconds` in one direction; returns bytes per second."""
        copied_bytes, copied_s = 0, 0.0
        until = time.monotonic() + seconds
        while not copied_bytes or time.monotonic() < until:
            self._events.record(0)
            for _ in range(BATCH):
                self._copy(to_device=to_device)
            self._events.record(1)
            call("cuStreamSynchronize", self._stream.raw)
            copied_bytes += BATCH * SIZE
            copied_s += self._events.seconds(0, 1)
        return copied_bytes / copied_s

    def _copy(self, *, to_device: bool) -> None:
        if to_device:
            call("cuMemcpyHtoDAsync", self._device, self._host, SIZE, self._stream.raw)
        else:
            call("cuMemcpyDtoHAsync", self._host, self._device, SIZE, self._stream.raw)

    def close(self) -> None:
        self._opened.close()


SOURCE = Path(__file__).with_name("probe.cu")


class RegionArgument(ctypes.Structure):
    """probe.cu's Region: one region of a buffer and the probe it belongs to."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in (
            "address",
            "first",
            "length",
            "seed",
            "ranks",
            "rank",
            "average_limit",
            "tolerance",
        )
    )


class Found(ctypes.Structure):
    """probe.cu's Found: wrong elements, and the largest complement of their offsets."""

    _fields_ = (("wrong", ctypes.c_uint64), ("farthest", ctypes.c_uint64))

    @property
    def first(self) -> int:
        return int(~self.farthest & (1 << 64) - 1)


def elements(dtype: DType, op: RedOp | None) -> str:
    """The C++ type of probe.cu for an element type and operator."""
    low, high = dtype.unit_exponents
    shape = (
        dtype.bits,
        int(dtype.kind == "int"),
        dtype.significand,
        dtype.exponent_bits,
        low,
        high,
    )
    return f"Elements<{', '.join(map(str, shape))}, op_{op.name if op else 'none'}>"


class Cubins:
    """Machine code for one GPU architecture (`sm`, such as 90).

    It is compiled once per type and operator, and stored in `folder` if there is one.
    """

    def __init__(self, sm: int, folder: Path | None) -> None:
        self._sm, self._folder = sm, folder
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="busbw-nvrtc")
        self._jobs: dict[str, Future[bytes]] = {}

    def start(self, dtype: DType, op: RedOp | None) -> "Future[bytes]":
        """Start compiling, unless it was started before.

        The future raises NoMeasurement if NVRTC is missing or fails.
        """
        name = elements(dtype, op)
        if name not in self._jobs:
            self._jobs[name] = self._worker.submit(self._load_or_compile, name)
        return self._jobs[name]

    def get(self, dtype: DType, op: RedOp | None) -> bytes:
        """The code, after waiting for it."""
        return self.start(dtype, op).result()

    def _load_or_compile(self, name: str) -> bytes:
        source, target = SOURCE.read_bytes(), _target(self._sm)
        inputs = (source, name.encode(), target, repr(_nvrtc_version()).encode())
        key = hashlib.sha256(b"\0".join(inputs)).hexdigest()
        file = self._folder / f"probe-{key}.bin" if self._folder else None
        code = _read(file) if file else None
        if code is None:
            code = compile_source(source, name, target)
            if file:
                _write(file, code)
        return code


@lru_cache(maxsize=8)
def cubins(sm: int) -> Cubins:
    """The code of this process for an architecture, shared by its GPUs."""
    return Cubins(sm, cache_folder("kernels"))


def compile_source(source: bytes, name: str, target: bytes) -> bytes:
    """The code of `source` with the C++ type `name` for its elements.

    `target` is, for example, sm_90 (machine code) or compute_90 (PTX).
    """
    nvrtc = _nvrtc()
    program = _checked(
        nvrtc.nvrtcCreateProgram(source, b"probe.cu", 0, [], []), "nvrtcCreateProgram"
    )
    options = [
        b"--gpu-architecture=" + target,
        b"--std=c++17",
        b"--disable-warnings",
        b"-DBUSBW_ELEMENTS=" + name.encode(),
    ]
    try:
        status = nvrtc.nvrtcCompileProgram(program, len(options), options)[0]
        if int(status):
            output = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
            log = output.decode(errors="replace").strip("\0 \n")
            raise NoMeasurement(f"probe.cu: NVRTC for {target.decode()}: {log or status}", INSTALL)
        if target.startswith(b"sm_"):
            return _text(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        return _text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _text(size: Any, read: Any, program: Any) -> bytes:
    buffer = bytes(_checked(size(program), "NVRTC"))
    _checked(read(program, buffer), "NVRTC")
    return buffer


def _checked(answer: tuple[Any, ...], function: str) -> Any:
    """The value of a function of NVRTC; NoMeasurement if its status is an error."""
    if int(answer[0]):
        raise NoMeasurement(f"{function}: {answer[0]}", INSTALL)
    return answer[1] if len(answer) > 1 else None


@lru_cache(maxsize=1)
def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    # The errors of cuda.pathfinder, if the library cannot be loaded, have no common base.
    except Exception as error:
        raise NoMeasurement(
            f"checking data on a GPU needs NVRTC, which cannot be loaded: {error}", INSTALL
        ) from error
    return nvrtc


@lru_cache(maxsize=1)
def _nvrtc_version() -> tuple[int, int]:
    _, major, minor = _nvrtc().nvrtcVersion()
    return major, minor


@lru_cache(maxsize=8)
def _target(sm: int) -> bytes:
    """The GPU's own architecture, or PTX for the newest older one that this NVRTC supports.

    The driver compiles PTX.
    """
    nvrtc = _nvrtc()
    answer = nvrtc.nvrtcGetSupportedArchs()
    known = [int(arch) for arch in answer[-1]] if not int(answer[0]) else []
    if sm in known or not known:
        return f"sm_{sm}".encode()
    older = [arch for arch in known if arch < sm]
    if not older:
        raise NoMeasurement(
            f"NVRTC {_nvrtc_version()[0]} does not support sm_{sm}",
            "pip install 'busbw[cuda12]', or use -c 0",
        )
    return f"compute_{max(older)}".encode()


def _read(file: Path) -> bytes | None:
    try:
        data = file.read_bytes()
    except OSError:
        return None
    digest, code = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
    return code if code and hashlib.sha256(code).digest() == digest else None


def _write(file: Path, code: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(hashlib.sha256(code).digest() + code)
        Path(name).replace(file)
    except OSError:
        return  # the next run compiles again
