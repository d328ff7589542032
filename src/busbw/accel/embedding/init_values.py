"""The hash of an id, and the initial values of its row, which depend on the seed, the id and the
column alone.

Both are SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA
2014). The kernels have the same code; uniform values have the same bits there, normal values differ
by rounding.
"""

import math
from functools import cache

import torch

GAMMA, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD = 1 << 64


def signed(word: int) -> int:
    """The same 64 bits as a signed number, which torch's int64 needs."""
    word %= _WORD
    return word - _WORD if word >= _WORD // 2 else word


def _shifted(word: torch.Tensor, bits: int) -> torch.Tensor:
    """A logical shift to the right."""
    return (word >> bits) & ((1 << (64 - bits)) - 1)


def mix(word: torch.Tensor) -> torch.Tensor:
    """The finalizer of SplitMix64, a bijection of 64-bit words."""
    word = (word ^ _shifted(word, 30)) * signed(FIRST)
    word = (word ^ _shifted(word, 27)) * signed(SECOND)
    return word ^ _shifted(word, 31)


@cache
def key_of(seed: int) -> int:
    """What is XORed to an id before it starts the generator of its row."""
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
