"""busbw-native's exchanges between ranks, out of and into memory of the host: what a process calls of its library."""

import ctypes
from collections.abc import Sequence
from functools import cache

import torch.distributed as dist

from busbw.core import native
from busbw.core.errors import BusbwError, CannotTell, UsageError

HANDLE_BYTES = 128
_WORDS = 500  # bytes for those of an error
_Pointer, _Size, _Number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32


class _Words(ctypes.Structure):
    _fields_ = (("at", ctypes.c_char_p), ("room", ctypes.c_size_t))


class Part(ctypes.Structure):
    """What goes to a peer and comes from it: addresses, and bytes."""

    _fields_ = (("send", _Pointer), ("send_len", _Size), ("recv", _Pointer), ("recv_len", _Size))


_FUNCTIONS = {
    "open": (_Pointer, (_Number, _Pointer, _Words)),
    "join": (ctypes.c_int, (_Pointer, _Pointer, ctypes.c_double, _Words)),
    "post": (None, (_Pointer, _Pointer, _Size, _Number, _Pointer, _Pointer, _Number)),
    "wait": (ctypes.c_int, (_Pointer, _Pointer, _Number, _Words)),
    "error": (ctypes.c_int, (_Pointer, _Words)),
    "close": (None, (_Pointer,)),
}


@cache
def _library() -> ctypes.CDLL:
    path = native.find()
    try:
        library = ctypes.CDLL(str(path))
        for name, (result, takes) in _FUNCTIONS.items():
            function = getattr(library, f"busbw_exchange_{name}")
            function.restype, function.argtypes = result, takes
    except (OSError, AttributeError) as error:
        raise CannotTell(f"{path} cannot carry exchanges: {error}", native.INSTALL) from error
    return library


class Carrier:
    """This rank's connections with all others of a group, and the thread that carries exchanges over them, one after the other."""

    def __init__(self, group: dist.ProcessGroup, patience_s: float) -> None:
        """Connect; every rank of the group has to. `patience_s` bounds that, and later each wait without any news.

        Raises:
            UsageError: on every rank, where one has no library, no interface, or does not reach another.
        """
        place, size = dist.get_rank(group), dist.get_world_size(group)
        self.peers = [rank for rank in range(size) if rank != place]
        self._words = ctypes.create_string_buffer(_WORDS)
        self._exchange: int | None = None
        told: list[tuple[str, dict[int, bytes]]] = [("", {})] * size
        dist.all_gather_object(told, self._open(), group=group)
        if not any(words for words, _ in told):
            outcome = self._join(b"".join(handles[place] for rank, (_, handles) in enumerate(told) if rank != place), patience_s)
            dist.all_gather_object(told, (outcome, {}), group=group)
        wrong = [f"rank {rank}: {words}" for rank, (words, _) in enumerate(told) if words]
        if wrong:
            self.close()
            hint = "all ranks need busbw-native, and reach each other by the interfaces of NCCL_SOCKET_IFNAME or BUSBW_NET_IFNAME"
            raise UsageError(f"route=host cannot be had: {'; '.join(wrong)}", hint)

    def _open(self) -> tuple[str, dict[int, bytes]]:
        """What went wrong, or a handle for each peer."""
        count = len(self.peers)
        handles = ctypes.create_string_buffer(HANDLE_BYTES * count)
        try:
            self._exchange = _library().busbw_exchange_open(count, handles, self._room())
        except BusbwError as error:
            return error.message, {}
        if self._exchange is None:
            return self._said(), {}
        return "", {peer: handles.raw[HANDLE_BYTES * at : HANDLE_BYTES * (at + 1)] for at, peer in enumerate(self.peers)}

    def _join(self, handles: bytes, patience_s: float) -> str:
        """What went wrong."""
        return self._said() if _library().busbw_exchange_join(self._exchange, handles, patience_s, self._room()) else ""

    def post(self, parts: Sequence[tuple[int, int]], nbytes: int, chunk: int, ready: int, done: int, base: int) -> int:
        """Begin an exchange of `nbytes` from and to each peer, at these addresses; how many chunks it has.

        Chunk i goes when the number at `ready` has passed `base` by more than i; that at `done` follows, in the end by all chunks.
        """
        chunks = -(-nbytes // chunk)
        every = (Part * len(parts))(*[Part(send, nbytes, receive, nbytes) for send, receive in parts])
        _library().busbw_exchange_post(self._exchange, every, chunk, chunks, ready, done, base)
        return chunks

    def wait(self, done: int, until: int) -> None:
        """Until the number at `done` is so large.

        Raises:
            RuntimeError: an exchange has failed.
        """
        if _library().busbw_exchange_wait(self._exchange, done, until, self._room()):
            raise RuntimeError(self._said())

    def check(self) -> None:
        """Raise RuntimeError where an exchange has failed."""
        if _library().busbw_exchange_error(self._exchange, self._room()):
            raise RuntimeError(self._said())

    def close(self) -> None:
        """End it: what is under way fails."""
        if self._exchange is not None:
            _library().busbw_exchange_close(self._exchange)
            self._exchange = None

    def _room(self) -> _Words:
        return _Words(ctypes.cast(self._words, ctypes.c_char_p), _WORDS)

    def _said(self) -> str:
        return self._words.value.decode(errors="replace")
