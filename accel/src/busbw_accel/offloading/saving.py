"""States and weights of an offloaded AdamW in the form of torch's own."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from busbw.core.errors import UsageError
from busbw_accel.offloading.state_memory import OffloadedParameter, local_part

_NAMES = {"exp_avg": "moment", "exp_avg_sq": "square"}


def _shape(offloaded: OffloadedParameter) -> torch.Size:
    to_local = getattr(offloaded.parameter, "to_local", None)
    return (to_local() if to_local else offloaded.parameter).shape


def state_dict(
    parameters: Sequence[OffloadedParameter], groups: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The steps and moments in the form of torch.optim.AdamW.state_dict."""
    listed = [parameter for group in groups for parameter in group["params"]]
    order = {id(parameter): number for number, parameter in enumerate(listed)}
    state = {}
    for offloaded in parameters:
        if offloaded.step:
            moments = {
                name: getattr(offloaded.states, attribute).view(_shape(offloaded))
                for name, attribute in _NAMES.items()
            }
            step = torch.tensor(float(offloaded.step))
            state[order[id(offloaded.parameter)]] = {"step": step, **moments}
    plain = []
    for group in groups:
        numbers = [order[id(parameter)] for parameter in group["params"]]
        plain.append({**group, "params": numbers})
    return {"state": state, "param_groups": plain}


def load_state_dict(
    parameters: Sequence[OffloadedParameter],
    groups: Sequence[dict[str, Any]],
    saved: Mapping[str, Any],
) -> None:
    """Take moments, steps and hyperparameters. Raises UsageError before anything is changed."""
    sizes = [len(group["params"]) for group in saved["param_groups"]]
    counts = [len(group["params"]) for group in groups]
    if sizes != counts:
        raise UsageError(
            f"the state has groups of {sizes} parameters, and this optimizer of {counts}",
            "load the state of the same model",
        )
    keys = [key for group in saved["param_groups"] for key in group["params"]]
    listed = [parameter for group in groups for parameter in group["params"]]
    key_of = {id(parameter): key for key, parameter in zip(keys, listed, strict=True)}
    pairs = []
    for offloaded in parameters:
        key = key_of[id(offloaded.parameter)]
        pairs.append((offloaded, saved["state"].get(key)))
    for offloaded, state in pairs:
        for name in _NAMES if state else ():
            count = local_part(state[name]).numel()
            if count != offloaded.count:
                raise UsageError(
                    f"the state of {offloaded.name} has {count} elements in {name},"
                    f" and the parameter {offloaded.count}",
                    "load the state of the same model",
                )
    for offloaded, state in pairs:
        offloaded.step = int(state["step"]) if state else 0
        for name, attribute in _NAMES.items():
            target = getattr(offloaded.states, attribute)
            if state:
                target.copy_(local_part(state[name]))
            else:
                target.zero_()
    for group, loaded in zip(groups, saved["param_groups"], strict=True):
        group.update({key: value for key, value in loaded.items() if key != "params"})


def weights(parameters: Sequence[OffloadedParameter]) -> dict[str, torch.Tensor]:
    """The fp32 weights by name."""
    return {
        offloaded.name: offloaded.states.weight.view(_shape(offloaded))
        for offloaded in parameters
        if offloaded.states is not None
    }


def load_weights(
    parameters: Sequence[OffloadedParameter], by_name: Mapping[str, torch.Tensor]
) -> None:
    """Set weights by name. Raises UsageError before anything is changed."""
    for offloaded in parameters:
        name, shape = offloaded.name, _shape(offloaded)
        if name in by_name and by_name[name].shape == shape:
            continue
        problem = "is missing"
        if name in by_name:
            problem = f"has shape {list(by_name[name].shape)}"
        raise UsageError(
            f"{name} {problem} in the weights, and is {list(shape)} here",
            "load the weights of the same model",
        )
    for offloaded in parameters:
        assert offloaded.states is not None
        offloaded.states.weight.copy_(local_part(by_name[offloaded.name]))
        if offloaded.slot is not None:
            offloaded.slot.copy_(offloaded.states.weight)
        # else its weights are on the host until the unit runs
        if offloaded.local.untyped_storage().nbytes():
            offloaded.local.copy_(offloaded.states.weight)
