"""Repeated readings of a host during a measurement: GPUs, network ports, TCP and logged errors.

`Session` reads GPUs from NVML: clocks and why they are reduced, temperature, power, error counters
and Xid events. Handles stay open between readings. A call takes 10 to 100 us, so one call reads all
counters of a GPU.

`Vitals` reads the whole host before and after each size:

vitals = Vitals(devices_of_this_host)    in one process of each host; close() releases it
before = vitals.read()                   outside of what is timed
... one row ...
after = vitals.read()
row.machine = [change(before, after)]    core.telemetry.change; `after` is the next row's `before`
"""

import platform
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

import msgspec

from busbw.core.counters import Owner, counters_of
from busbw.core.result import RankDevice
from busbw.core.telemetry import TCP, GpuReading, HostReading, XidEvent
from busbw.host.gpu import short_bus
from busbw.host.kernel_log import KernelLog
from busbw.host.nvml import ask, field_value, start
from busbw.host.port_counters import PortCounters, Tcp
from busbw.host.source import LiveMachine, Source, Unavailable

_EVENTS = 64  # of one reading


class GpuVitals(msgspec.Struct):
    """One reading of all GPUs; `reason` says why they, or their events, cannot be read."""

    gpus: list[GpuReading]
    events: list[XidEvent] = []
    reason: str = ""


