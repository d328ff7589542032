"""Errors of the memory modules."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, not_offered, passed, skipped, unread, warned
from busbw.check.machine import Machine
from busbw.check.rates import DAY_S, HOUR_S, NOT_KNOWN, interval_s, risen, too_fast
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.core.units import span
from busbw.host.interfaces import number

BASE = "/sys/devices/system/edac/mc"
A_DAY = 10  # mcelog reports a module above this many correctable errors a day

ROW = CheckRow(
    id="BW154",
    name="mem-errors",
    layer=Layer.CPU,
    title="memory errors of the host since boot",
    right=f"none uncorrectable, and at most {A_DAY} correctable a day between two readings (--watch-for, --since); with one reading, "
    f"at most {A_DAY} in all",
    why="An uncorrectable error kills the process that reads the data, or the host. Many correctable errors announce one.",
    fix="grep . {base}/dimm*/dimm_*_count shows the module; drain the host, power it off and replace it",
    stays="depends on the hardware; the counts restart at a reboot",
    reads=(f"{BASE}/mc*/ue_count", f"{BASE}/mc*/ce_count"),
    sources=("Linux, Documentation/admin-guide/RAS/main.rst: EDAC", "mcelog.conf(5): ce-error-threshold"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each memory controller that the kernel's EDAC drivers know."""
    controllers = [name for name in machine.names(BASE) if name[:2] == "mc" and name[2:].isdecimal()]
    if not controllers:
        none = f"{BASE} has no memory controller: no EDAC driver is loaded"
        yield skipped("a virtual machine does not see memory errors of its host") if machine.hypervisor else not_offered("", none)
    for name in controllers:
        readings = [machine.read(f"{BASE}/{name}/{kind}_count") for kind in ("ue", "ce")]
        ue, ce = (number(reading.text) for reading in readings)
        if ue is None or ce is None:
            yield unread(name, readings[0] if ue is None else readings[1], "its count of errors")
        else:
            yield _judge(machine, name, ue, ce)


def _judge(machine: Machine, name: str, ue: int, ce: int) -> Found:
    path, seconds = f"{BASE}/{name}/ce_count", interval_s(machine)
    fix = filled(ROW.fix, base=f"{BASE}/{name}")
    uncorrectable = Evidence(f"{BASE}/{name}/ue_count", str(ue), "0")
    if ue:
        return failed(name, f"{counted(ue, 'uncorrectable error')} since boot", uncorrectable, fix=fix, weight=ue)
    text = f"{counted(ce, 'correctable error')} since boot"
    before = number(machine.earlier.text(path)) if machine.earlier else None
    if seconds and before is not None:
        rise = risen("ce_count", before, ce) or 0
        text, bad = f"{text}, {rise} of them in {span(seconds)}", too_fast(rise, seconds, A_DAY * HOUR_S / DAY_S)
    else:
        rise, bad = ce, ce > A_DAY
        text += f"; {NOT_KNOWN}" if bad else ""
    correctable = Evidence(path, str(ce), f"{A_DAY} or fewer a day")
    return warned(name, text, correctable, fix=fix, weight=rise) if bad else passed(name, text, uncorrectable, correctable)


CHECK = Check(ROW, look)
