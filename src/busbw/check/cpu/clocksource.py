"""The kernel's clock source."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, unread
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

BASE = "/sys/devices/system/clocksource/clocksource0"
PATH, AVAILABLE = f"{BASE}/current_clocksource", f"{BASE}/available_clocksource"
SLOW = ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit")  # read from a device, or no finer than a tick

ROW = CheckRow(
    id="BW146",
    name="cpu-clocksource",
    layer=Layer.CPU,
    title="clock source",
    right="tsc, or its equivalent on the architecture or hypervisor",
    why="Reading hpet or acpi_pm takes a system call and a device access: about a microsecond or more for each reading.",
    fix=f"echo tsc > {PATH}",
    stays="lost at the next reboot; if the kernel rejected tsc, dmesg says why (often the BIOS or another CPU's clock)",
    reads=(PATH, AVAILABLE),
    sources=("Linux, Documentation/timers/timekeeping.rst",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The current one."""
    reading = machine.read(PATH)
    if not reading.text:
        yield unread("", reading, "the clock source")
        return
    available = (machine.text(AVAILABLE) or "").split()
    others = [name for name in available if name not in SLOW]
    text = f"the clock source is {reading.text}"
    yield judged(
        right=reading.text not in SLOW,
        subject="",
        good=text,
        bad=text,
        evidence=(Evidence(PATH, reading.text, others[0] if others else "tsc"),),
        fix=filled(f"echo {{name}} > {PATH}", name=others[0])
        if others
        else "to see why the kernel rejected tsc: dmesg | grep -i -e tsc -e clocksource",
    )


CHECK = Check(ROW, look)
