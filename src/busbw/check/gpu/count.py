"""GPUs that are on PCI but not in NVML, or that no longer respond."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, not_offered, passed
from busbw.check.gpu.each import WITHHELD, WITHOUT_PCI, confined, no_gpus, unreadable, without_gpus
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.gpu_devices import gpus_on_pci
from busbw.host.gpu_health import GpuHealth, Gpus
from busbw.host.nvml_health import read_health
from busbw.host.pci import DEVICES

GONE_FROM_NVML = ("GPU is lost", "GPU requires restart")  # NVML's errors after Xid 79, and before a reset
# Reasons of NVML that say nothing about the driver: busbw's package, a snapshot without it, a driver in a container of its own, the user.
NOT_THE_DRIVER = ("not installed", "too old", "recording has no", "Shared Library Not Found", WITHHELD)
GONE = b"\xff" * 4  # read from a PCI device that does not respond

ROW = CheckRow(
    id="BW001",
    name="gpu-count",
    layer=Layer.GPU,
    title="GPUs that the driver lists, compared with PCI",
    right="NVML lists every NVIDIA GPU that PCI shows, and each one responds",
    why="A GPU that is on PCI but not in NVML has fallen off the bus (Xid 79), or its driver did not start. A job that asks for all GPUs "
    "then waits or fails. 7 of 8 GPUs also have a lower bandwidth.",
    fix="drain the host and reboot it; if GPU {bdf} is still missing, check its seat and power, or replace it",
    stays="a reboot brings the GPU back only if the fault was transient",
    reads=(f"{DEVICES}/*/{{vendor,class,config}}", "NVML"),
    sources=("NVIDIA GPU debug guidelines",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU, then the number of all."""
    gpus, on_pci = read_health(machine), gpus_on_pci(machine)
    gone = [bdf for bdf in on_pci if (machine.read(f"{DEVICES}/{bdf}/config").data or b"").startswith(GONE)]
    for bdf in gone:
        evidence = Evidence(f"{DEVICES}/{bdf}/config", "ff ff ff ff", "de 10 ...")
        yield failed(bdf, "the GPU does not respond on PCI: it has fallen off the bus", evidence, fix=filled(ROW.fix, bdf=bdf))
    missing = no_gpus(machine, gpus)
    if missing and (gpus.reason or not on_pci):
        yield _without_nvml(machine, gpus, on_pci) if _dead(machine, gpus, on_pci) else missing
        return
    places = _places(gpus, on_pci)
    for gpu in gpus.gpus:
        yield from _answer(gpu, places.get(gpu.index, gpu.bus_id))
    yield _number(machine, gpus, on_pci)


def _places(gpus: Gpus, on_pci: tuple[str, ...]) -> dict[int, str]:
    """Addresses of the GPUs that NVML cannot read. It counts GPUs in the order of PCI, and gives no address without reading."""
    unread = [gpu.index for gpu in gpus.gpus if not gpu.bus_id]
    others = sorted(set(on_pci) - {gpu.bus_id for gpu in gpus.gpus})
    return dict(zip(unread, others, strict=True)) if len(unread) == len(others) else {}


def _dead(machine: Machine, gpus: Gpus, on_pci: tuple[str, ...]) -> bool:
    """Whether the driver is there and NVML, its library, fails."""
    absent = any(word in gpus.reason for word in NOT_THE_DRIVER)
    return bool(on_pci) and "nvidia" in machine.modules and not absent and not without_gpus(machine)


def _without_nvml(machine: Machine, gpus: Gpus, on_pci: tuple[str, ...]) -> Found:
    evidence = Evidence("NVML", gpus.reason, counted(len(on_pci), "GPU"))
    fix = "nvidia-smi; dmesg | grep NVRM; drain the host and reboot it"
    if machine.container:
        fix = f"start the container again, as it may have lost its devices; on the host: {fix}"
    return failed("", f"NVML fails, and so will CUDA: {gpus.reason}", evidence, fix=fix)


def _answer(gpu: GpuHealth, bdf: str) -> Iterator[Found]:
    """A finding on a GPU that does not answer; `bdf` is its address, if that is known."""
    lost = next((text for text in gpu.failed.values() if text in GONE_FROM_NVML), "")
    if WITHHELD in gpu.error:
        yield unreadable(gpu)
    elif gpu.error or lost:
        evidence = Evidence(f"NVML, {gpu.label}", gpu.error or lost, "readable")
        message = f"the GPU{f' at {bdf}' if bdf else ''} does not answer NVML: {gpu.error or lost}"
        yield failed(gpu.label, message, evidence, fix=filled(ROW.fix, bdf=bdf or gpu.index))


def _number(machine: Machine, gpus: Gpus, on_pci: tuple[str, ...]) -> Found:
    listed = {gpu.bus_id for gpu in gpus.gpus}
    absent = [bdf for bdf in on_pci if bdf not in listed]
    evidence = Evidence("nvmlDeviceGetCount", str(len(gpus.gpus)), str(len(on_pci)) if on_pci else "")
    if not on_pci:
        return not_offered("", f"{counted(len(gpus.gpus), 'GPU')} in NVML, but {WITHOUT_PCI}", evidence)
    if len(gpus.gpus) < len(on_pci):
        message = f"PCI shows {counted(len(on_pci), 'NVIDIA GPU')}, NVML lists {len(gpus.gpus)}; missing: {', '.join(absent)}"
        if by := confined(machine):
            return not_offered("", f"{message}: {by} may hide them", evidence, fix="busbw check, on the host")
        return failed("", message, evidence, fix=filled(ROW.fix, bdf=absent[0]))
    return passed("", f"{counted(len(gpus.gpus), 'GPU')} on PCI and in NVML", evidence)


CHECK = Check(ROW, look)
