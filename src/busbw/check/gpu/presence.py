"""GPUs that are missing in NVML or on PCI, or that no longer respond."""

import re
from collections.abc import Iterator

from busbw.check.base import check, failed, not_offered, passed, skipped
from busbw.check.gpu.per_gpu import (
    WITHHELD,
    WITHOUT_PCI,
    confined,
    no_gpus,
    unreadable,
    without_gpus,
)
from busbw.check.machine import WITH_CPU, Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer, Verdict
from busbw.core.kernel_rule import KMSG
from busbw.core.sizes import counted
from busbw.host.gpu import gpus_on_pci, switches_on_pci
from busbw.host.gpu_health import GpuHealth, NvmlGpus
from busbw.host.kernel_log_past import PastLog, gpus_seen, read_past
from busbw.host.nvml_health import read_health
from busbw.host.pci import DEVICES, read_devices

# NVML's errors after Xid 79, and before a reset.
GONE_FROM_NVML = ("GPU is lost", "GPU requires restart")
# Words in the reasons of NVML that do not show a fault of the driver: busbw's package is missing, a
# snapshot has no NVML, the driver is in a container of its own, or the user has no access.
NOT_THE_DRIVER = (
    "not installed",
    "too old",
    "recording has no",
    "Shared Library Not Found",
    WITHHELD,
)
NO_RESPONSE = b"\xff" * 4  # read from a PCI device that does not respond

COUNT = CheckRow(
    id="BW001",
    name="gpu-count",
    layer=Layer.GPU,
    title="GPUs that the driver lists, compared with PCI",
    right="NVML lists every NVIDIA GPU that PCI shows, and each one responds",
    why=(
        "A GPU that is on PCI but not in NVML has fallen off the bus (Xid 79), or its driver did"
        " not start. A job that asks for all GPUs then waits or fails. 7 of 8 GPUs also have a"
        " lower bandwidth."
    ),
    fix=(
        "drain the host and reboot it; if GPU {bdf} is still missing, check its seat and power, or"
        " replace it"
    ),
    stays="a reboot brings the GPU back only if the fault was transient",
    reads=(f"{DEVICES}/*/{{vendor,class,config}}", "NVML"),
    sources=("NVIDIA GPU debug guidelines",),
)
GPUS_PER_BOARD = 8  # GPUs of an HGX board
SWITCHES_OF_ONE = 6  # NVSwitches that a board has on PCI at most: 6 for A100, 4 for H100
SWITCHES_OF_WHOLE = 4  # in a virtual machine: with half of a board of A100, it has 3 of its 6
DRIVER_MODULE, MODULES, DEVICE_FILES = "nvidia", "/proc/modules", "/dev"
_DEVICE_FILE = re.compile(r"nvidia\d+")


@check(COUNT)
def check_count(machine: Machine) -> Iterator[Finding]:
    """A finding for each GPU that does not answer, then on the number of GPUs."""
    gpus, on_pci = read_health(machine), gpus_on_pci(machine)
    fallen = _fallen_off(machine, on_pci)
    places = _addresses_of_unread(gpus, on_pci)
    for gpu in gpus.gpus:
        bdf = places.get(gpu.index, gpu.bus_id)
        for finding in _judge_unresponsive(gpu, bdf, fallen.get(bdf)):
            if finding.verdict is Verdict.FAIL:
                fallen.pop(bdf, None)
            yield finding
    missing, count = no_gpus(machine, gpus), _judge_count(machine, gpus, on_pci)
    absent = set(on_pci) - {gpu.bus_id for gpu in gpus.gpus} - set(places.values())
    for bdf, evidence in fallen.items():
        message = "the GPU does not respond on PCI: it has fallen off the bus"
        more = count.evidence if bdf in absent and not gpus.reason else ()
        yield failed(bdf, message, evidence, *more, fix=filled(COUNT.fix, bdf=bdf))
    if missing and (gpus.reason or not on_pci):
        fails = _driver_fails(machine, gpus, on_pci)
        yield _judge_without_nvml(machine, gpus, on_pci) if fails else missing
    elif count.verdict is not Verdict.FAIL or absent - set(fallen):
        yield count


def _fallen_off(machine: Machine, on_pci: tuple[str, ...]) -> dict[str, Evidence]:
    """The GPUs that do not respond on PCI, and what was read there."""
    paths = {bdf: f"{DEVICES}/{bdf}/config" for bdf in on_pci}
    return {
        bdf: Evidence(path, "ff ff ff ff", "de 10 ...")
        for bdf, path in paths.items()
        if (machine.read(path).data or b"").startswith(NO_RESPONSE)
    }


