"""The NVIDIA driver: its module, library and device files, and what it supports."""

import json
import re
from collections.abc import Iterator

from busbw.check.base import check, failed, judged, not_offered, passed, skipped, unread, warned
from busbw.check.gpu.per_gpu import compute, in_wsl, no_gpus, nvml_evidence, per_gpu, unreported
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.kernel_rule import RELOAD_DRIVER
from busbw.host.gpu import gpus_on_pci
from busbw.host.gpu_health import GpuHealth
from busbw.host.nccl_packages import CALL, built_for, read_packages
from busbw.host.nvml_health import read_health

VERSION_FILE = "/proc/driver/nvidia/version"
LOAD_DRIVER = (
    "modprobe nvidia; if that fails: dmesg | grep NVRM; after a kernel update, rebuild the module:"
    " dkms autoinstall"
)
MISMATCH = "version mismatch"  # in NVML's error where library and module differ
_VERSION = re.compile(r"Module(?: for \S+)?\s+([0-9][0-9.]+)")

DRIVER = CheckRow(
    id="BW002",
    name="gpu-driver",
    layer=Layer.GPU,
    title="NVIDIA driver: kernel module and library",
    right="the kernel module is loaded, and has the same version as the library that programs use",
    why=(
        "After an update without a reboot the old module stays loaded. CUDA and NVML then fail to"
        " start in every new process."
    ),
    fix=f"drain the host and reboot it; or, after all users of the GPUs ended: {RELOAD_DRIVER}",
    stays=(
        "yes, until the next update of the driver; hold its packages back, or reboot after each"
        " update"
    ),
    reads=(VERSION_FILE, "/proc/modules", "/sys/bus/pci/devices/*/{vendor,class,driver}", "NVML"),
    sources=("NVIDIA driver README, chapter on the /proc interface",),
)
MODULES = "/proc/modules"
UVM_DEVICE = "nvidia-uvm"
UVM_FILE = f"/dev/{UVM_DEVICE}"


@check(DRIVER)
def check_driver(machine: Machine) -> Iterator[Finding]:
    """The version and kind of the module: the open one can export memory as dma-buf."""
    gpus, reading = read_health(machine), machine.read(VERSION_FILE)
    line = (reading.text or "").partition("\n")[0]
    match = _VERSION.search(line)
    if MISMATCH in gpus.reason:
        evidence = Evidence(VERSION_FILE, line or reading.reason, "the library's version")
        message = "the driver's library and its loaded module have different versions"
        yield failed("", message, evidence, fix=DRIVER.fix)
    elif not_loaded(machine):
        evidence = Evidence("/proc/modules", "no nvidia", "nvidia")
        message = "the NVIDIA driver is not loaded: CUDA finds no GPU"
        yield failed("", message, evidence, fix=LOAD_DRIVER)
    elif missing := no_gpus(machine, gpus):
        yield missing
    elif not match:
        yield unread("", reading, "the version of the loaded module")
    elif gpus.driver and match[1] != gpus.driver:
        message = f"the loaded module is {match[1]}, the library {gpus.driver}"
        evidence = Evidence(VERSION_FILE, line, gpus.driver)
        yield failed("", message, evidence, fix=DRIVER.fix)
    else:
        flavor = "proprietary kernel module: GPUDirect RDMA needs nvidia_peermem"
        if "Open Kernel Module" in line:
            flavor = "open kernel module"
        yield passed("", f"driver {match[1]}, {flavor}", Evidence(VERSION_FILE, line))


def not_loaded(machine: Machine) -> bool:
    """Whether a compute GPU has no driver. A display-class card may only drive a screen."""
    return (
        compute(machine) and bool(machine.text("/proc/modules")) and "nvidia" not in machine.modules
    )


NOUVEAU = CheckRow(
    id="BW003",
    name="gpu-nouveau",
    layer=Layer.GPU,
    title="kernel module nouveau",
    right="not loaded",
    why=(
        "nouveau is the kernel's own driver for NVIDIA GPUs. If it binds a GPU first, NVIDIA's"
        " driver cannot, and CUDA finds no GPU."
    ),
    fix=(
        "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' > "
        "/etc/modprobe.d/blacklist-nouveau.conf; rebuild the initramfs (update-initramfs -u or "
        "dracut --force); drain the host and reboot it"
    ),
    stays=(
        "yes, once the initramfs is rebuilt: update-initramfs -u (Debian, Ubuntu) or dracut --force"
        " (RHEL)"
    ),
    reads=(MODULES, "/sys/bus/pci/devices/*/{vendor,class}"),
    sources=("CUDA installation guide for Linux, disabling nouveau",),
)


@check(NOUVEAU)
def check_nouveau(machine: Machine) -> Iterator[Finding]:
    """Whether nouveau is among the loaded modules."""
    if not gpus_on_pci(machine):
        yield skipped("no NVIDIA GPU on PCI")
        return
    reading = machine.read(MODULES)
    loaded = {line.split(" ", 1)[0] for line in (reading.text or "").splitlines()}
    evidence = Evidence(MODULES, "nouveau" if "nouveau" in loaded else "no nouveau", "no nouveau")
    if not loaded:
        yield unread("", reading, "the list of loaded modules")
    elif "nouveau" not in loaded:
        yield passed("", "nouveau is not loaded", evidence)
    elif "nvidia" in loaded:
        yield warned(
            "",
            "nouveau is loaded along with NVIDIA's driver: at the next boot it may bind the GPUs"
            " first",
            evidence,
            fix=NOUVEAU.fix,
        )
    elif not compute(machine):
        yield warned(
            "",
            "nouveau is loaded, perhaps for a screen: CUDA finds no GPU",
            evidence,
            fix=NOUVEAU.fix,
        )
    else:
        yield failed(
            "",
            "nouveau is loaded, and NVIDIA's driver is not: CUDA finds no GPU",
            evidence,
            fix=NOUVEAU.fix,
        )


