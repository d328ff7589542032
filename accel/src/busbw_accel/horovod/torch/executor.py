"""Runs ready operations one after the other, in the same order on all ranks.

All-reduces that are ready together are fused.
"""

import contextlib
import functools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from busbw_accel import CommWorker
from busbw_accel.horovod.torch import collectives
from busbw_accel.horovod.torch.errors import HorovodInternalError
from busbw_accel.horovod.torch.handles import Handle
from busbw_accel.horovod.torch.requests import OperationKind, Request, Response
from busbw_accel.horovod.torch.timeline import NEGOTIATE, Timeline
from busbw_accel.methods import DENSE

_ACTIVITIES = {"BROADCAST": "BCAST"}  # Horovod's abbreviation in names like GLOO_BCAST


@dataclass(slots=True)
class Operation:
    """A request of this rank with its tensors and its handle."""

    request: Request
    inputs: Sequence[torch.Tensor] = ()
    outputs: Sequence[torch.Tensor] = ()  # for operations with preallocated results
    splits: Sequence[int] = ()
    # The device of the received row counts; None: they are not returned.
    counts_on: torch.device | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    grouped: bool = False  # the result is a list
    returned: Sequence[torch.Tensor] = ()  # of an operation in place: the caller's tensors
    handle: Handle = field(default_factory=Handle)
    since_s: float = field(default_factory=time.monotonic)
    begun: "torch.cuda.Event | None" = None  # after the work queued on the GPU before the call


@dataclass(frozen=True, slots=True)
class Members:
    """A process set's ranks. The group is None if this rank is not in it."""

    ranks: tuple[int, ...]
    group: dist.ProcessGroup | None


_Batch = list[tuple[Response, Operation]]


