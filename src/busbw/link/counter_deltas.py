"""Counter increases during transfers, as evidence for a rate: pauses and symbol errors are
different causes.
"""

from collections.abc import Collection, Iterable

from busbw.core.counters import BY_NAME, Kind
from busbw.link.types import Flow

Key = tuple[str, str, str]  # host, port or "tcp", counter
SHOWN = 6


def sums(flows: Iterable[Flow], kinds: Collection[Kind]) -> dict[Key, int]:
    """The increases of counters of these kinds, over all flows."""
    found: dict[Key, int] = {}
    for flow in flows:
        for host, ports in flow.moved.items():
            for port, counters in ports.items():
                for name, by in counters.items():
                    if name in BY_NAME and BY_NAME[name].kind in kinds:
                        found[host, port, name] = found.get((host, port, name), 0) + by
    return found


def evidence(flows: Iterable[Flow]) -> str:
    """The loss, congestion and fault counters that increased most beyond normal; '' if none did."""
    found = sums(flows, {Kind.LOSS, Kind.CONGESTION, Kind.FAULT})
    times = {key: by / BY_NAME[key[2]].notable for key, by in found.items()}
    largest = sorted((key for key in times if times[key] >= 1), key=lambda key: -times[key])[:SHOWN]
    return (
        "meanwhile "
        + ", ".join(
            f"{host} {port} {name} +{found[host, port, name]}" for host, port, name in largest
        )
        if largest
        else ""
    )
