"""Launches of the nccl engine as steps of busbw-native's loop: see native/crates/loop/src/step.rs.

A step is a C call: a kind, which says what the function takes, its address and its arguments.
"""

import ctypes
import os
import struct
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from busbw.core.errors import NoMeasurement
from busbw.engines.base import LaunchSequence
from busbw.engines.cuda_runtime import Copying
from busbw.engines.nccl_calls import HOST_IMMEDIATE, OneGroup, Premultiplied

LAYOUT = struct.Struct("=Iiii6Q")
CREATED = -1  # in place of an operator: the one that the last CREATE_OPERATOR created
(
    END,
    CLOCK,
    GROUP_START,
    GROUP_END,
    PLAIN,
    REDUCING,
    ROOTED,
    REDUCING_TO_ROOT,
    PEER,
    CREATE_OPERATOR,
    DESTROY_OPERATOR,
    SET_CONTEXT,
    COPY,
    ENQUEUE,
    IDLE,
) = range(15)
# Functions of nccl4py with their kinds and names in C.
CALLS = {
    "all_gather": (PLAIN, "ncclAllGather"),
    "allto_all": (PLAIN, "ncclAlltoAll"),
    "all_reduce": (REDUCING, "ncclAllReduce"),
    "reduce_scatter": (REDUCING, "ncclReduceScatter"),
    "broadcast": (ROOTED, "ncclBroadcast"),
    "gather": (ROOTED, "ncclGather"),
    "scatter": (ROOTED, "ncclScatter"),
    "reduce": (REDUCING_TO_ROOT, "ncclReduce"),
    "send": (PEER, "ncclSend"),
    "recv": (PEER, "ncclRecv"),
}
# The order in which functions take dtype, operator and peer, as places of LAYOUT.
NUMBERS = {
    PLAIN: ("dtype",),
    REDUCING: ("dtype", "operator"),
    ROOTED: ("dtype", "peer"),
    REDUCING_TO_ROOT: ("dtype", "operator", "peer"),
    PEER: ("dtype", "peer"),
}
OF_NCCL = range(GROUP_START, SET_CONTEXT)
OF_DRIVER = {
    SET_CONTEXT: "cuCtxSetCurrent",
    COPY: "cuMemcpyDtoDAsync",
    ENQUEUE: "cuEventRecord",
    IDLE: "cuStreamQuery",
}
NCCL_FILE, DRIVER_FILE = "libnccl.so.2", "libcuda.so.1"


def pack(
    kind: int,
    function: int = 0,
    *,
    dtype: int = 0,
    operator: int = 0,
    peer: int = 0,
    source: int = 0,
    target: int = 0,
    count: int = 0,
    handle: int = 0,
    stream: int = 0,
) -> bytes:
    numbers = (kind, dtype, operator, peer)
    return LAYOUT.pack(*numbers, function, source, target, count, handle, stream)


class Functions:
    """Addresses of C functions in a library that this process has loaded.

    NoMeasurement if it has not, or if the library lacks a function.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        try:
            self.library = ctypes.CDLL(file, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        except OSError as error:
            raise NoMeasurement(
                f"this process has not loaded {file}", "set LD_LIBRARY_PATH to a folder with it"
            ) from error
        self._addresses: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        """The address of a function."""
        address = self._addresses.get(name)
        if address is None:
            try:
                function = getattr(self.library, name)
            except AttributeError as error:
                raise NoMeasurement(
                    f"{self._file} has no {name}", "use a newer release of it"
                ) from error
            address = int(ctypes.cast(function, ctypes.c_void_p).value or 0)
            self._addresses[name] = address
        return address


class Encoder:
    """Turns launches into steps. The launches must live as long as the steps are run."""

    def __init__(self, nccl: Any) -> None:
        self.nccl, self.driver = Functions(NCCL_FILE), Functions(DRIVER_FILE)
        self._calls: dict[Callable[..., object], tuple[int, str]] = {
            getattr(nccl, name): row for name, row in CALLS.items() if hasattr(nccl, name)
        }
        self._known: WeakKeyDictionary[object, bytes] = WeakKeyDictionary()

    def steps(self, launch: Callable[[], object]) -> bytes:
        """The steps of one launch."""
        known = self._known.get(launch)
        if known is None:
            known = self._encode(launch)
            self._known[launch] = known
        return known

    def record(self, event: int, stream: int) -> bytes:
        """The step that records an event."""
        return pack(ENQUEUE, self.driver[OF_DRIVER[ENQUEUE]], handle=event, stream=stream)

    def set_context(self, context: int) -> bytes:
        """The step that makes a GPU the current one."""
        return pack(SET_CONTEXT, self.driver[OF_DRIVER[SET_CONTEXT]], handle=context)

    def wait_for(self, stream: int) -> bytes:
        """The step that waits until a stream is idle."""
        return pack(IDLE, self.driver[OF_DRIVER[IDLE]], stream=stream)

    def _encode(self, launch: Callable[[], object]) -> bytes:
        if isinstance(launch, partial):
            return self._call(launch)
        if isinstance(launch, LaunchSequence):
            return b"".join(map(self.steps, launch.launches))
        if isinstance(launch, OneGroup):
            inner = b"".join(map(self.steps, launch.launches))
            start, end = self.nccl["ncclGroupStart"], self.nccl["ncclGroupEnd"]
            return pack(GROUP_START, start) + inner + pack(GROUP_END, end)
        if isinstance(launch, Premultiplied):
            return self._premultiplied(launch)
        if isinstance(launch, Copying):
            return pack(
                COPY,
                self.driver["cuMemcpyDtoDAsync_v2"],
                source=launch.source,
                target=launch.target,
                count=launch.size,
                stream=launch.stream,
            )
        raise TypeError(f"{launch!r} has no steps")

    def _call(self, launch: "partial[object]") -> bytes:
        kind, name = self._calls[launch.func]
        *buffers, comm, stream = launch.args
        places = ("target", "count") if kind == PEER else ("source", "target", "count")
        fields = dict(zip((*places, *NUMBERS[kind]), buffers, strict=True))
        handle = int(comm.handle)
        return pack(kind, self.nccl[name], handle=handle, stream=stream, **fields)

    def _premultiplied(self, launch: Premultiplied) -> bytes:
        comm = int(launch.comm.handle)
        create = pack(
            CREATE_OPERATOR,
            self.nccl["ncclRedOpCreatePreMulSum"],
            dtype=launch.dtype,
            peer=HOST_IMMEDIATE,
            source=ctypes.addressof(launch.scalar),
            handle=comm,
        )
        destroy = pack(
            DESTROY_OPERATOR, self.nccl["ncclRedOpDestroy"], operator=CREATED, handle=comm
        )
        return create + self._encode(launch.reduction(CREATED)) + destroy
