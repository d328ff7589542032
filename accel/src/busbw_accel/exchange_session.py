"""Bindings to busbw-native's exchanges between the host memory of ranks."""

import ctypes
from collections.abc import Sequence
from functools import cache

from busbw.core import native

HANDLE_BYTES = 128
_Pointer, _Size, _Number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32


class PeerBuffers(ctypes.Structure):
    """Send and receive buffers for one peer: addresses and bytes."""

    _fields_ = (("send", _Pointer), ("send_len", _Size), ("recv", _Pointer), ("recv_len", _Size))


class Numbers(ctypes.Structure):
    """Addresses of the counters shared by an exchange and a stream; see native/crates/exchange."""

    _fields_ = (("ready", _Pointer), ("done", _Pointer), ("failed", _Pointer))


_FUNCTIONS = {
    "busbw_exchange_open": (_Pointer, (_Number, _Pointer, native.Room)),
    "busbw_exchange_join": (
        ctypes.c_int,
        (_Pointer, _Pointer, ctypes.c_double, ctypes.c_double, native.Room),
    ),
    "busbw_exchange_begin": (
        None,
        (_Pointer, _Pointer, _Size, _Number, Numbers, _Number, ctypes.c_bool),
    ),
    "busbw_exchange_wait": (ctypes.c_int, (_Pointer, _Pointer, _Number, native.Room)),
    "busbw_exchange_error": (ctypes.c_int, (_Pointer, native.Room)),
    "busbw_exchange_close": (None, (_Pointer,)),
}


@cache
def _library() -> ctypes.CDLL:
    return native.load(native.find(), _FUNCTIONS, "support exchanges")


class ExchangeSession:
    """This rank's connections to all other ranks of a group.

    A thread runs exchanges over them, one at a time.
    """

    def __init__(self, peers: int) -> None:
        """Listen for `peers` peers. Each must get one of `handles`.

        Raises:
            BusbwError, RuntimeError: there is no library or no network interface.
        """
        self._text = native.ErrorText()
        handles = ctypes.create_string_buffer(HANDLE_BYTES * peers)
        self._exchange: int | None = _library().busbw_exchange_open(
            peers, handles, self._text.room()
        )
        if self._exchange is None:
            raise RuntimeError(self._text.message())
        self.handles = [
            handles.raw[HANDLE_BYTES * at : HANDLE_BYTES * (at + 1)] for at in range(peers)
        ]

    def join(self, handles: Sequence[bytes], join_s: float, patience_s: float) -> None:
        """Connect to all peers by the handles that they have made for this rank.

        `join_s`: the limit for all peers to connect. `patience_s`: the longest wait of an exchange
        without progress.

        Raises:
            RuntimeError: a peer is unreachable or has not connected.
        """
        if _library().busbw_exchange_join(
            self._open(), b"".join(handles), join_s, patience_s, self._text.room()
        ):
            raise RuntimeError(self._text.message())

    def post(
        self,
        addresses: Sequence[tuple[int, int]],
        nbytes: int,
        chunk: int,
        numbers: Numbers,
        base: int,
        *,
        sized: bool,
    ) -> int:
        """Start an exchange of `nbytes` with each peer. Returns its number of chunks.

        `addresses`: where to send from and where to receive, for each peer. Chunk i is sent once
        the counter `ready` exceeds `base` by more than i. The counter `done` counts completed
        chunks in the same way. `sized`: each message begins with its number of bytes (int64), and
        no more are sent.
        """
        chunks = -(-nbytes // chunk)
        buffers = (PeerBuffers * len(addresses))(
            *[PeerBuffers(send, nbytes, receive, nbytes) for send, receive in addresses]
        )
        _library().busbw_exchange_begin(self._open(), buffers, chunk, chunks, numbers, base, sized)
        return chunks

    def wait(self, done: int, until: int) -> None:
        """Wait until the counter at `done` reaches `until`.

        Raises:
            RuntimeError: an exchange has failed.
        """
        if _library().busbw_exchange_wait(self._open(), done, until, self._text.room()):
            raise RuntimeError(self._text.message())

    def check(self) -> None:
        if _library().busbw_exchange_error(self._open(), self._text.room()):
            raise RuntimeError(self._text.message())

    def close(self) -> None:
        if self._exchange is not None:
            _library().busbw_exchange_close(self._exchange)
            self._exchange = None

    def _open(self) -> int:
        if self._exchange is None:
            raise RuntimeError("an exchange was started after close()")
        return self._exchange
