"""What the links of a watched run carried, by size and host, against what its operations must send.

Pure.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from busbw.core.link_samples import NVLINK, PCIE
from busbw.core.result import Result, ResultRow
from busbw.core.telemetry import MIN_USED_SHARE, LinkTraffic

NETWORK = "network"

# Collectives in which each rank of a host sends its own data to the other hosts.
PER_RANK = ("alltoall",)

# Collectives whose data leaves a host once for all of its ranks.
SHARED_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
SUMMED = ("sent", "received", "cnp_in", "cnp_out", "ecn", "lost", "dropped")
PAUSES = ("pause_in_s", "pause_out_s")
TROUBLES = ("lost", "dropped", *PAUSES, "cnp_in", "cnp_out", "ecn")


class RowTraffic(msgspec.Struct, frozen=True):
    """What the links of one kind of a host carried during a row."""

    row: ResultRow
    host: str
    kind: str  # NETWORK, NVLINK or PCIE
    links: int  # how many there are
    all: LinkTraffic  # the sums over the links; of pauses the largest
    # bytes that the row's operations must send from a host; None where not known
    least: int | None = None
    resent: int | None = None  # segments that TCP of the host sent again
    troubled: tuple[str, ...] = ()  # links with lost or dropped packets, pauses or notifications


def loads(result: Result) -> list[RowTraffic]:
    """The loads of the links that the run used, by row and host; [] for an unwatched run."""
    used = _used_links(result)
    every_load: list[RowTraffic] = []
    for row in result.rows:
        every_load += _row_loads(result, row, used)
    return every_load


def least_sent(result: Result, row: ResultRow, kind: str = NETWORK) -> int | None:
    """Bytes that the operations of a row must send over links of a kind, without reduction in the
    network: of NETWORK from each host, of NVLINK from all GPUs of one host.

    None for hosts with different numbers of ranks, for several groups, and for collectives in which
    ranks have different parts. None also for NETWORK with one host, and for NVLINK with several.
    """
    ranks_by_host = Counter(device.host for device in result.world.devices)
    hosts, collective = len(ranks_by_host), result.spec.row
    if result.world.groups > 1 or not row.operations:
        return None
    if len(set(ranks_by_host.values())) != 1 or collective.name not in (
        *SHARED_COLLECTIVES,
        *PER_RANK,
    ):
        return None
    ranks_per_host = next(iter(ranks_by_host.values()))
    if kind == NVLINK and hosts == 1:
        factor = ranks_per_host * collective.bus_factor(ranks_per_host)
        return round(factor * row.size_bytes * row.operations)
    if kind != NETWORK or hosts == 1:
        return None
    senders = ranks_per_host if collective.name in PER_RANK else 1
    return round(collective.bus_factor(hosts) * senders * row.size_bytes * row.operations)


def _used_links(result: Result) -> set[tuple[str, str]]:
    """Host and name of the links with at least USED of the bytes of the busiest of their kind;
    the network's only between hosts.
    """
    moved: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in result.rows:
        for change in row.machine or []:
            for link in change.links:
                moved_bytes = (link.sent or 0) + (link.received or 0)
                moved[change.host, _kind(link)][link.name] += moved_bytes
    one_host = len({device.host for device in result.world.devices}) < 2
    used: set[tuple[str, str]] = set()
    for (host, kind), bytes_by_link in moved.items():
        if one_host and kind == NETWORK:
            continue
        least_bytes = MIN_USED_SHARE * max(bytes_by_link.values())
        used |= {
            (host, name)
            for name, moved_bytes in bytes_by_link.items()
            if moved_bytes and moved_bytes >= least_bytes
        }
    return used


def _kind(link: LinkTraffic) -> str:
    return link.kind if link.kind in (NVLINK, PCIE) else NETWORK


def _row_loads(result: Result, row: ResultRow, used: set[tuple[str, str]]) -> Iterator[RowTraffic]:
    """The loads of one row; `used` has host and name of the links."""
    for change in row.machine or []:
        groups: dict[str, list[LinkTraffic]] = {}
        for link in change.links:
            if (change.host, link.name) in used or (_kind(link) == PCIE and link.lost):
                groups.setdefault(_kind(link), []).append(link)
        for kind, links in groups.items():
            network = kind == NETWORK
            yield RowTraffic(
                row,
                change.host,
                kind,
                len(links),
                _sum(kind, links),
                least=least_sent(result, row, kind),
                resent=change.resent if network else None,
                troubled=tuple(link.name for link in links if _troubled(link)),
            )


def _troubled(link: LinkTraffic) -> bool:
    return any(getattr(link, name) for name in TROUBLES)


def _sum(kind: str, links: Sequence[LinkTraffic]) -> LinkTraffic:
    """The links as one; values that no link knows are None."""
    values: dict[str, Any] = {}
    for name in (*SUMMED, *PAUSES):
        known = _known(links, name)
        if known:
            values[name] = max(known) if name in PAUSES else sum(known)
    return LinkTraffic(links[0].name if len(links) == 1 else "", kind, **values)


def _known(links: Sequence[LinkTraffic], name: str) -> list[Any]:
    """The values of a field of the links that know it."""
    values = [getattr(link, name) for link in links]
    return [value for value in values if value is not None]