class Session:
    """An NVML session on the GPUs with the bus ids `buses` ("0000:00:06"), to be closed.

    Unavailable as `start`.
    """

    def __init__(self, buses: list[str], nvml: Any = None) -> None:
        self._nvml = start(nvml)
        self._handles = [
            (bus, ask(self._nvml, self._nvml.nvmlDeviceGetHandleByPciBusId, f"{bus}.0"))
            for bus in buses
        ]
        fields = (
            (counter.name, getattr(self._nvml, counter.read_from, None))
            for counter in counters_of(Owner.GPU)
        )
        self._fields = [(name, field) for name, field in fields if field is not None]
        self._max_clocks = {
            bus: (self._clock(handle, "Max", "SM"), self._clock(handle, "Max", "MEM"))
            for bus, handle in self._handles
        }
        self._events, self._reason = self._register_events()

    def _register_events(self) -> tuple[Any, str]:
        """An event set for the GPUs' critical errors, or None and the reason."""
        nvml, events = self._nvml, None
        try:
            events = nvml.nvmlEventSetCreate()
            for _, handle in self._handles:
                if handle is not None:
                    nvml.nvmlDeviceRegisterEvents(
                        handle, nvml.nvmlEventTypeXidCriticalError, events
                    )
        except nvml.NVMLError as error:
            if events is not None:
                ask(nvml, nvml.nvmlEventSetFree, events)
            return None, f"NVML events: {error}"
        return events, ""

    def read(self) -> str:
        """JSON of a GpuVitals; a GPU that cannot be read has only its bus."""
        gpus = [
            self._gpu(bus, handle) if handle is not None else GpuReading(bus)
            for bus, handle in self._handles
        ]
        return msgspec.json.encode(GpuVitals(gpus, self._new_events(), self._reason)).decode()

    def _gpu(self, bus: str, handle: Any) -> GpuReading:
        nvml = self._nvml
        sm_max, memory_max = self._max_clocks[bus]
        power_mw = ask(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
        return GpuReading(
            bus=bus,
            sm_mhz=self._clock(handle, "", "SM"),
            sm_max_mhz=sm_max,
            memory_mhz=self._clock(handle, "", "MEM"),
            memory_max_mhz=memory_max,
            reasons=clock_reasons(nvml, handle),
            temperature_c=ask(
                nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU
            ),
            power_w=None if power_mw is None else round(power_mw / 1000),
            counters=self._counters(handle),
        )

    def _clock(self, handle: Any, prefix: str, domain: str) -> int | None:
        """MHz of a clock: the current one for the prefix '', the largest one for "Max"."""
        if handle is None:
            return None
        function = getattr(self._nvml, f"nvmlDeviceGet{prefix}ClockInfo")
        mhz: int | None = ask(
            self._nvml, function, handle, getattr(self._nvml, f"NVML_CLOCK_{domain}")
        )
        return mhz

    def _counters(self, handle: Any) -> dict[str, int]:
        nvml = self._nvml
        numbers = [field for _, field in self._fields]
        answers = ask(nvml, nvml.nvmlDeviceGetFieldValues, handle, numbers) or []
        counters = {}
        for (name, _), answer in zip(self._fields, answers, strict=False):
            value = field_value(nvml, answer)
            if value is not None:
                counters[name] = value
        return counters

    def _new_events(self) -> list[XidEvent]:
        """Critical errors since the last reading, without waiting."""
        nvml = self._nvml
        times: Counter[tuple[str, int]] = Counter()
        while self._events is not None and times.total() < _EVENTS:
            try:
                event = nvml.nvmlEventSetWait(self._events, 0)
                bus = short_bus(nvml.nvmlDeviceGetPciInfo(event.device).busId)
                code = int(event.eventData)
            except nvml.NVMLError as error:
                if error.value != nvml.NVML_ERROR_TIMEOUT:
                    self._events, self._reason = None, f"NVML events: {error}"
                break
            times[bus, code] += 1
        return [XidEvent(bus, code, count) for (bus, code), count in times.items()]

    def close(self) -> None:
        with suppress(self._nvml.NVMLError):
            if self._events is not None:
                self._nvml.nvmlEventSetFree(self._events)
            self._nvml.nvmlShutdown()


def clock_reasons(nvml: Any, handle: Any) -> int | None:
    """Bits of why clocks are reduced."""
    bits: int | None = ask(nvml, nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    if bits is None:  # drivers before 535 have only the former name of this call
        bits = ask(nvml, nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    return bits


class Vitals:
    """Reads one host: the GPUs of its ranks' `devices`, the network ports, and TCP.

    `source` is the live machine by default. Descriptors and NVML stay open until `close`. NVML
    takes milliseconds a GPU, so it is asked only as often as takes at most `gpu_share` of the time;
    in between its values stay the same.
    """

    def __init__(
        self, devices: Sequence[RankDevice], source: Source | None = None, *, gpu_share: float = 1.0
    ) -> None:
        self._source, self._opened = source or LiveMachine(), ExitStack()
        self._host = devices[0].host if devices else platform.node()
        self._buses = list(dict.fromkeys(device.bus for device in devices if device.bus))
        self._session: Session | None = None
        self._no_nvml = ""  # why NVML is unavailable
        self._gpu_share, self._due_s, self._latest = gpu_share, 0.0, GpuVitals([])
        with ExitStack() as undo:
            undo.callback(self.close)
            self._ports = PortCounters(self._source, self._opened)
            self._tcp = Tcp(self._source, self._opened)
            self._log = KernelLog(self._source, self._opened) if self._buses else None
            undo.pop_all()

    @property
    def gpus_due(self) -> bool:
        """Whether the next reading asks NVML again."""
        return bool(self._buses) and time.monotonic() >= self._due_s

    def ask_gpus_again(self) -> None:
        """Have the next reading ask NVML, whatever its share."""
        self._due_s = 0.0

    def read(self) -> HostReading:
        """The host's current state.

        What cannot be read is left out, with the reason in `unread`.
        """
        at_s = time.monotonic()
        gpus = self._gpus()
        logged = self._log.read() if self._log else []
        unread = [gpus.reason, self._tcp.reason, self._log.reason if self._log else ""]
        counters = {TCP: self._tcp.read()} | self._ports.read()
        return HostReading(
            self._host,
            at_s,
            gpus.gpus,
            {name: values for name, values in counters.items() if values},
            _merge(gpus.events, logged),
            [reason for reason in unread if reason],
        )

    def _gpus(self) -> GpuVitals:
        if not self._buses:
            return GpuVitals([])
        if not self.gpus_due:
            return msgspec.structs.replace(self._latest, events=[])
        start_s = time.monotonic()
        reading = self._source.call("nvml_vitals", self._read_nvml)
        if reading.data is None:
            vitals = GpuVitals([], reason=reading.reason)
        else:
            vitals = msgspec.json.decode(reading.data, type=GpuVitals)
        self._latest = vitals
        self._due_s = start_s + (time.monotonic() - start_s) / self._gpu_share
        return vitals

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
        if self._session is not None:
            self._session.close()
            self._session = None
        self._opened.close()


def _merge(events: list[XidEvent], logged: list[XidEvent]) -> list[XidEvent]:
    """NVML's events and those of the kernel log, without duplicates.

    Both report the same errors: the larger count of each error is kept.
    """
    merged = {(event.bus, event.number, event.switch): event for event in events}
    for event in logged:
        key = event.bus, event.number, event.switch
        if key not in merged or event.times > merged[key].times:
            merged[key] = event
    return list(merged.values())
