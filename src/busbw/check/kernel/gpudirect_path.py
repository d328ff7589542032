"""How RDMA devices reach GPU memory."""

import re
from collections.abc import Iterator

from busbw.check.base import Check, not_offered, passed, skipped, unread, warned
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.pci import AMAZON, read_devices

VERSION, RELEASE = "/proc/driver/nvidia/version", "/proc/sys/kernel/osrelease"
MODULES = ("nvidia_peermem", "nv_peer_mem")
OPEN = "Open Kernel Module"
DMA_BUF = (5, 12)  # the first kernel whose RDMA devices can register DMA-BUF memory

ROW = CheckRow(
    id="BW110",
    name="gpudirect-path",
    layer=Layer.KERNEL,
    title="access of RDMA devices to GPU memory (GPUDirect RDMA)",
    right="nvidia_peermem is loaded, or the driver is NVIDIA's open one on Linux 5.12 or newer (DMA-BUF)",
    why="Without it NCCL copies all data through host memory, at about half the rate or less, and its log lacks GDRDMA.",
    fix="modprobe nvidia_peermem",
    stays="lost at the next reboot; write nvidia_peermem to a file in /etc/modules-load.d",
    reads=("/proc/modules", "/sys/module", VERSION, RELEASE),
    sources=("NCCL user guide, troubleshooting: GPU-to-NIC communication",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Whether one of the two is available."""
    devices = read_devices(machine)
    ports = [port for port in machine.ports if port.bdf not in devices or devices[port.bdf].vendor != AMAZON]
    if not ports or not any(device.gpu for device in devices.values()):
        yield skipped("no GPU together with an RDMA device" if not machine.ports or ports else "EFA has its own mechanism")
        return
    loaded = next((name for name in MODULES if name in machine.modules), None)
    driver = machine.read(VERSION)
    if loaded:
        yield passed("", f"{loaded} is loaded", Evidence("/proc/modules", loaded))
    elif driver.text is None:
        yield unread("", driver, "the NVIDIA driver's version")
    else:
        yield _without_module(machine, driver.text.partition("\n")[0])


def _without_module(machine: Machine, driver: str) -> Found:
    kernel = machine.text(RELEASE) or ""
    match = re.match(r"(\d+)\.(\d+)", kernel)
    if match is None:
        return not_offered("", f"{MODULES[0]} is not loaded, and {RELEASE} gives no kernel version")
    recent = (int(match.group(1)), int(match.group(2))) >= DMA_BUF
    evidence = (Evidence(VERSION, driver, OPEN), Evidence(RELEASE, kernel, "5.12 or newer"))
    if OPEN in driver and recent:
        return passed("", "the open driver exports GPU memory as DMA-BUF", *evidence)
    lack = "the driver is the proprietary one" if recent else f"Linux {kernel} is older than 5.12"
    return warned("", f"{MODULES[0]} is not loaded, and without it RDMA cannot reach GPU memory: {lack}", *evidence, fix=ROW.fix)


CHECK = Check(ROW, look)
