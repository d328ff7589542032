"""A rule makes at most one finding from a run.

The reference page of findings is generated from the tables of rules.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from busbw.core.cells import precise_figures
from busbw.core.finding import RunFinding, Verdict
from busbw.core.result import Result
from busbw.core.topology import Topology
from busbw.model.fabric import NoFabric
from busbw.model.series import Series, series
from busbw.model.usable_hardware import UsedHardware, used

if TYPE_CHECKING:
    from busbw.model.reference.curves import Reference
    from busbw.model.telemetry_signs import SlowFigure, TelemetrySigns

Known = Callable[[], "Reference"]
NCCL_ENGINES = ("nccl", "torch")
MORE_TIME = "allow more time with --max-time, or stop other jobs on the machine"


@dataclass(frozen=True)
class Run:
    """A result, and values derived from it that several rules need.

    `known` gives the reference curves to compare with; None for those that come with busbw.
    """

    result: Result
    topology: Topology
    known: Known | None = None

    @cached_property
    def all_series(self) -> list[Series]:
        """The series of the sweep; empty if no data was exchanged."""
        if self.one_rank:
            return []
        lines = series(self.result)
        moved = any(figure.busbw > 0 for figures in lines for figure in figures)
        return lines if moved else []

    @cached_property
    def series(self) -> list[Series]:
        """The series of cells with the requested precision, for what follows from a shape."""
        precise = {id(figure.cell) for figure in precise_figures(self.result)}
        lines = []
        for figures in self.all_series:
            line = [figure for figure in figures if id(figure.cell) in precise]
            if line:
                lines.append(line)
        return lines

    @property
    def one_rank(self) -> bool:
        """Whether there is one rank, so that no data crosses a link."""
        return len(self.result.world.devices) > 0 and self.result.world.ranks == 1

    @property
    def over_nccl(self) -> bool:
        """Whether one group of GPUs ran over NCCL."""
        library, world = self.result.library, self.result.world
        on_gpus = bool(world.devices) and all(device.bus for device in world.devices)
        return on_gpus and world.groups == 1 and library.engine in NCCL_ENGINES and library.nccl > 0

    @cached_property
    def use(self) -> UsedHardware | NoFabric:
        """The hardware that the ranks use, or why it is unknown."""
        return used(self.result.world, self.topology, self.result.environment, self.result.traffic)

    @cached_property
    def signs(self) -> "TelemetrySigns":
        """The signs of trouble on hosts during each row."""
        from busbw.model import telemetry_signs

        return telemetry_signs.TelemetrySigns(self.result)

    @cached_property
    def bad(self) -> "list[SlowFigure]":
        """Bad rows with an unusual sign, the worst first."""
        from busbw.model.telemetry_signs import slow_rows

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
class FindingRule:
    """One kind of finding.

    `id` names it in results, `verdicts` are those it can have, `docs` is its description for the
    reference (Markdown), and `find` makes the conclusion.
    """

    id: str
    verdicts: tuple[Verdict, ...]
    docs: str
    find: Find

    def finding(self, conclusion: Conclusion) -> RunFinding:
        """The conclusion as a finding with this rule's id."""
        return RunFinding(
            self.id, conclusion.verdict, conclusion.message, conclusion.evidence, conclusion.fix
        )


def apply(rules: Iterable[FindingRule], run: Run) -> list[RunFinding]:
    findings = []
    for rule in rules:
        conclusion = rule.find(run)
        if conclusion is not None:
            findings.append(rule.finding(conclusion))
    return findings
