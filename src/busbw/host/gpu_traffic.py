"""What GPUs send and receive over NVLink and PCIe, from NVML, to be read often.

Measured on H100 with driver 580: reading a field of NVLink takes 1.4 ms, a field of PCIe 0.2 ms, at
times more, most of it CPU time. NVLink's counters are KiB of data in 64 bits, without protocol
overhead. PCIe's are bytes in 32 bits, with overhead, which a full link wraps in less than 0.1 s. So
PCIe's are read twice, a short time apart, and give a rate over the time between NVML's own
timestamps.
"""

import time
from typing import Any

from busbw.core.counters import Counter
from busbw.core.link_samples import GpuState
from busbw.core.watch_counters import link_errors, nvlink_counters
from busbw.host.gpu import short_bus
from busbw.host.gpu_state import gpu_state
from busbw.host.nvml import ask, field_value, start

ALL_LINKS = 0xFFFFFFFF  # UINT_MAX as scope: the sum over all links of the GPU (nvml.h)
PCIE_FIELDS = {"pcie_tx": "PCIE_COUNT_TX_BYTES", "pcie_rx": "PCIE_COUNT_RX_BYTES"}
PCIE_RANGE = 1 << 32
WINDOW_S = 0.01  # at least, between the two readings of PCIe's counters
LONGEST_US = 30_000  # 16 lanes of generation 6, at 126 GB/s, do not wrap the counter in it

# Seconds of the monotonic clock when it was read, and values by name.
Reading = tuple[float, dict[str, int]]

# By name, microseconds of NVML's clock and the value.
Stamped = dict[str, tuple[int, int]]


class GpuTraffic:
    """An NVML session on all GPUs; Unavailable as host.nvml.start."""

    def __init__(self, nvml: Any = None) -> None:
        self._nvml = start(nvml)
        self._handles: dict[str, Any] = {}
        for index in range(ask(self._nvml, self._nvml.nvmlDeviceGetCount) or 0):
            handle = ask(self._nvml, self._nvml.nvmlDeviceGetHandleByIndex, index)
            if handle is None:
                continue
            pci = ask(self._nvml, self._nvml.nvmlDeviceGetPciInfo, handle)
            if pci is not None:
                self._handles[short_bus(pci.busId)] = handle

    @property
    def buses(self) -> tuple[str, ...]:
        """Bus ids of the GPUs, such as 0000:1b:00, in NVML's order."""
        return tuple(self._handles)

    def traffic(self) -> dict[str, Reading]:
        """By bus id, the data counters of NVLink, and rate, generation and lanes of PCIe.

        What a GPU or driver lacks is absent. The reading takes 10 ms and more.
        """
        readings = {
            bus: (time.monotonic(), self._values(handle, nvlink_counters()) | self._slot(handle))
            for bus, handle in self._handles.items()
        }
        before = {bus: self._pcie(handle) for bus, handle in self._handles.items()}
        time.sleep(WINDOW_S)
        for bus, handle in self._handles.items():
            readings[bus][1].update(_pcie_rates(before[bus], self._pcie(handle)))
        return readings

    def errors(self) -> dict[str, Reading]:
        """By bus id, the error counters of NVLink and PCIe, as core/counters.py names them."""
        return {
            bus: (time.monotonic(), self._values(handle, link_errors()))
            for bus, handle in self._handles.items()
        }

    def states(self) -> tuple[GpuState, ...]:
        """What slows the GPUs, and who uses them."""
        return tuple(gpu_state(self._nvml, bus, handle) for bus, handle in self._handles.items())

    def _pcie(self, handle: Any) -> Stamped:
        fields = {}
        for name, constant in PCIE_FIELDS.items():
            field = getattr(self._nvml, f"NVML_FI_DEV_{constant}", None)
            if field is not None:
                fields[name] = field
        stamped = {}
        for name, answer in self._answers(handle, fields):
            value = field_value(self._nvml, answer)
            if value is not None:
                stamped[name] = (answer.timestamp, value)
        return stamped

    def _values(self, handle: Any, rows: tuple[Counter, ...]) -> dict[str, int]:
        fields: dict[str, Any] = {}
        for row in rows:
            field = getattr(self._nvml, row.read_from, None)
            if field:
                over_links = row.name in ("nvlink_tx", "nvlink_rx")
                fields[row.name] = (field, ALL_LINKS) if over_links else field
        values = {}
        for name, answer in self._answers(handle, fields):
            value = field_value(self._nvml, answer)
            if value is not None:
                values[name] = value
        return values

    def _answers(self, handle: Any, fields: dict[str, Any]) -> list[tuple[str, Any]]:
        numbers = list(fields.values())
        answers = ask(self._nvml, self._nvml.nvmlDeviceGetFieldValues, handle, numbers)
        return list(zip(fields, answers or [], strict=False))

    def _slot(self, handle: Any) -> dict[str, int]:
        nvml = self._nvml
        values = {
            "pcie_gen": ask(nvml, nvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
            "pcie_width": ask(nvml, nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        }
        return {name: value for name, value in values.items() if value}

    def close(self) -> None:
        ask(self._nvml, self._nvml.nvmlShutdown)


def _pcie_rates(before: Stamped, after: Stamped) -> dict[str, int]:
    """Bytes per second between two readings.

    Left out are readings so far apart that the counter may have wrapped more than once.
    """
    rates = {}
    for name in before.keys() & after.keys():
        (start_us, start_bytes), (end_us, end_bytes) = before[name], after[name]
        elapsed_us = end_us - start_us
        if 0 < elapsed_us <= LONGEST_US:
            rates[name] = round((end_bytes - start_bytes) % PCIE_RANGE * 1_000_000 / elapsed_us)
    return rates
