"""The optimizers' rules for rows, and where a record keeps a row's states.

A record is a row of fp32 with its states: weights, then each state with `dim` values, then one
value per row-wise state. Parts start at multiples of 16 bytes, so that kernels move 16 bytes at a
time.
"""

import math
from dataclasses import dataclass

import torch

from busbw.accel.embedding.settings import TableSettings

MOMENT, SQUARE = "moment", "square"
_STATES = {"sgd": (), "adam": (MOMENT, SQUARE), "rowwise_adam": (MOMENT,), "rowwise_adagrad": ()}
_ROWWISE = {"rowwise_adam": (SQUARE,), "rowwise_adagrad": (SQUARE,)}


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of a record, in elements."""

    dim: int
    states: tuple[str, ...]
    rowwise: tuple[str, ...]

    @property
    def pitch(self) -> int:
        """From the start of the weights to the start of the first state, and so on."""
        return -(-self.dim // 4) * 4

    @property
    def tail(self) -> int:
        """Where row-wise states start."""
        return self.pitch * (1 + len(self.states))

    @property
    def width(self) -> int:
        """Elements of a record."""
        # 32 bytes: the unit in which GPUs access memory
        return self.tail + (8 if self.rowwise else 0)

    @property
    def nbytes(self) -> int:
        """Bytes of a record."""
        return 4 * self.width

    def split(self, records: torch.Tensor) -> dict[str, torch.Tensor]:
        """Views of the states in records, by name: [n, dim], or [n] where row-wise."""
        views = {
            name: records[:, at * self.pitch :][:, : self.dim]
            for at, name in enumerate(self.states, 1)
        }
        return views | {name: records[:, self.tail + at] for at, name in enumerate(self.rowwise)}


def layout(settings: TableSettings, dim: int) -> Layout:
    """The record of this optimizer."""
    return Layout(dim, _STATES[settings.optimizer], _ROWWISE.get(settings.optimizer, ()))


@dataclass(frozen=True, slots=True)
class Step:
    """The numbers of one update.

    `step` counts from 1, for all rows together, and corrects the bias of moments as in
    torch.optim.Adam.
    """

    settings: TableSettings
    lr: float
    step: int

    @property
    def decay(self) -> float:
        """The factor of the weights before the update."""
        return 1 - self.lr * self.settings.weight_decay

    @property
    def rate(self) -> float:
        """The rate that multiplies the first moment."""
        return self.lr / (1 - self.settings.betas[0] ** self.step)

    @property
    def root(self) -> float:
        """The factor of the root of the second moment."""
        return 1 / math.sqrt(1 - self.settings.betas[1] ** self.step)


def update(records: torch.Tensor, gradient: torch.Tensor, form: Layout, step: Step) -> None:
    """Apply the rule to records, [n, width], in place."""
    settings, states, weight = step.settings, form.split(records), records[:, : form.dim]
    weight.mul_(step.decay)
    first, second = settings.betas
    match settings.optimizer:
        case "sgd":
            weight.sub_(gradient, alpha=step.lr)
        case "rowwise_adagrad":
            states[SQUARE].add_(gradient.square().mean(1))
            weight.sub_(step.lr * gradient / (states[SQUARE].sqrt() + settings.eps)[:, None])
        case "adam" | "rowwise_adam":
            states[MOMENT].mul_(first).add_(gradient, alpha=1 - first)
            square = gradient.square().mean(1) if form.rowwise else gradient.square()
            states[SQUARE].mul_(second).add_(square, alpha=1 - second)
            root = states[SQUARE].sqrt() * step.root + settings.eps
            weight.sub_(step.rate * states[MOMENT] / (root[:, None] if form.rowwise else root))
