"""A net plugin called as NCCL calls it: the library opened with NCCL's flags, a table of `abi`
read from its data symbol.
"""

import ctypes
import os
from collections.abc import Callable
from ctypes import CFUNCTYPE, byref, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any

from abi import LOGGER, NET_TABLES, PROFILER

HANDLE_BYTES = 128
INTERNAL_ERROR, INVALID_USAGE, REMOTE_ERROR = 3, 5, 6
HOST = 0x1
TAG = 5  # of every message: NCCL passes the rank of the process with the sending GPU

Log = Callable[[int, int, str], None]


class NetError(Exception):
    """A call of the plugin that did not return ncclSuccess."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} returned {code}")
        self.call, self.code = call, code


class Net:
    """A net table of a library; comms and requests are the plugin's addresses as integers."""

    def __init__(self, library: Path, version: int) -> None:
        self.row = NET_TABLES[version]
        signatures = self.row.entries.items()
        pointers = c_void_p * (1 + len(signatures))
        opened = ctypes.CDLL(str(library), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        table = pointers.in_dll(opened, self.row.symbol)
        self.name = (ctypes.cast(table[0], c_char_p).value or b"").decode()
        self.present = {
            name for (name, _), address in zip(signatures, table[1:], strict=True) if address
        }
        self._size = c_size_t if self.row.modern else c_int
        self._context: tuple[Any, ...] = (c_void_p(),) if self.row.modern else ()
        self._functions = {
            name: CFUNCTYPE(c_int, *types)(address)
            for (name, types), address in zip(signatures, table[1:], strict=True)
            if address and types is not None
        }
        self._logger: Any = None

    def _call(self, name: str, *arguments: Any) -> None:
        code = self._functions[name](*arguments)
        if code:
            raise NetError(name, code)

    def init(self, log: Log) -> None:
        """Call init; `log` receives level, subsystems and text of each line, from any thread.

        NetError.
        """

        def line(
            level: int, flags: int, _file: bytes, _line: int, form: bytes, text: bytes
        ) -> None:
            log(level, flags, text.decode() if form == b"%s" else f"not made with %s: {form!r}")

        self._logger = LOGGER(line)
        if not self.row.modern:
            self._call("init", self._logger)
            return
        traffic_class = c_int(-1)
        self._call(
            "init", byref(self._context[0]), 0x1234, byref(traffic_class), self._logger, PROFILER()
        )

    def finalize(self) -> None:
        """End what init began, if this version has a finalize. NetError."""
        if self.row.modern:
            self._call("finalize", *self._context)

    def devices(self) -> int:
        """How many devices there are. NetError."""
        count = c_int(-1)
        self._call("devices", byref(count))
        return count.value

    def properties(self, device: int) -> dict[str, Any]:
        """All fields of a device, with each byte poisoned before, as NCCL does not clear the
        struct.

        NetError.
        """
        properties = self.row.properties()
        ctypes.memset(byref(properties), 0xAA, ctypes.sizeof(properties))
        self._call("getProperties", device, byref(properties))
        fields = {name: getattr(properties, name) for name, _ in properties._fields_}
        if "vProps" in fields:
            fields["vProps"] = list(fields["vProps"].devs[: fields["vProps"].ndevs])
        return {
            name: value.decode() if isinstance(value, bytes) else value
            for name, value in fields.items()
        }

    def listen(self, device: int) -> tuple[int | None, bytes]:
        """A listening comm and the handle, whose 128 bytes were zero before. NetError."""
        comm, handle = c_void_p(), (ctypes.c_char * HANDLE_BYTES)()
        self._call("listen", *self._context, device, byref(handle), byref(comm))
        return comm.value, handle.raw

    def connect(self, device: int, handle: ctypes.Array[Any]) -> int | None:
        """A sending comm, or None: call again with the same handle object, in which the plugin may
        keep state.

        NetError.
        """
        comm, unused = c_void_p(), c_void_p()
        self._call("connect", *self._context, device, byref(handle), byref(comm), byref(unused))
        return comm.value

    def accept(self, listener: int) -> int | None:
        """A receiving comm, or None: call again. NetError."""
        comm, unused = c_void_p(), c_void_p()
        self._call("accept", listener, byref(comm), byref(unused))
        return comm.value

    def reg_mr(self, comm: int, address: int, size: int, kind: int = HOST) -> int | None:
        """Register memory; returns its handle. NetError."""
        handle = c_void_p()
        self._call("regMr", comm, address, size, kind, byref(handle))
        return handle.value

    def dereg_mr(self, comm: int, handle: int | None) -> None:
        """Deregister memory. NetError."""
        self._call("deregMr", comm, handle)

    def isend(self, comm: int, address: int, size: int) -> int | None:
        """A request, or None if the plugin has no room yet. NetError."""
        request = c_void_p()
        phandle = (None,) if self.row.modern else ()
        self._call("isend", comm, address, size, TAG, None, *phandle, byref(request))
        return request.value

    def irecv(self, comm: int, address: int, size: int, preset: int = 0) -> int | None:
        """A request for one buffer, or None if there is no room yet; `preset` is the initial
        *request.

        NetError.
        """
        buffer, memory, request = c_void_p(address), c_void_p(), c_void_p(preset)
        arrays = (byref(buffer), byref(self._size(size)), byref(c_int(TAG)), byref(memory))
        phandles = (byref(c_void_p()),) if self.row.modern else ()
        self._call("irecv", comm, 1, *arrays, *phandles, byref(request))
        return request.value

    def iflush(self, comm: int) -> None:
        """Always refused: pointers are HOST. NetError."""
        pointer, request = (c_void_p * 1)(), c_void_p()
        self._call(
            "iflush", comm, 1, byref(pointer), byref((c_int * 1)()), byref(pointer), byref(request)
        )

    def test(self, request: int, sized: bool = True) -> int | None:
        """None if not done, else the bytes of the message, or -1 if not `sized`: then sizes is
        NULL.

        NetError.
        """
        done, size = c_int(0), c_int(-1)
        self._call("test", request, byref(done), byref(size) if sized else None)
        return size.value if done.value else None

    def close_send(self, comm: int) -> None:
        """Close a sending comm. NetError."""
        self._call("closeSend", comm)

    def close_recv(self, comm: int) -> None:
        """Close a receiving comm. NetError."""
        self._call("closeRecv", comm)

    def close_listen(self, comm: int) -> None:
        """Close a listening comm. NetError."""
        self._call("closeListen", comm)
