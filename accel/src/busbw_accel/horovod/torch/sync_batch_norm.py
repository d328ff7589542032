"""Batch normalization with the mean and the variance of all ranks' batches."""

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from busbw_accel.horovod.torch import context, requests
from busbw_accel.horovod.torch.autograd import Collective
from busbw_accel.horovod.torch.calls import Call
from busbw_accel.horovod.torch.requests import OperationKind


class SyncBatchNorm(_BatchNorm):  # type: ignore[misc]
    """Like torch.nn.BatchNorm of any dimension, on CPUs and GPUs.

    Its sums are operations that run in order with all others. torch's SyncBatchNorm supports only
    GPUs, and would use its communicator out of order with other operations.
    """

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """`input`: batch, channels, and any further dimensions."""
        self._check_input_dim(input)
        by_batch = self.training or not self.track_running_stats
        if not by_batch or not context.is_initialized() or context.size() == 1:
            return super().forward(input)
        dimensions = [dimension for dimension in range(input.dim()) if dimension != 1]
        values = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        count = values.new_tensor([values.numel() // values.shape[1]])
        total = _sum(torch.cat([values.sum(dimensions), count]))
        mean, number = total[:-1] / total[-1], total[-1].detach()
        centred = values - _reshape(mean, values)
        variance = _sum(centred.square().sum(dimensions)) / number
        self._track(mean.detach(), variance.detach(), number)
        out = centred * _reshape(torch.rsqrt(variance + self.eps), values)
        if self.affine:
            out = out * _reshape(self.weight, out) + _reshape(self.bias, out)
        return out.to(input.dtype)

    def _track(self, mean: torch.Tensor, variance: torch.Tensor, number: torch.Tensor) -> None:
        if (
            not self.training
            or self.running_mean is None
            or self.running_var is None
            or self.num_batches_tracked is None
        ):
            return
        self.num_batches_tracked.add_(1)
        share = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        unbiased = variance * (number / (number - 1).clamp(min=1))
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)


def _sum(tensor: torch.Tensor) -> torch.Tensor:
    return Collective.apply(Call(OperationKind.ALLREDUCE, op=requests.Sum), tensor.contiguous())


def _reshape(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Reshape to broadcast over channels."""
    return tensor.view(1, -1, *([1] * (like.dim() - 2)))
