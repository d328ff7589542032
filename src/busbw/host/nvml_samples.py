"""Current state of GPUs from NVML: clocks, why they are reduced, temperature, power, error
counters, Xid events.

Handles stay open between readings. A call takes 10 to 100 us, so one call reads all counters of a
GPU.

Samples of one GPU's PCIe link, clock, heat and power from NVML, taken by a thread while the
GPU works.

Readings of one host before and after each size: GPUs, network ports, TCP and logged errors.

vitals = Vitals(devices_of_this_host)    in one process of each host; close() releases it
before = vitals.read()                   outside of what is timed
... one row ...
after = vitals.read()
row.machine = [change(before, after)]    core.telemetry.change; `after` is the next row's `before`
"""

import platform
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import msgspec

from busbw.core.counters import Owner, at
from busbw.core.result import Device
from busbw.core.telemetry import TCP, GpuReading, Reading, XidEvent
from busbw.host.counters import Ports, Tcp
from busbw.host.gpu import short_bus
from busbw.host.kernel_log import KernelLog
from busbw.host.nvml import ask, field_value, start
from busbw.host.source import Live, Source, Unavailable

_EVENTS = 64  # of one reading


class GpuVitals(msgspec.Struct):
    """One reading of all GPUs; `reason` says why they, or their events, cannot be read."""

    gpus: list[GpuReading]
    events: list[XidEvent] = []
    reason: str = ""


