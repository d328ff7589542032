"""Findings in plain words, and the sweep as a line of bars: what stands under a table."""

import math
from collections.abc import Sequence

from busbw.core.finding import Finding
from busbw.core.result import Cell, Row
from busbw.views.words import BARS


def sparkline(values: Sequence[float]) -> str:
    """One bar per value, from the lowest for 0 to the highest for the largest; a space where there is no finite value."""
    top = max((value for value in values if math.isfinite(value)), default=0.0)
    steps = len(BARS) - 1
    return "".join(BARS[round(steps * (value / top)) if top > 0 else 0] if math.isfinite(value) else " " for value in values)


def main_cell(row: Row) -> Cell | None:
    """The placement that a view with one figure per row shows: out of place, or in place where only that was run."""
    return row.out_of_place if row.out_of_place is not None else row.in_place


def words(finding: Finding) -> str:
    """`FAIL message`, and under it the evidence and the fix where there are any."""
    lines = [f"{finding.verdict.value.upper():<7} {finding.message}  [{finding.id}]"]
    lines += [f"{'':7} {name}: {text}" for name, text in (("evidence", finding.evidence), ("fix", finding.fix)) if text]
    return "\n".join(lines) + "\n"