def _addresses_of_unread(gpus: NvmlGpus, on_pci: tuple[str, ...]) -> dict[int, str]:
    """Addresses of the GPUs that NVML cannot read.

    It counts GPUs in the order of PCI, and gives no address without reading.
    """
    unread = [gpu.index for gpu in gpus.gpus if not gpu.bus_id]
    others = sorted(set(on_pci) - {gpu.bus_id for gpu in gpus.gpus})
    return dict(zip(unread, others, strict=True)) if len(unread) == len(others) else {}


def _driver_fails(machine: Machine, gpus: NvmlGpus, on_pci: tuple[str, ...]) -> bool:
    """Whether the driver is there and NVML, its library, fails."""
    absent = any(word in gpus.reason for word in NOT_THE_DRIVER)
    return bool(on_pci) and "nvidia" in machine.modules and not absent and not without_gpus(machine)


def _judge_without_nvml(machine: Machine, gpus: NvmlGpus, on_pci: tuple[str, ...]) -> Finding:
    evidence = Evidence("NVML", gpus.reason, counted(len(on_pci), "GPU"))
    fix = "nvidia-smi; dmesg | grep NVRM; drain the host and reboot it"
    if machine.container:
        fix = f"start the container again, as it may have lost its devices; on the host: {fix}"
    return failed("", f"NVML fails, and so will CUDA: {gpus.reason}", evidence, fix=fix)


def _judge_unresponsive(gpu: GpuHealth, bdf: str, on_pci: Evidence | None) -> Iterator[Finding]:
    """A finding on a GPU that does not answer; `bdf` is its address, if that is known, `on_pci`
    what shows that it does not respond there either.
    """
    lost = next((text for text in gpu.failed.values() if text in GONE_FROM_NVML), "")
    if WITHHELD in gpu.error:
        yield unreadable(gpu)
    elif gpu.error or lost:
        evidence = [Evidence(f"NVML, {gpu.label}", gpu.error or lost, "readable")]
        evidence += [on_pci] if on_pci else []
        place = f" at {bdf}" if bdf else ""
        message = f"the GPU{place} does not answer NVML: {gpu.error or lost}"
        yield failed(gpu.label, message, *evidence, fix=filled(COUNT.fix, bdf=bdf or gpu.index))


def _judge_count(machine: Machine, gpus: NvmlGpus, on_pci: tuple[str, ...]) -> Finding:
    listed = {gpu.bus_id for gpu in gpus.gpus}
    absent = [bdf for bdf in on_pci if bdf not in listed]
    evidence = Evidence(
        "nvmlDeviceGetCount", str(len(gpus.gpus)), str(len(on_pci)) if on_pci else ""
    )
    if not on_pci:
        return not_offered(
            "", f"{counted(len(gpus.gpus), 'GPU')} in NVML, but {WITHOUT_PCI}", evidence
        )
    if len(gpus.gpus) < len(on_pci):
        message = (
            f"PCI shows {counted(len(on_pci), 'NVIDIA GPU')}, NVML lists {len(gpus.gpus)}; missing:"
            f" {', '.join(absent)}"
        )
        hider = confined(machine)
        if hider:
            return not_offered(
                "", f"{message}: {hider} may hide them", evidence, fix="busbw check, on the host"
            )
        return failed("", message, evidence, fix=filled(COUNT.fix, bdf=absent[0]))
    return passed("", f"{counted(len(gpus.gpus), 'GPU')} on PCI and in NVML", evidence)


MISSING = CheckRow(
    id="BW023",
    name="gpu-missing",
    layer=Layer.GPU,
    title="GPUs that PCI no longer shows",
    right=(
        "PCI shows every GPU that the kernel found since boot or that has a device file, and all 8"
        " of a board with NVSwitches"
    ),
    why=(
        "A GPU that falls off the bus may be removed from PCI. Then nothing lists it any more, "
        "and all that is left looks healthy: jobs get 7 of 8 GPUs, or start on none."
    ),
    fix=(
        "drain the host and power it off and on; if a GPU is still missing, find it in the "
        "inventory of the BMC and check its seat and power"
    ),
    stays="a reboot brings the GPU back only if the fault was transient",
    reads=(f"{DEVICES}/*/{{vendor,class}}", "/dev/kmsg", DEVICE_FILES, MODULES),
    sources=(
        "Linux drivers/pci/probe.c",
        "data sheets of HGX boards",
        "Fabric Manager user guide, full passthrough",
        "Azure node health checks, check_gpu_count",
        "gpud, gpu-counts",
    ),
)


