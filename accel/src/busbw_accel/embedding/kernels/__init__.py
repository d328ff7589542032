"""Whether Triton's kernels of embedding tables can be used. `steps` calls them: the steps of a
lookup and an update (torch_steps.Steps). steps.KernelLookup says what they write.
"""

import importlib.util
import sys
from functools import cache

import torch


@cache
def usable(device: torch.device) -> bool:
    """Whether Triton can compile kernels for a device, which needs a C compiler.

    Warns once if it cannot.
    """
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return False
    try:
        from busbw_accel.embedding.index import Index
        from busbw_accel.embedding.kernels import steps

        steps.fill(
            Index(64, device),
            *(torch.ones(1, dtype=kind, device=device) for kind in (torch.int64, torch.int32)),
        )
    except Exception as error:  # noqa: BLE001 - plain torch works in any case
        sys.stderr.write(
            "busbw accel: embedding tables run in plain torch, many times slower: Triton failed"
            f" with {error!r}\n"
        )
        return False
    return True
