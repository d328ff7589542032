"""Findings as text, and figures as a line of bars."""

import math
from collections.abc import Sequence

from busbw.core.finding import Finding
from busbw.views.words import BARS


def sparkline(values: Sequence[float]) -> str:
    """One bar per value, from the lowest for 0 to the highest for the largest; a space where there is no finite value."""
    top = max((value for value in values if math.isfinite(value)), default=0.0)
    steps = len(BARS) - 1
    return "".join(BARS[round(steps * (value / top)) if top > 0 else 0] if math.isfinite(value) else " " for value in values)


def text(finding: Finding) -> str:
    """`FAIL    message  [id]`, and under it the evidence and the fix where there are any."""
    lines = [f"{finding.verdict.value.upper():<7} {finding.message}  [{finding.id}]"]
    lines += [f"{'':8}{name}: {said}" for name, said in (("evidence", finding.evidence), ("fix", finding.fix)) if said]
    return "\n".join(lines) + "\n"
