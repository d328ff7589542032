"""The experts that tokens choose, drawn from a seed: equal on all ranks without a message.

A token's choice depends on the seed, its rank and its number, and so is the same in a larger or
smaller batch. Draws without replacement take the experts with the smallest keys; a key is the
logarithm of a uniform number over the expert's weight (Efraimidis and Spirakis 2006).
"""

import hashlib
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from busbw.moe.routing import FILE, HOT, ZIPF, Ids, Routing

Array: TypeAlias = NDArray[np.int64]  # of ids: [rank, token, choice]
# the constants of SplitMix64 (Steele, Lea and Flood 2014)
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_POPULARITY, _CHOICE, _HOT = 1, 2, 3  # what a number is drawn for


def draw(routing: Routing, seed: int, ranks: int, tokens: int, experts: int, top_k: int) -> Array:
    """The `top_k` different experts of each token of each rank, in order of their ids."""
    assert routing.kind != FILE
    factors: NDArray[np.float64] = np.ones(experts)
    if routing.kind == ZIPF:
        # Popular experts are scattered over the ranks, as they are in a model.
        places = np.argsort(np.argsort(_hashes(seed, _POPULARITY, 0, 1, experts)[0]))
        factors = np.power(places + 1.0, routing.value, dtype=np.float64)
    chosen = []
    for rank in range(ranks):
        hashes = _hashes(seed, _CHOICE, rank, tokens, experts)
        keys = -np.log(_uniform(hashes)) * factors
        if routing.kind == HOT:
            is_hot = _uniform(_hashes(seed, _HOT, rank, tokens, 1))[:, 0] < routing.value
            keys[:, 0] = np.where(is_hot, -1.0, np.inf)
        smallest = np.argpartition(keys, top_k - 1, axis=1)[:, :top_k]
        chosen.append(np.sort(smallest, axis=1))
    return np.stack(chosen).astype(np.int64)


def as_array(ids: Ids, ranks: int) -> Array:
    """The ids of a file, rank by rank."""
    return np.asarray(ids, dtype=np.int64).reshape(ranks, -1, len(ids[0]))


def digest(ids: Array) -> str:
    """A short name of these ids: ranks with different ones would wait for each other forever."""
    return hashlib.sha256(ids.tobytes()).hexdigest()[:16]


def _hashes(seed: int, purpose: int, rank: int, rows: int, columns: int) -> NDArray[np.uint64]:
    start = np.full((1, 1), seed, dtype=np.uint64)
    for part in (purpose, rank):
        start = _mixed(start + np.uint64(part))
    by_row = _mixed(start + np.arange(rows, dtype=np.uint64)[:, None])
    return _mixed(by_row + np.arange(columns, dtype=np.uint64)[None, :])


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64 of each value."""
    values = values + np.uint64(_STEP)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_FIRST)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_SECOND)
    mixed: NDArray[np.uint64] = values ^ (values >> np.uint64(31))
    return mixed


def _uniform(hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Numbers above 0 and below 1."""
    numbers: NDArray[np.float64] = ((hashes >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return numbers