PERSISTENCE = CheckRow(
    id="BW004",
    name="gpu-persistence",
    layer=Layer.GPU,
    title="persistence mode",
    right="on",
    why=(
        "Without it the driver unloads a GPU when its last client exits. The next start takes "
        "seconds longer, and clock settings and error counts are lost."
    ),
    fix="nvidia-smi -i {gpu} -pm 1",
    stays="after reboot: lost; systemctl enable --now nvidia-persistenced keeps it",
    reads=("nvmlDeviceGetPersistenceMode",),
    sources=("NVIDIA driver persistence documentation",),
)


@per_gpu(PERSISTENCE)
def check_persistence(gpu: GpuHealth) -> Finding:
    if gpu.persistence is None:
        return unreported(gpu, "persistence", "persistence mode")
    return judged(
        right=gpu.persistence,
        subject=gpu.label,
        good="persistence mode is on",
        bad="persistence mode is off: the driver unloads the GPU between jobs",
        evidence=(nvml_evidence(gpu, "PersistenceMode", "on" if gpu.persistence else "off", "on"),),
        fix=filled(PERSISTENCE.fix, gpu=gpu.index),
    )


UVM = CheckRow(
    id="BW018",
    name="gpu-uvm",
    layer=Layer.GPU,
    title=f"device {UVM_FILE}",
    right="present",
    why=(
        f"CUDA cannot start without {UVM_FILE}, and NCCL's first call fails. nvidia-smi works"
        " without it, so the GPUs look healthy."
    ),
    fix="nvidia-modprobe -u -c=0",
    stays=(
        "after reboot: lost; CUDA creates the device itself if nvidia-modprobe is installed;"
        " nvidia-persistenced loads the module"
    ),
    reads=("/dev", "/proc/modules"),
    sources=("NVIDIA driver README, nvidia-modprobe",),
)


@check(UVM)
def check_uvm(machine: Machine) -> Iterator[Finding]:
    """The device, which cannot be created later in a container."""
    names = machine.names("/dev")
    missing = no_gpus(machine, read_health(machine))
    if missing:
        yield missing
        return
    evidence = Evidence(UVM_FILE, "present" if UVM_DEVICE in names else "absent", "present")
    if not names:
        yield not_offered("", "/dev cannot be listed")
    elif in_wsl(machine):
        yield skipped("in WSL the driver of Windows serves the GPU, without this device")
    elif UVM_DEVICE in names:
        yield passed("", f"{UVM_FILE} is present", evidence)
    elif machine.container:
        fix = (
            "start the container with the NVIDIA container toolkit (docker run --gpus all), or"
            f" with --device {UVM_FILE}"
        )
        yield failed(
            "",
            f"{UVM_FILE} is absent: CUDA cannot start, and cannot create it in a container",
            evidence,
            fix=fix,
        )
    else:
        state = "loaded" if "nvidia_uvm" in machine.modules else "not loaded"
        message = (
            f"{UVM_FILE} is absent (the module nvidia_uvm is {state}): CUDA starts only if it can"
            " create the device itself"
        )
        yield warned("", message, evidence, fix=UVM.fix)


CUDA_DRIVER = CheckRow(
    id="BW020",
    name="gpu-cuda-driver",
    layer=Layer.GPU,
    title="CUDA version of the driver, compared with the installed NCCL",
    right="the driver supports the CUDA major version for which the NCCL Python package was built",
    why=(
        "A program built for a newer CUDA major version than the driver supports does not start: "
        "CUDA driver version is insufficient for CUDA runtime version."
    ),
    fix=(
        "drain the host and update the driver to one that supports CUDA {needed}, or: pip install"
        " nvidia-nccl-cu{has}"
    ),
    stays="yes, for this Python environment",
    reads=("nvmlSystemGetCudaDriverVersion", "Python packages nvidia-nccl-cu*"),
    sources=("CUDA compatibility guide, minor version compatibility",),
)


@check(CUDA_DRIVER)
def check_cuda_driver(machine: Machine) -> Iterator[Finding]:
    """A finding for each installed Python package of NCCL."""
    gpus = read_health(machine)
    reading = machine.call(CALL, read_packages)
    missing = no_gpus(machine, gpus)
    if missing:
        yield missing
    elif gpus.cuda is None:
        yield not_offered("", "NVML does not report the CUDA version")
    elif reading.text is None:
        yield unread("", reading, "the list of Python packages")
    else:
        yield from _judge_packages(gpus.cuda, json.loads(reading.text))


def _judge_packages(cuda: int, packages: list[tuple[str, str]]) -> Iterator[Finding]:
    has = f"{cuda // 1000}.{cuda % 1000 // 10}"
    if not packages:
        yield skipped("this Python has no package nvidia-nccl-cu*")
    for name, version in packages:
        needed = built_for(name)
        yield judged(
            right=needed <= cuda // 1000,
            subject=name,
            good=f"NCCL {version} needs CUDA {needed}, the driver supports up to {has}",
            bad=f"NCCL {version} needs CUDA {needed}, but the driver supports only up to {has}",
            evidence=(Evidence("nvmlSystemGetCudaDriverVersion", has, f"{needed}.0 or newer"),),
            fix=filled(CUDA_DRIVER.fix, needed=needed, has=cuda // 1000),
            fails=True,
        )
