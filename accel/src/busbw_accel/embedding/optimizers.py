"""A row with its optimizer states: their place in a record, initial values, and updates.

A record is a row of fp32 with its states: weights, then each state with `dim` values, then one
value per row-wise state. Parts start at multiples of 16 bytes, so that kernels move 16 bytes at a
time.

The initial values of a row depend only on the seed, the id and the column. They and the hash of an
id are SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
The kernels have the same code: uniform values have the same bits there, and normal values differ by
rounding.
"""

import math
from dataclasses import dataclass
from functools import cache

import torch

from busbw_accel.embedding.settings import TableSettings

MOMENT, SQUARE = "moment", "square"
_STATES = {"sgd": (), "adam": (MOMENT, SQUARE), "rowwise_adam": (MOMENT,), "rowwise_adagrad": ()}
_ROWWISE = {"rowwise_adam": (SQUARE,), "rowwise_adagrad": (SQUARE,)}
GAMMA, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD = 1 << 64


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """The parts of a record, in elements."""

    dim: int
    states: tuple[str, ...]
    rowwise: tuple[str, ...]

    @property
    def pitch(self) -> int:
        """Elements from the start of the weights, or of a state, to the start of the next state."""
        return -(-self.dim // 4) * 4

    @property
    def tail(self) -> int:
        """The element at which row-wise states start."""
        return self.pitch * (1 + len(self.states))

    @property
    def width(self) -> int:
        """Elements of a record."""
        # The 8 elements are 32 bytes, the unit in which GPUs access memory.
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


def layout(settings: TableSettings, dim: int) -> RecordLayout:
    """The record of a row of `dim` values with the states of this optimizer."""
    return RecordLayout(dim, _STATES[settings.optimizer], _ROWWISE.get(settings.optimizer, ()))


@dataclass(frozen=True, slots=True)
class UpdateStep:
    """The numbers of one update.

    `step` counts the updates of the table from 1. It corrects the bias of moments, as in
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


def update(
    records: torch.Tensor, gradient: torch.Tensor, form: RecordLayout, step: UpdateStep
) -> None:
    """Apply the optimizer's rule to records [n, width], in place. `gradient`: [n, dim]."""
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


def signed(word: int) -> int:
    """The same 64 bits as a signed number, which torch's int64 needs."""
    word %= _WORD
    return word - _WORD if word >= _WORD // 2 else word


def _shifted(word: torch.Tensor, bits: int) -> torch.Tensor:
    return (word >> bits) & ((1 << (64 - bits)) - 1)


def mix(word: torch.Tensor) -> torch.Tensor:
    """The finalizer of SplitMix64, a bijection of 64-bit words."""
    word = (word ^ _shifted(word, 30)) * signed(FIRST)
    word = (word ^ _shifted(word, 27)) * signed(SECOND)
    return word ^ _shifted(word, 31)


@cache
def key_of(seed: int) -> int:
    """The number that is XORed with an id to seed the generator of its row."""
    return int(mix(torch.tensor([signed(seed * GAMMA + 1)]))[0])


def initial(ids: torch.Tensor, dim: int, init: str, scale: float, seed: int) -> torch.Tensor:
    """Initial values, [ids, dim] in fp32."""
    if init == "zeros":
        return torch.zeros(len(ids), dim, device=ids.device)
    columns = torch.arange(1, dim + 1, device=ids.device) * signed(GAMMA)
    word = mix(mix(ids ^ key_of(seed))[:, None] + columns[None, :])
    high = _shifted(word, 40).float()
    if init == "uniform":
        return (high * 2.0**-23 - 1) * scale
    low = (_shifted(word, 16) & 0xFFFFFF).float()
    radius = (-2 * torch.log((high + 1) * 2.0**-24)).sqrt()  # Box-Muller
    return radius * torch.cos(low * (2 * math.pi * 2.0**-24)) * scale
