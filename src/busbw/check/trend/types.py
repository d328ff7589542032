"""Types of the report on how error counts grew between snapshots."""

from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.check.types import Fault
from busbw.core.finding import Verdict
from busbw.core.shown import Shown


class Growth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one error counter of one link grew between a host's first and last snapshot."""

    host: str
    kind: str  # NVLink, port or PCIe
    link: str
    counter: str
    by: Annotated[int, Meta(description="in all")]
    hours: Annotated[float, Meta(description="between the two snapshots")]
    grown: Annotated[int, Meta(description="periods in which it grew")] = 0
    periods: Annotated[int, Meta(description="between two successive snapshots")] = 1
    at_least: Annotated[
        bool, Meta(description="the counter was reset or is saturated, so it may be more")
    ] = False


class OutlierLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link whose counter grew unlike those of the other links of its kind."""

    growth: Growth
    others: int  # how many others there are
    others_by: int  # by how much their counters grew in all
    others_most: int  # by how much the one of them grew that grew most
    # upper bound for the chance that a link like the others grows as much, times their number
    chance: float


class TrendReport(Shown, msgspec.Struct, tag="busbw.trend/1", tag_field="schema", kw_only=True):
    """The report on all hosts.

    `links` is the number of links compared, by kind. `grown` are the counters that grew. `reasons`
    say by host why it could not be compared. `faults` are what the checks of links find since the
    first snapshot of a host's last boot, as --since of `busbw check` does.
    """

    hosts: list[str]
    hours: float
    links: dict[str, int]
    odd: list[OutlierLink]
    grown: list[Growth]
    reasons: dict[str, str] = {}
    faults: list[Fault] = []

    def verdicts(self) -> list[Verdict]:
        """Pass if links were compared, a warning for each that differs, unknown for a host that was
        not compared, and those of the faults.
        """
        verdicts = [Verdict.PASS if self.links else Verdict.UNKNOWN]
        verdicts += [fault.verdict for fault in self.faults if not fault.optional]
        return verdicts + [Verdict.WARN] * len(self.odd) + [Verdict.UNKNOWN] * len(self.reasons)
