"""Samples what the links of each host carry during a row of a watched run: `busbw run --watch`.

LinkSampler reads the counters of this host while ranks measure.
"""

from collections.abc import Sequence

from busbw.core.errors import BusbwError
from busbw.core.link_samples import PCIE, HostSample, LinkFlow
from busbw.core.result import RankDevice
from busbw.core.telemetry import TCP, LinkTraffic
from busbw.host.link_counters import LinkCounters
from busbw.model.rates import flow, increases

MAX_LINKS = 32  # links of a host: 16 ports and the NVLink and PCIe of 8 GPUs


class LinkSampler:
    """Reads the network links of this host, and those of the GPUs of its `devices`.

    Descriptors stay open until `close`.
    """

    def __init__(self, devices: Sequence[RankDevice]) -> None:
        self._buses = {device.bus for device in devices if device.bus}
        self._traffic: LinkCounters | None = None
        self.reason = ""
        try:
            self._traffic = LinkCounters(gpus=bool(self._buses), errors_every_s=0.0)
        except BusbwError as error:
            self.reason = error.message
        self._before = self._traffic.read() if self._traffic else HostSample(0.0, (), {})

    def row(self) -> tuple[list[LinkTraffic], int | None]:
        """What each link carried since the last row, and what TCP resent (None: unknown)."""
        if self._traffic is None:
            return [], None
        before, now = self._before, self._traffic.read()
        self._before = now
        counted, seconds = increases(before, now), now.at_s - before.at_s
        links = [link for link in now.links if not link.bus or link.bus in self._buses]
        carried = [_carried(flow(link, counted, seconds=seconds)) for link in links][:MAX_LINKS]
        resent = counted.of(TCP).get("RetransSegs")
        return carried, None if resent is None else int(resent)

    @property
    def unread(self) -> list[str]:
        """Why links or counters are missing."""
        return [self.reason] if self.reason else list(self._before.unread)

    def close(self) -> None:
        if self._traffic is not None:
            self._traffic.close()


def _carried(flow: LinkFlow) -> LinkTraffic:
    """The flow of a link during a row as what it carried.

    NVML's counters of PCIe wrap several times a second, so bytes over a slot are never known.
    """
    counted = flow.kind != PCIE
    return LinkTraffic(
        name=flow.name,
        kind=flow.kind,
        sent=_rounded(flow.tx) if counted else None,
        received=_rounded(flow.rx) if counted else None,
        pause_in_s=flow.rx_pause,
        pause_out_s=flow.tx_pause,
        cnp_in=_rounded(flow.cnp_handled),
        cnp_out=_rounded(flow.cnp_sent),
        ecn=_rounded(flow.ecn_marked),
        lost=_rounded(flow.lost),
        dropped=_rounded(flow.dropped),
    )


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)
