"""What codecs compute on GPUs, in Triton: as in plain torch, in as few passes over memory as there can be.

What ranks add is rounded after each operation, as plain torch does (no fused multiply-add): ranks with and without kernels end with the
same bits.
"""

import importlib.util
import sys
from functools import cache

import torch

# Elements: kernels count in 32 bits.
MOST = 1 << 30


def usable(part: torch.Tensor) -> bool:
    """Whether there are kernels for this tensor."""
    return part.is_cuda and part.dtype != torch.float64 and part.numel() < MOST and _works(part.device)


@cache
def _works(device: torch.device) -> bool:
    """Whether Triton, which comes with torch for GPUs, can make a kernel: it needs a C compiler. Says so once where it cannot."""
    if importlib.util.find_spec("triton") is None:
        return False
    try:
        from busbw.accel.codecs.kernels import kept

        kept.restore(torch.zeros(1, dtype=torch.float32, device=device), None, torch.zeros(1, dtype=torch.int32, device=device))
    except Exception as error:  # noqa: BLE001 - whatever it lacks, plain torch does not need
        sys.stderr.write(f"busbw accel: codecs in plain torch, several times slower: Triton says {error!r}\n")
        return False
    return True
