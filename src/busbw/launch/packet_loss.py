"""Where packets of a job are lost, from the TCP connections that its ranks report with a stall.

The functions are pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from busbw.core.rank_messages import Here, Stalled
from busbw.launch.hosts import without_user

# Bytes of TCP's header with timestamps (32) beyond those of an echo request (8): with so many more
# than a segment, ping sends a packet as large as TCP's, 8972 for an MTU of 9000.
_TCP_OVER_PING = 24


@dataclass(slots=True)
class _LossyPair:
    """All lossy connections between two hosts, from the side of `host`."""

    host: str
    peer: str
    interface: str
    timeouts: int = 0
    resent: int = 0
    sent: int = 0
    vanishing: int = 0
    address: str = ""  # of the peer


def describe(
    stalled: Mapping[int, Stalled],
    here: Mapping[int, Here] | None = None,
    hosts: Sequence[str] = (),
) -> tuple[str, str]:
    """Between which hosts and interfaces packets are lost, and a hint on how to look there.

    Both texts are empty if no packets are lost. `here` are the ranks that started, and `hosts` the
    user's names of their hosts, by rank.
    """
    started = (here or {}).items()
    names = {
        without_user(hosts[rank]): report.host for rank, report in started if rank < len(hosts)
    }
    pairs = _lossy_pairs(stalled, names)
    if not pairs:
        return "", ""
    pairs.sort(key=lambda pair: (pair.vanishing, pair.timeouts, pair.resent), reverse=True)
    worst = pairs[0]
    if worst.vanishing:
        return _small_mtu(worst)
    common_host = _common_host(pairs)
    where = f"between {worst.host} and {worst.peer}"
    if common_host and len(pairs) > 2:
        where = f"from and to {common_host}"
    on = f" on {worst.interface} of {worst.host}" if worst.interface else f" on {worst.host}"
    waits = ""
    if worst.timeouts > 1:
        waits = f", and {worst.timeouts} timeouts in a row without an answer"
    text = (
        f"packets are lost {where}: TCP retransmitted {worst.resent} of the last {worst.sent}"
        f" segments{on}{waits}"
    )
    name = worst.interface
    commands = f"ip -s link show {name}; ethtool -S {name}" if name else "ip -s link"
    hint = (
        f"{commands}, on {worst.host} and {worst.peer}, show errors and drops; then check cables"
        " and switch ports"
    )
    return text, hint


def _small_mtu(pair: _LossyPair) -> tuple[str, str]:
    text = (
        f"large packets from {pair.host} do not arrive on {pair.peer}, small ones do: segments of"
        f" {pair.vanishing} bytes had {pair.timeouts} timeouts in a row, as where an MTU on the way"
        f" is smaller than that of {pair.interface or 'the interface'} on {pair.host}"
    )
    echo_bytes = pair.vanishing + _TCP_OVER_PING
    hint = (
        f"ping -M do -s {echo_bytes} {pair.address}   (on {pair.host}; then ip link on both hosts,"
        " and the MTU of the switch ports)"
    )
    return text, hint


def _common_host(pairs: Sequence[_LossyPair]) -> str:
    """The only host that belongs to all pairs; '' if there is none."""
    common = set.intersection(*({pair.host, pair.peer} for pair in pairs))
    return next(iter(common)) if len(common) == 1 else ""


def _lossy_pairs(stalled: Mapping[int, Stalled], names: Mapping[str, str]) -> list[_LossyPair]:
    """The connections of each pair of hosts, summed up; `names` are hosts by address."""
    names = dict(names)
    for report in stalled.values():
        for connection in report.connections:
            names[connection.local] = report.host
    pairs: dict[tuple[str, str], _LossyPair] = {}
    for report in stalled.values():
        for connection in report.connections:
            peer = names.get(connection.peer, connection.peer)
            if peer == report.host:
                continue
            pair = pairs.setdefault(
                (report.host, peer), _LossyPair(report.host, peer, connection.interface)
            )
            pair.timeouts = max(pair.timeouts, connection.timeouts)
            pair.resent += connection.resent
            pair.sent += connection.sent
            if connection.vanishing:
                pair.vanishing, pair.address = connection.vanishing, connection.peer
    return list(pairs.values())
