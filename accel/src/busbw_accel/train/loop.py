"""Training steps on synthetic samples, timed one by one."""

import contextlib
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn

from busbw_accel.train.models import Model
from busbw_accel.train.types import TrainSpec

LEARNING_RATE = 0.01  # learning rate; labels are noise, and nothing may overflow
SEED = 1
_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class TrainingLoop:
    """Training of a model that has samples, on one device. `net` is the model, possibly wrapped."""

    def __init__(
        self,
        spec: TrainSpec,
        model: Model,
        net: nn.Module,
        device: torch.device,
        scaler: torch.amp.GradScaler,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        self.spec, self.device, self.net = spec, device, net
        assert model.samples is not None
        # Ranks have samples of their own: equal gradients would have short sums.
        rank = dist.get_rank() if dist.is_initialized() else 0
        samples = model.samples(spec, torch.Generator().manual_seed(SEED + rank))
        self.inputs, self.targets = (part.to(device) for part in samples)
        self.optimizer, self.scaler = optimizer or optimizer_for(net), scaler
        self.loss = torch.zeros(())

    def step(self) -> None:
        """Forward, backward and update. The host does not wait for the device."""
        self.optimizer.zero_grad(set_to_none=True)
        with self._precision():
            scores = self.net(self.inputs)
            self.loss = nn.functional.cross_entropy(scores.flatten(0, -2), self.targets.flatten())
        self.scaler.scale(self.loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    @contextlib.contextmanager
    def frozen_parameters(self) -> Iterator[None]:
        """Run whole steps without changing parameters."""
        for group in self.optimizer.param_groups:
            group["lr"] = 0.0
        yield
        for group in self.optimizer.param_groups:
            group["lr"] = LEARNING_RATE

    def _precision(self) -> contextlib.AbstractContextManager[object]:
        kind = _TYPES.get(self.spec.precision)
        return torch.autocast(self.device.type, kind) if kind else contextlib.nullcontext()

    def time_steps(self, steps: int) -> list[float]:
        """Run `steps` steps. Returns the seconds of each, on a GPU from its own clock."""
        return time_steps(self.step, self.device, steps)


def synchronize(device: torch.device) -> None:
    """Wait for a GPU; on CPUs nothing is queued."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def time_steps(step: Callable[[], object], device: torch.device, steps: int) -> list[float]:
    """Run `steps` steps. Returns the seconds of each, on a GPU from its own clock."""
    if device.type != "cuda":
        times = [time.perf_counter()]
        for _ in range(steps):
            step()
            times.append(time.perf_counter())
        return [after - before for before, after in pairwise(times)]
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    marks[-1].synchronize()
    return [before.elapsed_time(after) / 1e3 for before, after in pairwise(marks)]


def optimizer_for(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=LEARNING_RATE)


def scaler_for(precision: str, device: torch.device) -> torch.amp.GradScaler:
    """The GradScaler for fp16; disabled for all other precisions."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")


def set_matmul_precision(precision: str) -> None:
    """Set the precision of matrix products.

    With fp32, convolutions still use TF32, which is PyTorch's default.
    """
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
