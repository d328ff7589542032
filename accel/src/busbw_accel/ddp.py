"""The frontend for DistributedDataParallel: a communication hook exchanges its gradients."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from busbw.core.errors import UsageError
from busbw_accel.attachment import Attachment, agree_on_settings, announce, plain
from busbw_accel.buckets import Gradient, Place, RegroupedBuckets, place
from busbw_accel.codecs.base import ring_bytes
from busbw_accel.comm_worker import CommWorker
from busbw_accel.communicator import Work
from busbw_accel.local_steps import LocalSteps
from busbw_accel.mesh import INSIDE, make
from busbw_accel.methods import BY_NAME, DENSE
from busbw_accel.settings import Settings

# DDP rebuilds its buckets after the first step. State that is kept between steps starts then.
FIRST_STEP = 1
_Model = TypeVar("_Model", bound=nn.Module)


class Attached(Attachment):
    """A DDP model whose gradients are exchanged by a communication worker."""

    def __init__(self, model: DistributedDataParallel, worker: CommWorker, scaler: Any) -> None:
        named = {plain(name): parameter for name, parameter in model.module.named_parameters()}
        super().__init__(
            worker,
            {
                name: parameter.numel() * (1 + parameter.is_complex())
                for name, parameter in named.items()
            },
        )
        self._names = {id(parameter): name for name, parameter in named.items()}
        self._places: dict[int, Place] = {}
        self._scaler = scaler
        # Steps before DDP has made its final buckets.
        self._settling = FIRST_STEP + model.static_graph
        self._order: list[tuple[str, ...]] = []  # the buckets of the last step
        self._resumed: RegroupedBuckets | None = None

    def exchange(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Start averaging a bucket; the future has the average."""
        flat, parameters = bucket.buffer(), bucket.parameters()
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
        if first and not flat.is_sparse:
            return self.worker.run(flat, lambda: self._average(flat))
        return self._exchange_bucket(bucket)

    def _exchange_bucket(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        flat, resumed = bucket.buffer(), self._resumed
        if bucket.index() == 0:
            self._order = []
        if flat.is_sparse:
            result = self.worker.average_sparse(flat)
        else:
            gradient = self._gradient_of(bucket)
            self._order.append(gradient.names)
            if resumed is not None:
                result = resumed.add(gradient)
            else:
                result = self.worker.run(flat, lambda: self._exchange(gradient), bucket.index())
        if resumed is not None and bucket.is_last():
            resumed.exchange(self.worker, self._exchange)
            self._order = resumed.order
            self._resumed = resumed if resumed.steps else None
        return result

    def _gradient_of(self, bucket: dist.GradBucket) -> Gradient:
        places = []
        for number, parameter in enumerate(bucket.parameters()):
            key = id(parameter)
            if key not in self._places:
                name = self._names.get(key, f"?{bucket.index()}.{number}")
                self._places[key] = place(name, parameter)
            places.append(self._places[key])
        return Gradient(bucket.buffer(), places, bucket.is_last() and bucket.index() > 0)

    def state_dict(self) -> dict[str, Any]:
        """As of `Attachment`, and which parameters were in a bucket together."""
        return super().state_dict() | {"order": [list(names) for names in self._order]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._order = [tuple(names) for names in state.get("order", ())]
        self._resumed = None
        if self.worker.memory.unsplit():
            self._resumed = RegroupedBuckets(self._order, self._settling)

    def _exchange(self, gradient: Gradient) -> None:
        """Average a gradient by its method, in this thread."""
        flat, places = gradient.flat, gradient.places
        one_dim = [number for number, place in enumerate(places) if place.one_dim]
        method = self.settings.method_for(flat.nbytes, last=gradient.last)
        codec = BY_NAME[method]
        exchange_whole = not codec.loss or codec.needs_matrices
        if exchange_whole or not self.settings.dense_below_2d or not one_dim:
            self.worker.exchange(flat, gradient.names, gradient.shapes, last=gradient.last)
        else:
            self._exchange_1d_separately(gradient, one_dim)

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
        sent = ring_bytes(flat.numel() * flat.element_size(), world.size)
        self.worker.traffic.add_across(world.ring(sent))
        return world.begin_average(flat, async_op=async_op)

    def _exchange_1d_separately(self, gradient: Gradient, one_dim: list[int]) -> None:
        """Exchange parameters of one dimension (biases, norms) uncompressed, and the rest, with
        zeros in their positions, by the codec.
        """
        flat = gradient.flat
        if len(one_dim) == len(gradient.places):
            self._average(flat)
            return
        parts = gradient.parts()
        few = [parts[number] for number in one_dim]
        joined = torch.cat(few)
        torch._foreach_zero_(few)
        averaging = self._begin_average(joined)  # overlaps with the codec
        self.worker.exchange(flat, gradient.names, gradient.shapes, last=gradient.last)
        averaging.wait()
        torch._foreach_copy_(few, list(joined.split([part.numel() for part in few])))

    def _begin(self, step: int) -> None:
        """Start a step in the worker, before its buckets."""
        self.worker.step = step
        self.follow(self._scaler)


def attach(
    model: DistributedDataParallel,
    settings: Settings | None = None,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    scaler: Any = None,
    timeout: timedelta | None = None,
) -> Attached | LocalSteps:
    """Exchange a DDP model's gradients with busbw, or its parameters every `settings.every` steps.

    Without `settings`, the LIGHT_* variables of Tencent's LightCC apply.

    Sparse gradients, as of `nn.Embedding(sparse=True)`, are averaged by rows for every method, over
    NCCL and Gloo: each rank gets the average of all ranks as a coalesced sparse tensor. On a GPU,
    the host waits in backward until all ranks have sent the ids.

    Gradients are averaged over the ranks of the model's process group. Every rank of the job must
    call it before the first backward, also where models are on parts of the ranks. `optimizer`:
    that of the model; needed if `settings.every` is above 1. `scaler`: the training loop's
    GradScaler, if any; residuals are rescaled when its scale changes. `timeout`: the limit of each
    exchange, above zero; None for the default of PyTorch's process groups.

    Raises:
        UsageError: a variable or `timeout` is invalid, `model` is not a DDP model, compiled or not,
            or has a communication hook already, or `optimizer` is missing or of another model.
    """
    model = uncompiled(model)
    worker = _worker_of(model, settings, timeout)
    attached: Attached | LocalSteps
    every = worker.settings.every
    if every > 1:
        trained = _checked(optimizer, model, every)
        attached = LocalSteps(model, worker, trained, _rows_of(worker, timeout))
        model.register_comm_hook(attached, LocalSteps.exchange)
    else:
        attached = Attached(model, worker, scaler)
        model.register_comm_hook(attached, Attached.exchange)
    return attached


def uncompiled(model: _Model) -> _Model:
    """The model that torch.compile wraps, or the model itself."""
    inner: _Model = getattr(model, "_orig_mod", model)
    return inner


def prepare(
    model: DistributedDataParallel,
    settings: Settings | None,
    scaler: Any = None,
    timeout: timedelta | None = None,
) -> Attached:
    """As `attach`, without the hook: the caller passes buckets to `Attached.exchange`."""
    return Attached(model, _worker_of(model, settings, timeout), scaler)


def _worker_of(
    model: DistributedDataParallel, settings: Settings | None, timeout: timedelta | None
) -> CommWorker:
    """The worker of a model. Rank 0 prints what it does."""
    if not isinstance(model, DistributedDataParallel):
        raise UsageError(
            f"attach takes a DistributedDataParallel model, not a {type(model).__name__}",
            "wrap it: DistributedDataParallel(model)",
        )
    if model._comm_hooks:
        raise UsageError(
            "the model has a communication hook already, and PyTorch does not replace it",
            "attach to a new one: DistributedDataParallel(model.module)",
        )
    settings, unknown = agree_on_settings(settings)
    if settings.gather != "same":
        raise UsageError(
            f"gather={settings.gather} is for fully_shard: DistributedDataParallel gathers no"
            " parameters",
            "leave out gather",
        )
    borrowed = _borrowed(model, settings) if timeout is None else None
    mesh = make(settings, timeout, borrowed, dist.get_process_group_ranks(model.process_group))
    worker = CommWorker(settings, mesh)
    announce(worker, unknown)
    return worker


def _rows_of(worker: CommWorker, timeout: timedelta | None) -> CommWorker | None:
    """A worker that averages over the ranks of a host; None in one dimension.

    It has a communicator of its own, since the other worker may be busy for several steps.
    """
    inside = worker.mesh.inside
    if inside is None:
        return None
    mesh = make(INSIDE, timeout, ranks=dist.get_process_group_ranks(inside.group))
    return CommWorker(INSIDE, mesh)


def _checked(
    optimizer: torch.optim.Optimizer | None, model: DistributedDataParallel, every: int
) -> torch.optim.Optimizer:
    if optimizer is None:
        raise UsageError(
            f"every={every} counts the steps of the optimizer, which attach does not have",
            "attach(model, settings, optimizer=optimizer)",
        )
    if not hasattr(optimizer, "_optimizer_step_post_hooks"):  # made by Optimizer.__init__
        raise UsageError(
            f"the steps of a {type(optimizer).__name__} cannot be counted: it is not a"
            " torch.optim.Optimizer, or a wrapper of one",
            "give attach the optimizer itself; of several, the one that steps last",
        )
    if hasattr(optimizer, "consolidate_state_dict"):
        raise UsageError(
            "ZeroRedundancyOptimizer trains each parameter on one rank, by its own gradient if"
            f" every={every}",
            "give each rank a whole optimizer",
        )
    own = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    trained = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if not own & trained:
        raise UsageError(
            "the optimizer has no parameter of the model",
            "give attach the optimizer that trains the model",
        )
    return optimizer


def _borrowed(model: DistributedDataParallel, settings: Settings) -> dist.ProcessGroup | None:
    """DDP's communicator, if only plain averages use it; None otherwise.

    With a second communicator a step takes 0.3 % longer (benchmarks/train_2xh200_202611). On CPUs,
    the worker's thread and DDP would interfere.
    """
    plain = settings.methods == {DENSE} and settings.wire == "same" and not settings.two_d
    plain = plain and settings.every == 1
    on_gpu = "cuda:nccl" in dist.get_backend_config(model.process_group) and all(
        parameter.is_cuda for parameter in model.parameters()
    )
    return model.process_group if plain and on_gpu else None
