"""Which method a plan recommends at which bandwidth between hosts, predicted by as_if_network."""

import math
from dataclasses import dataclass
from itertools import groupby

from busbw.core.rates import BITS_A_BYTE
from busbw_accel.train.as_if_network import AsIfNetwork, plan_as_if, rate_text
from busbw_accel.train.plan_types import Plan
from busbw_accel.train.recommendation import recommended

LOW, HIGH = 1e8 / BITS_A_BYTE, 4e11 / BITS_A_BYTE  # bytes per second
PER_DECADE = 24


@dataclass(frozen=True, slots=True)
class RateRange:
    """Rates out of a host, in bytes per second; `method` is '' if none reaches the target."""

    low: float
    high: float
    method: str

    def text(self, target: float) -> str:
        method = self.method or f"nothing reaches {100 * target:g} %"
        return f"{rate_text(self.low)} to {rate_text(self.high)}: {method}"


def rates() -> list[float]:
    """From LOW to HIGH, in equal ratios."""
    count = math.ceil(PER_DECADE * math.log10(HIGH / LOW))
    return [LOW * (HIGH / LOW) ** (number / count) for number in range(count + 1)]


def shares(plan: Plan) -> dict[str, list[float]]:
    """The share of alone at each of `rates`, of each method that is recommended at one of them, and
    of the plan's first; the best over transports and bucket sizes.
    """
    methods = {span.method for span in ranges(plan)} - {""}
    if not methods:
        return {}
    first = plan.exchanges[0].method
    found: dict[str, list[float]] = {method: [] for method in (first, *sorted(methods - {first}))}
    for rate in rates():
        assumed = plan_as_if(plan, AsIfNetwork("", rate=rate))
        for method, values in found.items():
            alike = [one for one in assumed.exchanges if one.method == method]
            values.append(max(map(assumed.share, alike)))
    return found


def ranges(plan: Plan) -> list[RateRange]:
    """The recommended method by rate; none if nothing leaves a host, or nothing is recommended."""
    found: list[RateRange] = []
    for number, (method, group) in enumerate(groupby(rates(), lambda rate: _method(plan, rate))):
        members = list(group)
        if method is None:
            return []
        low = members[0] if number == 0 else found[-1].high
        found.append(RateRange(low, members[-1], method))
    return found


def _method(plan: Plan, rate: float) -> str | None:
    """The method at a rate; '' if none reaches the target, None if nothing is recommended."""
    assumed = plan_as_if(plan, AsIfNetwork("", rate=rate))
    chosen = recommended(assumed)
    if chosen is None:
        return None
    return chosen.method if assumed.reaches(chosen) else ""
