"""The counters of loss, congestion and faults that rose during transfers, as evidence for the
cause of a low rate.
"""

from collections import Counter
from collections.abc import Collection, Iterable

from busbw.core.counters import CounterKind, counters_by_name
from busbw.link.types import PairFlow

Key = tuple[str, str, str]  # host, port or "tcp", counter
MAX_SHOWN = 6


def sums(flows: Iterable[PairFlow], kinds: Collection[CounterKind]) -> dict[Key, int]:
    """The increases of counters of these kinds, added up over all flows."""
    increases: Counter[Key] = Counter()
    for flow in flows:
        for host, ports in flow.moved.items():
            for port, counters in ports.items():
                for name, increase in counters.items():
                    row = counters_by_name().get(name)
                    if row is not None and row.kind in kinds:
                        increases[host, port, name] += increase
    return increases


def evidence(flows: Iterable[PairFlow]) -> str:
    """The loss, congestion and fault counters that increased most beyond normal; '' if none did.

    Ticks are left out: a healthy port counts millions, and the time that the counter covers is not
    known.
    """
    increases = sums(flows, {CounterKind.LOSS, CounterKind.CONGESTION, CounterKind.FAULT})
    times = {
        key: increase / counters_by_name()[key[2]].notable
        for key, increase in increases.items()
        if not counters_by_name()[key[2]].ticks
    }
    notable = [key for key in times if times[key] >= 1]
    if not notable:
        return ""
    largest = sorted(notable, key=lambda key: -times[key])[:MAX_SHOWN]
    return "meanwhile " + ", ".join(
        f"{host} {port} {name} +{increases[host, port, name]}" for host, port, name in largest
    )
