"""What codecs compute on GPUs, in Triton: as in plain torch, in as few passes over memory as there can be."""

import importlib.util

import torch

# It comes with torch for GPUs.
_INSTALLED = importlib.util.find_spec("triton") is not None


def usable(part: torch.Tensor) -> bool:
    """Whether there are kernels for this tensor."""
    return _INSTALLED and part.is_cuda and part.dtype != torch.float64
