"""DDP's buckets without a training around them: what they hold and when they are ready, and their exchange by itself, again and again."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

Hook = Callable[[Any], torch.futures.Future[torch.Tensor]]


class Replayed:
    """One bucket as communication hooks see it (torch.distributed.GradBucket), with a gradient that can be put back."""

    def __init__(self, index: int, parameters: list[nn.Parameter], gradient: torch.Tensor, *, last: bool) -> None:
        self._index, self._parameters, self._last = index, parameters, last
        self._gradient, self._flat = gradient, torch.empty(0)

    def put_back(self, into: torch.Tensor) -> None:
        """Have the gradient as it came from backward, in the first elements of a buffer."""
        self._flat = into[: self._gradient.numel()].copy_(self._gradient)

    def index(self) -> int:
        """Its place in a step."""
        return self._index

    def is_last(self) -> bool:
        """Whether it ends a step."""
        return self._last

    def buffer(self) -> torch.Tensor:
        """All gradients, one after the other."""
        return self._flat

    def parameters(self) -> list[nn.Parameter]:
        """Of which parameters they are."""
        return self._parameters

    def gradients(self) -> list[torch.Tensor]:
        """Each as a view of the buffer, in its parameter's shape."""
        parts = self._flat.split([parameter.numel() for parameter in self._parameters])
        return [part.view(parameter.shape) for part, parameter in zip(parts, self._parameters, strict=True)]

    @property
    def gradient(self) -> torch.Tensor:
        """As it came from backward."""
        return self._gradient


@dataclass(slots=True)
class Recorder:
    """A communication hook that exchanges nothing: it notes when each bucket is ready, and with `keep` what it holds."""

    device: torch.device
    keep: bool = False
    steps: list[list[Any]] = field(default_factory=list)  # of each step its begin, then each bucket's
    buckets: list[Replayed] = field(default_factory=list)

    def begin(self, *_: object) -> None:
        """A step: before its forward."""
        self.steps.append([self._now()])

    def ready_s(self, count: int) -> list[list[float]]:
        """Of the last steps the seconds from the begin until each bucket was ready; the device is at rest."""
        return [[self._between(first, mark) for mark in marks] for first, *marks in self.steps[-count:]]

    def _between(self, before: Any, after: Any) -> float:
        return float(before.elapsed_time(after)) / 1e3 if self.device.type == "cuda" else float(after - before)

    def hook(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """See torch's DDP communication hooks."""
        self.steps[-1].append(self._now())
        flat = bucket.buffer()
        if self.keep:
            self.buckets.append(Replayed(bucket.index(), list(bucket.parameters()), flat.detach().clone(), last=bucket.is_last()))
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=[flat.device] if flat.device.type == "cuda" else [])
        done.set_result(flat)
        return done

    def _now(self) -> Any:
        """Now, on the device's own clock: an event behind what its stream has been given so far."""
        if self.device.type != "cuda":
            return time.perf_counter()
        mark = torch.cuda.Event(enable_timing=True)
        mark.record(torch.cuda.current_stream(self.device))
        return mark


def recording(recorder: Recorder, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The recorder's hook as DDP calls one."""
    return recorder.hook(bucket)
