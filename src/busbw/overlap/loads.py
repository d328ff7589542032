"""What runs beside the collective: products of matrices, or copies in memory."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from busbw.core.sizes import format_size
from busbw.overlap.types import COPY, GEMM

GPU_SIDE, CPU_SIDE = 4096, 256  # of a matrix
GPU_COPY, CPU_COPY = 256 << 20, 4 << 20  # bytes

Operation = Callable[[], object]


def gemm(device: torch.device) -> tuple[Operation, str]:
    """A product of two square matrices of bfloat16, of float on CPUs."""
    on_gpu = device.type == "cuda"
    side, kind = (GPU_SIDE, torch.bfloat16) if on_gpu else (CPU_SIDE, torch.float32)
    a, b, out = (torch.randn(side, side, device=device).to(kind) for _ in range(3))
    text = f"a product of two matrices of {side} x {side} {str(kind).removeprefix('torch.')}"
    return partial(torch.mm, a, b, out=out), text


def copy(device: torch.device) -> tuple[Operation, str]:
    """A copy from one buffer of the device to another."""
    size = GPU_COPY if device.type == "cuda" else CPU_COPY
    source, target = (torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(2))
    return partial(target.copy_, source), f"a copy of {format_size(size)} in the device's memory"


LOADS: dict[str, Callable[[Any], tuple[Operation, str]]] = {GEMM: gemm, COPY: copy}
