"""What the checks of GPUs share: a finding for each GPU, and the finding if there is no GPU."""

from collections.abc import Callable, Iterator
from functools import wraps

from busbw.check.base import Check, check, not_offered, skipped, unknown
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow
from busbw.core.sizes import counted
from busbw.host.gpu import gpus_on_pci
from busbw.host.gpu_health import GpuHealth, NvmlGpus
from busbw.host.nvml_health import read_health
from busbw.host.pci import DEVICES

# Variables of Slurm, and of the NVIDIA container toolkit, whose containers are not always
# recognizable as such.
CONFINING = ("NVIDIA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_JOB_ID")
# slurmd's prolog and epilog have the job's variables but see all devices.
CONTEXT, OF_DAEMON = "SLURM_SCRIPT_CONTEXT", "_slurmd"
NO_PACKAGE = "not installed"
COMPUTE_CLASS = "0x0302"  # 3D controller
# NVML's error for a GPU of another job, and for a user without access.
WITHHELD = "Insufficient Permissions"
CONTROL = "nvidiactl"  # in /dev of each process that was given a GPU
WSL_DEVICE = "dxg"
WITHOUT_PCI = "/sys/bus/pci/devices cannot be read"


def no_gpus(machine: Machine, gpus: NvmlGpus) -> Finding | None:
    """Skip without NVIDIA GPUs, unknown or not offered if NVML cannot read them.

    None if it lists some.
    """
    if gpus.gpus:
        return None
    on_pci = gpus_on_pci(machine)
    if not on_pci:
        return skipped("no NVIDIA GPU")
    fix = "nvidia-smi; dmesg | grep NVRM"
    if NO_PACKAGE in gpus.reason:
        fix = "pip install nvidia-ml-py"
    elif machine.container:
        fix = "start the container with GPUs (docker run --gpus all)"
    reason = f": {gpus.reason}" if gpus.reason else ""
    message = f"{counted(len(on_pci), 'NVIDIA GPU')} on PCI, but NVML lists none{reason}"
    make = not_offered if without_gpus(machine) else unknown
    return make("", message, fix=fix)


def without_gpus(machine: Machine) -> bool:
    """Whether the GPUs on PCI are not for this process.

    A container may have been given none, and cards without driver only drive a screen.
    """
    if machine.container and CONTROL not in machine.names("/dev"):
        return True
    return bool(machine.modules) and "nvidia" not in machine.modules and not compute(machine)


def compute(machine: Machine) -> bool:
    """Whether a GPU on PCI is for computing only. One of display class may only drive a screen."""
    return any(
        (machine.text(f"{DEVICES}/{bdf}/class") or "").startswith(COMPUTE_CLASS)
        for bdf in gpus_on_pci(machine)
    )


def unreadable(gpu: GpuHealth, field: str = "", part: str = "it") -> Finding:
    """The finding on a GPU that NVML lists but cannot read, or of which it cannot read a field."""
    why = gpu.error or gpu.failed.get(field, "")
    make = not_offered if WITHHELD in why else unknown
    reason = f": {why}" if why else ""
    return make(gpu.label, f"NVML cannot read {part}{reason}")


def confined(machine: Machine) -> str:
    """What may hide GPUs and services of the host from this process: a container or a job of Slurm.

    '' if nothing does.
    """
    if machine.container:
        return "this container"
    environment = machine.environment or {}
    if environment.get(CONTEXT, "").endswith(OF_DAEMON):
        return ""
    return next((f"what set {name}" for name in CONFINING if name in environment), "")


def in_wsl(machine: Machine) -> bool:
    """Whether this is WSL (Linux in Windows), where the driver of Windows serves the GPU."""
    return WSL_DEVICE in machine.names("/dev")


def per_gpu(row: CheckRow) -> Callable[[Callable[[GpuHealth], Finding]], Check]:
    """Makes a function that judges one GPU the check of `row`; see `each_gpu`."""

    def register(judge: Callable[[GpuHealth], Finding]) -> Check:
        @check(row)
        @wraps(judge)
        def judge_all(machine: Machine) -> Iterator[Finding]:
            return each_gpu(machine, judge)

        return judge_all

    return register


def each_gpu(machine: Machine, judge: Callable[[GpuHealth], Finding]) -> Iterator[Finding]:
    """The finding on every GPU; unknown for those that NVML cannot read."""
    gpus = read_health(machine)
    missing = no_gpus(machine, gpus)
    if missing:
        yield missing
    for gpu in gpus.gpus:
        yield unreadable(gpu) if gpu.error else judge(gpu)


def unreported(gpu: GpuHealth, field: str, noun: str) -> Finding:
    """The finding for a value that NVML did not give.

    Skip if the GPU or driver has no such thing, else unknown.
    """
    if field in gpu.unsupported:
        return skipped(f"{noun}: not supported by this GPU or driver", gpu.label)
    why = gpu.failed.get(field, "")
    make = not_offered if WITHHELD in why else unknown
    reason = f": {why}" if why else ""
    return make(gpu.label, f"NVML does not report the {noun}{reason}")


def nvml_evidence(gpu: GpuHealth, function: str, value: object, expected: object = "") -> Evidence:
    """A value of an NVML function, nvmlDeviceGet`function`."""
    return Evidence(f"nvmlDeviceGet{function}, {gpu.label}", str(value), str(expected))
