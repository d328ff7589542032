"""The frontend for torch's DistributedDataParallel: a communication hook exchanges its gradients.

`Attachment` is what the frontends for DDP and FSDP share: a communication worker, and its state in
a checkpoint.
"""

import functools
import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from busbw.accel import lightcc_env
from busbw.accel.codecs.base import ring_bytes
from busbw.accel.comm_worker import CommWorker, Traffic
from busbw.accel.communicator import Work
from busbw.accel.mesh import make
from busbw.accel.methods import BY_NAME, DENSE
from busbw.accel.settings import Settings
from busbw.core.errors import UsageError

# DDP rebuilds its buckets after the first step. State that is kept between steps starts then.
FIRST_STEP = 1


class Attachment:
    """A model whose gradients are exchanged by a communication worker."""

    def __init__(self, worker: CommWorker, lengths: Mapping[str, int] | None = None) -> None:
        """`worker` belongs to this model.

        `lengths`: elements of each parameter by name, if known.
        """
        self.worker = worker
        self._lengths = lengths
        self.steps = 0
        self._scale: torch.Tensor | float | None = None

    @property
    def settings(self) -> Settings:
        """The settings of the worker."""
        return self.worker.settings

    @property
    def traffic(self) -> Traffic:
        """Bytes that this rank has sent so far."""
        return self.worker.traffic

    def follow(self, scaler: Any) -> None:
        """Rescale the residuals when the scale of the GradScaler has changed.

        `scaler`: None if the loss is not scaled.
        """
        if scaler is None or not scaler.is_enabled():
            return
        # The scale is a tensor on the device, for which get_scale() would wait.
        scale = getattr(scaler, "_scale", None)
        scale = scaler.get_scale() if scale is None else scale
        if self._scale is not None:
            before = self._scale
            if isinstance(scale, torch.Tensor) and isinstance(before, torch.Tensor):
                before = before.to(scale.device)
            self.worker.memory.scale(scale / before)
        self._scale = scale.clone() if isinstance(scale, torch.Tensor) else scale

    def reset_residual(self) -> None:
        """Discard the residuals, for example after a jump of the learning rate or after loading
        parameters.
        """
        with self.worker.at_rest():
            self.worker.memory.clear()

    def close(self) -> None:
        """Stop the worker and its communicators.

        Every rank must call it after the last backward.
        """
        self.worker.close()

    def state_dict(self) -> dict[str, Any]:
        """What the codecs keep between steps, by parameter, on the CPU.

        Every rank must call it, and save its own state: residuals differ between ranks.
        """
        by_parameter: dict[str, dict[str, torch.Tensor]] = {}
        with self.worker.at_rest():
            for parameter, name, tensor in self.worker.memory.single():
                by_parameter.setdefault(parameter, {})[name] = tensor.to("cpu", copy=True)
        self.worker.check()
        world = self.worker.mesh.world
        scale = self._scale
        if isinstance(scale, torch.Tensor):
            scale = scale.to("cpu", copy=True)
        return {
            "ranks": world.size,
            "rank": world.rank,
            "steps": self.steps,
            "scale": scale,
            "kept": by_parameter,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict` that this rank has saved.

        Raises:
            UsageError: the state is from another rank, another number of ranks, or another model.
        """
        world = self.worker.mesh.world
        if (state["ranks"], state["rank"]) != (world.size, world.rank):
            raise UsageError(
                f"the state is of rank {state['rank']} of {state['ranks']}, and this is rank"
                f" {world.rank} of {world.size}",
                "save and load it on every rank; with another number of ranks leave it out: the"
                " residuals are then lost once",
            )
        for parameter, tensors in state["kept"].items():
            for tensor in tensors.values():
                self._check_length(parameter, tensor.numel())
        with self.worker.at_rest():
            self.worker.memory.clear()
            self.steps, self._scale = state["steps"], state["scale"]
            for parameter, tensors in state["kept"].items():
                for name, tensor in tensors.items():
                    self.worker.memory.put_single(parameter, name, tensor)

    def _check_length(self, parameter: str, count: int) -> None:
        if self._lengths is None or self._lengths.get(parameter) == count:
            return
        mismatch = "is not a parameter here"
        if parameter in self._lengths:
            mismatch = f"has {self._lengths[parameter]} elements here"
        raise UsageError(
            f"the state has {count} values for '{parameter}', which {mismatch}",
            "load the state of the same model",
        )


class Attached(Attachment):
    """A DDP model whose gradients are exchanged by a communication worker."""

    def __init__(self, model: DistributedDataParallel, worker: CommWorker, scaler: Any) -> None:
        super().__init__(
            worker, {name: parameter.numel() for name, parameter in model.module.named_parameters()}
        )
        self._names = {id(parameter): name for name, parameter in model.module.named_parameters()}
        self._scaler = scaler

    def exchange(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Start averaging a bucket; the future has the average."""
        flat, parameters = bucket.buffer(), bucket.parameters()
        shapes = [parameter.shape for parameter in parameters]
        names = [
            self._names.get(id(parameter), f"?{bucket.index()}.{number}")
            for number, parameter in enumerate(parameters)
        ]
        first = self.steps < FIRST_STEP
        begins = self.steps - FIRST_STEP if bucket.index() == 0 and not first else None
        self.steps += bucket.is_last()
        mesh = self.worker.mesh
        borrowed = mesh.world.group is not None and mesh.world.group is mesh.borrowed
        if borrowed and not flat.is_sparse:
            return self._as_ddp(flat)
        if begins is not None:
            # Not on `flat`: a future on a GPU may only have a sparse tensor that is coalesced.
            self.worker.run(parameters[0], lambda: self._begin(begins))
        if flat.is_sparse:
            return self.worker.average_sparse(flat)
        if first:
            return self.worker.run(flat, lambda: self._average(flat))
        one_dim = [number for number, parameter in enumerate(parameters) if parameter.dim() < 2]
        last = bucket.is_last() and bucket.index() > 0
        method = self.settings.method_for(flat.nbytes, last=last)
        exchange_whole = method == DENSE or BY_NAME[method].needs_matrices
        if exchange_whole or not self.settings.dense_below_2d or not one_dim:
            return self.worker.average(flat, names, shapes, last=last)
        return self.worker.run(
            flat, lambda: self._exchange_1d_separately(flat, names, shapes, one_dim, last)
        )

    def _as_ddp(self, flat: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        """All-reduce on DDP's own communicator, from the stream of backward."""
        with self.worker.explaining():
            self.worker.traffic.buckets += 1
            work = self._begin_average(flat)
        return work.get_future().then(lambda ended: ended.value()[0])  # type: ignore[attr-defined]

    def _average(self, flat: torch.Tensor) -> None:
        """All-reduce, as DDP does without a hook."""
        self._begin_average(flat, async_op=False).wait()

    def _begin_average(self, flat: torch.Tensor, *, async_op: bool = True) -> Work:
        world = self.worker.mesh.world
        self.worker.traffic.across += world.ring(
            ring_bytes(flat.numel() * flat.element_size(), world.size)
        )
        return world.begin_average(flat, async_op=async_op)

    def _exchange_1d_separately(
        self,
        flat: torch.Tensor,
        names: list[str],
        shapes: list[torch.Size],
        one_dim: list[int],
        last: bool,
    ) -> None:
        """Exchange parameters of one dimension (biases, norms) uncompressed, and the rest, with
        zeros in their positions, by the codec.
        """
        if len(one_dim) == len(shapes):
            self._average(flat)
            return
        parts = flat.split([shape.numel() for shape in shapes])
        few = [parts[number] for number in one_dim]
        joined = torch.cat(few)
        torch._foreach_zero_(few)
        averaging = self._begin_average(joined)  # overlaps with the codec
        self.worker.exchange(flat, names, shapes, last=last)
        averaging.wait()
        torch._foreach_copy_(few, list(joined.split([part.numel() for part in few])))

    def _begin(self, step: int) -> None:
        """Start a step in the worker, before its buckets."""
        self.worker.step = step
        self.follow(self._scaler)


def _hook(attached: Attached, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    return attached.exchange(bucket)


def attach(
    model: DistributedDataParallel,
    settings: Settings | None = None,
    *,
    scaler: Any = None,
    timeout: timedelta | None = None,
) -> Attached:
    """Exchange a DDP model's gradients with busbw.

    Without `settings`, the LIGHT_* variables of Tencent's LightCC apply.

    Sparse gradients, as of `nn.Embedding(sparse=True)`, are averaged by rows for every method, over
    NCCL and Gloo: each rank gets the average of all ranks as a coalesced sparse tensor. On a GPU,
    the host waits in backward until all ranks have sent the ids.

    Every rank must call it before the first backward. `scaler`: the training loop's GradScaler, if
    any; residuals are rescaled when its scale changes. `timeout`: the limit of each exchange,
    above zero; None for the default of PyTorch's process groups.

    Raises:
        UsageError: a variable or `timeout` is invalid, or `model` is not a DDP model.
    """
    attached = prepare(model, settings, scaler, timeout)
    model.register_comm_hook(attached, _hook)
    return attached


def prepare(
    model: DistributedDataParallel,
    settings: Settings | None,
    scaler: Any = None,
    timeout: timedelta | None = None,
) -> Attached:
    """As `attach`, without the hook: the caller passes buckets to `Attached.exchange`."""
    if not isinstance(model, DistributedDataParallel):
        raise UsageError(
            f"attach takes a DistributedDataParallel model, not a {type(model).__name__}",
            "wrap it: DistributedDataParallel(model)",
        )
    if dist.get_process_group_ranks(model.process_group) != list(range(dist.get_world_size())):
        raise UsageError(
            f"the model's process group has {model.process_group.size()} of {dist.get_world_size()}"
            " ranks, and accel exchanges over all",
            "attach only models whose replicas are on all ranks",
        )
    settings, unknown = agree_on_settings(settings)
    borrowed = _borrowed(model, settings) if timeout is None else None
    mesh = make(settings, timeout, borrowed)
    attached = Attached(model, CommWorker(settings, mesh), scaler)
    announce(attached, unknown)
    return attached


def _borrowed(model: DistributedDataParallel, settings: Settings) -> dist.ProcessGroup | None:
    """DDP's communicator, if only plain averages use it; None otherwise.

    With a second communicator a step takes 0.3 % longer (benchmarks/train_2xh200_202611). On CPUs,
    the worker's thread and DDP would interfere.
    """
    plain = settings.methods == {DENSE} and settings.wire == "same" and not settings.two_d
    on_gpu = "cuda:nccl" in dist.get_backend_config(model.process_group) and all(
        parameter.is_cuda for parameter in model.parameters()
    )
    return model.process_group if plain and on_gpu else None


def agree_on_settings(settings: Settings | None) -> tuple[Settings, list[str]]:
    """The settings that all ranks have, and unknown LIGHT_* variables.

    `settings`: None takes those that the LIGHT_* variables select.

    Raises:
        UsageError: a variable is invalid, or ranks have different settings. Raised on every rank.
    """
    error = ""
    unknown: list[str] = []
    if settings is None:
        unknown = lightcc_env.unknown(os.environ)
        try:
            settings = lightcc_env.from_env(os.environ)
        except UsageError as invalid:
            error = invalid.message
    gathered: list[tuple[str, str]] = [("", "")] * dist.get_world_size()
    dist.all_gather_object(gathered, (error, repr(settings)))
    failures = [f"rank {rank}: {reason}" for rank, (reason, _) in enumerate(gathered) if reason]
    if failures:
        raise UsageError("; ".join(failures), "set it on every rank, for example with mpirun -x")
    differing = [rank for rank, (_, text) in enumerate(gathered) if text != gathered[0][1]]
    if differing or settings is None:
        raise UsageError(
            f"ranks {', '.join(map(str, differing))} have other settings than rank 0:"
            f" {gathered[differing[0]][1]}, not {gathered[0][1]}",
            "use the same settings on every rank, for example with mpirun -x",
        )
    return settings, unknown


def announce(attached: Attachment, unknown: list[str]) -> None:
    """Rank 0 prints how gradients are exchanged, once if several models are attached alike."""
    if attached.worker.mesh.world.rank:
        return
    mesh = attached.worker.mesh
    known_names = ", ".join(switch.name for switch in lightcc_env.SWITCHES)
    shape = f"{mesh.world.size}"
    if mesh.inside and mesh.across:
        shape = f"{mesh.across.size} x {mesh.inside.size}"
    lines = [f"{attached.settings.describe()} over {shape} ranks"]
    lines += [mesh.note] if mesh.note else []
    lines += [f"{name} is unknown (known: {known_names})" for name in unknown]
    _print_once("".join(f"busbw accel: {line}\n" for line in lines))


@functools.cache
def _print_once(text: str) -> None:
    sys.stderr.write(text)
