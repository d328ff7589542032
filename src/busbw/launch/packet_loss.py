"""Where packets of a job are lost, from the TCP connections that its ranks report with a stall.

Pure functions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from busbw.core.rank_messages import Here, Stalled


@dataclass(slots=True)
class _Lossy:
    """All connections between two hosts, from the side of `host`."""

    host: str
    peer: str
    interface: str
    timeouts: int = 0
    resent: int = 0
    sent: int = 0


def describe(
    stalled: Mapping[int, Stalled],
    here: Mapping[int, Here] | None = None,
    hosts: Sequence[str] = (),
) -> tuple[str, str]:
    """A sentence that names the hosts and interfaces between which packets are lost, and where to
    look; empty texts if none are.

    `here` are the ranks that started, and `hosts` the user's names of their hosts, by rank.
    """
    found = _by_pair(
        stalled, {hosts[rank]: one.host for rank, one in (here or {}).items() if rank < len(hosts)}
    )
    if not found:
        return "", ""
    found.sort(key=lambda one: (one.timeouts, one.resent), reverse=True)
    worst = found[0]
    shared = _shared(found)
    where = (
        f"from and to {shared}"
        if shared and len(found) > 2
        else f"between {worst.host} and {worst.peer}"
    )
    on = f" on {worst.interface} of {worst.host}" if worst.interface else f" on {worst.host}"
    waits = (
        f", and {worst.timeouts} timeouts in a row without an answer" if worst.timeouts > 1 else ""
    )
    text = (
        f"packets are lost {where}: TCP last sent {worst.resent} of {worst.sent} segments"
        f" again{on}{waits}"
    )
    name, both = worst.interface or "eth0", f"{worst.host} and {worst.peer}"
    return (
        text,
        (
            f"ip -s link show {name}; ethtool -S {name}   (on {both}: errors and drops), then their"
            " cables and switch ports"
        ),
    )


def _shared(found: Sequence[_Lossy]) -> str:
    """The host that is an end of all these connections, if there is one."""
    ends = [{one.host, one.peer} for one in found]
    common = set.intersection(*ends)
    return next(iter(common)) if len(common) == 1 else ""


def _by_pair(stalled: Mapping[int, Stalled], names: Mapping[str, str]) -> list[_Lossy]:
    """The connections of each pair of hosts together; `names` are hosts by address."""
    names = {
        **names,
        **{one.local: report.host for report in stalled.values() for one in report.connections},
    }
    pairs: dict[tuple[str, str], _Lossy] = {}
    for report in stalled.values():
        for one in report.connections:
            peer = names.get(one.peer, one.peer)
            if peer == report.host:
                continue
            pair = pairs.setdefault((report.host, peer), _Lossy(report.host, peer, one.interface))
            pair.timeouts = max(pair.timeouts, one.timeouts)
            pair.resent += one.resent
            pair.sent += one.sent
    return list(pairs.values())
