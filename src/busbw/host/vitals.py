"""The machine beside the number: what one host says of itself before and after each size.

vitals = open_vitals(devices_of_this_host, interfaces)      one process of a host opens it, close() ends it
before = vitals.read()                                      outside what is timed
... one row ...
after = vitals.read()
row.machine = [change(before, after)]                       core.vitals.change; `after` is the next row's `before`
"""

import platform
import time
from collections.abc import Sequence
from contextlib import ExitStack

import msgspec

from busbw.core.result import Device
from busbw.core.vitals import TCP, Reading, XidEvent
from busbw.host.counters import Ports, Tcp
from busbw.host.kernel_log import KernelLog
from busbw.host.nvml_vitals import GpuVitals, Session
from busbw.host.source import Live, Source, Unavailable


class Vitals:
    """Readings of one host; see `open_vitals`. Descriptors and NVML stay open until `close`."""

    def __init__(self, source: Source, host: str, buses: list[str], interfaces: Sequence[str]) -> None:
        self._source, self._host, self._opened = source, host, ExitStack()
        self._session: Session | None = None
        self._buses, self._no_nvml = buses, ""
        with ExitStack() as undo:
            undo.callback(self.close)
            self._ports = Ports(source, interfaces, self._opened)
            self._tcp = Tcp(source, self._opened)
            # Without GPUs there are no errors of theirs to look for.
            self._log = KernelLog(source, self._opened) if buses else None
            undo.pop_all()

    def read(self) -> Reading:
        """The host as it is now. Never raises for what a machine lacks: that is left out and named in `unread`."""
        at_s = time.monotonic()
        said, unread = self._gpus()
        unread += self._ports.missing + self._tcp.missing
        events = _merged(said.events, self._log.read() if self._log else [])
        if self._log and self._log.reason:
            unread.append(self._log.reason)
        if said.reason:
            unread.append(said.reason)
        counters = {TCP: self._tcp.read()} | self._ports.read()
        return Reading(self._host, at_s, said.gpus, {name: one for name, one in counters.items() if one}, events, unread)

    def _gpus(self) -> tuple[GpuVitals, list[str]]:
        if not self._buses:
            return GpuVitals([]), []
        answer = self._source.call("nvml_vitals", self._ask_nvml)
        if answer.data is None:
            return GpuVitals([]), [answer.reason]
        try:
            return msgspec.json.decode(answer.data, type=GpuVitals), []
        except msgspec.DecodeError as error:
            return GpuVitals([]), [f"NVML's recorded answer is broken: {error}"]

    def _ask_nvml(self) -> str:
        if self._no_nvml:  # looking for the library again would take longer than all the rest
            raise Unavailable(self._no_nvml)
        try:
            self._session = self._session or Session(self._buses)
        except Unavailable as error:
            self._no_nvml = str(error)
            raise
        return self._session.read()

    def close(self) -> None:
        """Close every descriptor, and NVML."""
        if self._session is not None:
            self._session.close()
            self._session = None
        self._opened.close()


def open_vitals(devices: Sequence[Device], interfaces: Sequence[str] = (), source: Source | None = None) -> Vitals:
    """Vitals of this host: the GPUs of `devices` (its own, in order of rank) and the ports that carry the traffic.

    `interfaces` names RDMA devices and interfaces as Nic.name and Nic.netdev do; without any, all are read. `source` is the live
    machine by default.
    """
    host = devices[0].host if devices else platform.node()
    buses = list(dict.fromkeys(device.bus for device in devices if device.bus))
    return Vitals(source or Live(), host, buses, interfaces)


def _merged(told: list[XidEvent], logged: list[XidEvent]) -> list[XidEvent]:
    """NVML tells and the log tells of the same errors: each counts as often as the one that saw more of it."""
    merged = {(event.bus, event.number, event.switch): event for event in told}
    for event in logged:
        key = event.bus, event.number, event.switch
        if key not in merged or event.times > merged[key].times:
            merged[key] = event
    return list(merged.values())
