"""Two samples of counters into increases, whole or per second. Pure.

What each link carried over an interval, from the rates of its groups: those of its RDMA port and
of its interfaces.

Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from busbw.core.link_samples import ETHERNET, PCIE, Flow, Group, Link, Sample, Slave
from busbw.core.telemetry import increase
from busbw.core.watch_counters import BY_NAME, DIRECTIONS, LEVELS, PRIORITIES
from busbw.host.gpu import pcie_rate

Key = tuple[str, str]
RESET, SATURATED = "reset", "saturated"


@dataclass(slots=True)
class Rates:
    """Of one interval, by group.

    `per_s` has levels as they are; `unknown` the counters whose increase is unknown, and why.

    Those of `increases` are of the whole interval.
    """

    per_s: dict[Key, dict[str, float]] = field(default_factory=dict)
    unknown: dict[Key, dict[str, str]] = field(default_factory=dict)

    def of(self, subject: str) -> dict[str, float]:
        """All values of one link, interface, or of TCP."""
        found: dict[str, float] = {}
        for (owner, _), values in self.per_s.items():
            if owner == subject:
                found |= values
        return found


def rates(before: Sample, after: Sample, held: Rates | None = None) -> Rates:
    """The increases between two samples of one host.

    A group that was not read in between has those of `held`, the rates before, since its counters
    show nothing new yet. A device that was not there before, or that came back, has levels alone.
    """
    found = Rates()
    for key, group in after.groups.items():
        earlier = before.groups.get(key)
        if earlier is not None and earlier.at_s == group.at_s:
            found.per_s[key] = _levels(group) | (held.per_s.get(key, {}) if held else {})
            continue
        same = earlier is not None and earlier.identity == group.identity
        found.per_s[key], unknown = _of(
            earlier if same else None, group, group.at_s - earlier.at_s if earlier else 0.0
        )
        if unknown:
            found.unknown[key] = unknown
    return found


def increases(before: Sample, after: Sample) -> Rates:
    """The whole increases between two samples of one host; none of a group that was not read in
    between.
    """
    found = Rates()
    for key, group in after.groups.items():
        earlier = before.groups.get(key)
        if earlier is not None and earlier.at_s < group.at_s:
            found.per_s[key], unknown = _of(
                earlier if earlier.identity == group.identity else None, group, 1.0
            )
            found.unknown |= {key: unknown} if unknown else {}
    return found


def _levels(group: Group) -> dict[str, float]:
    return {name: value for name, value in group.values.items() if name in LEVELS}


def _of(
    before: Group | None, after: Group, seconds: float
) -> tuple[dict[str, float], dict[str, str]]:
    """Increases since `before`, divided by `seconds`, and levels."""
    per_s = _levels(after)
    unknown: dict[str, str] = {}
    was = before.values if before else {}
    for name, value in after.values.items():
        if name in was and name not in LEVELS:
            earlier, row = was[name], BY_NAME[name]
            if value == earlier and not row.saturates:
                per_s[name] = 0.0
                continue
            by = increase(row, earlier, value)
            if by is None:
                unknown[name] = RESET if value < earlier else SATURATED
            else:
                per_s[name] = by / seconds
    return per_s, unknown


# The first that is known counts: on the wire where the driver says so, else data of RDMA, else what
# the kernel sends.
SENT = ("tx_bytes_phy", "port_xmit_data", "tx_bytes", "nvlink_tx", "pcie_tx")
RECEIVED = ("rx_bytes_phy", "port_rcv_data", "rx_bytes", "nvlink_rx", "pcie_rx")
# Of several counters of the same event one is taken. out_of_sequence is left out: with adaptive
# routing it is normal.
LOST = (
    "packet_seq_err",
    "local_ack_timeout_err",
    "implied_nak_seq_err",
    "roce_adp_retrans",
    "retrans_pkts",
    "nvlink_replay",
    "pcie_replay",
)
DROPPED = ("out_of_buffer", "rx_discards_phy", "tx_discards_phy", "port_xmit_discards", "rx_drops")
DROPPED_BY_KERNEL = ("rx_dropped", "tx_dropped", "rx_fifo_errors")
PAUSES = {
    way: (
        *(f"{way}_prio{number}_pause_duration" for number in PRIORITIES),
        f"{way}_global_pause_duration",
    )
    for way in DIRECTIONS
}
MICRO = 1e-6
UP, DOWN, NEW, GONE = "", "down", "new", "gone"
ACTIVE = 4


def flow(link: Link, found: Rates, *, new: bool = False, seconds: float = 1.0) -> Flow:
    """The flow of one link. `new` is a link that was not there in the sample before.

    Of `found` from `increases` over `seconds`, its values are whole too.
    """
    own = found.of(link.name) if link.name not in link.interfaces else {}
    parts = {name: found.of(name) for name in link.interfaces}
    counters = own | _sum(parts.values())
    dropped = DROPPED + DROPPED_BY_KERNEL if link.kind == ETHERNET else DROPPED
    unknown = {
        name: why
        for (subject, _), one in found.unknown.items()
        if subject in (link.name, *parts)
        for name, why in one.items()
    }
    return Flow(
        name=link.name,
        kind=link.kind,
        rate=_rate(link, counters),
        state=NEW if new else _state(counters),
        tx=_first(counters, SENT),
        rx=_first(counters, RECEIVED),
        tx_pause=_pause("tx", parts.values(), seconds),
        rx_pause=_pause("rx", parts.values(), seconds),
        cnp_sent=counters.get("np_cnp_sent"),
        cnp_handled=counters.get("rp_cnp_handled"),
        ecn_marked=counters.get("np_ecn_marked_roce_packets"),
        lost=total(counters, LOST),
        dropped=total(counters, dropped),
        bond=link.bond,
        slaves=tuple(_slave(name, values) for name, values in parts.items()) if link.bond else (),
        counters=counters,
        unknown=unknown,
    )


def gone(link: Link) -> Flow:
    """A link that was there and is not now."""
    return Flow(name=link.name, kind=link.kind, rate=link.rate, state=GONE)


def _slave(name: str, values: dict[str, float]) -> Slave:
    return Slave(name, _first(values, SENT), _first(values, RECEIVED), values)


def _rate(link: Link, counters: dict[str, float]) -> float | None:
    """A GPU lowers its PCIe generation when idle, and some slots have fewer lanes: the current
    rate, where it is known.
    """
    if link.kind != PCIE:
        return link.rate
    generation, width = (counters.get(name) for name in ("pcie_gen", "pcie_width"))
    now = pcie_rate(int(generation), int(width)) if generation and width else None
    return now or link.rate


def _state(counters: dict[str, float]) -> str:
    down = counters.get("state", ACTIVE) != ACTIVE or counters.get("operational", 1) == 0
    return DOWN if down else UP


def _sum(parts: Iterable[dict[str, float]]) -> dict[str, float]:
    """Counters of all slaves together; of levels the largest: a bond is up while one slave is."""
    found: dict[str, float] = {}
    for values in parts:
        for name, value in values.items():
            if name not in found:
                found[name] = value
            elif name in LEVELS:
                found[name] = max(found[name], value)
            else:
                found[name] += value
    return found


def _first(counters: dict[str, float], names: Sequence[str]) -> float | None:
    return next((counters[name] for name in names if name in counters), None)


def total(counters: dict[str, float], names: Sequence[str]) -> float | None:
    """The sum of the known ones; None if none is known."""
    known = [counters[name] for name in names if name in counters]
    return sum(known) if known else None


def _pause(way: str, parts: Iterable[dict[str, float]], seconds: float) -> float | None:
    """For how long of `seconds` the most paused priority of any interface was paused."""
    known = [values[name] for values in parts for name in PAUSES[way] if name in values]
    return min(max(known) * MICRO, seconds) if known else None
