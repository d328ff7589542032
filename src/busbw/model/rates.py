"""What happened between two samples of counters. Nothing here reads a file or a clock.

`rates` and `increases` turn two samples into increases, per second or whole.

`flow` is what one link carried over an interval, from the rates of its groups: those of its RDMA
port and of its interfaces.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from busbw.core.link_samples import (
    ETHERNET,
    PCIE,
    CounterGroup,
    HostLink,
    HostSample,
    LinkFlow,
    SlaveFlow,
)
from busbw.core.telemetry import increase
from busbw.core.watch_counters import DIRECTIONS, PRIORITIES, levels, watched_by_name
from busbw.host.gpu import pcie_rate

Key = tuple[str, str]
RESET, SATURATED = "reset", "saturated"
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
MICRO = 1e-6
UP, DOWN, NEW, GONE = "", "down", "new", "gone"
ACTIVE_STATE = 4


@dataclass(slots=True)
class CounterRates:
    """The rates of one interval, by group and name; from `increases` whole increases.

    `per_s` also has the current levels. `unknown` has the counters whose increase is unknown, and
    why: RESET or SATURATED.
    """

    per_s: dict[Key, dict[str, float]] = field(default_factory=dict)
    unknown: dict[Key, dict[str, str]] = field(default_factory=dict)

    def of(self, subject: str) -> dict[str, float]:
        """All values of one link, interface, or of TCP."""
        result: dict[str, float] = {}
        for (owner, _), values in self.per_s.items():
            if owner == subject:
                result |= values
        return result


def rates(
    before: HostSample, after: HostSample, previous: CounterRates | None = None
) -> CounterRates:
    """The increases per second between two samples of one host.

    A group that was not read in between keeps the rates of `previous`, the interval before, since
    its counters show nothing new yet. A device that is new or came back has only levels.
    """
    result = CounterRates()
    for key, group in after.groups.items():
        earlier = before.groups.get(key)
        if earlier is not None and earlier.at_s == group.at_s:
            result.per_s[key] = _levels(group) | (previous.per_s.get(key, {}) if previous else {})
            continue
        seconds = group.at_s - earlier.at_s if earlier else 0.0
        _add(result, key, earlier, group, seconds)
    return result


def _add(
    result: CounterRates, key: Key, before: CounterGroup | None, after: CounterGroup, seconds: float
) -> None:
    """Add the increases of a group, divided by `seconds`; only levels if it is another device."""
    same = before is not None and before.identity == after.identity
    result.per_s[key], unknown = _compare(before if same else None, after, seconds)
    if unknown:
        result.unknown[key] = unknown


def increases(before: HostSample, after: HostSample) -> CounterRates:
    """The increases between two samples of a host, without groups that lack a reading."""
    result = CounterRates()
    for key, group in after.groups.items():
        earlier = before.groups.get(key)
        if earlier is not None and earlier.at_s < group.at_s:
            _add(result, key, earlier, group, 1.0)
    return result


def _levels(group: CounterGroup) -> dict[str, float]:
    return {name: value for name, value in group.values.items() if name in levels()}


def _compare(
    before: CounterGroup | None, after: CounterGroup, seconds: float
) -> tuple[dict[str, float], dict[str, str]]:
    """Increases since `before`, divided by `seconds`, and levels."""
    per_s = _levels(after)
    unknown: dict[str, str] = {}
    previous = before.values if before else {}
    for name, value in after.values.items():
        if name in previous and name not in levels():
            earlier, row = previous[name], watched_by_name()[name]
            if value == earlier and not row.saturates:
                per_s[name] = 0.0
                continue
            rise = increase(row, earlier, value)
            if rise is None:
                unknown[name] = RESET if value < earlier else SATURATED
            else:
                per_s[name] = rise / seconds
    return per_s, unknown


def _pauses(direction: str) -> tuple[str, ...]:
    """The counters of the time of pauses: of each priority, and of the whole link."""
    names = [f"{direction}_prio{number}_pause_duration" for number in PRIORITIES]
    return (*names, f"{direction}_global_pause_duration")


PAUSES = {direction: _pauses(direction) for direction in DIRECTIONS}


def flow(
    link: HostLink, link_rates: CounterRates, *, new: bool = False, seconds: float = 1.0
) -> LinkFlow:
    """The flow of one link. `new` is a link that was not in the sample before.

    Its values are per second, or whole where `link_rates` are `increases` over `seconds`.
    """
    device = {} if link.name in link.interfaces else link_rates.of(link.name)
    parts = {name: link_rates.of(name) for name in link.interfaces}
    counters = device | _sum(parts.values())
    dropped = DROPPED + DROPPED_BY_KERNEL if link.kind == ETHERNET else DROPPED
    unknown: dict[str, str] = {}
    for (subject, _), reasons in link_rates.unknown.items():
        if subject in (link.name, *parts):
            unknown |= reasons
    return LinkFlow(
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


def flow_of_gone_link(link: HostLink) -> LinkFlow:
    """The flow of a link that is no longer listed."""
    return LinkFlow(name=link.name, kind=link.kind, rate=link.rate, state=GONE)


def _slave(name: str, values: dict[str, float]) -> SlaveFlow:
    return SlaveFlow(name, _first(values, SENT), _first(values, RECEIVED), values)


def _rate(link: HostLink, counters: dict[str, float]) -> float | None:
    """The current rate of a PCIe link, where it is known: a GPU lowers its PCIe generation when
    idle, and some slots have fewer lanes.
    """
    generation, width = counters.get("pcie_gen"), counters.get("pcie_width")
    if link.kind != PCIE or not generation or not width:
        return link.rate
    return pcie_rate(int(generation), int(width)) or link.rate


def _state(counters: dict[str, float]) -> str:
    down = (
        counters.get("state", ACTIVE_STATE) != ACTIVE_STATE or counters.get("operational", 1) == 0
    )
    return DOWN if down else UP


def _sum(parts: Iterable[dict[str, float]]) -> dict[str, float]:
    """Counters of all slaves together; of levels the largest: a bond is up while one slave is."""
    totals: dict[str, float] = {}
    for values in parts:
        for name, value in values.items():
            if name not in totals:
                totals[name] = value
            elif name in levels():
                totals[name] = max(totals[name], value)
            else:
                totals[name] += value
    return totals


def _first(counters: dict[str, float], names: Sequence[str]) -> float | None:
    return next((counters[name] for name in names if name in counters), None)


def total(counters: dict[str, float], names: Sequence[str]) -> float | None:
    """The sum of those counters that are known; None if none is known."""
    known = [counters[name] for name in names if name in counters]
    return sum(known) if known else None


def _pause(direction: str, parts: Iterable[dict[str, float]], seconds: float) -> float | None:
    """For how long of `seconds` the priority that was paused for longest on any interface was
    paused; None if no counter of pauses is known.
    """
    known = [values[name] for values in parts for name in PAUSES[direction] if name in values]
    return min(max(known) * MICRO, seconds) if known else None