class Executor:
    """Runs operations over process sets, which it knows by number."""

    def __init__(
        self,
        rank: int,
        everyone: Members,
        fusion: int,
        worker: CommWorker | None,
        timeline: Timeline,
    ) -> None:
        self._rank, self._fusion, self._worker, self._timeline = rank, fusion, worker, timeline
        self.sets: dict[int, Members] = {0: everyone}
        self._sets_ever = 1
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self.joined_device = torch.device("cpu")

    def members(self) -> dict[int, tuple[int, ...]]:
        """Ranks of each process set."""
        return {number: members.ranks for number, members in self.sets.items()}

    def add_set(self, ranks: tuple[int, ...]) -> int:
        """Add a process set, or reuse one with the same ranks. Returns its number.

        All ranks must call it.
        """
        for number, members in self.sets.items():
            if number and members.ranks == ranks:
                return number
        group = dist.new_group(list(ranks))
        self._sets_ever += 1
        self.sets[self._sets_ever - 1] = Members(ranks, group if self._rank in ranks else None)
        return self._sets_ever - 1

    def run(
        self, answers: Sequence[Response], own_operations: Mapping[tuple[int, str], Operation]
    ) -> None:
        """Run or fail each response.

        `own_operations` has this rank's operations by key. An exception ends the job.
        """
        batch: _Batch = []
        for answer in answers:
            operation = own_operations.get(answer.key)
            if answer.error:
                if operation:
                    operation.handle.fail(HorovodInternalError(answer.error))
                continue
            if operation is None:
                operation = self._make_for_joined(answer)
                if operation is None:
                    continue
            activity = NEGOTIATE.format(answer.request.kind.upper())
            end_s = time.monotonic()
            self._timeline.span(_label(answer.request), activity, operation.since_s, end_s)
            if batch and not self._fits(batch, answer, operation):
                self._all_reduce(batch)
                batch = []
            if answer.request.kind == OperationKind.ALLREDUCE:
                batch.append((answer, operation))
            else:
                self._run(answer, operation)
        if batch:
            self._all_reduce(batch)

    def _make_for_joined(self, answer: Response) -> Operation | None:
        """An operation on zeros, for a rank that has joined while others continue."""
        request = answer.request
        members = self.sets.get(request.set_id)
        if (
            request.kind != OperationKind.ALLREDUCE
            or members is None
            or self._rank not in members.ranks
        ):
            return None
        device = self.joined_device if request.device != "cpu" else torch.device("cpu")
        zeros = [
            torch.zeros(shape, dtype=dtype, device=device)
            for shape, dtype in zip(request.shapes, request.dtypes, strict=True)
        ]
        return Operation(request, zeros, zeros, device=device)

    def _fits(self, batch: _Batch, answer: Response, operation: Operation) -> bool:
        """Whether an operation can be fused with the batch."""
        first, new = batch[0][0].request, answer.request
        alike = ("kind", "set_id", "op", "prescale", "postscale", "device")
        if any(getattr(first, name) != getattr(new, name) for name in alike):
            return False
        if self._by_worker(first) or self._by_worker(new):
            return False
        if len({*first.dtypes, *new.dtypes}) > 1 or batch[0][1].device != operation.device:
            return False
        tensors = [tensor for _, other in batch for tensor in other.inputs] + [*operation.inputs]
        nbytes: int = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return nbytes <= self._fusion

    def _by_worker(self, request: Request) -> bool:
        """Whether a request is a gradient that the communication worker exchanges."""
        if not request.gradient or self._worker is None:
            return False
        nbytes = sum(
            math.prod(shape) * int(dtype.itemsize)
            for shape, dtype in zip(request.shapes, request.dtypes, strict=True)
        )
        settings = self._worker.settings
        method = settings.method_for(nbytes)
        return method != DENSE or (self._worker.mesh.two_d and settings.two_d_for(nbytes, method))

    def _all_reduce(self, batch: _Batch) -> None:
        """Fuse the batch into one all-reduce per element type."""
        request = batch[0][0].request
        tensors = [tensor for _, operation in batch for tensor in operation.inputs]
        outputs = [tensor for _, operation in batch for tensor in operation.outputs]
        group = self._group(request)
        with self._record_times(batch), self._use_stream(batch) as finished:
            for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
                chosen = [number for number, tensor in enumerate(tensors) if tensor.dtype == dtype]
                inputs = [tensors[number] for number in chosen]
                results = [outputs[number] for number in chosen]
                if self._by_worker(request):
                    names = [f"{request.name}.{number}" for number in chosen]
                    reduce = functools.partial(
                        self._exchange, names=names, shapes=[tensor.shape for tensor in inputs]
                    )
                else:
                    reduce = functools.partial(collectives.reduce_, request=request, group=group)
                collectives.reduce_fused(inputs, results, reduce)
        for _, operation in batch:
            self._finish(operation, list(operation.outputs), finished)

    def _exchange(
        self, flat: torch.Tensor, names: list[str], shapes: list[torch.Size]
    ) -> torch.Tensor:
        assert self._worker is not None
        self._worker.exchange(flat, names, shapes)
        return flat

    def _run(self, answer: Response, operation: Operation) -> None:
        request = answer.request
        if request.kind == OperationKind.BARRIER:
            operation.handle.finish(None)
        elif request.kind == OperationKind.JOIN:
            operation.handle.finish(list(answer.requests)[-1])
        elif request.kind == OperationKind.ADD_SET:
            operation.handle.finish(self.add_set(request.ranks))
        elif request.kind == OperationKind.REMOVE_SET:
            # The group itself stays: operations may still be queued on a GPU.
            operation.handle.finish(self.sets.pop(request.root, None) is not None)
        else:
            with (
                self._record_times([(answer, operation)]),
                self._use_stream([(answer, operation)]) as finished,
            ):
                results = [
                    self._run_tensor(answer, operation, number)
                    for number in range(len(operation.inputs))
                ]
            self._finish(operation, results, finished)

    def _run_tensor(self, answer: Response, operation: Operation, number: int) -> object:
        """Run an operation on one of its tensors. Returns the result for it."""
        request, tensor = answer.request, operation.inputs[number]
        group = self._group(request)
        ranks = self.sets[request.set_id].ranks
        if request.kind == OperationKind.ALLGATHER:
            return collectives.allgather(tensor, collectives.rows_of(answer, number, ranks), group)
        if request.kind == OperationKind.ALLTOALL:
            out, rows = collectives.alltoall(tensor, operation.splits, group)
            if not operation.counts_on:
                return out
            return out, torch.tensor(rows, dtype=torch.int32, device=operation.counts_on)
        if request.kind == OperationKind.REDUCESCATTER:
            return collectives.reducescatter(tensor, request, group)
        output = operation.outputs[number]
        if output is not tensor and self._rank == request.root:
            output.copy_(tensor)
        collectives.broadcast_(output, request.root, group)
        return output

    def _group(self, request: Request) -> dist.ProcessGroup:
        group = self.sets[request.set_id].group
        assert group is not None
        return group

    @contextlib.contextmanager
    def _record_times(self, batch: _Batch) -> Iterator[None]:
        begin_s = time.monotonic()
        yield
        end_s = time.monotonic()
        for answer, operation in batch:
            request, name = answer.request, answer.request.kind.upper()
            types = [str(dtype).removeprefix("torch.") for dtype in request.dtypes]
            shapes = [list(shape) for shape in request.shapes]
            self._timeline.span(_label(request), name, begin_s, end_s, dtype=types, shape=shapes)
            backend = "NCCL" if operation.device.type == "cuda" else "GLOO"
            activity = f"{backend}_{_ACTIVITIES.get(name, name)}"
            self._timeline.span(_label(request), activity, begin_s, end_s, fused=len(batch))

    @contextlib.contextmanager
    def _use_stream(self, batch: _Batch) -> Iterator["torch.cuda.Event | None"]:
        """A context in which a batch runs on a separate stream of its GPU.

        The stream waits for work that was queued before the calls. Yields an event that is recorded
        at the end of the context; None on a CPU.
        """
        device = batch[0][1].device
        if device.type != "cuda":
            with torch.no_grad():
                yield None
            return
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        stream, finished = self._streams[device], torch.cuda.Event()
        with torch.no_grad(), torch.cuda.device(device), torch.cuda.stream(stream):
            for _, operation in batch:
                if operation.begun is not None:
                    stream.wait_event(operation.begun)
                for tensor in (*operation.inputs, *operation.outputs):
                    tensor.record_stream(stream)
            yield finished
            finished.record(stream)

    def _finish(
        self, operation: Operation, results: list[object], finished: "torch.cuda.Event | None"
    ) -> None:
        results = list(operation.returned) or results
        operation.handle.finish(results if operation.grouped else results[0], finished)


def _label(request: Request) -> str:
    """The name of an operation in the timeline.

    It has the process set, since operations of several sets may have the same name at a time.
    """
    if not request.set_id:
        return request.name
    return f"{request.name} (process set {request.set_id})"
