"""Attaches an offloaded AdamW to a model: plain, under DistributedDataParallel, or sharded by
fully_shard.
"""

import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from busbw.accel.ddp import Attached, prepare
from busbw.accel.offloading.optimizer import OffloadedAdamW
from busbw.accel.offloading.placement import Offloaded, Unit, choose, divide, local_part, owners
from busbw.accel.offloading.settings import OffloadSettings
from busbw.accel.offloading.streaming import Streamer
from busbw.accel.settings import Settings
from busbw.core.errors import UsageError

_UNSUPPORTED = ("amsgrad", "maximize", "differentiable")


def offload(
    model: nn.Module,
    optimizer: torch.optim.AdamW,
    *,
    max_norm: float | None,
    gpu_share: float = 0.0,
    stream_weights: bool = False,
    threads: int = 0,
    skip_nonfinite: bool = False,
    exchange: Settings | None = None,
) -> OffloadedAdamW:
    """Replace an AdamW by one whose fp32 weights and moments live in host memory: 14 bytes per
    parameter there, instead of 12 on the GPU.

    The model's parameters become bf16. Use the result as the optimizer: backward(), step(),
    zero_grad(), LR schedulers. Gradients are taken during backward, and parameters have none
    afterwards: clip by `max_norm`, not by clip_grad_norm_. Weights are updated while backward and
    the next forward run; a module waits for its own. A parameter must be used only while its unit
    runs: a member of a ModuleList or Sequential, a module given to fully_shard, or else the whole
    model.

    `model` is on its device: plain, or in bf16 and wrapped in DistributedDataParallel or sharded by
    fully_shard without an offload policy. `max_norm`, `gpu_share`, `stream_weights`, `threads`,
    `skip_nonfinite`: see OffloadSettings. `exchange`: how gradients are averaged under
    DistributedDataParallel, as in `attach`, which must not be called then; None: uncompressed.

    Raises:
        UsageError: the optimizer is no plain AdamW of all trained parameters, or a setting is
            invalid.
        NoMeasurement: host memory is too small or cannot be pinned; nothing has been changed then.
    """
    settings = OffloadSettings(max_norm, gpu_share, stream_weights, threads, skip_nonfinite)
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    _check(inner, optimizer)
    if inner is not model and any(
        one.requires_grad and one.dtype != torch.bfloat16 for one in inner.parameters()
    ):
        raise UsageError(
            "the model in DistributedDataParallel is not in bf16",
            "convert it with model.bfloat16() before it is wrapped",
        )
    if stream_weights and inner is not model:
        raise UsageError(
            "stream_weights does not work under DistributedDataParallel",
            "shard the model by fully_shard, or leave it out",
        )
    if stream_weights and any(isinstance(module, FSDPModule) for module in inner.modules()):
        raise UsageError(
            "stream_weights does not work with fully_shard, which frees weights itself",
            "leave out one of them",
        )
    if exchange is not None and inner is model:
        raise UsageError(
            "exchange is for DistributedDataParallel, and the model is not wrapped in it",
            "leave out exchange",
        )
    units = divide(inner)
    parameters = _parameters(inner, optimizer, units)
    choose(parameters, gpu_share)
    device = parameters[0].local.device
    groups = [
        {key: value for key, value in group.items() if key not in ("foreach", "fused")}
        for group in optimizer.param_groups
    ]
    made = OffloadedAdamW(groups, parameters, units[0], device, settings)
    made.defaults = dict(optimizer.defaults)  # some schedulers read them
    _narrow(inner, parameters)
    if optimizer.state:
        made.load_state_dict(optimizer.state_dict())
    if isinstance(model, DistributedDataParallel):
        made.at_end([_under_ddp(model, made, exchange or Settings()).close])
    else:
        made.at_end(
            [
                one.parameter.register_post_accumulate_grad_hook(_collector(made, one)).remove
                for one in parameters
            ]
        )
    if stream_weights:
        made.at_end([Streamer(inner, made, units).close])
    else:
        made.at_end([handle.remove for handle in _waits(made, units)])
    made.at_end([handle.remove for handle in _loads(inner, made, adopt=not stream_weights)])
    return made


