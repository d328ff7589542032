"""NVSwitches that PCI does not show."""

from collections.abc import Iterator

from busbw.check.base import check, failed, not_offered, passed, skipped
from busbw.check.machine import Machine
from busbw.check.nvlink.fabric import bridged, gpu_words
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.gpu import switches_on_pci
from busbw.host.nvml_health import read_health
from busbw.host.pci import DEVICES, read_devices

GPUS_OF_BOARD = 8
# NVSwitches on PCI of a board with 8 GPUs, by the device id of the NVSwitch and by the GPU's model
# (data sheets of HGX boards; the ids are of the PCI ID database).
BY_ID = {"0x1ac2": 6, "0x1af1": 6, "0x22a3": 4}
BY_MODEL = {"A100": 6, "A800": 6, "H100": 4, "H200": 4, "H800": 4, "H20": 4}

SWITCHES = CheckRow(
    id="BW036",
    name="nvswitch-missing",
    layer=Layer.NVLINK,
    title="NVSwitches of a board with 8 GPUs",
    right="PCI shows all of them: 6 for A100, 4 for H100 and H200",
    why=(
        "Each GPU has links to every NVSwitch. Without one of four the fabric manager does not"
        " start, or all GPUs lose a quarter of their bandwidth and NVLink SHARP."
    ),
    fix=(
        "drain the host and power it off and on; if it is still missing, look for it in the"
        " inventory of the BMC and replace the baseboard"
    ),
    stays="a reboot brings it back only if the fault was transient",
    reads=(f"{DEVICES}/*/{{vendor,class,device}}", "NVML"),
    sources=("data sheets of HGX boards", "Fabric Manager user guide, full passthrough"),
)


@check(SWITCHES)
def check_switches(machine: Machine) -> Iterator[Finding]:
    """One finding on the number of NVSwitches."""
    present = switches_on_pci(machine)
    gpus = sum(device.gpu for device in read_devices(machine).values())
    each = _switches_of_board(machine, present)
    if not read_devices(machine):
        yield not_offered("", f"{DEVICES} shows no device")
    elif not present or not each:
        yield skipped("no NVSwitch on PCI, or one that busbw does not know")
    elif machine.container or (machine.hypervisor and gpus < GPUS_OF_BOARD):
        yield skipped("a container or virtual machine may have a part of a board")
    else:
        expected = each * (2 if gpus > GPUS_OF_BOARD else 1)
        evidence = Evidence(DEVICES, ", ".join(present), counted(expected, "NVSwitch", "es"))
        text = f"{counted(len(present), 'NVSwitch', 'es')} on PCI"
        if len(present) >= expected:
            yield passed("", text, evidence)
        else:
            yield failed("", f"{text}, a board of these has {each}", evidence, fix=SWITCHES.fix)


def _switches_of_board(machine: Machine, present: tuple[str, ...]) -> int:
    """The NVSwitches of a board with these NVSwitches or GPUs; 0 if it is not known."""
    ids = [machine.text(f"{DEVICES}/{bdf}/device") or "" for bdf in present]
    models = [gpu_words(gpu) for gpu in read_health(machine).gpus if not bridged(gpu)]
    known = [BY_ID[number] for number in ids if number in BY_ID]
    known += [each for words in models for model, each in BY_MODEL.items() if model in words]
    return known[0] if known else 0
