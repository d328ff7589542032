"""Measured reference curves, each with its source: the built-in table and a user's own.

A curve is one measured run of one collective on one kind of system. Sizes are those of nccl-tests
in bytes, times are microseconds out of place. The built-in table is made by
`tools/make_reference.py` from published measurements and from records of this project.
"""

from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from math import exp, log

import msgspec

from busbw.core.collectives import BY_NAME
from busbw.core.shown import Shown

TABLE = "table.json"


UNKNOWN = "unknown"


class CurveSource(msgspec.Struct, frozen=True, kw_only=True):
    """Who measured, and under which conditions as far as the source states them."""

    key: str  # names it in the curves
    title: str
    link: str = UNKNOWN  # where the figures are published
    date: str = UNKNOWN
    license: str = ""
    dtype: str = UNKNOWN
    algorithm: str = UNKNOWN
    nccl: str = UNKNOWN
    health: str = UNKNOWN  # whether its systems were in health
    settings: str = UNKNOWN


class ReferenceCurve(msgspec.Struct, frozen=True, kw_only=True):
    """The times of one collective by size on `hosts` hosts with `per_host` ranks each."""

    source: str
    run: str  # what its source measured together: curves of one run are not independent
    gpu: str  # a word of the table of GPUs (`h100`)
    per_host: int
    collective: str
    sizes: tuple[int, ...]
    times_us: tuple[float, ...]
    hosts: int = 1
    nics: str = ""  # those of a host as `--nics` takes them; empty where only one host ran
    fabric: str = ""  # the network's name; empty where only one host ran
    dtype: str = ""  # empty where the source does not say; so nccl and algorithm
    nccl: str = ""
    algorithm: str = ""
    note: str = ""

    @property
    def ranks(self) -> int:
        return self.hosts * self.per_host

    def time_s(self, size_bytes: float) -> float | None:
        """The time of a size in seconds, between measured sizes by interpolation of the logarithms
        of size and time; None outside the measured sizes.
        """
        sizes = self.sizes
        if not sizes[0] <= size_bytes <= sizes[-1]:
            return None
        above = next(at for at, size in enumerate(sizes) if size >= size_bytes)
        if sizes[above] == size_bytes or above == 0:
            return self.times_us[above] * 1e-6
        share = log(size_bytes / sizes[above - 1]) / log(sizes[above] / sizes[above - 1])
        before_us, after_us = self.times_us[above - 1], self.times_us[above]
        return before_us * exp(share * log(after_us / before_us)) * 1e-6

    def busbw(self, size_bytes: float) -> float | None:
        """The busbw of a size in bytes per second; None outside the measured sizes."""
        time_s = self.time_s(size_bytes)
        if time_s is None:
            return None
        return size_bytes * float(BY_NAME[self.collective].bus_factor(self.ranks)) / time_s


class ReferenceTable(
    Shown, msgspec.Struct, tag="busbw.reference/1", tag_field="schema", kw_only=True
):
    """A file of reference curves."""

    sources: list[CurveSource]
    curves: list[ReferenceCurve]


@dataclass(frozen=True)
class Reference:
    """All curves that an answer may use: `own` come before the published ones."""

    published: tuple[ReferenceCurve, ...]
    sources: dict[str, CurveSource]
    own: tuple[ReferenceCurve, ...] = ()
    by_collective: dict[str, tuple[ReferenceCurve, ...]] = field(default_factory=dict)

    def of(self, collective: str) -> tuple[ReferenceCurve, ...]:
        """The curves of a collective, a user's own first."""
        if collective not in self.by_collective:
            curves = (*self.own, *self.published)
            self.by_collective[collective] = tuple(
                curve for curve in curves if curve.collective == collective
            )
        return self.by_collective[collective]


def reference(table: ReferenceTable, own: ReferenceTable | None = None) -> Reference:
    tables = [table] if own is None else [table, own]
    sources = {source.key: source for part in tables for source in part.sources}
    return Reference(tuple(table.curves), sources, tuple(own.curves) if own else ())


@cache
def built_in() -> Reference:
    """The table that comes with busbw."""
    data = files("busbw.model.reference").joinpath(TABLE).read_bytes()
    return reference(msgspec.json.decode(data, type=ReferenceTable))


def with_own(own: ReferenceTable) -> Reference:
    """The curves that come with busbw, and a user's own."""
    known = built_in()
    sources = known.sources | {source.key: source for source in own.sources}
    return Reference(known.published, sources, tuple(own.curves))
