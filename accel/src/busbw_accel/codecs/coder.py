"""Messages of rows: Triton writes and reads them on GPUs; on CPUs busbw-native, or else torch.

A message begins with the number of its bytes and that of the row's elements, both int64. The coded
row follows, see `exponents`. If coding does not pay, the elements follow as they are, and only then
the message has all of `message_bytes`. On a GPU only the GPU knows which, and the host waits for
nothing.
"""

import ctypes
from functools import cache

import torch

from busbw.core import native
from busbw_accel.codecs import exponents, kernels
from busbw_accel.codecs.exponents import PROLOGUE

_Pointer, _Size, _Number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32
_FUNCTIONS = {
    "busbw_exponents_room": (_Size, (_Size,)),
    "busbw_exponents_encode": (ctypes.c_int64, (_Pointer, _Size, _Number, _Pointer, native.Room)),
    "busbw_exponents_decode": (
        ctypes.c_int,
        (_Pointer, _Size, _Pointer, _Size, _Number, native.Room),
    ),
}
# Rows that are longer than this share of their elements are sent as they are: coding takes longer
# than what it saves. Below 1, so that a message shows whether it is coded.
MOST_SHARE = 0.95
# Of each GPU: not 0 if a message that it has read was wrong, there and in the host's memory.
_wrong: dict[torch.device, tuple[torch.Tensor, torch.Tensor]] = {}


def message_bytes(row: torch.Tensor) -> int:
    """The room of a message of `row`."""
    return int(PROLOGUE + -(-row.nbytes // exponents.ALIGNMENT) * exponents.ALIGNMENT)


def write(row: torch.Tensor, message: torch.Tensor) -> None:
    """Fill `message` (uint8, as many as `message_bytes`) by a row.

    Its length is a multiple of ALIGNMENT. The bytes behind it are undefined.
    """
    head, content = message[:PROLOGUE].view(torch.int64), message[PROLOGUE:]
    plain = content[: row.nbytes].view(row.dtype)
    most = int(MOST_SHARE * row.nbytes)
    if kernels.usable(row) and row.numel():
        from busbw_accel.codecs.kernels import exponents as triton_coder

        triton_coder.encode(row, head, content, plain, most)
        return
    coded = _encoded(row)
    pays = coded.numel() <= most
    if pays:
        content[: coded.numel()] = coded
    else:
        plain.copy_(row)
    head[0] = PROLOGUE + (coded.numel() if pays else content.numel())
    head[1] = row.numel()


def read(message: torch.Tensor, row: torch.Tensor) -> None:
    """Fill `row` by a message of it.

    Raises:
        ValueError: it is no message of such a row. On a GPU elements become NaN instead, and
            `check` raises later.
    """
    head, content = message[:PROLOGUE].view(torch.int64), message[PROLOGUE:]
    plain = content[: row.nbytes].view(row.dtype)
    if kernels.usable(row) and row.numel():
        from busbw_accel.codecs.kernels import exponents as triton_coder

        if row.device not in _wrong:
            wrong = torch.zeros(1, dtype=torch.int32, device=row.device)
            _wrong[row.device] = wrong, torch.zeros(1, dtype=torch.int32, pin_memory=row.is_cuda)
        wrong, seen = _wrong[row.device]
        triton_coder.decode(head, content, plain, row, wrong)
        seen.copy_(wrong, non_blocking=True)
        return
    length, elements = head.tolist()
    if elements != row.numel() or not PROLOGUE <= length <= message.numel():
        raise ValueError(
            f"a row of {elements} elements in {length} bytes, not of {row.numel()} in at most"
            f" {message.numel()}"
        )
    if length < message_bytes(row):
        _decode(content[: length - PROLOGUE], row)
    else:
        row.copy_(plain)


def check() -> None:
    """Raise ValueError, once, if a message that a GPU has read was wrong."""
    if forget():
        raise ValueError("the lengths of coded blocks do not match their headers")


def forget() -> bool:
    """Forget the messages that were wrong. Returns whether there was one."""
    found = False
    for wrong, seen in list(_wrong.values()):
        if int(seen):
            wrong.zero_()
            seen.zero_()
            found = True
    return found


def _encoded(row: torch.Tensor) -> torch.Tensor:
    library = None if row.is_cuda or not row.numel() else _library()
    if library is None:
        return exponents.encode(row)
    coded = torch.empty(library.busbw_exponents_room(row.numel()), dtype=torch.uint8)
    text = native.ErrorText()
    length = library.busbw_exponents_encode(
        row.data_ptr(), row.numel(), row.element_size(), coded.data_ptr(), text.room()
    )
    if length < 0:
        raise RuntimeError(text.message())
    return coded[:length]


def _decode(coded: torch.Tensor, row: torch.Tensor) -> None:
    library = None if row.is_cuda or not row.numel() else _library()
    if library is None:
        exponents.decode(coded, row)
        return
    text = native.ErrorText()
    if library.busbw_exponents_decode(
        coded.data_ptr(),
        coded.numel(),
        row.data_ptr(),
        row.numel(),
        row.element_size(),
        text.room(),
    ):
        raise ValueError(text.message())


def note_where_slow() -> str:
    """Why exact coding is slow on this host and what helps; '' if it is not."""
    if torch.cuda.is_available() or native.find_optional() is not None:
        return ""
    return f"without busbw-native, torch codes gradients many times slower: {native.install()}"


@cache
def _library() -> ctypes.CDLL | None:
    """busbw-native; None where it is not installed."""
    path = native.find_optional()
    return native.load(path, _FUNCTIONS, "code gradients") if path else None
