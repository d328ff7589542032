"""The version of the fabric manager, which must match the driver."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, skipped, unanswered
from busbw.check.gpu.each import confined
from busbw.check.machine import Machine
from busbw.check.nvlink.linked import switched
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.nvidia_services import fabric_manager, version
from busbw.host.nvml_health import read_health

ROW = CheckRow(
    id="BW034",
    name="nvlink-fabric-manager-version",
    layer=Layer.NVLINK,
    title="version of the fabric manager",
    right="the same as the driver",
    why="A fabric manager whose version differs from the driver does not start. After the next reboot CUDA fails with error 802.",
    fix="drain the host, as a restart ends all jobs on its GPUs; install nvidia-fabricmanager {driver} instead of {has}; then: "
    "systemctl restart nvidia-fabricmanager",
    stays="yes, if driver and fabric manager are updated together: hold both packages",
    reads=("nv-fabricmanager --version", "nvmlSystemGetDriverVersion"),
    sources=("Fabric Manager user guide, installation",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The installed fabric manager; in a virtual machine it may run outside."""
    gpus, missing = switched(machine)
    if missing:
        yield missing
        return
    driver, reading = read_health(machine).driver, machine.call("fabricmanager_version", fabric_manager)
    has = version(reading.text or "")
    if not has and any(gpu.fabric and gpu.fabric.cluster for gpu in gpus):
        yield skipped("no fabric manager here: an NVLink domain of several hosts may be managed elsewhere")
    elif not has and (machine.hypervisor or confined(machine)):
        yield skipped(f"no fabric manager in {confined(machine) or 'this virtual machine'}: it may run outside")
    elif not has or not driver:
        what = "the driver" if has else "the fabric manager"
        yield unanswered(
            "", f"the version of {what} cannot be read: {reading.reason or 'not reported'}", reading.reason or "it has no version"
        )
    else:
        yield judged(
            right=has == driver,
            subject="",
            good=f"fabric manager and driver are {has}",
            bad=f"fabric manager {has}, but driver {driver}",
            evidence=(Evidence("nv-fabricmanager --version", has, driver),),
            fix=filled(ROW.fix, driver=driver, has=has),
            fails=True,
        )


CHECK = Check(ROW, look)
