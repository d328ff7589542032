"""What `busbw explain` says of the reference curves, each explained without its own run.

`python benchmarks/reference_explained.py` measures nothing. It prints the runs that are called
slower than expected or above all bounds, and, where the source says which algorithm ran, what
`explain` names.
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from busbw.core.cells import OUT_OF_PLACE, Figure
from busbw.core.collectives import BY_NAME
from busbw.core.result import Cell, ResultRow
from busbw.model.explain import ExplainedFigure, explain
from busbw.model.forecast import MeasuredCurves
from busbw.model.nccl.choice import ALL_ALLOWED
from busbw.model.reference.curves import ReferenceCurve, built_in
from busbw.model.reference.described import SHARP, setting_of
from busbw.model.types import Explanation

sys.path.insert(0, str(Path(__file__).parent))
from reference_errors import without


@dataclass(frozen=True)
class Explained:
    """A curve and its explanation, in which its algorithm was not given."""

    curve: ReferenceCurve
    explanation: Explanation

    @property
    def named(self) -> str:
        """The algorithm that is named, as sources name it."""
        fits = self.explanation.fits
        nearest = [judged for judged in self.explanation.judged if judged.algorithm == fits]
        return SHARP if nearest and nearest[0].in_network else fits

    @property
    def alarms(self) -> bool:
        """Whether the exit code is 1."""
        return not self.explanation.fits or self.explanation.verdict == "slower"


def headline(curve: ReferenceCurve) -> Figure:
    """The figure of a curve with the highest busbw."""
    factor = float(BY_NAME[curve.collective].bus_factor(curve.ranks))
    figures = []
    for size, time_us in zip(curve.sizes, curve.times_us, strict=True):
        algbw = size / (time_us * 1e-6)
        cell = Cell(time_s=time_us * 1e-6, algbw=algbw, busbw=algbw * factor)
        row = ResultRow(size, size, curve.dtype, "", -1, cell, None, iters=20)
        figures.append(Figure(row, OUT_OF_PLACE, cell))
    return max(figures, key=lambda figure: figure.busbw)


def explained(curve: ReferenceCurve) -> Explained:
    """A curve, explained by the others."""
    described = setting_of(curve)
    described = replace(described, may=ALL_ALLOWED, system=replace(described.system, collnet=False))
    row = BY_NAME[curve.collective]
    measured = ExplainedFigure(row, curve.hosts, curve.per_host, headline(curve), curve.run)
    known = MeasuredCurves(without(lambda other: other.run == curve.run))
    return Explained(curve, explain(measured, described, "published", known))


def text() -> str:
    """The alarms, and the algorithms that are known."""
    everything = [explained(curve) for curve in built_in().published]
    alarms = [case for case in everything if case.alarms]
    lines = []
    for case in alarms:
        curve, verdict = case.curve, case.explanation.verdict
        lines.append(
            f"alarm  {curve.run}  {curve.collective} {curve.dtype or 'any type'}  {verdict}"
        )
    lines += [f"{len(alarms)} alarms of {len(everything)} curves", ""]
    lines.append("run                     GB/s  ran       named")
    known = [case for case in everything if case.curve.algorithm]
    for case in known:
        busbw, ran = case.explanation.busbw / 1e9, case.curve.algorithm
        lines.append(f"{case.curve.run:22}  {busbw:4.0f}  {ran:8}  {case.named}")
    right = sum(case.named == case.curve.algorithm for case in known)
    lines.append(f"{right} of {len(known)} as their sources say")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(text(), end="")