@check(MISSING, after=COUNT)
def check_missing(machine: Machine) -> Iterator[Finding]:
    """Each GPU that the kernel log names, or the number by what else is there."""
    if not machine.names(DEVICES):
        yield not_offered("", WITHOUT_PCI)
        return
    log, present = read_past(machine), _count_on_pci(machine)
    logged = gpus_seen(log)
    gone = {bdf: line for bdf, line in logged.items() if bdf not in machine.names(DEVICES)}
    for bdf, line in gone.items():
        yield failed(
            bdf,
            "the kernel found this GPU, and PCI no longer shows it",
            Evidence(KMSG, line.text, "still on PCI"),
            fix=MISSING.fix,
        )
    fewer = _judge_fewer(machine, present)
    if fewer and not gone:
        yield fewer
    elif not gone:
        yield _judge_none_missing(machine, present, log, logged=bool(logged))


def _count_on_pci(machine: Machine) -> int:
    """The number of GPUs on PCI, with those passed to virtual machines."""
    return sum(device.gpu for device in read_devices(machine).values())


def _judge_fewer(machine: Machine, present: int) -> Finding | None:
    """The finding if something else than the kernel log shows that GPUs are missing."""
    board = _expected_of_board(machine, present)
    if present < board:
        switches = len(switches_on_pci(machine))
        evidence = Evidence(
            DEVICES,
            f"{counted(present, 'GPU')}, {counted(switches, 'NVSwitch', 'es')}",
            f"{board} GPUs",
        )
        return failed(
            "",
            f"{counted(present, 'GPU')} on a machine with NVSwitches,"
            f" whose boards have {GPUS_PER_BOARD}",
            evidence,
            fix=MISSING.fix,
        )
    names = () if machine.container else machine.names(DEVICE_FILES)
    files = [name for name in names if _DEVICE_FILE.fullmatch(name)]
    if present < len(files):
        evidence = Evidence(DEVICE_FILES, ", ".join(files), counted(present, "file"))
        return failed(
            "",
            f"{counted(len(files), 'GPU')} of this boot have a device file, PCI shows {present}",
            evidence,
            fix=MISSING.fix,
        )
    if not present and DRIVER_MODULE in machine.modules and not _is_tegra(machine):
        evidence = Evidence(MODULES, DRIVER_MODULE, "a GPU on PCI")
        return failed(
            "",
            "the NVIDIA driver is loaded, which needs a GPU, and PCI shows none",
            evidence,
            fix=MISSING.fix,
        )
    return None


def _expected_of_board(machine: Machine, present: int) -> int:
    """GPUs that the boards of this machine have.

    0 if that is not known, as in a virtual machine with a part of a board.
    """
    switches = len(switches_on_pci(machine))
    if machine.container or (machine.hypervisor and switches < SWITCHES_OF_WHOLE):
        return 0
    by_links = any(
        gpu.switched and not gpu.name.startswith(WITH_CPU) for gpu in read_health(machine).gpus
    )
    if not switches and not by_links:  # Blackwell's NVSwitches are not on PCI as such
        return 0
    boards = 2 if switches > SWITCHES_OF_ONE or present > GPUS_PER_BOARD else 1
    return GPUS_PER_BOARD * boards


def _is_tegra(machine: Machine) -> bool:
    """Whether it is a Jetson, whose GPU is not on PCI."""
    return "nvidia,tegra" in (machine.text("/proc/device-tree/compatible") or "")


def _judge_none_missing(machine: Machine, present: int, log: PastLog, *, logged: bool) -> Finding:
    if not present:
        return skipped("no NVIDIA GPU, and no sign of one")
    board = _expected_of_board(machine, present)
    text = f"{counted(present, 'GPU')} on PCI"
    if board:
        expected = f"{board}, of a board with NVSwitches"
        return passed("", text, Evidence(DEVICES, counted(present, "GPU"), expected))
    if logged:
        return passed("", text, Evidence(KMSG, "the GPUs that the kernel found are still there"))
    why = "the kernel log no longer has the start"
    if log.reason:
        why = f"the kernel log cannot be read: {log.reason}"
    message = f"{text}; how many there were is not known: {why}"
    return not_offered("", message, fix="busbw check --learn, on a good host")
