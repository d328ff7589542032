"""Checks the arguments of a call and submits the operation."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from busbw_accel.horovod.torch import context, requests
from busbw_accel.horovod.torch.context import ProcessSet, global_process_set
from busbw_accel.horovod.torch.errors import HorovodInternalError, Refused, Unsupported
from busbw_accel.horovod.torch.executor import Operation
from busbw_accel.horovod.torch.requests import OperationKind, Request

Splits: TypeAlias = "torch.Tensor | Sequence[int] | None"
_REDUCING = (OperationKind.ALLREDUCE, OperationKind.REDUCESCATTER)


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of one call, except its tensors."""

    kind: OperationKind
    grouped: bool = False
    in_place: bool = False
    name: str | None = None
    op: int = requests.Sum
    root: int = -1
    splits: Splits = None
    # The result of an all-to-all includes the number of rows received from each rank.
    tells_splits: bool = False
    prescale: float = 1.0
    postscale: float = 1.0
    process_set: ProcessSet = global_process_set
    gradient: bool = False


def reduction(op: int | None, average: bool | None) -> int:
    """The reduction operator. `average` is the deprecated argument for it.

    Raises:
        Refused: both are given, or the operator is unknown.
    """
    if average is not None:
        if op is not None:
            raise Refused("both op and average are given", "give op alone")
        warnings.warn(
            "the argument average has been replaced by op", DeprecationWarning, stacklevel=2
        )
        return requests.Average if average else requests.Sum
    chosen = requests.Average if op is None else op
    if chosen not in requests.NAMES:
        raise Refused(
            f"unknown op {chosen!r}", f"give one of hvd.{', hvd.'.join(requests.NAMES.values())}"
        )
    if chosen == requests.Adasum:
        raise Unsupported("Adasum is not supported", "use op=hvd.Average")
    return chosen


def begin(call: Call, tensors: Sequence[torch.Tensor]) -> int:
    """Submit an operation. Returns its handle number. A call that fails uses up a number too.

    Raises:
        Refused: invalid arguments, or a name that is still in use.
        HorovodInternalError: tensors of several devices, or the job has ended.
    """
    current, number = context.current(), context.handles.number()
    _check_all(tensors, call)
    set_id = call.process_set.number()
    if not call.process_set.included():
        raise Refused(
            f"rank {current.info.rank} is not in {call.process_set}",
            "check process_set.included() first",
        )
    prefix = f"grouped_{call.kind}" if call.grouped else str(call.kind)
    inputs = [tensor.detach() for tensor in tensors]
    averages = call.op == requests.Average and set_id == 0
    gradient = call.gradient and averages and current.worker is not None
    request = Request(
        kind=call.kind,
        name=f"{prefix}.{call.name or f'noname.{number}'}",
        set_id=set_id,
        shapes=tuple(tuple(tensor.shape) for tensor in inputs),
        dtypes=tuple(tensor.dtype for tensor in inputs),
        device=inputs[0].device.type,
        op=call.op,
        root=call.root,
        prescale=call.prescale,
        postscale=call.postscale,
        gradient=gradient,
    )
    outputs: Sequence[torch.Tensor] = ()
    if call.kind in (OperationKind.ALLREDUCE, OperationKind.BROADCAST):
        outputs = inputs if call.in_place else [torch.empty_like(tensor) for tensor in inputs]
    splits = _splits(call, inputs[0]) if call.kind == OperationKind.ALLTOALL else ()
    operation = Operation(
        request, inputs, outputs, splits, _device_of_counts(call), inputs[0].device, call.grouped
    )
    if call.in_place:
        operation.returned = tensors
    return _submit(current, number, operation)


def control(
    kind: OperationKind,
    process_set: ProcessSet = global_process_set,
    ranks: tuple[int, ...] = (),
    root: int = -1,
) -> Any:
    """Run an operation without tensors on all ranks and return its result."""
    current, number = context.current(), context.handles.number()
    request = Request(kind, str(kind), process_set.number(), ranks=ranks, root=root)
    return context.handles.synchronize(_submit(current, number, Operation(request)))


def _submit(current: context.Context, number: int, operation: Operation) -> int:
    if operation.device.type == "cuda":
        operation.begun = torch.cuda.Event()
        operation.begun.record(torch.cuda.current_stream(operation.device))
    current.controller.submit(operation)
    return context.handles.hold(number, operation.handle)


def _device_of_counts(call: Call) -> torch.device | None:
    """The device of the row counts that an all-to-all returns; None: it does not return them."""
    if not call.tells_splits:
        return None
    return call.splits.device if isinstance(call.splits, torch.Tensor) else torch.device("cpu")


def _check_all(tensors: Sequence[torch.Tensor], call: Call) -> None:
    for tensor in tensors:
        _check(tensor, call)
    if not tensors:
        raise Refused(f"{call.kind} without a tensor", "give at least one")
    devices = {str(tensor.device): None for tensor in tensors}
    if len(devices) > 1:
        # Horovod raises an error of this type.
        raise HorovodInternalError(
            f"{call.kind} of tensors on {', '.join(devices)}", "use tensors on one device"
        )


def _check(tensor: Any, call: Call) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise Refused(f"{call.kind} of a {type(tensor).__name__}", "give a tensor")
    if tensor.layout != torch.strided:
        raise Refused(
            f"{call.kind} of a {tensor.layout} tensor",
            "use sparse_allreduce_async, or tensor.to_dense()",
        )
    if tensor.device.type not in ("cpu", "cuda"):
        raise Refused(f"{call.kind} of a tensor on {tensor.device}", "move it to the CPU or a GPU")
    if tensor.dtype not in requests.DTYPES and call.kind in _REDUCING:
        raise Refused(
            f"{call.kind} of {tensor.dtype} is not possible",
            f"use one of {', '.join(map(str, requests.DTYPES))}",
        )
    if not tensor.is_contiguous():
        raise Refused(
            f"{call.kind} of a tensor that is not contiguous: strides {tensor.stride()}",
            "give tensor.contiguous()",
        )


def _splits(call: Call, tensor: torch.Tensor) -> list[int]:
    """The number of rows for each rank."""
    ranks, rows = call.process_set.size(), tensor.shape[0] if tensor.dim() else 0
    if call.splits is None:
        if rows % ranks:
            raise Refused(
                f"{rows} rows cannot be divided evenly among {ranks} ranks", "give splits"
            )
        return [rows // ranks] * ranks
    counts = call.splits if isinstance(call.splits, torch.Tensor) else torch.tensor(call.splits)
    if counts.is_floating_point() or counts.dtype == torch.bool or counts.dim() != 1:
        raise Refused(
            f"splits are {counts.dtype} in {counts.dim()} dimensions",
            "give one whole number for each rank",
        )
    splits = [int(number) for number in counts.tolist()]
    if len(splits) != ranks or min(splits) < 0 or sum(splits) > rows:
        raise Refused(
            f"splits {splits} of {rows} rows over {ranks} ranks",
            f"give {ranks} numbers whose sum is at most {rows}",
        )
    return splits
