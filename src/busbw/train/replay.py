"""Records DDP's buckets and when they are ready, so that their exchange can be repeated without
training.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

Hook = Callable[[Any], torch.futures.Future[torch.Tensor]]


class Replayed:
    """One bucket as communication hooks see it (torch.distributed.GradBucket), with a gradient
    that can be put back.
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
        """Its index in a step."""
        return self._index

    def is_last(self) -> bool:
        """Whether it is the last of a step."""
        return self._last

    def buffer(self) -> torch.Tensor:
        """The flat gradient."""
        return self._flat

    def parameters(self) -> list[nn.Parameter]:
        """Its parameters."""
        return self._parameters

    def gradients(self) -> list[torch.Tensor]:
        """Views of the buffer, one per parameter."""
        parts = self._flat.split([parameter.numel() for parameter in self._parameters])
        return [
            part.view(parameter.shape)
            for part, parameter in zip(parts, self._parameters, strict=True)
        ]

    @property
    def gradient(self) -> torch.Tensor:
        """The recorded gradient."""
        return self._gradient

    @property
    def nbytes(self) -> int:
        """Its size."""
        return int(self._gradient.numel() * self._gradient.element_size())


@dataclass(slots=True)
class Recorder:
    """Records DDP's buckets.

    `steps` has the start of each step, then the time each bucket was ready.

    While `keep` is set, buckets are recorded too: with a `copy` of their gradients, or with zeros
    that take no memory.
    """

    device: torch.device
    copy: bool = True
    keep: bool = False
    steps: list[list[Any]] = field(default_factory=list)
    buckets: list[Replayed] = field(default_factory=list)

    def begin(self, *_: object) -> None:
        """Forward pre-hook: a step begins."""
        self.steps.append([self._now()])

    def ready_s(self, count: int) -> list[list[float]]:
        """Seconds from the start of each of the last `count` steps until each bucket was ready.

        The device must be idle.
        """
        return [
            [self._between(first, mark) for mark in marks] for first, *marks in self.steps[-count:]
        ]

    def _between(self, before: Any, after: Any) -> float:
        return (
            float(before.elapsed_time(after)) / 1e3
            if self.device.type == "cuda"
            else float(after - before)
        )

    def hook(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """A DDP communication hook that records the bucket and exchanges nothing."""
        self.steps[-1].append(self._now())
        if self.keep:
            flat = bucket.buffer().detach()
            flat = flat.clone() if self.copy else flat.new_zeros(1).expand(flat.numel())
            self.buckets.append(
                Replayed(bucket.index(), list(bucket.parameters()), flat, last=bucket.is_last())
            )
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
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future(
        devices=[flat.device] if flat.is_cuda else []
    )
    future.set_result(flat)
    return future
