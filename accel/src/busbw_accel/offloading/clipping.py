"""Refuses torch's functions that clip gradients which an offloaded optimizer has taken.

After backward, parameters have no gradient: these functions would do nothing, and return a norm
of 0.
"""

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch.nn.utils import clip_grad

from busbw.core.errors import UsageError

# Programs may have imported clip_grad_norm_ before, but it looks up the first of these when it
# runs.
_FUNCTIONS = ("_clip_grads_with_norm_", "clip_grad_value_")


class GradientTaker(Protocol):
    """An optimizer that takes gradients."""

    def has_taken(self, parameter: torch.Tensor) -> bool:
        """Whether it has taken the gradient since the last step."""


_takers: "weakref.WeakSet[GradientTaker]" = weakref.WeakSet()


def refuse(taker: GradientTaker) -> None:
    """Refuse from now on to clip gradients that `taker` has taken."""
    _takers.add(taker)
    _wrap_functions()


@functools.cache
def _wrap_functions() -> None:
    for name in _FUNCTIONS:
        original = getattr(clip_grad, name)
        checked = _checked(original)
        for module in (clip_grad, torch.nn.utils):
            if getattr(module, name, None) is original:
                setattr(module, name, checked)


def _checked(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def clip(
        parameters: torch.Tensor | Iterable[torch.Tensor], *arguments: Any, **options: Any
    ) -> Any:
        listed = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        for taker in list(_takers):
            if any(taker.has_taken(parameter) for parameter in listed):
                raise UsageError(
                    "nothing would be clipped: offload took the gradients during backward",
                    "let it clip: offload(model, optimizer, max_norm=1.0), and leave out"
                    " clip_grad_norm_",
                )
        return original(listed, *arguments, **options)

    return clip
