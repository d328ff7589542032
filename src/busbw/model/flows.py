"""What each link carried over an interval, from the rates of its groups: those of its RDMA port and
of its interfaces.

Pure.
"""

from collections.abc import Iterable, Sequence

from busbw.core.link_samples import ETHERNET, PCIE, Flow, Link, Slave
from busbw.core.watch_counters import DIRECTIONS, LEVELS, PRIORITIES
from busbw.host.gpu import pcie_rate
from busbw.model.rates import Rates

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
