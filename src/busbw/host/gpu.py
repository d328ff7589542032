"""The GPUs of a machine, from NVML and the PCI devices in sysfs.

PCI shows NVIDIA's devices whether or not a driver is loaded. NVML gives the facts of each GPU, and
how busy it is: an idle GPU lowers its clocks, which is no fault, and a kernel that only waits keeps
a GPU busy at low power.
"""

import json
from dataclasses import dataclass, field
from typing import Any

import msgspec

from busbw.core.sizes import counted
from busbw.core.topology import Gpu
from busbw.host.cpu import numa_node
from busbw.host.nvml import ask, read_nvml, start
from busbw.host.pci import DEVICES, NVIDIA, driver, read_devices
from busbw.host.source import Source, once

SWITCH_CLASS = "0x0680"  # NVSwitch is a bridge without a more exact class
# drivers that keep a device for a guest, besides those with vfio in their name
STUBS = ("pci-stub", "pciback", "xen-pciback")
# Bytes per second of 16 lanes in one direction, by generation (PCI-SIG: 2.5 and 5 GT/s with 8b/10b
# coding, then 8 to 64 GT/s).
PCIE_X16 = {1: 4e9, 2: 8e9, 3: 15.75e9, 4: 31.5e9, 5: 63e9, 6: 126e9}
# Nominal bytes per second of one NVLink in one direction, by NVML's link version (constants
# NVML_NVLINK_VERSION_*). 3.1 is left out: it runs at different rates on different boards.
NVLINK_RATE = {1: 20e9, 2: 25e9, 3: 25e9, 4: 25e9, 6: 25e9, 7: 50e9}
SWITCH = 2  # NVML_NVLINK_DEVICE_TYPE_SWITCH


def for_guests(name: str) -> bool:
    """Whether a driver keeps its device for a virtual machine of this host.

    Such drivers are vfio-pci, nvgrace-gpu-vfio-pci and mlx5_vfio_pci.
    """
    return "vfio" in name or name in STUBS


@once
def gpus_on_pci(source: Source) -> tuple[str, ...]:
    """PCI addresses of the GPUs that this machine's NVIDIA driver should have.

    GPUs that are kept for virtual machines are left out.
    """
    gpus = (bdf for bdf, device in read_devices(source).items() if device.gpu)
    return tuple(bdf for bdf in gpus if not for_guests(driver(source, bdf)))


def switches_on_pci(source: Source) -> tuple[str, ...]:
    switches = []
    for name in source.names(DEVICES):
        if source.read(f"{DEVICES}/{name}/vendor").text != NVIDIA:
            continue
        pci_class = source.read(f"{DEVICES}/{name}/class").text or ""
        if pci_class.startswith(SWITCH_CLASS):
            switches.append(name)
    return tuple(switches)


@dataclass(frozen=True, slots=True)
class GpuList:
    """The readable GPUs, the driver's version, and why GPUs are missing (empty if none are)."""

    gpus: list[Gpu] = field(default_factory=list)
    driver: str = ""
    reason: str = ""


def read_gpus(source: Source) -> GpuList:
    """GPUs as NVML lists them.

    Without NVML there are none; the reason then counts those that PCI shows.
    """
    on_pci = len(gpus_on_pci(source))
    reading = source.call("nvml", read_nvml)
    if reading.text is None:
        pci_note = f"; PCI shows {counted(on_pci, 'NVIDIA GPU')}" if on_pci else ""
        return GpuList(reason=reading.reason + pci_note)
    answer = json.loads(reading.text)
    entries = answer["gpus"]
    reasons = [
        f"NVML cannot read GPU {entry['index']}: {entry['error']}"
        for entry in entries
        if "error" in entry
    ]
    if on_pci > len(entries):
        reasons.append(f"PCI shows {counted(on_pci, 'NVIDIA GPU')}, NVML {len(entries)}")
    if not entries and not reasons:
        reasons.append("NVML lists no GPU")
    gpus = [_gpu(source, entry) for entry in entries if "error" not in entry]
    return GpuList(gpus, answer["driver"] or "", "; ".join(reasons))


def _gpu(source: Source, facts: dict[str, Any]) -> Gpu:
    capability, links = facts.get("compute_capability"), facts.get("nvlink")
    sm = capability[0] * 10 + capability[1] if capability else 0
    active = None if links is None else [link for link in links if link["state"] == 1]
    bus_id = sysfs_bus_id(facts["bus_id"])
    return Gpu(
        index=facts["index"],
        name=facts["name"],
        bus_id=bus_id,
        numa=numa_node(source, f"/sys/bus/pci/devices/{bus_id}"),
        nvlink=None if active is None else len(active),
        nvlink_rate=_rate(active, facts.get("nvlink_speed_mbps"), sm) if active else None,
        pcie=pcie_rate(facts.get("pcie_gen_max"), facts.get("pcie_width")),
        memory_bytes=facts.get("memory_bytes") or 0,
        sm=sm,
        nvls=_nvls(sm, active),
        pcie_gen=facts.get("pcie_gen"),
        pcie_gen_max=facts.get("pcie_gen_max"),
        pcie_width=facts.get("pcie_width"),
        pcie_width_max=facts.get("pcie_width_max"),
    )


