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

from busbw.core.errors import UsageError
from busbw_accel.attachment import refuse_local_steps
from busbw_accel.ddp import Attached, prepare, uncompiled
from busbw_accel.offloading.optimizer import OffloadedAdamW
from busbw_accel.offloading.settings import OffloadSettings
from busbw_accel.offloading.state_memory import (
    OffloadedParameter,
    Unit,
    choose,
    divide,
    local_part,
    owners,
)
from busbw_accel.offloading.streaming import Streamer
from busbw_accel.settings import Settings

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
    """Replace an AdamW by one whose fp32 weights and moments are in host memory.

    They take 14 bytes per parameter there, instead of 12 on the GPU. The model's parameters become
    bf16. Use the result as the optimizer: backward(), step(), zero_grad(), LR schedulers. Gradients
    are taken during backward, so clip by `max_norm`, not by clip_grad_norm_. Weights are updated
    while backward and the next forward run, and a module waits for its own. A parameter must only
    be used while its unit runs: a member of a ModuleList or Sequential, a module given to
    fully_shard, or else the whole model.

    `model` is on its device: plain, or in bf16 and wrapped in DistributedDataParallel or sharded by
    fully_shard without an offload policy. `exchange`: how gradients are averaged under
    DistributedDataParallel, as in `attach`, which must not be called then; None: uncompressed. For
    the other settings, see OffloadSettings.

    Raises:
        UsageError: the optimizer is no AdamW of all trained parameters, or a setting is invalid.
        NoMeasurement: host memory is too small or cannot be pinned; nothing has been changed then.
    """
    settings = OffloadSettings(max_norm, gpu_share, stream_weights, threads, skip_nonfinite)
    if isinstance(uncompiled(model), DistributedDataParallel):
        model = uncompiled(model)
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    _check(inner, optimizer)
    _check_combination(inner, stream_weights, exchange, wrapped=inner is not model)
    units = divide(inner)
    parameters = _collect_parameters(inner, optimizer, units)
    choose(parameters, gpu_share)
    device = parameters[0].local.device
    groups = [_without_kernels(group) for group in optimizer.param_groups]
    replacement = OffloadedAdamW(groups, parameters, units[0], device, settings)
    replacement.defaults = dict(optimizer.defaults)  # some schedulers read them
    _convert_to_bf16(inner, parameters)
    if optimizer.state:
        replacement.load_state_dict(optimizer.state_dict())
    if isinstance(model, DistributedDataParallel):
        replacement.at_end([_attach_to_ddp(model, replacement, exchange or Settings()).close])
    else:
        _remove_at_end(replacement, [_hook_gradient(replacement, item) for item in parameters])
    _hook_weights(inner, replacement, units)
    return replacement


def _hook_weights(model: nn.Module, optimizer: OffloadedAdamW, units: list[Unit]) -> None:
    """Add the hooks that bring weights in time, and take those that are loaded."""
    stream_weights = optimizer.settings.stream_weights
    if stream_weights:
        optimizer.at_end([Streamer(model, optimizer, units).close])
    else:
        _remove_at_end(optimizer, _hook_forwards(optimizer, units))
    _remove_at_end(optimizer, _hook_state_dicts(model, optimizer, adopt=not stream_weights))


def _remove_at_end(optimizer: OffloadedAdamW, handles: list[Any]) -> None:
    optimizer.at_end([handle.remove for handle in handles])


def _check_combination(
    model: nn.Module, stream_weights: bool, exchange: Settings | None, *, wrapped: bool
) -> None:
    """Check settings against the kind of model. `wrapped`: in DistributedDataParallel."""
    if exchange is not None:
        refuse_local_steps(exchange, "offload")
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if wrapped and any(parameter.dtype != torch.bfloat16 for parameter in trained):
        raise UsageError(
            "the model in DistributedDataParallel is not in bf16",
            "convert it with model.bfloat16() before it is wrapped",
        )
    if wrapped and stream_weights:
        raise UsageError(
            "stream_weights does not work under DistributedDataParallel",
            "shard the model by fully_shard, or leave it out",
        )
    if stream_weights and _has_shards(model):
        raise UsageError(
            "stream_weights does not work with fully_shard, which frees weights itself",
            "leave out one of them",
        )
    if exchange is not None and not wrapped:
        raise UsageError(
            "exchange is for DistributedDataParallel, and the model is not wrapped in it",
            "leave out exchange",
        )