class Session:
    """An NVML session on the GPUs with these bus ids ("0000:00:06"), to be closed; Unavailable
    as `start`.
    """

    def __init__(self, buses: list[str], nvml: Any = None) -> None:
        self._nvml = start(nvml)
        self._handles = [
            (bus, ask(self._nvml, self._nvml.nvmlDeviceGetHandleByPciBusId, f"{bus}.0"))
            for bus in buses
        ]
        named = (
            (counter.name, getattr(self._nvml, counter.source, None)) for counter in at(Owner.GPU)
        )
        self._fields = [(name, field) for name, field in named if field is not None]
        self._largest = {
            bus: (self._clock(handle, "Max", "SM"), self._clock(handle, "Max", "MEM"))
            for bus, handle in self._handles
        }
        self._events, self._reason = self._watch()

    def _watch(self) -> tuple[Any, str]:
        """An event set for the GPUs' critical errors, or None and the reason."""
        nvml, made = self._nvml, None
        try:
            made = nvml.nvmlEventSetCreate()
            for _, handle in self._handles:
                if handle is not None:
                    nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, made)
        except nvml.NVMLError as error:
            if made is not None:
                ask(nvml, nvml.nvmlEventSetFree, made)
            return None, f"NVML events: {error}"
        return made, ""

    def read(self) -> str:
        """JSON of a GpuVitals; a GPU that cannot be read has only its bus."""
        gpus = [
            self._gpu(bus, handle) if handle is not None else GpuReading(bus)
            for bus, handle in self._handles
        ]
        return msgspec.json.encode(GpuVitals(gpus, self._seen(), self._reason)).decode()

    def _gpu(self, bus: str, handle: Any) -> GpuReading:
        nvml = self._nvml
        sm_max, memory_max = self._largest[bus]
        power_mw = ask(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
        return GpuReading(
            bus=bus,
            sm_mhz=self._clock(handle, "", "SM"),
            sm_max_mhz=sm_max,
            memory_mhz=self._clock(handle, "", "MEM"),
            memory_max_mhz=memory_max,
            reasons=self._reasons(handle),
            temperature_c=ask(
                nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU
            ),
            power_w=None if power_mw is None else round(power_mw / 1000),
            counters=self._counters(handle),
        )

    def _reasons(self, handle: Any) -> int | None:
        nvml = self._nvml
        bits: int | None = ask(nvml, nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
        # Drivers before 535 have only the former name of this call.
        return (
            bits
            if bits is not None
            else ask(nvml, nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        )

    def _clock(self, handle: Any, which: str, kind: str) -> int | None:
        if handle is None:
            return None
        clock: int | None = ask(
            self._nvml,
            getattr(self._nvml, f"nvmlDeviceGet{which}ClockInfo"),
            handle,
            getattr(self._nvml, f"NVML_CLOCK_{kind}"),
        )
        return clock

    def _counters(self, handle: Any) -> dict[str, int]:
        values = (
            ask(
                self._nvml,
                self._nvml.nvmlDeviceGetFieldValues,
                handle,
                [field for _, field in self._fields],
            )
            or []
        )
        read = (
            (name, field_value(self._nvml, value))
            for (name, _), value in zip(self._fields, values, strict=False)
        )
        return {name: value for name, value in read if value is not None}

    def _seen(self) -> list[XidEvent]:
        """Critical errors since the last reading, without waiting."""
        nvml, seen = self._nvml, dict[tuple[str, int], int]()
        while self._events is not None and sum(seen.values()) < _EVENTS:
            try:
                event = nvml.nvmlEventSetWait(self._events, 0)
                key = short_bus(nvml.nvmlDeviceGetPciInfo(event.device).busId), int(event.eventData)
            except nvml.NVMLError as error:
                if error.value != nvml.NVML_ERROR_TIMEOUT:
                    self._events, self._reason = None, f"NVML events: {error}"
                break
            seen[key] = seen.get(key, 0) + 1
        return [XidEvent(bus, code, times) for (bus, code), times in seen.items()]

    def close(self) -> None:
        """Release the events and NVML."""
        with suppress(self._nvml.NVMLError):
            if self._events is not None:
                self._nvml.nvmlEventSetFree(self._events)
            self._nvml.nvmlShutdown()


INTERVAL_S = 0.025


class Sample(msgspec.Struct, frozen=True, omit_defaults=True):
    """One reading, `at_s` seconds after the first.

    What NVML does not give is None. `reasons` are the bits of core.gpu_events.
    """

    at_s: float
    gen: int | None = None
    width: int | None = None
    sm_mhz: int | None = None
    reasons: int | None = None
    temperature_c: int | None = None
    power_w: int | None = None


class Sampler:
    """An NVML session on the GPU with this bus id ("0000:1b:00"), to be closed; Unavailable as
    `start`.
    """

    def __init__(self, bus: str, nvml: Any = None) -> None:
        self._nvml = nvml = start(nvml)
        self._handle = handle = ask(nvml, nvml.nvmlDeviceGetHandleByPciBusId, f"{bus}.0")
        self.index: int | None = ask(nvml, nvml.nvmlDeviceGetIndex, handle)
        self.gen_max: int | None = ask(nvml, nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle)
        self.width_max: int | None = ask(nvml, nvml.nvmlDeviceGetMaxPcieLinkWidth, handle)
        self.sm_max_mhz: int | None = ask(
            nvml, nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM
        )

    @contextmanager
    def sampling(self) -> Iterator[list[Sample]]:
        """Take samples during the context, into the list that it gives."""
        samples: list[Sample] = []
        ended, begun = threading.Event(), time.monotonic()

        def follow() -> None:
            while not ended.wait(INTERVAL_S):
                samples.append(self._sample(round(time.monotonic() - begun, 4)))

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield samples
        finally:
            ended.set()
            thread.join()

    def _sample(self, at_s: float) -> Sample:
        nvml, handle = self._nvml, self._handle
        reasons = ask(nvml, nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
        milliwatts = ask(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
        return Sample(
            at_s,
            ask(nvml, nvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
            ask(nvml, nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
            ask(nvml, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            # Drivers before 535 have only the former name of this call.
            (
                reasons
                if reasons is not None
                else ask(nvml, nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
            ),
            ask(nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            None if milliwatts is None else round(milliwatts / 1000),
        )

    def close(self) -> None:
        """Release NVML."""
        ask(self._nvml, self._nvml.nvmlShutdown)


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
