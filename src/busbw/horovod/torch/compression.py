"""Compression of what is reduced: Horovod's two compressors. Those with a memory are accel's, by the LIGHT_* variables."""

from typing import Any

import torch


class Compressor:
    """What is sent of a tensor, and what becomes of the result. One's own has these two methods; this one leaves all as it is."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """What is sent, and what `decompress` needs to know."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """The result, in the type that the tensor had."""
        return tensor


class NoneCompressor(Compressor):
    """As it is."""


class FP16Compressor(Compressor):
    """Floating point as half precision; integers as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Half precision, and the type that it had."""
        return (tensor.half() if tensor.is_floating_point() else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """In the type that it had."""
        return tensor.to(ctx)


class Compression:
    """The names to choose by."""

    none = NoneCompressor
    fp16 = FP16Compressor
