"""Reductions by Horovod's numbers, and scaling as Horovod does it."""

import torch
import torch.distributed as dist

Average, Sum, Adasum, Min, Max, Product = range(6)

NAMES = {
    Average: "Average",
    Sum: "Sum",
    Adasum: "Adasum",
    Min: "Min",
    Max: "Max",
    Product: "Product",
}
TORCH_OPS = {
    Average: dist.ReduceOp.SUM,
    Sum: dist.ReduceOp.SUM,
    Min: dist.ReduceOp.MIN,
    Max: dist.ReduceOp.MAX,
    Product: dist.ReduceOp.PRODUCT,
}
# Types that Gloo and NCCL do not reduce, and wider types that hold their sums.
CARRIERS = {torch.int16: torch.int32, torch.uint16: torch.int32, torch.bool: torch.int32}
DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.uint8, torch.int8, torch.int32, torch.int64, torch.int16, torch.uint16, torch.bool),
)
_NARROW = (torch.float16, torch.bfloat16)


def scaled_(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    """Multiply in place: integers in fp64, truncated; 16-bit floats in fp32 on CPUs, by a factor
    of the same type on GPUs.
    """
    if factor == 1.0:
        return tensor
    if not tensor.is_floating_point():
        return tensor.copy_(tensor.double().mul_(factor))
    if tensor.dtype in _NARROW and tensor.device.type == "cpu":
        return tensor.copy_(tensor.float().mul_(factor))
    return tensor.mul_(torch.tensor(factor, dtype=tensor.dtype).item())


def postscale(op: int, factor: float, ranks: int) -> float:
    """The factor after the sum, including the division of an average."""
    return factor / ranks if op == Average else factor
