"""What the links of this host carried during a row, with the counters of a watch: `busbw run
--watch`.

What the links of a watched run carried, by size and host, against what its operations must send.

Pure.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from busbw.core.errors import BusbwError
from busbw.core.link_samples import NVLINK, PCIE, Flow, Sample
from busbw.core.result import Device, Result, Row
from busbw.core.telemetry import TCP, USED, Carried
from busbw.host.link_counters import Traffic
from busbw.model.rates import flow, increases

KEPT = 32  # links of a host: 16 ports and the NVLink and PCIe of 8 GPUs


class LinkSampler:
    """Reads the network links of this host, and those of the GPUs of its `devices`.

    Descriptors stay open until `close`.
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        self._buses = {device.bus for device in devices if device.bus}
        self._traffic: Traffic | None = None
        self.reason = ""
        try:
            self._traffic = Traffic(gpus=bool(self._buses), errors_every_s=0.0)
        except BusbwError as error:
            self.reason = error.message
        self._before = self._traffic.read() if self._traffic else Sample(0.0, (), {})

    def row(self) -> tuple[list[Carried], int | None]:
        """What each link carried since the last row, and how many segments TCP sent again, None
        if that is unknown.
        """
        if self._traffic is None:
            return [], None
        before, now = self._before, self._traffic.read()
        self._before = now
        found, seconds = increases(before, now), now.at_s - before.at_s
        own = [link for link in now.links if not link.bus or link.bus in self._buses]
        resent = found.of(TCP).get("RetransSegs")
        return [_carried(flow(link, found, seconds=seconds)) for link in own][:KEPT], (
            None if resent is None else int(resent)
        )

    @property
    def unread(self) -> list[str]:
        """Why links or counters are missing."""
        return [self.reason] if self.reason else list(self._before.unread)

    def close(self) -> None:
        """Close every descriptor, and NVML."""
        if self._traffic is not None:
            self._traffic.close()


def _carried(seen: Flow) -> Carried:
    """NVML's counters of PCIe wrap several times a second, so bytes over a slot are known for no
    row.
    """
    counted = seen.kind != PCIE
    return Carried(
        name=seen.name,
        kind=seen.kind,
        sent=_whole(seen.tx) if counted else None,
        received=_whole(seen.rx) if counted else None,
        pause_in_s=seen.rx_pause,
        pause_out_s=seen.tx_pause,
        cnp_in=_whole(seen.cnp_handled),
        cnp_out=_whole(seen.cnp_sent),
        ecn=_whole(seen.ecn_marked),
        lost=_whole(seen.lost),
        dropped=_whole(seen.dropped),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


NETWORK = "network"
PER_RANK = ("alltoall",)  # each rank of a host sends its own data to the other hosts
# data that leaves a host once for all of its ranks
SHARED = ("all_reduce", "all_gather", "reduce_scatter")
SUMMED = ("sent", "received", "cnp_in", "cnp_out", "ecn", "lost", "dropped")


class Load(msgspec.Struct, frozen=True):
    """What the links of one kind (NETWORK, NVLINK or PCIE) of a host carried during a row, summed;
    pauses are the longest of a port.

    `least` is the bytes that the operations of the row must send from a host, None where that is
    not known. `resent` are TCP's segments of the host. `troubled` names the links with lost or
    dropped packets, pauses or notifications.
    """

    row: Row
    host: str
    kind: str
    links: int
    all: Carried
    least: int | None = None
    resent: int | None = None
    troubled: tuple[str, ...] = ()


def loads(result: Result) -> list[Load]:
    """By row and host, of the links that the run used; empty for a run that was not watched."""
    used = _used(result)
    return [load for row in result.rows for load in _of_row(result, row, used)]


def least_sent(result: Result, row: Row, kind: str = NETWORK) -> int | None:
    """Bytes that the operations of a row must send from each host, without reduction in the
    network; of NVLink, from all GPUs of one host.

    None for hosts with different numbers of ranks, several groups, and collectives in which ranks
    have different parts; of the network for one host, of NVLink for several.
    """
    ranks = Counter(device.host for device in result.world.devices)
    collective, per_host = result.spec.row, set(ranks.values())
    if (
        len(per_host) != 1
        or result.world.groups > 1
        or not row.operations
        or collective.name not in (*SHARED, *PER_RANK)
    ):
        return None
    hosts, each = len(ranks), per_host.pop()
    if kind == NVLINK and hosts == 1:
        return round(each * collective.bus_factor(each) * row.size_bytes * row.operations)
    if kind != NETWORK or hosts == 1:
        return None
    return round(
        collective.bus_factor(hosts)
        * (each if collective.name in PER_RANK else 1)
        * row.size_bytes
        * row.operations
    )


def _used(result: Result) -> set[tuple[str, str]]:
    """Host and name of the links with at least USED of the bytes of the busiest of their kind;
    the network's only between hosts.
    """
    moved: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in result.rows:
        for change in row.machine or []:
            for link in change.links:
                moved[change.host, _kind(link)][link.name] += (link.sent or 0) + (
                    link.received or 0
                )
    alone = len({device.host for device in result.world.devices}) < 2
    return {
        (host, name)
        for (host, kind), links in moved.items()
        for name, by in links.items()
        if by and by >= USED * max(links.values()) and not (alone and kind == NETWORK)
    }


def _kind(link: Carried) -> str:
    return link.kind if link.kind in (NVLINK, PCIE) else NETWORK


def _of_row(result: Result, row: Row, used: set[tuple[str, str]]) -> Iterator[Load]:
    for change in row.machine or []:
        groups: dict[str, list[Carried]] = {}
        for link in change.links:
            if (change.host, link.name) in used or (_kind(link) == PCIE and link.lost):
                groups.setdefault(_kind(link), []).append(link)
        for kind, links in groups.items():
            network = kind == NETWORK
            yield Load(
                row,
                change.host,
                kind,
                len(links),
                _sum(kind, links),
                least=least_sent(result, row, kind),
                resent=change.resent if network else None,
                troubled=tuple(link.name for link in links if _troubled(link)),
            )


def _troubled(link: Carried) -> bool:
    return any(
        (
            link.lost,
            link.dropped,
            link.pause_in_s,
            link.pause_out_s,
            link.cnp_in,
            link.cnp_out,
            link.ecn,
        )
    )


def _sum(kind: str, links: Sequence[Carried]) -> Carried:
    """Of values that no link knows None."""
    sums = {
        name: sum(known)
        for name in SUMMED
        if (known := [value for link in links if (value := getattr(link, name)) is not None])
    }
    pauses = {
        name: max(known)
        for name in ("pause_in_s", "pause_out_s")
        if (known := [value for link in links if (value := getattr(link, name)) is not None])
    }
    return Carried(links[0].name if len(links) == 1 else "", kind, **sums, **pauses)
