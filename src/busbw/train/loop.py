"""Training steps on synthetic samples, timed one by one."""

import contextlib
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import nn

from busbw.core.training import TrainSpec
from busbw.train.models import Model

RATE = 0.01  # of learning: labels are noise, and nothing may overflow
SEED = 1
_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Loop:
    """A model's training on one device; `net` may be wrapped, its parameters are those of the model."""

    def __init__(self, spec: TrainSpec, model: Model, net: nn.Module, device: torch.device, scaler: torch.amp.GradScaler) -> None:
        self.spec, self.device, self.net = spec, device, net
        samples = model.samples(spec, torch.Generator().manual_seed(SEED))
        self.inputs, self.wanted = (part.to(device) for part in samples)
        self.optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
        self.scaler = scaler
        self.loss = torch.zeros(())

    def step(self) -> None:
        """Forward, backward, update; nothing waits for the device."""
        self.optimizer.zero_grad(set_to_none=True)
        with self._precision():
            scores = self.net(self.inputs)
            self.loss = nn.functional.cross_entropy(scores.flatten(0, -2), self.wanted.flatten())
        self.scaler.scale(self.loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Do all of a step, and change no parameter."""
        for group in self.optimizer.param_groups:
            group["lr"] = 0.0
        yield
        for group in self.optimizer.param_groups:
            group["lr"] = RATE

    def _precision(self) -> contextlib.AbstractContextManager[object]:
        kind = _TYPES.get(self.spec.precision)
        return torch.autocast(self.device.type, kind) if kind else contextlib.nullcontext()

    def timed(self, steps: int) -> list[float]:
        """So many steps: the seconds of each, on the device's own clock."""
        if self.device.type != "cuda":
            return [_lasting(self.step) for _ in range(steps)]
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
        marks[0].record()
        for mark in marks[1:]:
            self.step()
            mark.record()
        marks[-1].synchronize()
        return [before.elapsed_time(after) / 1e3 for before, after in pairwise(marks)]

    def rest(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _lasting(act: Callable[[], None]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def scaler_for(precision: str, device: torch.device) -> torch.amp.GradScaler:
    """What keeps fp16's gradients in range; without effect in all other precisions."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")


def settle(precision: str) -> None:
    """Have matrix products in the precision that was asked for. fp32 is what PyTorch takes for it: its convolutions use TF32."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
