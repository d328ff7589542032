"""Inside a rank of a run: gives the script's models the method, and writes the loss of each step.

A step is a backward that exchanges gradients; its loss is the sum of what backward was called on
since the one before, whose gradients add up: accumulated batches are one step. With a GradScaler it
is the loss before scaling. After `RunRequest.steps` backwards it is SystemExit, on all ranks.
"""

import functools
import math
import os
import sys
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from busbw_accel.ddp import attach
from busbw_accel.train.losses import seeds
from busbw_accel.train.losses.types import VARIABLE, Line, RunRequest
from busbw_accel.train.methods import parse

UNSCALED = "_busbw_unscaled"  # on what GradScaler.scale returns


def start() -> None:
    """Watch the script of this process. PyTorch's module was just imported."""
    request = msgspec.json.decode(os.environ[VARIABLE], type=RunRequest)
    seeds.shift(request.seed_shift)
    ScriptRun(request).watch()


class FoundScaler:
    """The script's GradScaler for `attach`, once it has scaled a loss."""

    found: Any = None

    def is_enabled(self) -> bool:
        return self.found is not None and bool(self.found.is_enabled())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.found, name)


class ScriptRun:
    """One run of a script in this rank."""

    def __init__(self, request: RunRequest) -> None:
        self._request, self._method = request, parse(request.method)
        self._models: weakref.WeakSet[DistributedDataParallel] = weakref.WeakSet()
        self._scaler = FoundScaler()
        self._losses: list[float] = []  # since the last exchange
        self._steps = 0
        self._inside = False  # one of the watched functions, which may call another
        self._rank = 0
        self._lines: list[Line] = []  # until there is a file
        self._file: BinaryIO | None = None

    def watch(self) -> None:
        """Take part in what the script calls."""
        _around(DistributedDataParallel, "__init__", self._make_model)
        _around(DistributedDataParallel, "register_comm_hook", self._register_hook)
        _around(torch.amp.GradScaler, "scale", self._scale)
        _around(torch, "load", self._load)

    def _make_model(
        self, original: Callable[..., None], model: Any, *arguments: Any, **options: Any
    ) -> None:
        module = arguments[0] if arguments else options["module"]
        device = next(p.device for p in module.parameters() if p.requires_grad)
        if self._method.hook == "powersgd" and device.type == "cpu":
            options["bucket_cap_mb"] = _bench().ONE_BUCKET_MB  # for the reason in bench.wrap
        original(model, *arguments, **options)
        if self._file is None:
            self._open()
            # Only here: it imports much. A compiled step breaks its graph there.
            _around(torch.autograd, "backward", torch.compiler.disable(self._backward))
        self._models.add(model)
        self._inside = True
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            if self._method.settings is not None:
                attach(model, self._method.settings, scaler=self._scaler)
            elif self._method.hook:
                model.register_comm_hook(*_bench().hook_of_torch(self._method.hook))
        self._inside = False

    def _register_hook(
        self, original: Callable[..., None], *arguments: Any, **options: Any
    ) -> None:
        if not self._inside:
            self._write(Line(hook=True))
        original(*arguments, **options)

    def _scale(self, original: Callable[..., Any], scaler: Any, outputs: Any) -> Any:
        self._scaler.found = scaler
        scaled = original(scaler, outputs)
        if isinstance(scaled, torch.Tensor):
            setattr(scaled, UNSCALED, outputs.detach())
        return scaled

    def _load(
        self, original: Callable[..., Any], file: Any, *arguments: Any, **options: Any
    ) -> Any:
        path = getattr(file, "name", file)
        if isinstance(path, str | os.PathLike) and Path(path).exists():
            written_s = Path(path).stat().st_mtime
            if self._request.first_s <= written_s < self._request.begun_s:
                self._write(Line(loaded=str(path)))
        return original(file, *arguments, **options)

    def _backward(
        self, original: Callable[..., None], tensors: Any, *arguments: Any, **options: Any
    ) -> None:
        if self._inside:  # a checkpoint of activations calls it within backward
            original(tensors, *arguments, **options)
            return
        self._note_loss([tensors] if isinstance(tensors, torch.Tensor) else list(tensors))
        self._inside = True
        try:
            original(tensors, *arguments, **options)
        finally:
            self._inside = False
        if self._losses and any(model.require_backward_grad_sync for model in self._models):
            self._end_step(sum(self._losses))

    def _note_loss(self, tensors: list[Any]) -> None:
        unscaled = [getattr(tensor, UNSCALED, tensor) for tensor in tensors]
        shapes = [getattr(tensor, "shape", torch.Size([0])) for tensor in unscaled]
        lists = [shape for shape in shapes if shape.numel() != 1]
        if lists:
            self._write(Line(shape=tuple(lists[0])))
        else:
            self._losses.append(sum(tensor.detach().item() for tensor in unscaled))

    def _end_step(self, loss: float) -> None:
        self._losses.clear()
        self._steps += 1
        self._write(Line(step=self._steps, loss=loss if math.isfinite(loss) else None))
        if self._steps < self._request.steps:
            return
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # others still exchange with this rank
        if self._rank == 0:
            sys.stderr.write(f"busbw: {self._steps} losses are recorded; the training ends here\n")
        raise SystemExit(0)

    def _open(self) -> None:
        self._rank = dist.get_rank()
        try:
            self._file = self._request.file(self._rank).open("wb", buffering=0)
        except FileNotFoundError:  # on another host than busbw
            self._file = Path(os.devnull).open("wb", buffering=0)  # noqa: SIM115 - until the end
        for line in (Line(world=dist.get_world_size()), *self._lines):
            self._write(line)

    def _write(self, line: Line) -> None:
        if self._file is None:
            self._lines.append(line)
        else:
            self._file.write(msgspec.json.encode(line) + b"\n")


def _bench() -> Any:
    """The module that has torch's own hooks, and imports much."""
    from busbw_accel.train import bench

    return bench


def _around(owner: Any, name: str, call: Callable[..., Any]) -> None:
    """Have `call` get the calls of a function: the function, then the arguments."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def watched(*arguments: Any, **options: Any) -> Any:
        return call(original, *arguments, **options)

    setattr(owner, name, watched)
