"""Readings of one host before and after each size: GPUs, network ports, TCP and logged errors.

vitals = Vitals(devices_of_this_host)    in one process of each host; close() releases it
before = vitals.read()                   outside of what is timed
... one row ...
after = vitals.read()
row.machine = [change(before, after)]    core.telemetry.change; `after` is the next row's `before`
"""

import platform
import time
from collections.abc import Sequence
from contextlib import ExitStack

import msgspec

from busbw.core.result import Device
from busbw.core.telemetry import TCP, Reading, XidEvent
from busbw.host.counters import Ports, Tcp
from busbw.host.kernel_log import KernelLog
from busbw.host.nvml_vitals import GpuVitals, Session
from busbw.host.source import Live, Source, Unavailable


class Vitals:
    """Reads one host's GPUs among `devices` (the devices of its own ranks), its network ports and
    TCP.

    `source` is the live machine by default. Descriptors and NVML stay open until `close`. NVML
    takes milliseconds a GPU: it is asked again when that takes at most `gpu_share` of the time, and
    its values stay the same meanwhile.
    """

    def __init__(
        self, devices: Sequence[Device], source: Source | None = None, *, gpu_share: float = 1.0
    ) -> None:
        self._source, self._opened = source or Live(), ExitStack()
        self._host = devices[0].host if devices else platform.node()
        self._buses = list(dict.fromkeys(device.bus for device in devices if device.bus))
        self._session: Session | None = None
        self._no_nvml = ""
        self._gpu_share, self._due_s, self._latest = gpu_share, 0.0, GpuVitals([])
        with ExitStack() as undo:
            undo.callback(self.close)
            self._ports = Ports(self._source, self._opened)
            self._tcp = Tcp(self._source, self._opened)
            self._log = KernelLog(self._source, self._opened) if self._buses else None
            undo.pop_all()

    @property
    def gpus_due(self) -> bool:
        """Whether the next reading asks NVML again."""
        return bool(self._buses) and time.monotonic() >= self._due_s

    def ask_gpus_again(self) -> None:
        """The next reading asks NVML, whatever its share."""
        self._due_s = 0.0

    def read(self) -> Reading:
        """The host's current state.

        What cannot be read is left out, with the reason in `unread`.
        """
        at_s = time.monotonic()
        gpus = self._gpus()
        logged = self._log.read() if self._log else []
        unread = [gpus.reason, self._tcp.reason, self._log.reason if self._log else ""]
        counters = {TCP: self._tcp.read()} | self._ports.read()
        return Reading(
            self._host,
            at_s,
            gpus.gpus,
            {name: values for name, values in counters.items() if values},
            _merged(gpus.events, logged),
            [reason for reason in unread if reason],
        )

    def _gpus(self) -> GpuVitals:
        if not self._buses:
            return GpuVitals([])
        if not self.gpus_due:
            return msgspec.structs.replace(self._latest, events=[])
        began = time.monotonic()
        answer = self._source.call("nvml_vitals", self._read_nvml)
        found = (
            GpuVitals([], reason=answer.reason)
            if answer.data is None
            else msgspec.json.decode(answer.data, type=GpuVitals)
        )
        self._latest, ended = found, time.monotonic()
        self._due_s = began + (ended - began) / self._gpu_share
        return found

    def _read_nvml(self) -> str:
        if self._no_nvml:  # looking for the library again would take longer than all other reads
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


def _merged(events: list[XidEvent], logged: list[XidEvent]) -> list[XidEvent]:
    """NVML's events and those of the kernel log, which report the same errors: the larger count
    of each.
    """
    merged = {(event.bus, event.number, event.switch): event for event in events}
    for event in logged:
        key = event.bus, event.number, event.switch
        if key not in merged or event.times > merged[key].times:
            merged[key] = event
    return list(merged.values())
