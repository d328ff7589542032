"""What the links of this host carried during a row, with the counters of a watch: `busbw run
--watch`.
"""

from collections.abc import Sequence

from busbw.core.errors import BusbwError
from busbw.core.link_samples import PCIE, Flow, Sample
from busbw.core.result import Device
from busbw.core.telemetry import TCP, Carried
from busbw.host.link_counters import Traffic
from busbw.model.flows import flow
from busbw.model.rates import increases

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
