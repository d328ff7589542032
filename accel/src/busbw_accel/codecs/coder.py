"""The coder of a row: Triton on GPUs; on CPUs busbw-native or, without it, torch.

All give the same bytes, see `exponents`.
"""

import ctypes
from functools import cache

import torch

from busbw.core import native
from busbw_accel.codecs import exponents, kernels

_Pointer, _Size, _Number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32
_FUNCTIONS = {
    "busbw_exponents_room": (_Size, (_Size,)),
    "busbw_exponents_encode": (ctypes.c_int64, (_Pointer, _Size, _Number, _Pointer, native.Room)),
    "busbw_exponents_decode": (
        ctypes.c_int,
        (_Pointer, _Size, _Pointer, _Size, _Number, native.Room),
    ),
}


def encode(row: torch.Tensor) -> torch.Tensor:
    """The bytes of a row. On a GPU the host waits for their number."""
    if kernels.usable(row):
        from busbw_accel.codecs.kernels import exponents as triton_coder

        return triton_coder.encode(row)
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


def decode(coded: torch.Tensor, row: torch.Tensor) -> None:
    """Fill `row` by the elements of its bytes, as `exponents.decode` does."""
    if kernels.usable(row):
        from busbw_accel.codecs.kernels import exponents as triton_coder

        triton_coder.decode(coded, row)
        return
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
