"""Networks between hosts (model/networks.csv), by the latency that their plugin reports to NCCL.

NCCL adds it to each hop between hosts, and twice with Simple, which also flushes
(src/graph/tuning.cc, `latencyInter`). It is a constant by which NCCL chooses, not a measurement.
"""

import re
from dataclasses import dataclass, replace
from functools import cache

from busbw.core.errors import UsageError, unknown
from busbw.core.table_file import rows

MAX_LATENCY_US = 10_000.0
_LATENCY = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*us", re.ASCII)


@dataclass(frozen=True, slots=True)
class NetworkModel:
    """One kind of network. `latency_us` is what its plugin reports in `ncclNetProperties`, by which
    NCCL chooses; `hop_us` is the time of a hop that measured runs fit, where it is another.
    """

    name: str
    latency_us: float
    source: str
    hop_us: float | None = None

    def as_timed(self) -> "NetworkModel":
        """The network with the latency of a hop."""
        return self if self.hop_us is None else replace(self, latency_us=self.hop_us)


@cache
def networks() -> dict[str, NetworkModel]:
    """All networks of the table, by name."""
    return {row.name: row for row in rows("model/networks.csv", NetworkModel)}


def parse_network(text: str) -> NetworkModel:
    """The network called `efav2`, or one of a latency such as `75us`; UsageError for other text."""
    word = text.strip().lower()
    match = _LATENCY.fullmatch(word)
    if match is None:
        if word in networks():
            return networks()[word]
        names = {name: name for name in networks()}
        raise unknown("network", text, names, "--fabric: ", "; or give a latency, like 75us")
    latency_us = float(match.group(1))
    if latency_us > MAX_LATENCY_US:
        raise UsageError(
            f"--fabric {text}: at most {MAX_LATENCY_US:g} us", "give what the plugin reports: 75us"
        )
    return NetworkModel(f"of {latency_us:g} us", latency_us, "--fabric")


def note(network: NetworkModel, assumed_from: str) -> str:
    """What the network adds to NCCL's times; `assumed_from` names the host whose NICs these are,
    if the network was not given.
    """
    added = (
        f"NCCL's model adds {network.latency_us:g} us to a hop between hosts, and twice that with"
        " Simple"
    )
    if assumed_from:
        return (
            f"the NICs are those of {assumed_from}, so the fabric is taken to be {network.name}:"
            f" {added} (--fabric says which)"
        )
    return f"fabric {network.name}: {added}"
