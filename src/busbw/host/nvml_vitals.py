"""Current state of GPUs from NVML: clocks, why they are reduced, temperature, power, error
counters, Xid events.

Handles stay open between readings. A call takes 10 to 100 us, so one call reads all counters of a
GPU.
"""

from contextlib import suppress
from typing import Any

import msgspec

from busbw.core.counters import Owner, at
from busbw.core.telemetry import GpuReading, XidEvent
from busbw.host.gpu import short_bus
from busbw.host.nvml import ask, field_value, start

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
