"""GPUs that are on PCI but not in NVML, or that no longer respond."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, passed, unknown, warned
from busbw.check.gpu.each import confined, no_gpus
from busbw.check.machine import Machine
from busbw.core.checking import CheckRow, Evidence, Found, Layer
from busbw.core.shell_words import filled
from busbw.core.sizes import counted
from busbw.host.gpu_devices import gpus_on_pci
from busbw.host.gpu_health import Gpus
from busbw.host.nvml_health import read_health
from busbw.host.pci import DEVICES, read_devices

LOST = "lost"  # NVML: GPU is lost
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
    missing = no_gpus(machine, gpus)
    if missing and (gpus.reason or not on_pci):
        yield missing
        return
    gone = [bdf for bdf in on_pci if (machine.read(f"{DEVICES}/{bdf}/config").data or b"").startswith(GONE)]
    for bdf in gone:
        evidence = Evidence(f"{DEVICES}/{bdf}/config", "ff ff ff ff", "de 10 ...")
        yield failed(bdf, "the GPU does not respond on PCI: it has fallen off the bus", evidence, fix=filled(ROW.fix, bdf=bdf))
    for gpu in gpus.gpus:
        if LOST in gpu.error:
            evidence = Evidence(f"NVML, {gpu.label}", gpu.error, "readable")
            yield failed(gpu.label, "NVML has lost the GPU", evidence, fix=filled(ROW.fix, bdf=gpu.bus_id or gpu.label))
        elif gpu.error:
            yield unknown(gpu.label, f"NVML cannot read it: {gpu.error}")
    yield _number(machine, gpus, on_pci)


def _number(machine: Machine, gpus: Gpus, on_pci: tuple[str, ...]) -> Found:
    listed = {gpu.bus_id for gpu in gpus.gpus}
    absent = [bdf for bdf in on_pci if bdf not in listed]
    evidence = Evidence("nvmlDeviceGetCount", str(len(gpus.gpus)), str(len(on_pci)) if on_pci else "")
    if not on_pci:
        return unknown("", f"{counted(len(gpus.gpus), 'GPU')} in NVML, but PCI cannot be read", evidence)
    if len(gpus.gpus) < len(on_pci):
        message = f"PCI shows {counted(len(on_pci), 'NVIDIA GPU')}, NVML lists {len(gpus.gpus)}; missing: {', '.join(absent)}"
        if by := confined(machine):
            return unknown("", f"{message}: {by} may hide them", evidence, fix="busbw check, on the host")
        return failed("", message, evidence, fix=filled(ROW.fix, bdf=absent[0]))
    present = sum(device.gpu for device in read_devices(machine).values())  # including GPUs passed to virtual machines
    if present % 2 and present > 1 and not (machine.hypervisor or confined(machine)) and any(gpu.switched for gpu in gpus.gpus):
        fix = "count the GPUs in the BMC's inventory; check the seat and power of the missing one"
        return warned("", f"{present} GPUs behind NVSwitch: boards with NVSwitch have an even number", evidence, fix=fix)
    return passed("", f"{counted(len(gpus.gpus), 'GPU')} on PCI and in NVML", evidence)


CHECK = Check(ROW, look)
