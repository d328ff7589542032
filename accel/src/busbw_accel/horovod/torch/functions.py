"""Broadcasts parameters, optimizer states and Python objects, and gathers objects."""

import dataclasses
import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from busbw_accel.horovod.torch import calls, context
from busbw_accel.horovod.torch.calls import Call
from busbw_accel.horovod.torch.context import ProcessSet, global_process_set
from busbw_accel.horovod.torch.errors import Refused
from busbw_accel.horovod.torch.requests import OperationKind


def broadcast_parameters(params: Any, root_rank: int) -> None:
    """Overwrite tensors with those of `root_rank`.

    `params`: a state_dict, named_parameters() or parameters().

    Raises:
        Refused: `params` is something else.
    """
    if isinstance(params, Mapping):
        named = sorted(params.items())
    elif isinstance(params, Iterable) and not isinstance(params, str | bytes | torch.Tensor):
        named = [item if isinstance(item, tuple) else (None, item) for item in params]
    else:
        raise Refused(
            f"broadcast_parameters of a {type(params).__name__}",
            "give model.state_dict() or model.named_parameters()",
        )
    begun = []
    for name, tensor in named:
        if tensor is None:
            continue
        sent = tensor
        if not isinstance(tensor, torch.Tensor) or not tensor.is_contiguous():
            sent = _contiguous(name, tensor)
        call = Call(OperationKind.BROADCAST, in_place=True, name=name, root=root_rank)
        begun.append((tensor, sent, calls.begin(call, [sent])))
    for tensor, sent, number in begun:
        context.handles.synchronize(number)
        if sent is not tensor:
            tensor.detach().copy_(sent)


def _contiguous(name: str | None, tensor: Any) -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor):
        raise Refused(
            f"{name} is a {type(tensor).__name__}, not a tensor", "use broadcast_object for it"
        )
    return tensor.detach().contiguous()


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Broadcast an optimizer's state and options from `root_rank`. `model` is ignored.

    Raises:
        Refused: the optimizer is LBFGS, whose state cannot be broadcast.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise Refused(
            "the state of LBFGS cannot be broadcast",
            "use another optimizer, or broadcast_object of what you need",
        )
    state, tensors = optimizer.state_dict(), list[torch.Tensor]()
    bare = broadcast_object(_without_tensors(state, tensors), root_rank, "optimizer state")
    if context.rank() != root_rank:
        tensors = []
        state = _with_tensors(bare, tensors, _devices(optimizer))
    named = [(f"optimizer state.{number}", tensor) for number, tensor in enumerate(tensors)]
    broadcast_parameters(named, root_rank)
    if context.rank() != root_rank:
        optimizer.load_state_dict(state)


class _Hole(tuple[Any, ...]):
    """A placeholder for a tensor: shape, element type, device type."""

    __slots__ = ()


def _without_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    """A copy of a value with placeholders for its tensors, which are appended to `tensors`."""
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach().contiguous())
        return _Hole((tuple(value.shape), value.dtype, value.device.type))
    if isinstance(value, dict):
        return {key: _without_tensors(item, tensors) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_without_tensors(item, tensors) for item in value)
    return value


def _with_tensors(
    value: Any, tensors: list[torch.Tensor], devices: Mapping[str, torch.device]
) -> Any:
    """A copy of a value with new tensors for placeholders, which are appended to `tensors`."""
    if isinstance(value, _Hole):
        shape, dtype, device = value
        tensors.append(torch.empty(shape, dtype=dtype, device=devices.get(device, device)))
        return tensors[-1]
    if isinstance(value, dict):
        return {key: _with_tensors(item, tensors, devices) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_with_tensors(item, tensors, devices) for item in value)
    return value


def _devices(optimizer: torch.optim.Optimizer) -> dict[str, torch.device]:
    return {
        tensor.device.type: tensor.device
        for group in optimizer.param_groups
        for tensor in group["params"]
    }


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Broadcast a picklable object from `root_rank` (a rank of the job) to the ranks of the set."""
    data = _pickled(obj) if context.rank() == root_rank else torch.empty(0, dtype=torch.uint8)
    size = torch.tensor([data.numel()])
    call = Call(OperationKind.BROADCAST, in_place=True, root=root_rank, process_set=process_set)
    name = name or "object"
    context.handles.synchronize(calls.begin(dataclasses.replace(call, name=f"{name}.size"), [size]))
    if context.rank() != root_rank:
        data = torch.empty(int(size), dtype=torch.uint8)
    context.handles.synchronize(calls.begin(dataclasses.replace(call, name=f"{name}.data"), [data]))
    return obj if context.rank() == root_rank else pickle.loads(data.numpy().tobytes())


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """Gather one picklable object from each rank."""
    data, name = _pickled(obj), name or "object"
    size = torch.tensor([data.numel()])
    sizes = context.handles.synchronize(
        calls.begin(Call(OperationKind.ALLGATHER, name=f"{name}.size"), [size])
    )
    gathered = context.handles.synchronize(
        calls.begin(Call(OperationKind.ALLGATHER, name=f"{name}.data"), [data])
    )
    return [pickle.loads(part.numpy().tobytes()) for part in gathered.split(sizes.tolist())]


def _pickled(obj: Any) -> torch.Tensor:
    return torch.frombuffer(bytearray(pickle.dumps(obj)), dtype=torch.uint8)