def sysfs_bus_id(text: str) -> str:
    """NVML's `00000000:1B:00.0` as sysfs writes it, `0000:1b:00.0`.

    A domain above ffff, as behind VMD, has more digits.
    """
    domain, _, address = text.lower().partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{address}"


def short_bus(text: str) -> str:
    """A bus id of NVML or of the driver's log in the form of Device.bus, `0000:1b:00`."""
    return sysfs_bus_id(text).partition(".")[0]


def _rate(active: list[dict[str, Any]], common_mbps: int | None, sm: int) -> float | None:
    """The rate of the slowest link: a collective's rings load all links equally."""
    speeds = [link.get("speed_mbps") or common_mbps for link in active]
    known = [speed for speed in speeds if speed]
    slowest_mbps = min(known) if len(known) == len(speeds) else None
    return nvlink_rate(slowest_mbps, sm, [link["version"] for link in active])


def nvlink_rate(mbps: int | None, sm: int, versions: list[int | None]) -> float | None:
    """Nominal bytes per second of one link; None if it is unknown.

    It comes from NVML's megabytes per second, else from the versions of the links. NVML reports the
    signalling rate: 26562 for 25 GB/s of data on Hopper and 53125 for 50 on Blackwell (16/17
    framing), 25781 on Volta (64/66). Nominal rates are multiples of 1/16 GB/s; rounding to them
    undoes NVML's truncation to whole megabytes.
    """
    if mbps:
        framing = 1.0
        if sm >= 90:
            framing = 16 / 17
        elif sm // 10 == 7:
            framing = 64 / 66
        return round(mbps * framing / 62.5) * 62.5e6
    rates = set()
    for version in versions:
        if version is not None:
            # Some drivers report version 5.0 for Hopper's links, which are 4.0.
            rates.add(NVLINK_RATE.get(6 if version == 7 and sm == 90 else version))
    return rates.pop() if len(rates) == 1 else None


def pcie_rate(generation: int | None, width: int | None) -> float | None:
    """Bytes per second of `width` lanes in one direction.

    None if the generation or the width is unknown.
    """
    x16 = PCIE_X16.get(generation) if generation else None
    return x16 * width / 16 if x16 and width else None


def _nvls(sm: int, active: list[dict[str, Any]] | None) -> bool | None:
    """False if the GPU has no NVLS; None if it may have it, or the GPU is unknown.

    Hopper and later may have it behind NVSwitch, but only CUDA's multicast attribute confirms it.
    """
    if active is None or not sm:
        return None
    remotes = {link["remote"] for link in active}
    if sm < 90 or not active or (None not in remotes and SWITCH not in remotes):
        return False
    return None


class GpuUse(msgspec.Struct, frozen=True):
    """How busy a GPU is: percent of NVML's last sample period in which a kernel ran, and watts."""

    index: int
    percent: int | None = None
    power_w: int | None = None
    limit_w: int | None = None


def read_load(nvml: Any = None) -> str:
    """JSON of how busy each GPU is, by PCI address; Unavailable as `start`.

    It is the percent of NVML's last sample period in which a kernel ran.
    """
    nvml = start(nvml)
    try:
        percents = {}
        for _, handle in _handles(nvml):
            pci = ask(nvml, nvml.nvmlDeviceGetPciInfo, handle)
            rates = ask(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
            if pci and rates:
                percents[sysfs_bus_id(pci.busId)] = int(rates.gpu)
        return json.dumps(percents)
    finally:
        nvml.nvmlShutdown()


def load(source: Source) -> dict[str, int]:
    """Percent by PCI address; GPUs that cannot be read are left out."""
    return dict(json.loads(source.call("nvml_load", read_load).text or "{}"))


def loads(nvml: Any = None) -> list[GpuUse]:
    """How busy each GPU that NVML lists is, and its power; Unavailable as `start`."""
    nvml = start(nvml)
    try:
        return [_load(nvml, index, handle) for index, handle in _handles(nvml)]
    finally:
        nvml.nvmlShutdown()


def _handles(nvml: Any) -> list[tuple[int, Any]]:
    """Index and handle of each GPU that can be opened."""
    handles = [
        (index, ask(nvml, nvml.nvmlDeviceGetHandleByIndex, index))
        for index in range(ask(nvml, nvml.nvmlDeviceGetCount) or 0)
    ]
    return [(index, handle) for index, handle in handles if handle]


def _load(nvml: Any, index: int, handle: Any) -> GpuUse:
    rates = ask(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    power_mw = ask(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
    limit_mw = ask(nvml, nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    watts = (None if mw is None else round(mw / 1000) for mw in (power_mw, limit_mw))
    return GpuUse(index, int(rates.gpu) if rates else None, *watts)
