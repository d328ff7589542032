"""GPUs that this machine had or should have, and that PCI no longer shows."""

import re
from collections.abc import Iterator

from busbw.check.base import Check, failed, not_offered, passed, skipped
from busbw.check.gpu.each import WITHOUT_PCI
from busbw.check.machine import Machine
from busbw.check.parts import WITH_CPU
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.kernel_rule import KMSG
from busbw.core.sizes import counted
from busbw.host.dmesg import PastLog, read_past
from busbw.host.gpu_devices import switches_on_pci
from busbw.host.nvml_health import read_health
from busbw.host.pci import DEVICES, read_devices
from busbw.host.seen_on_pci import gpus_seen

BOARD, SWITCHES_OF_ONE = 8, 6  # GPUs of an HGX board, and the most NVSwitches that one has on PCI (A100: 6, H100: 4)
SWITCHES_OF_WHOLE = 4  # in a virtual machine: with half of a board of A100, it has 3 of its 6
MODULE, MODULES, FILES = "nvidia", "/proc/modules", "/dev"
_FILE = re.compile(r"nvidia\d+")

ROW = CheckRow(
    id="BW023",
    name="gpu-missing",
    layer=Layer.GPU,
    title="GPUs that PCI no longer shows",
    right="PCI shows every GPU that the kernel found since boot or that has a device file, and all 8 of a board with NVSwitches",
    why="A GPU that falls off the bus may be removed from PCI. Then nothing lists it any more, and all that is left looks healthy: "
    "jobs get 7 of 8 GPUs, or start on none.",
    fix="drain the host and power it off and on; if a GPU is still missing, find it in the inventory of the BMC and check its seat and "
    "power",
    stays="a reboot brings the GPU back only if the fault was transient",
    reads=(f"{DEVICES}/*/{{vendor,class}}", "/dev/kmsg", FILES, MODULES),
    sources=(
        "Linux drivers/pci/probe.c",
        "data sheets of HGX boards",
        "Fabric Manager user guide, full passthrough",
        "Azure node health checks, check_gpu_count",
        "gpud, gpu-counts",
    ),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU that the kernel log names, or the number by what else is there."""
    if not machine.names(DEVICES):
        yield not_offered("", WITHOUT_PCI)
        return
    log, present = read_past(machine), _present(machine)
    seen = gpus_seen(log)
    gone = {bdf: line for bdf, line in seen.items() if bdf not in machine.names(DEVICES)}
    for bdf, line in gone.items():
        yield failed(bdf, "the kernel found this GPU, and PCI no longer shows it", Evidence(KMSG, line.text, "still on PCI"), fix=ROW.fix)
    fewer = _fewer(machine, present)
    if fewer and not gone:
        yield fewer
    elif not gone:
        yield _none_missing(machine, present, log, logged=bool(seen))


def _present(machine: Machine) -> int:
    """GPUs on PCI, with those passed to virtual machines."""
    return sum(device.gpu for device in read_devices(machine).values())


def _fewer(machine: Machine, present: int) -> Found | None:
    """The finding if something else than the kernel log shows that GPUs are missing."""
    board = _of_board(machine, present)
    if present < board:
        switches = len(switches_on_pci(machine))
        evidence = Evidence(DEVICES, f"{counted(present, 'GPU')}, {counted(switches, 'NVSwitch', 'es')}", f"{board} GPUs")
        return failed("", f"{counted(present, 'GPU')} on a machine with NVSwitches, whose boards have {BOARD}", evidence, fix=ROW.fix)
    files = [] if machine.container else [name for name in machine.names(FILES) if _FILE.fullmatch(name)]
    if present < len(files):
        evidence = Evidence(FILES, ", ".join(files), counted(present, "file"))
        return failed("", f"{counted(len(files), 'GPU')} of this boot have a device file, PCI shows {present}", evidence, fix=ROW.fix)
    if not present and MODULE in machine.modules and not _tegra(machine):
        evidence = Evidence(MODULES, MODULE, "a GPU on PCI")
        return failed("", "the NVIDIA driver is loaded, which needs a GPU, and PCI shows none", evidence, fix=ROW.fix)
    return None


def _of_board(machine: Machine, present: int) -> int:
    """GPUs that the boards of this machine have; 0 if that is not known, as in a virtual machine with a part of a board."""
    switches = len(switches_on_pci(machine))
    if machine.container or (machine.hypervisor and switches < SWITCHES_OF_WHOLE):
        return 0
    by_links = any(gpu.switched and not gpu.name.startswith(WITH_CPU) for gpu in read_health(machine).gpus)
    if not switches and not by_links:  # Blackwell's NVSwitches are not on PCI as such
        return 0
    boards = 2 if switches > SWITCHES_OF_ONE or present > BOARD else 1
    return BOARD * boards


def _tegra(machine: Machine) -> bool:
    """Whether it is a Jetson, whose GPU is not on PCI."""
    return "nvidia,tegra" in (machine.text("/proc/device-tree/compatible") or "")


def _none_missing(machine: Machine, present: int, log: PastLog, *, logged: bool) -> Found:
    if not present:
        return skipped("no NVIDIA GPU, and no sign of one")
    if board := _of_board(machine, present):
        return passed(
            "", f"{counted(present, 'GPU')} on PCI", Evidence(DEVICES, counted(present, "GPU"), f"{board}, of a board with NVSwitches")
        )
    if logged:
        return passed("", f"{counted(present, 'GPU')} on PCI", Evidence(KMSG, "the GPUs that the kernel found are still there"))
    why = f"the kernel log cannot be read: {log.reason}" if log.reason else "the kernel log no longer has the start"
    return not_offered(
        "", f"{counted(present, 'GPU')} on PCI; how many there were is not known: {why}", fix="busbw check --learn, on a good host"
    )


CHECK = Check(ROW, look)
