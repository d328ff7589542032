"""The codecs' arithmetic in Triton, with as few passes over memory as possible.

Sums over ranks are rounded after each operation, like in plain torch (no fused multiply-add), so
ranks with and without kernels get the same bits.
"""

import importlib.util
import sys
from functools import cache

import torch

# Elements, since kernels use 32-bit counts.
MAX_ELEMENTS = 1 << 30


def usable(part: torch.Tensor) -> bool:
    """Whether the kernels support this tensor."""
    return (
        part.is_cuda
        and part.dtype != torch.float64
        and part.numel() < MAX_ELEMENTS
        and _works(part.device)
    )


@cache
def _works(device: torch.device) -> bool:
    """Whether Triton can compile a kernel, which needs a C compiler. Warns once if it cannot."""
    if importlib.util.find_spec("triton") is None:
        return False
    try:
        from busbw_accel.codecs.kernels import not_finite

        not_finite.restore(
            torch.zeros(1, dtype=torch.float32, device=device),
            None,
            torch.zeros(1, dtype=torch.int32, device=device),
        )
    except Exception as error:  # noqa: BLE001 - plain torch works in any case
        sys.stderr.write(
            "busbw accel: codecs run in plain torch, several times slower: Triton failed with"
            f" {error!r}\n"
        )
        return False
    return True
