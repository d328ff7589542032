"""Fits NCCL's model to measurements: for each algorithm and protocol of a collective a factor of
its latency and one of its transfer time.

t = a L + b B, where L and B are the two parts of the model's time. a and b minimize the sum of
squared relative errors, ((a L + b B) / t
- 1)^2, and are not negative. Because L and B keep how they depend on the hosts, the factors hold
  for other host counts as far as the model's form does; the largest job is therefore predicted from
  the smaller ones first, and that error is reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from busbw.model.estimate import Fits
from busbw.model.nccl.timing import Parts
from busbw.model.types import Fit

TELLING = 0.1  # of a time: a smaller part says nothing about its factor


@dataclass(frozen=True, slots=True)
class Point:
    """One measured time beside the model's parts of it."""

    collective: str
    algorithm: str
    protocol: str
    hosts: int
    size_bytes: int
    parts: Parts
    time_s: float


def fit(points: Sequence[Point]) -> Fits:
    """The factors of every collective, algorithm and protocol that some point has."""

    def key(point: Point) -> tuple[str, str, str]:
        return point.collective, point.algorithm, point.protocol

    usable = sorted((point for point in points if point.time_s > 0), key=key)
    return {name: _fit(*name, list(same)) for name, same in groupby(usable, key)}


def _fit(collective: str, algorithm: str, protocol: str, points: list[Point]) -> Fit:
    most = max(point.hosts for point in points)
    latency, transfer = factors(points)
    smaller, largest = (
        [point for point in points if point.hosts < most],
        [point for point in points if point.hosts == most],
    )
    held = worst(largest, *factors(smaller)) if smaller else None
    off, least = worst(points, latency, transfer), min(point.size_bytes for point in points)
    return Fit(
        collective,
        algorithm,
        protocol,
        latency,
        transfer,
        len(points),
        most,
        off,
        least,
        most if smaller else None,
        held,
    )


def factors(points: Sequence[Point]) -> tuple[float, float]:
    """a and b, not negative.

    One point, and points that cannot tell the two parts apart, give one factor for both.

    A part that is below TELLING at every point has factor 1.
    """
    pairs = [
        (point.parts.latency_s / point.time_s, point.parts.transfer_s / point.time_s)
        for point in points
    ]
    ll, bb, lb = (sum(one * two for one, two in products) for products in _products(pairs))
    only_l, only_b = (sum(pair[at] for pair in pairs) for at in (0, 1))
    if max(latency for latency, _ in pairs) < TELLING:
        return 1.0, (only_b - lb) / bb
    if max(transfer for _, transfer in pairs) < TELLING:
        return (only_l - lb) / ll, 1.0
    determinant = ll * bb - lb * lb
    if len(pairs) > 1 and determinant > 1e-9 * ll * bb:
        latency, transfer = (
            (only_l * bb - only_b * lb) / determinant,
            (only_b * ll - only_l * lb) / determinant,
        )
        if latency >= 0 and transfer >= 0:
            return latency, transfer
        return (0.0, only_b / bb) if latency < 0 else (only_l / ll, 0.0)
    both = (only_l + only_b) / (ll + bb + 2 * lb)
    return both, both


def _products(pairs: Sequence[tuple[float, float]]) -> tuple[list[tuple[float, float]], ...]:
    return [(x, x) for x, _ in pairs], [(y, y) for _, y in pairs], list(pairs)


def worst(points: Sequence[Point], latency: float, transfer: float) -> float:
    """The largest relative error with these factors."""
    return max(
        abs(
            (latency * point.parts.latency_s + transfer * point.parts.transfer_s) / point.time_s - 1
        )
        for point in points
    )
