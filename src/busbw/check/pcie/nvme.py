"""NVMe drives: their controllers, state and temperature warning."""

from collections.abc import Iterator

from busbw.check.base import check, failed, passed, skipped, warned
from busbw.check.machine import Machine
from busbw.check.pcie.under_load import GPUDIRECT_LOOPBACK
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.host.pci import DEVICES, device_directory

NVME_FOLDER, NVME_CLASS = "/sys/class/nvme", "0x010802"
LIVE_STATE, TRANSIENT_STATES = "live", ("new", "resetting", "connecting")
NO_RESPONSE = b"\xff\xff"

NVME = CheckRow(
    id="BW264",
    name="nvme",
    layer=Layer.PCIE,
    title="NVMe drives: controllers, compared with PCI, their state and temperature warning",
    right=(
        "each drive that PCI shows has a controller, which is live and has no temperature warning"
    ),
    why=(
        "A drive that died is missing from the scratch or cache volume: jobs fail or read their "
        "data over the network, slower than on other hosts."
    ),
    fix=(
        "dmesg -T | grep -e nvme -e {bdf}; nvme smart-log /dev/{name}; drain the host, power it"
        " off, and reseat or replace the drive"
    ),
    stays="depends on the hardware",
    reads=(
        f"{NVME_FOLDER}/*/{{state,address,transport,model}}",
        f"{NVME_FOLDER}/*/hwmon*/temp1_{{alarm,input}}",
        f"{DEVICES}/*/{{class,driver,nvme}}",
    ),
    sources=(
        "Linux, drivers/nvme/host/{core,sysfs,hwmon}.c",
        "NVM Express Base Specification, critical warning",
    ),
)
NO_CONTROLLER = (
    "dmesg -T | grep -e nvme -e {bdf}; nvme list; drain the host, power it off, and reseat or"
    " replace the drive"
)


@check(NVME, after=GPUDIRECT_LOOPBACK)
def check_nvme(machine: Machine) -> Iterator[Finding]:
    """A finding for each controller, then for each drive on PCI without one."""
    controllers = {
        name: machine.text(f"{NVME_FOLDER}/{name}/address") or ""
        for name in machine.names(NVME_FOLDER)
        if name.removeprefix("nvme").isdecimal()
    }
    drives = [
        bdf
        for bdf in machine.names(DEVICES)
        if (machine.text(f"{DEVICES}/{bdf}/class") or "").startswith(NVME_CLASS)
    ]
    without = [
        bdf for bdf in drives if bdf not in controllers.values() and _unclaimed(machine, bdf)
    ]
    if not controllers and not without:
        yield skipped("no NVMe drive of this machine")
    for name, address in controllers.items():
        yield _judge_controller(machine, name, address)
    for bdf in without:
        yield _judge_without_controller(machine, bdf)


def _unclaimed(machine: Machine, bdf: str) -> bool:
    """Whether a drive that no controller names should have one here.

    Older kernels give no address: the device then has a folder.
    """
    return not machine.names(f"{device_directory(bdf)}/nvme") and machine.target(
        f"{device_directory(bdf)}/driver"
    ) in ("", "nvme")


def _judge_controller(machine: Machine, name: str, address: str) -> Finding:
    path = f"{NVME_FOLDER}/{name}/state"
    reading = machine.read(path)
    state, fix = reading.text or "", filled(NVME.fix, bdf=address or name, name=name)
    model = machine.text(f"{NVME_FOLDER}/{name}/model") or "drive"
    evidence = Evidence(path, state or reading.reason, LIVE_STATE)
    if state in TRANSIENT_STATES:
        return warned(
            name,
            f"its controller is {state}: if it is again at the next check, the drive has errors",
            evidence,
            fix=fix,
        )
    if state != LIVE_STATE:
        return failed(name, f"its controller is {state or 'not readable'}", evidence, fix=fix)
    alarm = _temperature_alarm(machine, f"{NVME_FOLDER}/{name}")
    if alarm:
        return warned(
            name,
            f"it warns of its temperature{alarm.seen}",
            Evidence(alarm.where, "1", "0"),
            fix=fix,
        )
    return passed(name, f"{model} is live", evidence)


def _temperature_alarm(machine: Machine, folder: str) -> Evidence | None:
    """The drive's critical warning of its temperature; None without one.

    The kernel shows no other critical warning without a tool.
    """
    sensors = [name for name in machine.names(folder) if name.startswith("hwmon")]
    sensors += [f"hwmon/{name}" for name in machine.names(f"{folder}/hwmon")]
    for sensor in sensors:
        path = f"{folder}/{sensor}/temp1_alarm"
        if machine.text(path) == "1":
            degrees = machine.text(f"{folder}/{sensor}/temp1_input") or ""
            return Evidence(path, f": {int(degrees) // 1000} C" if degrees.isdecimal() else "")
    return None


def _judge_without_controller(machine: Machine, bdf: str) -> Finding:
    gone = (machine.read(f"{device_directory(bdf)}/config").data or b"").startswith(NO_RESPONSE)
    message = "PCI shows a drive, but it has no controller: the driver gave up on it"
    if gone:
        message = "the drive does not respond on PCI"
    driver = machine.target(f"{device_directory(bdf)}/driver")
    return failed(
        bdf,
        message,
        Evidence(
            f"{device_directory(bdf)}/driver", driver or "no driver", "nvme, with a controller"
        ),
        fix=filled(NO_CONTROLLER, bdf=bdf),
    )
