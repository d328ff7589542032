"""CPUs that the scheduler does not use."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, unread
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

PATH = "/sys/devices/system/cpu/isolated"

ROW = CheckRow(
    id="BW149",
    name="cpu-isolated",
    layer=Layer.CPU,
    title="isolated CPUs",
    right="none",
    why="The scheduler does not spread threads over isolated CPUs. All threads of a rank that is bound to them can end up on one CPU.",
    fix="remove isolcpus= from GRUB_CMDLINE_LINUX in /etc/default/grub, run update-grub (on RHEL: grubby --update-kernel=ALL "
    "--remove-args=isolcpus); then drain the host and reboot it",
    stays="permanent once the boot loader has it",
    reads=(PATH, "/proc/cmdline"),
    sources=("Linux, Documentation/admin-guide/kernel-parameters.txt: isolcpus=",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The kernel's list."""
    reading = machine.read(PATH)
    if reading.text is None:
        yield unread("", reading, "the list of isolated CPUs")
        return
    asked = next((word for word in machine.cmdline if word.startswith("isolcpus=")), "no isolcpus=")
    yield judged(
        right=not reading.text,
        subject="",
        good="no CPU is isolated",
        bad=f"CPUs {reading.text} are isolated",
        evidence=(Evidence(PATH, reading.text or "none", "none"), Evidence("/proc/cmdline", asked)),
        fix=ROW.fix,
    )


CHECK = Check(ROW, look)