def _without_kernels(group: dict[str, Any]) -> dict[str, Any]:
    """A parameter group without the options that select AdamW's kernels."""
    return {key: value for key, value in group.items() if key not in ("foreach", "fused")}


def _has_shards(model: nn.Module) -> bool:
    return any(isinstance(module, FSDPModule) for module in model.modules())


def _check(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    if any(isinstance(module, DistributedDataParallel) for module in model.modules()):
        raise UsageError(
            f"a part of the {type(model).__name__} is in DistributedDataParallel",
            "wrap the whole model: offload(DistributedDataParallel(model), ...)",
        )
    if type(optimizer) is not torch.optim.AdamW:
        raise UsageError(
            f"offload takes a torch.optim.AdamW, not a {type(optimizer).__name__}",
            "torch.optim.AdamW(model.parameters())",
        )
    used = [name for group in optimizer.param_groups for name in _UNSUPPORTED if group.get(name)]
    if used:
        raise UsageError(f"offload does not support AdamW's {used[0]}", f"leave out {used[0]}")
    given_ids = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    missing = [
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and id(parameter) not in given_ids
    ]
    foreign = given_ids - {id(parameter) for parameter in model.parameters()}
    if missing or foreign:
        problem = f"{len(foreign)} parameters are not of the model"
        if missing:
            problem = f"{missing[0]} is not among the optimizer's parameters"
        raise UsageError(problem, "make the optimizer of all trained parameters of the model")
    if getattr(optimizer.step, "_wrapped_by_lr_sched", False):
        raise UsageError(
            "a scheduler was made of the given AdamW and would not reach the new one",
            "make it of what offload returns",
        )
    _check_parameters(model)
    narrow = all(parameter.dtype == torch.bfloat16 for parameter in model.parameters())
    if not narrow and _has_shards(model):
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


def _collect_parameters(
    model: nn.Module, optimizer: torch.optim.AdamW, units: list[Unit]
) -> list[OffloadedParameter]:
    """The optimizer's parameters that are trained, in the order of the model."""
    group_of = {
        id(parameter): number
        for number, group in enumerate(optimizer.param_groups)
        for parameter in group["params"]
    }
    belongs = owners(units)
    result: list[OffloadedParameter] = []
    for name, parameter in model.named_parameters():
        if id(parameter) in group_of and parameter.requires_grad:
            unit = belongs[id(parameter)]
            offloaded = OffloadedParameter(
                name, parameter, group_of[id(parameter)], len(result), unit, local_part(parameter)
            )
            unit.parameters.append(offloaded)
            result.append(offloaded)
    if not result:
        raise UsageError("the model has no trained parameters", "offload a model that trains")
    return result


def _convert_to_bf16(model: nn.Module, parameters: list[OffloadedParameter]) -> None:
    """Convert all parameters to bf16 on the device, frozen ones too.

    The fp32 values of the trained ones were copied before.
    """
    for parameter in model.parameters():
        if parameter.dtype in (torch.float16, torch.float32, torch.float64):
            parameter.data = parameter.data.to(torch.bfloat16)
    for offloaded in parameters:
        offloaded.local = local_part(offloaded.parameter)


def _hook_state_dicts(model: nn.Module, optimizer: OffloadedAdamW, *, adopt: bool) -> list[Any]:
    """Make each state_dict of the model, or of a module in it, wait for its weights.

    `adopt`: training continues from weights that are loaded into a module. Returns the handles of
    the hooks.
    """
    by_id = {id(offloaded.parameter): offloaded for offloaded in optimizer.parameters}
    handles: list[Any] = []
    for module in model.modules():
        by_name = {
            name: by_id[id(parameter)]
            for name, parameter in module.named_parameters(recurse=False)
            if id(parameter) in by_id
        }
        if not by_name:
            continue

        def wait(*_: object, by_name: dict[str, OffloadedParameter] = by_name) -> None:
            optimizer.ready(list(by_name.values()))

        def take(
            module: nn.Module, _: Any, by_name: dict[str, OffloadedParameter] = by_name
        ) -> None:
            _adopt(optimizer, module, by_name)

        handles.append(module.register_state_dict_pre_hook(wait))
        if adopt:
            handles.append(module.register_load_state_dict_post_hook(take))
    return handles


def _adopt(
    optimizer: OffloadedAdamW, module: nn.Module, by_name: dict[str, OffloadedParameter]
) -> None:
    for name, offloaded in by_name.items():
        parameter = offloaded.parameter
        if not isinstance(parameter, DTensor) and getattr(module, name) is not parameter:
            raise UsageError(
                f"load_state_dict replaced the parameter {offloaded.name}",
                "load without assign=True, or load before offload",
            )
    optimizer.adopt(list(by_name.values()))


def _hook_gradient(optimizer: OffloadedAdamW, offloaded: OffloadedParameter) -> Any:
    """Take the gradient of a parameter once it is complete. Returns the handle of the hook.

    Python's garbage collector does not see what such a hook refers to. If it referred to the
    optimizer or the module, they would never be freed.
    """
    reference, index = weakref.ref(optimizer), offloaded.index

    def hook(parameter: torch.Tensor) -> None:
        live, gradient = reference(), parameter.grad
        if live is None or gradient is None:
            return
        offloaded = live.parameters[index]
        if live.accumulates:
            live.accumulated(offloaded)
            return
        parameter.grad = None
        live.collect(offloaded, local_part(gradient))

    return offloaded.parameter.register_post_accumulate_grad_hook(hook)


def _hook_forwards(optimizer: OffloadedAdamW, units: list[Unit]) -> list[Any]:
    """Make each unit wait for its weights before it runs. Returns the handles of the hooks.

    The hooks run before those of fully_shard.
    """

    def wait_before(unit: Unit) -> Any:
        @torch.compiler.disable
        def hook(*_: object) -> None:
            unit.called = True
            needed: list[OffloadedParameter] = []
            for gathered in _gathered_with(unit, units):
                needed += gathered.parameters
            optimizer.ready(needed)

        return hook

    return [
        unit.module.register_forward_pre_hook(wait_before(unit), prepend=True)
        for unit in units
        if unit.parameters or not unit.order
    ]


def _gathered_with(unit: Unit, units: list[Unit]) -> list[Unit]:
    """The units whose weights are read when this one runs.

    fully_shard may gather the weights of several modules at once, and prefetch those of others.
    """
    if not isinstance(unit.module, FSDPModule):
        return [unit]
    state = unit.module._get_fsdp_state()
    states = [state, *state._states_to_forward_prefetch]
    return [
        other
        for other in units
        if isinstance(other.module, FSDPModule) and other.module._get_fsdp_state() in states
    ]


def _attach_to_ddp(
    model: DistributedDataParallel, optimizer: OffloadedAdamW, exchange: Settings
) -> Attached:
    """Take the gradients of a bucket when they have been averaged over the ranks."""
    by_id = {id(offloaded.parameter): offloaded for offloaded in optimizer.parameters}
    attached = prepare(model, exchange)

    def hook(_: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        parameters = bucket.parameters()

        def collect(average: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
            flat = average.value()
            gradients = flat.split([parameter.numel() for parameter in parameters])
            for parameter, gradient in zip(parameters, gradients, strict=True):
                optimizer.collect(by_id[id(parameter)], gradient, borrowed=True)
            return flat

        return attached.exchange(bucket).then(collect)

    model.register_comm_hook(None, hook)
    return attached
