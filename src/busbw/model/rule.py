"""A rule makes at most one finding from a run.

The reference page of findings is generated from the tables of rules.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from busbw.core.cells import settled
from busbw.core.finding import Finding, Verdict
from busbw.core.result import Result
from busbw.core.topology import Topology
from busbw.model.fabric import NoFabric
from busbw.model.series import Series, series
from busbw.model.telemetry_findings import Signs, Slow, slow_rows
from busbw.model.usable_hardware import Used, used


@dataclass(frozen=True)
class Run:
    """A result, and values derived from it that several rules need."""

    result: Result
    topology: Topology

    @cached_property
    def all_series(self) -> list[Series]:
        """The series of the sweep; empty if no data was exchanged."""
        found = [] if self.one_rank else series(self.result)
        return found if any(figure.busbw > 0 for figures in found for figure in figures) else []

    @cached_property
    def series(self) -> list[Series]:
        """The series without cells that did not reach the requested precision: only the others
        are judged.
        """
        precise = {id(figure.cell) for figure in settled(self.result)}
        kept = (
            [figure for figure in line if id(figure.cell) in precise] for line in self.all_series
        )
        return [line for line in kept if line]

    @property
    def one_rank(self) -> bool:
        """Whether there is one rank, so that no data crosses a link."""
        return len(self.result.world.devices) > 0 and self.result.world.ranks == 1

    @cached_property
    def use(self) -> Used | NoFabric:
        """The hardware that the ranks use, or why it is unknown."""
        return used(self.result.world, self.topology, self.result.environment, self.result.traffic)

    @cached_property
    def signs(self) -> Signs:
        """The signs of trouble on hosts during each row."""
        return Signs(self.result)

    @cached_property
    def bad(self) -> list[Slow]:
        """Bad rows with an unusual sign, the worst first."""
        return slow_rows(self.result, lambda row: bool(self.signs.unusual(row)))


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A finding without its id."""

    verdict: Verdict
    message: str
    evidence: str = ""
    fix: str = ""


Find = Callable[[Run], Conclusion | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of finding: its id in results, possible verdicts, description (Markdown, for the
    reference), and function.
    """

    id: str
    verdicts: tuple[Verdict, ...]
    docs: str
    find: Find

    def finding(self, said: Conclusion) -> Finding:
        """The finding with this rule's id."""
        return Finding(self.id, said.verdict, said.message, said.evidence, said.fix)


def apply(rules: Iterable[Rule], run: Run) -> list[Finding]:
    """The findings of the rules, in their order."""
    return [rule.finding(one) for rule in rules if (one := rule.find(run)) is not None]
