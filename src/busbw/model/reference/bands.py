"""How far measured busbw is from the expected one, by regime: the table of bands.

Its rows are made by `benchmarks/reference_errors.py`: each run is predicted without the curves of
that run, and a band holds the given share of the runs' errors. Errors have a sign: most runs are
slower than expected, few are faster.
"""

from functools import cache
from importlib.resources import files
from math import log10

import msgspec

from busbw.model.reference.expected import ExpectedBasis, ExpectedTime, Scope

TABLE = "bands.json"
CHECKED_RANKS = 1984  # of the largest job in the table of curves
CHECKED_DOMAIN = 72  # GPUs of the largest NVLink domain in it


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """The factors of the expected busbw between which measured busbw lies, from `from_bytes` on."""

    scope: str
    basis: str
    from_bytes: int
    low: float
    high: float
    runs: int  # runs that the band is made from
    points: int  # points that the band is made from
    median_error: float  # their median relative error
    p90_error: float
    inside: float  # share of points inside a band that was made without their run


class Bands(msgspec.Struct, frozen=True, kw_only=True):
    """All bands, those of larger sizes first, and the share of errors that they hold."""

    coverage: float
    rows: list[Band]


@cache
def bands() -> Bands:
    """The table that comes with busbw."""
    data = files("busbw.model.reference").joinpath(TABLE).read_bytes()
    return msgspec.json.decode(data, type=Bands)


def band(expected: ExpectedTime, size_bytes: int) -> Band:
    """The band of an expected time.

    Where no run says how far off it is, that of the next weaker basis counts; of NVLink domains at
    sizes that no rack was measured at, that of hosts.
    """
    smaller = Scope.HOST if expected.scope is Scope.DOMAIN else Scope.HOSTS
    for scope in (expected.scope, smaller):
        for basis in (expected.basis, ExpectedBasis.SIMILAR, ExpectedBasis.MODEL):
            for row in bands().rows:
                if (row.scope, row.basis) == (scope, basis) and size_bytes >= row.from_bytes:
                    return row
    raise AssertionError(f"{expected.scope}: no band")


def is_extrapolated(scope: Scope, ranks: int) -> bool:
    """Whether a job is larger than every measured one."""
    return ranks > (CHECKED_DOMAIN if scope is Scope.DOMAIN else CHECKED_RANKS)


def widened(low: float, scope: Scope, ranks: int) -> float:
    """The lower factor beyond what was measured: its logarithm doubles with every ten times as many
    ranks. No measurement says so; it keeps the range from claiming what is not known.
    """
    if not is_extrapolated(scope, ranks):
        return low
    return float(low ** (1 + log10(ranks / CHECKED_RANKS)))
