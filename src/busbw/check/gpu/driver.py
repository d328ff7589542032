"""The NVIDIA driver: whether the loaded module and the library have the same version."""

import re
from collections.abc import Iterator

from busbw.check.base import Check, failed, passed, unread
from busbw.check.gpu.each import compute, no_gpus
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.nvml_health import read_health

PATH = "/proc/driver/nvidia/version"
LOAD = "modprobe nvidia; if that fails: dmesg | grep NVRM; after a kernel update, rebuild the module: dkms autoinstall"
MISMATCH = "version mismatch"  # in NVML's error where library and module differ
_VERSION = re.compile(r"Module(?: for \S+)?\s+([0-9][0-9.]+)")

ROW = CheckRow(
    id="BW002",
    name="gpu-driver",
    layer=Layer.GPU,
    title="NVIDIA driver: kernel module and library",
    right="the kernel module is loaded, and has the same version as the library that programs use",
    why="After an update without a reboot the old module stays loaded. CUDA and NVML then fail to start in every new process.",
    fix="drain the host and reboot it; or stop all users of the GPUs, also nvidia-persistenced, nvidia-fabricmanager and nvidia-dcgm, "
    "then: rmmod nvidia_peermem nvidia_uvm nvidia_drm nvidia_modeset nvidia; modprobe nvidia",
    stays="yes, until the next update of the driver; hold its packages back, or reboot after each update",
    reads=(PATH, "/proc/modules", "/sys/bus/pci/devices/*/{vendor,class,driver}", "NVML"),
    sources=("NVIDIA driver README, chapter on the /proc interface",),
)


def not_loaded(machine: Machine) -> bool:
    """Whether a compute GPU has no driver. A display-class card may only drive a screen."""
    return compute(machine) and bool(machine.text("/proc/modules")) and "nvidia" not in machine.modules


def look(machine: Machine) -> Iterator[Found]:
    """The version and kind of the module: the open one can export memory as dma-buf."""
    gpus, reading = read_health(machine), machine.read(PATH)
    line = (reading.text or "").partition("\n")[0]
    match = _VERSION.search(line)
    if MISMATCH in gpus.reason:
        evidence = Evidence(PATH, line or reading.reason, "the library's version")
        yield failed("", "the driver's library and its loaded module have different versions", evidence, fix=ROW.fix)
    elif not_loaded(machine):
        evidence = Evidence("/proc/modules", "no nvidia", "nvidia")
        yield failed("", "the NVIDIA driver is not loaded: CUDA finds no GPU", evidence, fix=LOAD)
    elif missing := no_gpus(machine, gpus):
        yield missing
    elif not match:
        yield unread("", reading, "the version of the loaded module")
    elif gpus.driver and match[1] != gpus.driver:
        yield failed("", f"the loaded module is {match[1]}, the library {gpus.driver}", Evidence(PATH, line, gpus.driver), fix=ROW.fix)
    else:
        opened = "Open Kernel Module" in line
        flavor = "open kernel module" if opened else "proprietary kernel module: GPUDirect RDMA needs nvidia_peermem"
        yield passed("", f"driver {match[1]}, {flavor}", Evidence(PATH, line))


CHECK = Check(ROW, look)
