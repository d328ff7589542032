"""Records DDP's buckets and when they are ready.

Then their exchange can be repeated without training.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

Hook = Callable[[Any], torch.futures.Future[torch.Tensor]]


class ReplayedBucket:
    """One bucket with a gradient that can be put back.

    It has the methods of torch.distributed.GradBucket, which communication hooks use.
    """

    def __init__(
        self, index: int, parameters: list[nn.Parameter], gradient: torch.Tensor, *, last: bool
    ) -> None:
        self._index, self._parameters, self._last = index, parameters, last
        self._gradient, self._flat = gradient, torch.empty(0)

    def put_back(self, into: torch.Tensor) -> None:
        """Copy the recorded gradient into the first elements of `into`."""
        self._flat = into[: self._gradient.numel()].copy_(self._gradient)

    def index(self) -> int:
        return self._index

    def is_last(self) -> bool:
        return self._last

    def buffer(self) -> torch.Tensor:
        """The flat gradient."""
        return self._flat

    def parameters(self) -> list[nn.Parameter]:
        return self._parameters

    def gradients(self) -> list[torch.Tensor]:
        """Views of the buffer, one per parameter."""
        parts = self._flat.split([parameter.numel() for parameter in self._parameters])
        pairs = zip(parts, self._parameters, strict=True)
        return [part.view(parameter.shape) for part, parameter in pairs]

    @property
    def gradient(self) -> torch.Tensor:
        return self._gradient

    @property
    def nbytes(self) -> int:
        """Bytes of the gradient."""
        return int(self._gradient.numel() * self._gradient.element_size())


@dataclass(slots=True)
class Recorder:
    """Records when DDP's buckets are ready, and the buckets.

    `steps` has the start of each step, and then the time at which each bucket was ready. While
    `keep` is set, the buckets themselves are recorded: with a copy of their gradients if `copy` is
    set, and otherwise with zeros that take no memory.
    """

    device: torch.device
    copy: bool = True
    keep: bool = False
    steps: list[list[Any]] = field(default_factory=list)
    buckets: list[ReplayedBucket] = field(default_factory=list)

    def begin(self, *_: object) -> None:
        self.steps.append([self._now()])

    def ready_s(self, count: int) -> list[list[float]]:
        """Seconds from the start of each of the last `count` steps until each bucket was ready.

        The device must be idle.
        """
        return [self._seconds_of(marks) for marks in self.steps[-count:]]

    def _seconds_of(self, marks: list[Any]) -> list[float]:
        """Seconds from the first of the time stamps to each other."""
        first, *later = marks
        if self.device.type == "cuda":
            return [float(first.elapsed_time(mark)) / 1e3 for mark in later]
        return [float(mark - first) for mark in later]

    def hook(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """A DDP communication hook that records the bucket and exchanges nothing."""
        self.steps[-1].append(self._now())
        if self.keep:
            flat = bucket.buffer().detach()
            flat = flat.clone() if self.copy else flat.new_zeros(1).expand(flat.numel())
            parameters = list(bucket.parameters())
            replayed = ReplayedBucket(bucket.index(), parameters, flat, last=bucket.is_last())
            self.buckets.append(replayed)
        return unchanged(None, bucket)

    def _now(self) -> Any:
        """A time stamp; on a GPU an event after the work queued so far."""
        if self.device.type != "cuda":
            return time.perf_counter()
        mark = torch.cuda.Event(enable_timing=True)
        mark.record(torch.cuda.current_stream(self.device))
        return mark


def unchanged(_: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A DDP communication hook that exchanges nothing."""
    flat = bucket.buffer()
    devices = [flat.device] if flat.is_cuda else []
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)
    future.set_result(flat)
    return future