def _check(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    if type(optimizer) is not torch.optim.AdamW:
        raise UsageError(
            f"offload takes a torch.optim.AdamW, not a {type(optimizer).__name__}",
            "torch.optim.AdamW(model.parameters())",
        )
    used = [name for group in optimizer.param_groups for name in _UNSUPPORTED if group.get(name)]
    if used:
        raise UsageError(f"offload does not support AdamW's {used[0]}", f"leave out {used[0]}")
    given = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    missing = [
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and id(parameter) not in given
    ]
    strange = given - {id(parameter) for parameter in model.parameters()}
    if missing or strange:
        what = (
            f"{missing[0]} is not among the optimizer's parameters"
            if missing
            else f"{len(strange)} parameters are not of the model"
        )
        raise UsageError(what, "make the optimizer of all trained parameters of the model")
    if getattr(optimizer.step, "_wrapped_by_lr_sched", False):
        raise UsageError(
            "a scheduler was made of the given AdamW and would not reach the new one",
            "make it of what offload returns",
        )
    _check_parameters(model)
    narrow = all(parameter.dtype == torch.bfloat16 for parameter in model.parameters())
    if not narrow and any(isinstance(module, FSDPModule) for module in model.modules()):
        raise UsageError(
            "the sharded model is not in bf16",
            "convert it with model.bfloat16() before fully_shard",
        )
    devices = {str(parameter.device) for parameter in model.parameters()}
    if len(devices) > 1 or devices & {"meta"}:
        raise UsageError(
            f"the model's parameters are on {', '.join(sorted(devices))}",
            "move the model to one GPU first",
        )


def _check_parameters(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not (
            parameter.is_floating_point() and parameter.is_contiguous()
        ):
            kind = "not contiguous" if parameter.is_floating_point() else f"of {parameter.dtype}"
            raise UsageError(
                f"the parameter {name} is {kind}",
                "offload takes real parameters that are contiguous in memory",
            )
    for name, module in model.named_modules():
        if (
            isinstance(module, nn.Embedding | nn.EmbeddingBag)
            and module.sparse
            and module.weight.requires_grad
        ):
            raise UsageError(
                f"{name} has sparse gradients, and offload takes dense ones",
                "leave out sparse=True",
            )


def _parameters(
    model: nn.Module, optimizer: torch.optim.AdamW, units: list[Unit]
) -> list[Offloaded]:
    """The optimizer's parameters that are trained, in the order of the model."""
    group_of = {
        id(parameter): number
        for number, group in enumerate(optimizer.param_groups)
        for parameter in group["params"]
    }
    belongs = owners(units)
    found: list[Offloaded] = []
    for name, parameter in model.named_parameters():
        if id(parameter) in group_of and parameter.requires_grad:
            unit = belongs[id(parameter)]
            one = Offloaded(
                name, parameter, group_of[id(parameter)], len(found), unit, local_part(parameter)
            )
            unit.parameters.append(one)
            found.append(one)
    if not found:
        raise UsageError("the model has no trained parameters", "offload a model that trains")
    return found


def _narrow(model: nn.Module, parameters: list[Offloaded]) -> None:
    """Make all parameters bf16 on the device, frozen ones too.

    The fp32 values of trained ones have been copied.
    """
    for parameter in model.parameters():
        if parameter.dtype in (torch.float16, torch.float32, torch.float64):
            parameter.data = parameter.data.to(torch.bfloat16)
    for one in parameters:
        one.local = local_part(one.parameter)


def _loads(model: nn.Module, made: OffloadedAdamW, *, adopt: bool) -> list[Any]:
    """A state_dict of the model, or of a module in it, waits for its weights; what is loaded
    into it is trained on.
    """
    by_id = {id(one.parameter): one for one in made.parameters}
    handles: list[Any] = []
    for module in model.modules():
        own = {
            name: by_id[id(one)]
            for name, one in module.named_parameters(recurse=False)
            if id(one) in by_id
        }
        if own:
            handles.append(
                module.register_state_dict_pre_hook(
                    lambda *_, own=own: made.ready(list(own.values()))
                )
            )
            if adopt:
                handles.append(
                    module.register_load_state_dict_post_hook(
                        lambda module, _, own=own: _adopt(made, module, own)
                    )
                )
    return handles


def _adopt(made: OffloadedAdamW, module: nn.Module, own: dict[str, Offloaded]) -> None:
    for name, one in own.items():
        if not isinstance(one.parameter, DTensor) and getattr(module, name) is not one.parameter:
            raise UsageError(
                f"load_state_dict replaced the parameter {one.name}",
                "load without assign=True, or load before offload",
            )
    made.adopt(list(own.values()))


def _collector(made: OffloadedAdamW, one: Offloaded) -> Any:
    """Takes the gradient of a parameter once it is complete.

    Python does not see what such a hook refers to: with the optimizer or the module in it, all of
    them would stay for ever.
    """
    reference, index = weakref.ref(made), one.index

    def hook(parameter: torch.Tensor) -> None:
        optimizer, gradient = reference(), parameter.grad
        if optimizer is None or gradient is None:
            return
        one = optimizer.parameters[index]
        if optimizer.accumulates:
            optimizer.accumulated(one)
            return
        parameter.grad = None
        optimizer.collect(one, local_part(gradient))

    return hook


def _waits(made: OffloadedAdamW, units: list[Unit]) -> list[Any]:
    """Before a unit runs, its weights must have come. Comes before what fully_shard does there."""

    def before(unit: Unit) -> Any:
        @torch.compiler.disable
        def hook(*_: object) -> None:
            unit.called = True
            made.ready([one for needed in _gathered_with(unit, units) for one in needed.parameters])

        return hook

    return [
        unit.module.register_forward_pre_hook(before(unit), prepend=True)
        for unit in units
        if unit.parameters or not unit.order
    ]


def _gathered_with(unit: Unit, units: list[Unit]) -> list[Unit]:
    """The units whose weights are read when this one runs: fully_shard gathers those of several
    modules at once, and prefetches others.
    """
    if not isinstance(unit.module, FSDPModule):
        return [unit]
    state = unit.module._get_fsdp_state()
    states = [state, *state._states_to_forward_prefetch]
    return [
        one
        for one in units
        if isinstance(one.module, FSDPModule) and one.module._get_fsdp_state() in states
    ]


def _under_ddp(
    model: DistributedDataParallel, made: OffloadedAdamW, exchange: Settings
) -> Attached:
    """Take gradients when their bucket has been averaged."""
    by_id = {id(one.parameter): one for one in made.parameters}
    attached = prepare(model, exchange)

    def hook(_: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        parameters = bucket.parameters()

        def averaged(done: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
            flat = done.value()
            for parameter, gradient in zip(
                parameters, flat.split([one.numel() for one in parameters]), strict=True
            ):
                made.collect(by_id[id(parameter)], gradient, borrowed=True)
            return flat

        return attached.exchange(bucket).then(averaged)

    model.register_comm_hook(None, hook)
    return attached
