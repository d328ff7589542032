"""Files of devices that give errors instead of values, as those of a device that died do."""

from collections.abc import Iterator
from itertools import chain

from busbw.check.base import broken, check, failed, passed, skipped
from busbw.check.machine import Machine
from busbw.check.pcie.errors import AER_CORRECTABLE
from busbw.check.pcie_devices import gpus, nics
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.nic import RDMA
from busbw.host.pci import at

OF_FUNCTION = (
    "vendor", "device", "class", "numa_node", "current_link_speed", "current_link_width",
    "max_link_speed", "max_link_width", "aer_dev_fatal", "aer_dev_nonfatal", "aer_dev_correctable",
)  # fmt: skip
OF_DEVICE = ("fw_ver", "board_id", "hca_type")
OF_PORT = ("state", "phys_state", "rate", "link_layer", "sm_lid")
COUNTERS = ("counters", "hw_counters")

DEVICE_FILES = CheckRow(
    id="BW056",
    name="device-files",
    layer=Layer.PCIE,
    title="files of GPUs, network controllers, the bridges above them, and RDMA ports",
    right="none gives an I/O error, or says that there is no such device",
    why=(
        "The kernel asks the device when such a file is read. A device that fell off the bus, or "
        "whose firmware has stopped, still has its files, and its last counts may look fine."
    ),
    fix=(
        "dmesg | grep {device}; drain the host and reboot it; if the errors come back, replace the"
        " device"
    ),
    stays="a reboot helps if the fault was transient",
    reads=(
        "/sys/bus/pci/devices/*/{" + ",".join(OF_FUNCTION) + "}",
        "/sys/class/infiniband/*/{" + ",".join(OF_DEVICE) + "}",
        "/sys/class/infiniband/*/ports/*/{"
        + ",".join((*OF_PORT, *(f"{folder}/*" for folder in COUNTERS)))
        + "}",
    ),
    sources=(
        "Linux Documentation/PCI/pci-error-recovery.rst",
        "Linux Documentation/ABI/stable/sysfs-class-infiniband",
    ),
)


@check(DEVICE_FILES, after=AER_CORRECTABLE)
def check_device_files(machine: Machine) -> Iterator[Found]:
    """Each device with such files, or one finding for all that answer."""
    files = _files_by_device(machine)
    if not files:
        yield skipped("no GPU and no network controller")
        return
    all_read = True
    for device, paths in files.items():
        failing = [path for path in paths if broken(machine.read(path))]
        if failing:
            all_read = False
            yield _judge_failing_files(machine, device, failing)
    if all_read:
        yield passed(
            "",
            f"the files of {counted(len(files), 'device')} can be read",
            Evidence(next(iter(chain(*files.values()))), "a value"),
        )


def _judge_failing_files(machine: Machine, device: str, paths: list[str]) -> Found:
    evidence = (
        Evidence(path, machine.read(path).reason.removeprefix(f"{path}: "), "a value")
        for path in paths
    )
    first = machine.read(paths[0]).reason
    message = f"{counted(len(paths), 'file')} of it cannot be read: {first}"
    return failed(device, message, *evidence, fix=filled(DEVICE_FILES.fix, device=device))


def _files_by_device(machine: Machine) -> dict[str, list[str]]:
    """Paths by the name of a device or the address of a bridge."""
    found: dict[str, list[str]] = {}
    for part in gpus(machine) + nics(machine):
        for bdf in (part.device.bdf, *(part.device.above or ())):
            name = part.name if bdf == part.device.bdf else bdf
            found.setdefault(name, [f"{at(bdf)}/{file}" for file in OF_FUNCTION])
    for port in machine.ports:
        counters = [
            f"{folder}/{name}"
            for folder in COUNTERS
            for name in machine.names(f"{port.path}/{folder}")
        ]
        own = found.setdefault(port.device, [])
        own += [f"{RDMA}/{port.device}/{file}" for file in OF_DEVICE] if port.number == "1" else []
        own += [f"{port.path}/{file}" for file in (*OF_PORT, *counters)]
    return found
