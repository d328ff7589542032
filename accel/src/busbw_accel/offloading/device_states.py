"""AdamW over fp32 states on the device, for the share of the parameters that stays there."""

import torch

from busbw_accel.host_adam import Rule
from busbw_accel.offloading.state_memory import OffloadedParameter


def update(
    offloaded: OffloadedParameter, gradient: torch.Tensor, rule: Rule, found_inf: torch.Tensor
) -> None:
    """Update weight and moments by a flat bf16 gradient.

    It is done in pieces, so that the fp32 form of the gradient needs little memory. `found_inf`:
    1.0 skips the update, 0.0 makes it; the host does not wait for the value.
    """
    states = offloaded.states
    assert states is not None
    # torch.tensor would copy the number to the device, behind the weights on their way up.
    step = torch.full((), float(rule.step), device=gradient.device)
    for part in offloaded.pieces():
        wide = gradient[part].float()
        if rule.scale != 1:
            wide *= rule.scale
        torch._fused_adamw_(
            [states.weight[part]],
            [wide],
            [states.moment[part]],
            [states.square[part]],
            [],
            [step],
            lr=rule.lr,
            beta1=rule.betas[0],
            beta2=rule.betas[1],
            weight_decay=rule.weight_decay,
            eps=rule.eps,
            amsgrad=False,
            maximize=False,
            found_inf=found_inf,
        )
        offloaded.local[part].copy_(states.weight[part])
