"""The version of the NCCL that PyTorch calls."""

import ctypes
import os
from pathlib import Path

import torch

LIBRARY = "lib/libtorch_cuda.so"


def version() -> int:
    """The version, such as 23203 for 2.32.3.

    torch.cuda.nccl.version() is that of the headers that PyTorch was compiled with. The library is
    asked as PyTorch's own code finds it, unless it is linked into PyTorch.
    """
    number = ctypes.c_int(0)
    try:
        linked = ctypes.CDLL(str(Path(torch.__path__[0], LIBRARY)), mode=os.RTLD_NOLOAD)
        linked.ncclGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        major, minor, patch = torch.cuda.nccl.version()[:3]
        return int(major * 10000 + minor * 100 + patch)
    return number.value
