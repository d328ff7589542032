"""Which pairs are measured at the same time: rounds of pairs that share no host."""

import random
from collections.abc import Iterable, Sequence

Pair = tuple[int, int]


def rounds(count: int, most: int = 0, seed: int = 0) -> list[list[Pair]]:
    """All pairs of `count` hosts, by the circle method: count - 1 rounds, count if it is odd.

    Each pair comes once. With `most` above 0, that many rounds in random order, so that each host
    meets random peers.
    """
    ring: list[int | None] = [*range(count)] if count % 2 == 0 else [*range(count), None]
    half = len(ring) // 2
    found = []
    for _ in range(len(ring) - 1):
        pairs = ((ring[at], ring[-1 - at]) for at in range(half))
        found.append([(min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    if 0 < most < len(found):
        return random.Random(seed).sample(found, most)
    return found


def disjoint(pairs: Iterable[Pair]) -> list[list[Pair]]:
    """Pairs in rounds that share no host, each in the first round with room for it."""
    found: list[tuple[set[int], list[Pair]]] = []
    for a, b in pairs:
        place = next((one for one in found if not one[0] & {a, b}), None)
        if place is None:
            place = set(), []
            found.append(place)
        place[0].update((a, b))
        place[1].append((a, b))
    return [round_ for _, round_ in found]


def without(pairs: Sequence[Pair], lost: Iterable[int]) -> list[Pair]:
    """The pairs that include none of the `lost` hosts."""
    gone = set(lost)
    return [pair for pair in pairs if not gone & set(pair)]
