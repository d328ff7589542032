"""States and weights of an offloaded AdamW in the form of torch's own."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from busbw.accel.offloading.placement import Offloaded, local_part
from busbw.core.errors import UsageError

_NAMES = {"exp_avg": "moment", "exp_avg_sq": "square"}


def _shape(one: Offloaded) -> torch.Size:
    """Of this rank's part."""
    to_local = getattr(one.parameter, "to_local", None)
    return (to_local() if to_local else one.parameter).shape


def state_dict(
    parameters: Sequence[Offloaded], groups: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """In the form of torch.optim.AdamW.state_dict."""
    order = {
        id(parameter): number
        for number, parameter in enumerate(
            parameter for group in groups for parameter in group["params"]
        )
    }
    state = {}
    for one in parameters:
        if one.step:
            moments = {
                name: getattr(one.states, own).view(_shape(one)) for name, own in _NAMES.items()
            }
            state[order[id(one.parameter)]] = {"step": torch.tensor(float(one.step)), **moments}
    plain = [
        {**group, "params": [order[id(parameter)] for parameter in group["params"]]}
        for group in groups
    ]
    return {"state": state, "param_groups": plain}


def load_state_dict(
    parameters: Sequence[Offloaded], groups: Sequence[dict[str, Any]], found: Mapping[str, Any]
) -> None:
    """Take moments, steps and hyperparameters. Raises UsageError before anything is changed."""
    sizes = [len(group["params"]) for group in found["param_groups"]]
    if sizes != [len(group["params"]) for group in groups]:
        here = [len(group["params"]) for group in groups]
        raise UsageError(
            f"the state has groups of {sizes} parameters, and this optimizer of {here}",
            "load the state of the same model",
        )
    keys = [key for group in found["param_groups"] for key in group["params"]]
    mine = {
        id(parameter): key
        for key, parameter in zip(
            keys, (one for group in groups for one in group["params"]), strict=True
        )
    }
    pairs = [(one, found["state"].get(mine[id(one.parameter)])) for one in parameters]
    for one, state in pairs:
        for name in _NAMES if state else ():
            count = local_part(state[name]).numel()
            if count != one.count:
                raise UsageError(
                    f"the state of {one.name} has {count} elements in {name}, and the parameter"
                    f" {one.count}",
                    "load the state of the same model",
                )
    for one, state in pairs:
        one.step = int(state["step"]) if state else 0
        for name, own in _NAMES.items():
            target = getattr(one.states, own)
            target.copy_(local_part(state[name])) if state else target.zero_()
    for group, loaded in zip(groups, found["param_groups"], strict=True):
        group.update({key: value for key, value in loaded.items() if key != "params"})


def weights(parameters: Sequence[Offloaded]) -> dict[str, torch.Tensor]:
    """The fp32 weights by name."""
    return {
        one.name: one.states.weight.view(_shape(one))
        for one in parameters
        if one.states is not None
    }


def load_weights(parameters: Sequence[Offloaded], found: Mapping[str, torch.Tensor]) -> None:
    """Set weights by name. Raises UsageError before anything is changed."""
    for one in parameters:
        if one.name not in found or found[one.name].shape != _shape(one):
            seen = f"has shape {list(found[one.name].shape)}" if one.name in found else "is missing"
            raise UsageError(
                f"{one.name} {seen} in the weights, and is {list(_shape(one))} here",
                "load the weights of the same model",
            )
    for one in parameters:
        assert one.states is not None
        one.states.weight.copy_(local_part(found[one.name]))
        if one.slot is not None:
            one.slot.copy_(one.states.weight)
        # else its weights are on the host until the unit runs
        if one.local.untyped_storage().nbytes():
            one.local.copy_(one.states.weight)
