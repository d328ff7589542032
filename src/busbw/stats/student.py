"""Student's t distribution: its tail and quantiles.

Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
"""

import math

PRECISION = 1e-9


def tail(t: float, freedom: int) -> float:
    """P(T > t) for this many degrees of freedom, at least 1."""
    angle = math.atan(abs(t) / math.sqrt(freedom))
    cosine2 = math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for k in range(odd, freedom - 1, 2):
        total += term
        term *= cosine2 * (k + 1) / (k + 2)
    within = 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
    beyond = max(0.0, (1 - within) / 2)
    return beyond if t >= 0 else 1 - beyond


def quantile(share: float, freedom: int) -> float:
    """The t with P(T > t) = share, for a share above 0 and at most one half."""
    low, high = 0.0, 1.0
    while tail(high, freedom) > share:
        low, high = high, 2 * high
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle, freedom) > share else (low, middle)
    return high
