"""How often each rank's rows are asked for, if a table is sharded by rows and the popularity of ids
follows a power law.

Rows are sharded as in TorchRec (row-wise): rank r holds rows r x block to (r + 1) x block - 1, with
block = rows / ranks rounded up. These are expected values: no ids are drawn, so that a batch of any
size costs the same, and all ranks compute the same numbers.
"""

import itertools
import math
import random
from collections.abc import Callable

from busbw.core.alltoallv_counts import Zipf

# the most popular ids, each placed on its own; together the others are spread evenly over the rows
HEAD = 1 << 14
# beyond HEAD, sums are over buckets of 1/64 of their popularity rank: within 1e-4 for exponents up
# to 2
BUCKETS = 64
DIGITS = 9  # rounding errors, which differ between C libraries, must not change the bytes of a pair

Weight = Callable[[float], float]


def loads(spec: Zipf, ranks: int) -> list[float]:
    """The rows that each rank sends, relative to the rank that sends most.

    All ranks ask with the same distribution.
    """
    found = (_in_order if spec.sorted else _scattered)(spec, ranks, _weight(spec))
    most = max(found)
    return [round(one / most, DIGITS) for one in found]


def unique_ids(spec: Zipf) -> float:
    """The expected number of different ids in a batch of `spec.ids`."""
    return _sum(_chance_in_a_batch(spec), 0, spec.rows)


def _weight(spec: Zipf) -> Weight:
    return _chance_in_a_batch(spec) if spec.dedup else lambda k: k**-spec.exponent


def _chance_in_a_batch(spec: Zipf) -> Weight:
    """The probability that the k-th most popular id is in a batch: 1 - (1 - p) ** ids."""
    every = _sum(lambda k: k**-spec.exponent, 0, spec.rows)

    def chance(k: float) -> float:
        p = k**-spec.exponent / every
        return 1.0 if p >= 1 else -math.expm1(spec.ids * math.log1p(-p))

    return chance


def _sum(weight: Weight, low: int, high: int) -> float:
    """The sum of weight(k) for k from low + 1 to high: exact up to HEAD, then by the middle of
    buckets.
    """
    total = math.fsum(weight(k) for k in range(low + 1, min(high, HEAD) + 1))
    start = max(low, HEAD)
    while start < high:
        end = min(start + start // BUCKETS, high)
        total += (end - start) * weight((start + end + 1) / 2)
        start = end
    return total


def _in_order(spec: Zipf, ranks: int, weight: Weight) -> list[float]:
    """The k-th most popular id is row k - 1."""
    block = -(-spec.rows // ranks)
    edges = [min(rank * block, spec.rows) for rank in range(ranks + 1)]
    return [_sum(weight, low, high) for low, high in itertools.pairwise(edges)]


def _scattered(spec: Zipf, ranks: int, weight: Weight) -> list[float]:
    """Each popular id has a row of its own, chosen by the seed; the others share what is left of
    each rank's rows.
    """
    block = -(-spec.rows // ranks)
    left = [max(min(block, spec.rows - rank * block), 0) for rank in range(ranks)]
    found = [0.0] * ranks
    for k, row in enumerate(_places(spec), 1):
        found[row // block] += weight(k)
        left[row // block] -= 1
    others, rest = sum(left), _sum(weight, HEAD, spec.rows)
    return (
        [own + rest * free / others for own, free in zip(found, left, strict=True)]
        if others
        else found
    )


def _places(spec: Zipf) -> list[int]:
    """Different rows, one for each of the most popular ids.

    Only random() is the same in every version of Python.
    """
    rng = random.Random(spec.seed)
    if spec.rows <= 2 * HEAD:
        return sorted(range(spec.rows), key=lambda _: rng.random())[:HEAD]
    chosen: dict[int, None] = {}
    while len(chosen) < HEAD:
        chosen[int(rng.random() * spec.rows)] = None
    return list(chosen)
